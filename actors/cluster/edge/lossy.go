package edge

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// Of a network that loses a fifth of all packets, TCP makes a hundredth: it takes each loss for a queue that is full,
// and waits longer each time. So an edge that loses much goes by KCP over UDP instead, and comes back when nothing gets
// lost any more. TLS does not notice: what changes its way are the bytes of its records, in order, each once.

const (
	lossyFrom  = 0.03 // of the segments that an edge sends, again: from here on UDP is tried,
	lossyLeast = 3    // segments at least;
	lossyCount = 200  // segments count, with those of now
	lossless   = 2    // of 255 packets at most, for lossKept: TCP takes over again
	lossKept   = 20 * time.Second
	lookEvery  = 500 * time.Millisecond
	udpAnswers = time.Second     // is how long a peer is asked whether packets reach it and come back
	udpSilent  = 3 * time.Second // without a packet an edge goes back: both ends send one every lookEvery
	udpAgain   = time.Minute     // after a peer that did not answer
	udpWindow  = 1024            // segments that are on their way at a time
	udpSegment = 1180            // bytes: with ours and IP's, packets of networks in networks
	tellEvery  = 256 << 10       // bytes that are taken, beside each lookEvery
)

// carrier is what carries the records of an edge's TLS: TCP, and for a while a path over UDP. Where it changes, a mark
// lies between two records on TCP. A sender that goes back writes again what it does not know to be taken.
type carrier struct {
	net.Conn // of TCP
	dialed   bool
	name     uint64      // of the edge, by which its packets are known
	out, in  cipher.AEAD // of what is sent and heard
	sock     *socket     // of the listener, nil for one who dials
	say      atomic.Pointer[func(string)]
	count    atomic.Uint64 // packets that were sent: their nonce
	path     atomic.Pointer[path]
	closed   atomic.Bool

	mu   sync.Mutex
	sent atomic.Int64 // bytes that were written so far
	by   *path        // that they go over, nil for TCP
	kept []byte       // the last of them, not known to be taken
	was  machine.Traffic
	next time.Time // to look at what gets lost

	got  atomic.Int64 // bytes that were read so far
	tcp  io.Reader    // what comes by TCP
	rest chan mark    // that ends the path they come over, nil while they come by TCP
	from *path        // that one, nil if it has ended before
	head []byte       // of the record that is being read,
	left int          // and bytes that are left behind it
}

// mark is where records change their way: to a path by its number, or back (0), or back and to the end (closing), from
// a place in the stream on.
type mark struct {
	conv uint32
	at   int64
	err  error
}

const (
	markByte   = 0xff // no record of TLS begins so
	markSize   = 1 + 4 + 8
	recordHead = 5
	closing    = 1<<32 - 1
)

func (m mark) bytes() []byte {
	b := binary.LittleEndian.AppendUint32([]byte{markByte}, m.conv)
	return binary.LittleEndian.AppendUint64(b, uint64(m.at))
}

// keys derives the edge's name and keys from those of TLS, so that strangers' packets are known at once.
func (c *carrier) keys(s tls.ConnectionState, dialed bool) error {
	b, err := s.ExportKeyingMaterial("EXPORTER-lfactor-edge-udp", nil, 8+2*16)
	if err != nil {
		return err
	}
	key := func(from int) cipher.AEAD {
		block, _ := aes.NewCipher(b[from : from+16]) // of this length no key is wrong,
		gcm, _ := cipher.NewGCM(block)               // and no cipher
		return gcm
	}
	c.name, c.out, c.in, c.dialed = binary.LittleEndian.Uint64(b), key(8), key(24), dialed
	if !dialed {
		c.out, c.in = c.in, c.out
	}
	return nil
}

