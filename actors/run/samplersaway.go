package run

import (
	"bufio"
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/configs/exit"
)

// Samplers of a run on a cluster are its processes behind the one that trains: the head places them, and
// another host takes one over whose host is lost. Each opens an edge to the process that trains, over which
// it is told of weights and tasks and says what it has drawn.

const (
	comesWithin = 90 * time.Second // from the start of a process to its edge
	goesWithin  = 10 * time.Second // from the order to end it to the word that it has
)

// away are samplers in processes of a fleet.
type away struct {
	fleet Fleet
	edges links.Transport
	mu    sync.Mutex
	waits map[int]chan *coming // by the number of the sampler
}

// coming is the edge of a sampler that has said who it is.
type coming struct {
	conn net.Conn
	said *gob.Decoder
}

// newAway takes edges of samplers.
func newAway(f Fleet) (*away, error) {
	edges, err := f.Transport(0)
	if err != nil {
		return nil, err
	}
	a := &away{fleet: f, edges: edges, waits: map[int]chan *coming{}}
	go a.accept()
	return a, nil
}

// close takes no more edges.
func (a *away) close() { _ = a.edges.Close() } // nobody is to come

// accept takes edges until close. Who does not say at once who it is, or is not waited for, is sent away.
func (a *away) accept() {
	for {
		c, err := a.edges.Accept()
		if err != nil {
			return
		}
		go func() {
			x := &coming{c, gob.NewDecoder(bufio.NewReader(c))}
			var hello reply
			_ = c.SetReadDeadline(time.Now().Add(goesWithin)) // a connection that takes none is read as it is
			err := x.said.Decode(&hello)
			_ = c.SetReadDeadline(time.Time{}) // the same
			a.mu.Lock()
			defer a.mu.Unlock()
			if w := a.waits[hello.From]; err == nil && w != nil {
				delete(a.waits, hello.From)
				w <- x // there is room for one
				return
			}
			_ = c.Close() // it is of no use
		}()
	}
}

// expect waits for a sampler's edge.
func (a *away) expect(number int) <-chan *coming {
	w := make(chan *coming, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waits[number] = w
	return w
}

// forget waits for a sampler's edge no longer.
func (a *away) forget(number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waits, number)
}

// there begins a process of the fleet, and waits for its edge.
func (p *process) there() (*life, error) {
	a, over := p.crew.away, p.crew.r.ctx
	comes := a.expect(p.number)
	defer a.forget(p.number)
	x, err := a.fleet.Start(p.place, []string{fmt.Sprintf("%s=%d", envProc, p.place),
		fmt.Sprintf("%s=%d", envSampler, p.number)})
	if err != nil {
		return nil, err
	}
	how := make(chan string, 1)
	gone, left := context.WithCancel(context.Background())
	go func() {
		text := "ended before the run did"
		if err := x.Wait(); err != nil {
			text = err.Error()
		}
		how <- text
		left()
	}()
	late := time.NewTimer(comesWithin)
	defer late.Stop()
	select {
	case c := <-comes:
		context.AfterFunc(gone, func() { _ = c.conn.Close() }) // a host that is lost closes nothing
		return &life{name: x.Name(), in: flushing{c.conn}, out: c.said, kill: x.Kill,
			close: func() { _ = c.conn.Close() }, // it was read
			ended: func() string {
				select {
				case text := <-how:
					return text
				case <-time.After(goesWithin):
					return "does not end, and is left behind"
				}
			}}, nil
	case text := <-how:
		return nil, fmt.Errorf("%s %s", x.Name(), text)
	case <-late.C:
		err = fmt.Errorf("%s says nothing for %v", x.Name(), comesWithin)
	case <-over.Done():
		err = errLeft
	}
	x.Kill()
	return nil, err
}

// flushing sends each message as it is written.
type flushing struct{ net.Conn }

// Write implements io.Writer.
func (f flushing) Write(b []byte) (int, error) {
	n, err := f.Conn.Write(b)
	if c, ok := f.Conn.(links.Flusher); ok && err == nil {
		err = c.Flush()
	}
	return n, err
}

// sampler draws answers for a run that another process leads: of this host, over pipes, or of a cluster,
// over an edge.
func (r *Run) sampler() error {
	if r.io.Fleet == nil {
		return r.samplerProcess(nil, os.Stdin, os.NewFile(samplerReply, "replies"))
	}
	number, err := strconv.Atoi(os.Getenv(envSampler))
	if err != nil {
		return fmt.Errorf("%s: %w", envSampler, err)
	}
	edges, err := r.io.Fleet.Transport(workerProc())
	if err != nil {
		return err
	}
	defer edges.Close() //nolint:errcheck // nobody comes
	c, err := edges.Dial(0)
	if err != nil {
		return exit.With(fmt.Errorf("the process that trains: %w", err), exit.Unreachable)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends where it is asked to end, or its agent is gone
		_ = c.Close()                        // which ends what it is told
		<-time.After(goesWithin)
		os.Exit(exit.Failed) // one that is stuck must not stay
	}()
	defer c.Close() //nolint:errcheck // whoever listened may be gone
	return r.samplerProcess(&reply{From: number}, c, flushing{c})
}
