package agent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/depot"
	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// probes is the run that measurements between agents belong to: no job has this name's hash.
var probes = [16]byte{'l', 'f', 'a', 'c', 't', 'o', 'r', ' ', 'p', 'r', 'o', 'b', 'e'}

// What is asked of the other end of a probe.
const (
	echo = 'e' // a byte back
	sink = 's' // then eight bytes of a length, and so many: a byte back behind them
)

const (
	probeEchoes = 15
	probeBytes  = 8 << 20
	probeLimit  = 5 * time.Second
)

// reach is where others reach this host: its address, and a listener there for probes and for those who use its storage.
type reach struct {
	addr  string
	ln    *edge.Listener
	depot *depot.Server
}

func (p *reach) close() {
	p.ln.Close()
	p.depot.Close()
}

// readdress takes up another address of this host, from which it reaches the head, where the one it had is its own no more.
func (a *Agent) readdress(to string) {
	was := a.at.Load()
	ln, err := net.Listen("tcp", net.JoinHostPort(was.addr, "0"))
	if err == nil {
		ln.Close()
	}
	if addr, _, _ := net.SplitHostPort(to); errors.Is(err, syscall.EADDRNOTAVAIL) { // a connection has a good one
		if err = a.listen(addr); err == nil {
			was.close()
		}
		a.logf("%s is no address of this host any more; others are to reach it at %s (%v)", was.addr, addr, err)
	}
}

// listen answers the probes of other agents, and serves this host's storage, at a port of its own of an address.
func (a *Agent) listen(addr string) error {
	var err error
	at := &reach{addr: addr}
	for port := a.o.Ports[0]; port <= a.o.Ports[1]; port++ {
		at.ln, err = edge.Listen(net.JoinHostPort(addr, strconv.Itoa(port)), a.id, edge.Options{
			Admit: func(g edge.Greeting, _ trust.Subject) error {
				if g.Run != probes && g.Run != depot.Run {
					return errors.New("an agent takes no edges of jobs")
				}
				return nil
			}, Log: func(text string) { a.logf("%s", text) }})
		if err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("no port of %s is free for this agent: %w", addr, err)
	}
	at.depot = depot.NewServer(checkpoint.Here{FS: checkpoint.OS}, at.ln.Addr(), a.keeps, func(dir string, do func()) {
		uid, gid := a.whose(dir)
		machine.As(uid, gid, do)
	})
	a.at.Store(at)
	go func() {
		for {
			c, err := at.ln.Accept()
			if err != nil {
				return
			}
			if e := c.(*edge.Conn); e.From.Run == depot.Run {
				at.depot.Take(e)
			} else {
				go answer(c)
			}
		}
	}()
	return nil
}

// answer serves one prober, for as long as a probe may take.
func answer(c net.Conn) {
	defer c.Close()
	if c.SetDeadline(time.Now().Add(2*probeLimit)) != nil {
		return
	}
	var b [8]byte
	for {
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return
		}
		if b[0] == sink {
			if _, err := io.ReadFull(c, b[:]); err != nil {
				return
			}
			n := min(binary.LittleEndian.Uint64(b[:]), probeBytes)
			if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
				return
			}
		}
		if !say(c, b[:1]) {
			return
		}
	}
}

// say writes and flushes.
func say(c net.Conn, b []byte) bool {
	_, err := c.Write(b)
	if e, ok := c.(*edge.Conn); ok && err == nil {
		err = e.Flush()
	}
	return err == nil
}

// probe measures the ways to other agents and tells the head.
func (a *Agent) probe(m control.Message) {
	var links []control.Link
	for _, p := range m.Peers {
		l := control.Link{From: a.name, To: p.Node}
		if err := a.measure(p, &l); err != nil {
			l.Fault = err.Error()
		}
		links = append(links, l)
	}
	a.step(decide.Found{M: control.Message{Kind: control.Probed, Links: links, Code: m.Code}})
}

// measure finds round trip and rate of a way.
func (a *Agent) measure(p control.Peer, l *control.Link) error {
	ctx, cancel := context.WithTimeout(context.Background(), probeLimit)
	defer cancel()
	c, err := edge.Dial(ctx, p.Addr, p.Node, a.id, edge.Greeting{Run: probes})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(probeLimit)); err != nil {
		return err
	}
	var b [1]byte
	back := func(ask []byte) (time.Duration, error) {
		began := time.Now()
		if !say(c, ask) {
			return 0, errors.New("the way ended while it was measured")
		}
		_, err := io.ReadFull(c, b[:])
		return time.Since(began), err
	}
	var trips []time.Duration
	for range probeEchoes {
		d, err := back([]byte{echo})
		if err != nil {
			return err
		}
		trips = append(trips, d)
	}
	slices.Sort(trips)
	l.RTT = trips[len(trips)/2]
	load := make([]byte, 9+probeBytes)
	load[0] = sink
	binary.LittleEndian.PutUint64(load[1:], probeBytes)
	d, err := back(load)
	if err != nil {
		return err
	}
	l.Rate = probeBytes / max(d-l.RTT, time.Microsecond).Seconds()
	return nil
}