// Write implements net.Conn, for whole records.
func (c *carrier) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.look()
	if p := c.path.Load(); c.by == nil && p != nil && p.ready.Load() && p.over.Err() == nil {
		if _, err := c.Conn.Write(mark{conv: p.conv}.bytes()); err != nil {
			return 0, err
		}
		p.taken.Store(c.sent.Load())
		c.by = p
	}
	if c.by == nil {
		n, err := c.Conn.Write(b)
		c.sent.Add(int64(n))
		return n, err
	}
	c.kept = append(c.untaken(), b...)
	c.sent.Add(int64(len(b)))
	c.by.short.Store(len(b) <= shortMessage)
	if _, err := c.by.sess.Write(b); err != nil {
		return len(b), c.back(0)
	}
	return len(b), nil
}

// untaken is what the other end is not known to have taken.
func (c *carrier) untaken() []byte {
	taken := c.by.taken.Load() - (c.sent.Load() - int64(len(c.kept)))
	return c.kept[min(max(taken, 0), int64(len(c.kept))):]
}

// back has TCP carry what follows, and first what may not have come.
func (c *carrier) back(conv uint32) error {
	kept := c.untaken()
	c.by, c.kept = nil, nil
	_, err := c.Conn.Write(append(mark{conv: conv, at: c.sent.Load() - int64(len(kept))}.bytes(), kept...))
	if err != nil {
		c.Conn.Close() // nobody knows how much of it came
	}
	return err
}

// home ends a path, nil for none, which may have ended before.
func (c *carrier) home(p *path, conv uint32) error {
	p.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if p == nil || c.by != p {
		return nil
	}
	return c.back(conv)
}

// Close implements net.Conn.
func (c *carrier) Close() error {
	c.closed.Store(true)
	c.sock.forget(c)
	err := c.Conn.Close()
	c.path.Load().close()
	return err
}

// SetWriteDeadline implements net.Conn. What is read by UDP ends with TCP, whose deadline it has.
func (c *carrier) SetWriteDeadline(t time.Time) error {
	if p := c.path.Load(); p != nil {
		_ = p.sess.SetWriteDeadline(t) // it has no other error than that it has ended
	}
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *carrier) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Read implements net.Conn.
func (c *carrier) Read(b []byte) (n int, err error) {
	for {
		if c.rest == nil {
			n, err = c.tcp.Read(b)
		} else if n, err = c.from.read(b); n == 0 {
			if err = c.resume(); err != nil {
				return 0, err
			}
			continue
		}
		if k := c.scan(b[:n]); k < n { // only TCP has marks
			c.tcp = io.MultiReader(bytes.NewReader(bytes.Clone(b[k:n])), c.tcp)
			if n, err = k, nil; k == 0 {
				if err = c.turn(); err != nil {
					return 0, err
				}
				continue
			}
		}
		c.got.Add(int64(n))
		if p := c.from; p != nil && c.got.Load()-p.told.Load() >= tellEvery {
			p.tell()
		}
		return n, err
	}
}

// scan follows the records of TLS, and returns how many bytes come before a mark.
func (c *carrier) scan(b []byte) int {
	for i := 0; i < len(b); {
		k := min(c.left, len(b)-i)
		if c.left, i = c.left-k, i+k; i == len(b) {
			break
		}
		if len(c.head) == 0 && b[i] == markByte {
			return i
		}
		c.head, i = append(c.head, b[i]), i+1
		if len(c.head) == recordHead {
			c.head, c.left = c.head[:0], int(binary.BigEndian.Uint16(c.head[3:]))
		}
	}
	return len(b)
}

// marked reads a mark.
func (c *carrier) marked() (m mark) {
	var b [markSize]byte
	if _, m.err = io.ReadFull(c.tcp, b[:]); m.err == nil && b[0] != markByte {
		m.err = errors.New("an edge goes on by TCP without saying from where")
	}
	m.conv, m.at = binary.LittleEndian.Uint32(b[1:]), int64(binary.LittleEndian.Uint64(b[5:]))
	return m
}

