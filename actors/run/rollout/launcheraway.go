package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
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

// hello is the first that comes over an edge: the number of the process, and the instructions that it computes with.
func hello(number int64) actors.Message {
	return actors.Message{Kind: pool.Beat, Step: number, Text: cpu.Level()}
}

// unlike refuses one that computes with other instructions than this process: its sums have other orders, and
// which worker process does what follows from time.
func unlike(its, level string) error {
	if its == level {
		return nil
	}
	return fmt.Errorf("computes with %s, and the process that trains with %s, which gives other bits: set "+
		"LFACTOR_CPU to what all hosts have (lfactor doctor)", its, level)
}

// came is the edge of a process, and the level of its instructions.
type came struct {
	*line
	level string
}

// accept takes edges until they are closed. Who does not say at once who it is, or is not waited for, is sent away.
func (s *launcher) accept() {
	for {
		c, err := s.edges.Accept()
		if err != nil {
			return
		}
		go func() {
			l := newLine(c)
			_ = c.SetReadDeadline(time.Now().Add(goesWithin)) // a connection that takes none is read as it is
			who, err := l.hear()
			_ = c.SetReadDeadline(time.Time{}) // the same
			if w, waits := s.waits.LoadAndDelete(who.Step); err == nil && waits {
				w.(chan came) <- came{l, who.Text} // there is room for one
				return
			}
			_ = c.Close() // it is of no use
		}()
	}
}

// begin begins a process of the fleet, and waits for its edge.
func (s *launcher) begin(place int, env ...string) (*workerProcess, error) {
	number, comes := s.next.Add(1), make(chan came, 1)
	s.waits.Store(number, comes)
	defer s.waits.Delete(number)
	x, err := s.of.Fleet.Begin(place, append([]string{fmt.Sprintf("%s=%d", envSampler, number)}, env...))
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
		if err = unlike(c.level, cpu.Level()); err != nil {
			err = errors.Join(fmt.Errorf("%s %w", x.Name(), err), c.Close())
			break
		}
		context.AfterFunc(gone, func() { _ = c.Close() }) // a host that is lost closes nothing
		return &workerProcess{name: x.Name(), line: c.line, kill: x.Kill,
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
