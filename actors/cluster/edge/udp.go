package edge

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/xtaci/kcp-go/v5"
)

// socket is one of UDP and the edges whose packets it takes, by name; all others are dropped by a look at a map. It ends
// with the last of its listener and the edges that this has accepted. A listener without a port has none.
type socket struct {
	*net.UDPConn
	edges sync.Map
	users atomic.Int64
}

// listenUDP takes a port, and its packets until it is closed.
func listenUDP(ip net.IP, port int, zone string) (*socket, error) {
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: ip, Port: port, Zone: zone})
	if err != nil {
		return nil, err
	}
	_, _ = u.SetReadBuffer(4<<20), u.SetWriteBuffer(4<<20) // as much of it as the system permits
	s := &socket{UDPConn: u}
	s.users.Store(1)
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := s.ReadFromUDPAddrPort(b)
			if err != nil { // it was closed
				return
			}
			if c, ok := s.edges.Load(binary.LittleEndian.Uint64(b)); ok && n >= packetHead+packetTag {
				c.(*carrier).hear(b[:n], from, s)
			}
		}
	}()
	return s, nil
}

func (s *socket) know(c *carrier) {
	if s != nil {
		s.users.Add(1)
		s.edges.Store(c.name, c)
	}
}

// forget drops an edge, or with nil the listener.
func (s *socket) forget(c *carrier) {
	if s == nil {
		return
	}
	if c != nil {
		if _, known := s.edges.LoadAndDelete(c.name); !known {
			return
		}
	}
	if s.users.Add(-1) == 0 {
		s.Close()
	}
}

// A packet: the edge's name, its own number, the path's number, how much of 255 the sender lacks of what was sent to
// it, and how many bytes of the stream it has taken; then a packet of KCP or nothing, and a tag over all of it. What
// TLS has encrypted is not encrypted again.
const (
	packetHead = 8 + 8 + 4 + 1 + 8
	packetTag  = 16
	lossWindow = 100 // packets that the share of lost ones is counted by

	shortPacket  = 300       // bytes, most acknowledgements are
	shortMessage = below - 1 // what is longer comes in pieces of that, and its end is short again
	manyLost     = 25        // of 255 packets: from here on, three copies instead of two
	lostFirst    = 255 / 5   // is what a path takes for lost until it has counted
)

// path is a way over UDP: what KCP takes for its network.
type path struct {
	net.PacketConn // for what KCP asks beside; not *net.UDPConn, by which it would pass WriteTo over
	c              *carrier
	conv           uint32
	sock           *socket
	to             atomic.Pointer[netip.AddrPort]
	peer           net.Addr // as KCP knows it
	sess           *kcp.UDPSession
	receive        atomic.Pointer[func([]byte, net.Addr, error)]

	answered    chan struct{}
	ready       atomic.Bool   // it may be written to
	short       atomic.Bool   // what is written is
	taken, told atomic.Int64  // bytes: what the other end has of ours, and knows to be here of its own
	heard       atomic.Int64  // when, in Unix nanoseconds
	lossy       atomic.Int64  // when one end last lacked packets
	lacks       atomic.Uint32 // of 255 packets of the other end, here,
	lacked      atomic.Uint32 // and there of ours
	first, last uint64        // packets of the other end, since lacks was counted
	seen        uint64
	over        context.Context
	cancel      func()

	mu   sync.Mutex
	buf  []byte
	send func([]byte)
}

func newPath(c *carrier, sock *socket, conv uint32, to netip.AddrPort) *path {
	p := &path{PacketConn: sock.UDPConn, c: c, conv: conv, sock: sock, peer: net.UDPAddrFromAddrPort(to),
		answered: make(chan struct{})}
	p.over, p.cancel = context.WithCancel(context.Background())
	p.to.Store(&to)
	p.send = func(b []byte) { _, _ = sock.WriteToUDPAddrPort(b, *p.to.Load()) } // what cannot be sent counts as lost
	p.lossy.Store(time.Now().UnixNano())
	p.lacks.Store(lostFirst)
	p.lacked.Store(lostFirst)
	p.sess, _ = kcp.NewConn3(conv, p.peer, nil, 0, 0, p) // it has no error
	p.sess.SetNoDelay(1, 10, 2, 1)
	p.sess.SetWindowSize(udpWindow, udpWindow)
	p.sess.SetACKNoDelay(false) // they go together, and cost a third
	p.sess.SetMtu(udpSegment)
	go p.watch()
	return p
}

// SetPacketReceiver implements kcp.PacketPusher.
func (p *path) SetPacketReceiver(f func([]byte, net.Addr, error)) {
	if f == nil {
		p.receive.Store(nil)
		return
	}
	p.receive.Store(&f)
}

