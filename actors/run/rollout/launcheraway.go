package rollout

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/kernels/cpu"
)

// The worker processes of a run on a cluster are its processes behind the one that trains: the head places them, and
// another host takes one over whose host is lost. Each opens an edge to the process that trains, over which
// it is told what to do and says what has come of it.

const (
	comesWithin = 90 * time.Second // from the start of a process to its edge
	goesWithin  = 10 * time.Second // from the order to end it to the word that it has
)

// Fleet is where the processes of a run live, on other hosts.
type Fleet interface {
	// Transport is what the process of a place reaches the others by.
	Transport(place int) (links.Transport, error)
	// Begin begins the process of a place, with more environment.
	Begin(place int, env []string) (Process, error)
}

// Process is one that a Fleet has begun.
type Process interface {
	Name() string // for people
	Wait() error  // waits until it has ended, and says how
	Kill()
}

// away are processes of a fleet.
type away struct {
	fleet Fleet
	edges links.Transport
	mu    sync.Mutex
	next  int                  // number of the next one that comes
	waits map[int]chan *coming // by these numbers
}

// hello is the first that comes over an edge.
type hello struct {
	From  int
	Level string // of instructions that it computes with
}

// unlike refuses one that computes with other instructions than this process: its sums have other orders, and
// which worker process does what follows from time.
func (h hello) unlike(level string) error {
	if h.Level == level {
		return nil
	}
	return fmt.Errorf("computes with %s, and the process that trains with %s, which gives other bits: set "+
		"LFACTOR_CPU to what all hosts have (lfactor doctor)", h.Level, level)
}

// coming is the edge of a process that has said who it is.
type coming struct {
	conn net.Conn
	said *gob.Decoder
	who  hello
}

// newAway takes edges.
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
			x := &coming{conn: c, said: gob.NewDecoder(bufio.NewReader(c))}
			who := &x.who
			_ = c.SetReadDeadline(time.Now().Add(goesWithin)) // a connection that takes none is read as it is
			err := x.said.Decode(who)
			_ = c.SetReadDeadline(time.Time{}) // the same
			a.mu.Lock()
			defer a.mu.Unlock()
			if w := a.waits[who.From]; err == nil && w != nil {
				delete(a.waits, who.From)
				w <- x // there is room for one
				return
			}
			_ = c.Close() // it is of no use
		}()
	}
}

// expect waits for the edge of another process, which says the number.
func (a *away) expect() (number int, comes <-chan *coming) {
	w := make(chan *coming, 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next++
	a.waits[a.next] = w
	return a.next, w
}

// forget waits for an edge no longer.
func (a *away) forget(number int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waits, number)
}

// there begins a process of the fleet, and waits for its edge.
func (s *launcher) there(place int, env []string) (*workerProcess, error) {
	a := s.away
	number, comes := a.expect()
	defer a.forget(number)
	x, err := a.fleet.Begin(place, append([]string{fmt.Sprintf("%s=%d", envSampler, number)}, env...))
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
		if err = c.who.unlike(cpu.Level()); err != nil {
			err = errors.Join(fmt.Errorf("%s %w", x.Name(), err), c.conn.Close())
			break
		}
		context.AfterFunc(gone, func() { _ = c.conn.Close() }) // a host that is lost closes nothing
		return &workerProcess{name: x.Name(), in: flushing{c.conn}, out: c.said, kill: x.Kill,
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
	case <-s.over.Done():
		err = ErrLeft
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