// turn goes on with the path that a mark names, if it has not ended. TCP is silent from there on, until the sender goes
// back to it.
func (c *carrier) turn() error {
	m := c.marked()
	if m.err != nil {
		return m.err
	}
	p, rest := c.path.Load(), make(chan mark, 1)
	if p != nil && p.conv != m.conv {
		p = nil
	}
	if c.from, c.rest = p, rest; p != nil {
		p.ready.Store(true)
	}
	go func() {
		m := c.marked()
		rest <- m
		if p.close(); m.err == nil && m.conv != closing {
			_ = c.home(p, 0) // its error is that of what is written next
		}
	}()
	return nil
}

// resume goes on with TCP behind a path that has ended.
func (c *carrier) resume() error {
	m := <-c.rest
	again := c.got.Load() - m.at
	if m.err == nil && again < 0 {
		m.err = fmt.Errorf("an edge goes on by TCP %d bytes behind what came by UDP", -again)
	}
	if m.err == nil {
		_, m.err = io.CopyN(io.Discard, c.tcp, again)
	}
	c.from, c.rest = nil, nil
	return m.err
}

// ways is what is known of the network to other hosts, by their addresses: all edges of a process share it.
var ways sync.Map

// way is the segments that edges have sent to a host, how many of them again, and until when UDP is left alone.
type way struct {
	sync.Mutex
	sent, again int64
	until       time.Time
}

// leave counts anew what gets lost, and leaves UDP alone for a while.
func (c *carrier) leave(d time.Duration) {
	w := c.way()
	w.Lock()
	defer w.Unlock()
	w.sent, w.again, w.until = 0, 0, time.Now().Add(d)
}

func (c *carrier) way() *way {
	w, _ := ways.LoadOrStore(address(c.Conn), new(way))
	return w.(*way)
}

// look sees once in a while how much gets lost, and tries UDP where it is much. What was sent twice by mistake is none.
func (c *carrier) look() {
	now := time.Now()
	if p := c.path.Load(); !c.dialed || p != nil && p.over.Err() == nil || now.Before(c.next) {
		return
	}
	c.next = now.Add(lookEvery)
	t, ok := machine.Carried(c.Conn)
	if !ok {
		return
	}
	sent, again := t.Sent-c.was.Sent, t.Again-t.Twice-c.was.Again+c.was.Twice
	c.was = t
	w := c.way()
	w.Lock()
	if w.sent, w.again = w.sent+sent, w.again+again; w.sent > lossyCount {
		w.sent, w.again = lossyCount, w.again*lossyCount/w.sent
	}
	share := float64(w.again) / float64(max(1, w.sent))
	lossy := w.again >= lossyLeast && share >= lossyFrom && now.After(w.until)
	w.Unlock()
	if lossy {
		c.open(100 * share) // what TCP took meanwhile would hold up all that follows
	}
}

// open asks the other end whether packets go both ways, and goes by UDP if they do.
func (c *carrier) open(lost float64) {
	says, conv := "", uint32(1)
	if old := c.path.Load(); old != nil {
		conv = old.conv + 1
	}
	here, there := c.LocalAddr().(*net.TCPAddr), c.RemoteAddr().(*net.TCPAddr)
	defer func() {
		if say := c.say.Load(); say != nil && !c.closed.Load() {
			(*say)(fmt.Sprintf("%.0f %% of what is sent to %s gets lost: %s", lost, there, says))
		}
	}()
	sock, err := listenUDP(here.IP, 0, here.Zone)
	if err != nil {
		says = fmt.Sprint("it stays on TCP: ", err)
		return
	}
	p := newPath(c, sock, conv, there.AddrPort())
	sock.edges.Store(c.name, c)
	c.path.Store(p)
	for range 20 {
		p.tell()
		select {
		case <-p.answered:
			says = "it goes by UDP, to the same port, until that ends"
			p.ready.Store(true)
			return
		case <-time.After(udpAnswers / 20):
		}
	}
	p.close()
	c.leave(udpAgain)
	says = fmt.Sprintf("it stays on TCP, since that port does not answer by UDP within %v; a firewall may drop it", udpAnswers)
}