// WriteTo implements net.PacketConn. What is short goes several times, and all of a short message: the other end waits
// for it, and when it is lost, for much longer than its copies take.
func (p *path) WriteTo(b []byte, _ net.Addr) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	copies := 1
	if lacked := p.lacked.Load(); lacked > lossless && (len(b) <= shortPacket || p.short.Load()) {
		copies = 2 + int(min(1, lacked/manyLost))
	}
	for range copies {
		got := p.c.got.Load()
		p.told.Store(got)
		h := binary.LittleEndian.AppendUint64(p.buf[:0], p.c.name)
		h = binary.LittleEndian.AppendUint64(h, p.c.count.Add(1))
		h = binary.LittleEndian.AppendUint32(h, p.conv)
		h = binary.LittleEndian.AppendUint64(append(h, byte(p.lacks.Load())), uint64(got))
		h = append(h, b...)
		p.buf = p.c.out.Seal(h, nonce(h), nil, h)
		p.send(p.buf)
	}
	return len(b), nil
}

// nonce of a packet: its number, and that of its path.
func nonce(b []byte) []byte { return b[8:20] }

// tell sends a packet that has nothing but its head.
func (p *path) tell() { _, _ = p.WriteTo(nil, nil) }

// hear takes a packet. A path that the other end opens begins with one.
func (c *carrier) hear(b []byte, from netip.AddrPort, sock *socket) {
	body, tag := b[:len(b)-packetTag], b[len(b)-packetTag:]
	if _, err := c.in.Open(nil, nonce(body), tag, body); err != nil {
		return
	}
	conv, p := binary.LittleEndian.Uint32(body[16:]), c.path.Load()
	opens := !c.dialed && (p == nil || conv > p.conv)
	if opens {
		if p != nil {
			p.close()
		}
		p = newPath(c, sock, conv, from)
		c.path.Store(p)
	}
	if p == nil || p.conv != conv {
		return
	}
	now := time.Now().UnixNano()
	if p.heard.Swap(now) == 0 {
		close(p.answered)
	}
	number := binary.LittleEndian.Uint64(body[8:])
	newest := number > p.last // nobody's who has only recorded it
	if newest && from != *p.to.Load() {
		p.to.Store(&from)
	}
	p.lose(number, body[20], now)
	p.taken.Store(max(p.taken.Load(), int64(binary.LittleEndian.Uint64(body[21:]))))
	if body = body[packetHead:]; len(body) == 0 {
		if newest && !p.ready.Load() && !c.dialed {
			p.tell() // the answer that the other end waits for
		}
		return
	}
	if f := p.receive.Load(); f != nil {
		(*f)(body, p.peer, nil)
	}
}

// lose counts what does not come, by the packets' numbers, and hears of what the other end lacks.
func (p *path) lose(number uint64, lacks byte, now int64) {
	if p.first == 0 {
		p.first = number
	}
	p.last, p.seen = max(p.last, number), p.seen+1
	if all := p.last - p.first; number >= p.first && all >= lossWindow {
		p.lacks.Store(uint32(255 * (1 - min(1, float64(p.seen)/float64(all+1)))))
		p.first, p.seen = 0, 0
	}
	p.lacked.Store(uint32(lacks))
	if max(p.lacks.Load(), uint32(lacks)) > lossless {
		p.lossy.Store(now)
	}
}

// watch ends a path that has become silent, or that nothing gets lost on any more.
func (p *path) watch() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.over.Done():
			return
		case <-tick.C:
		}
		if p.heard.Load() == 0 {
			continue
		}
		p.tell()
		now := time.Now()
		silent := now.Sub(time.Unix(0, p.heard.Load())) > udpSilent
		if gone := now.Sub(time.Unix(0, p.lossy.Load())) > lossKept; silent || p.c.dialed && gone {
			p.c.leave(lossKept) // what it is like now shows by then
			_ = p.c.home(p, 0)  // its error is that of what is written next
		}
	}
}

// read takes what came, and nothing once the path has ended.
func (p *path) read(b []byte) (int, error) {
	if p == nil {
		return 0, net.ErrClosed
	}
	n, err := p.sess.Read(b)
	if err != nil {
		p.close()
	}
	return n, err
}

// close ends the path, nil for none, if it has not ended; what was under way on it is written again.
func (p *path) close() {
	if p == nil {
		return
	}
	p.cancel()
	_ = p.sess.Close() // it has no other error than that it was
	if p.c.dialed {
		p.sock.Close()
	}
}
