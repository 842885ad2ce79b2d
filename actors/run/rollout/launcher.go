package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/cpu"
)

// Environment of processes that help the one that trains: envSampler marks each, with its number, and
// envJudge those that judge.
const (
	envSampler = "LFACTOR_SAMPLER"
	envJudge   = "LFACTOR_JUDGE"
)

// The worker processes of a run are those of its fleet behind the one that trains: on a cluster the head places them, and
// another host takes one over whose host is lost. Each opens an edge to the process that trains, over which
// it is told what to do and says what has come of it.

const (
	comesWithin = 90 * time.Second // from the start of a process to its edge
	goesWithin  = 10 * time.Second // from the order to end it to the word that it has
)

// Fleet is where the processes of a run live: it starts them and joins them. Process 0 leads;
// it has started the others.
type Fleet interface {
	// Transport is what the calling process, number proc of the run, reaches the others by.
	Transport(proc int) (links.Transport, error)
	// Start starts process proc: the same Train, with the same configuration and with env added to the
	// environment. A *run.NoRoomError says that it is not started any more.
	Start(proc int, env []string) (Process, error)
	// Close gives back what the fleet holds, when all processes have ended.
	Close()
}

// Process is a process that a Fleet has started. It has to end when the leader does.
type Process interface {
	Name() string // for people: "pid 4711"
	// Ready waits until the process has its actors, or has ended: it then returns io.EOF, and Wait tells more.
	Ready() error
	// Wait waits until the process has ended. The error says how, "was killed by signal 9 (killed)"; nil
	// says that it ended in order.
	Wait() error
	Leave() // asks it to end
	Kill()  // ends it
}

// launcher begins the worker processes that help the one that trains, in places of its fleet.
type launcher struct {
	of     *Of
	over   context.Context // ends with the run
	begins func(place int, env ...string) (*workerProcess, error)
	edges  links.Transport // that they come over
	next   atomic.Int64    // number of the one that comes last
	names  sync.Map        // of processes by their places
	waits  sync.Map        // of channels for their edges, by these numbers
}

// newLauncher readies it; its edges are to be closed.
func newLauncher(o *Of, over context.Context) (s *launcher, err error) {
	s = &launcher{of: o, over: over}
	s.begins = s.begin
	if s.edges, err = o.Fleet.Transport(0); err == nil {
		go s.accept()
	}
	return s, err
}

// workerProcess is one of them, as the process that trains has it.
type workerProcess struct {
	name string // for people: "pid 4711"
	*line
	kill  func()        // ends it
	ended func() string // waits until it has ended, and says how
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
				l.level = who.Text
				w.(chan *line) <- l // there is room for one
				return
			}
			_ = c.Close() // it is of no use
		}()
	}
}

// begin begins a process of the fleet, and waits for its edge.
func (s *launcher) begin(place int, env ...string) (*workerProcess, error) {
	number, comes := s.next.Add(1), make(chan *line, 1)
	s.waits.Store(number, comes)
	defer s.waits.Delete(number)
	x, err := s.of.Fleet.Start(place, append([]string{fmt.Sprintf("%s=%d", s.of.Place, place),
		fmt.Sprintf("%s=%d", envSampler, number)}, env...))
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
		return &workerProcess{name: x.Name(), line: c, kill: x.Kill,
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

// member is the life of a worker process as a member of a pool: what it is told it does, and what it says counts.
func (s *launcher) member(what string, env ...string) crew.Run {
	return func(ctx context.Context, place int, in <-chan actors.Message, say func(actors.Message)) (int32, error) {
		l, err := s.begins(place, env...)
		if err != nil {
			return 0, fmt.Errorf("a %s: %w", what, err)
		}
		s.of.Say("%s process: %s", strings.TrimSuffix(what, " process"), l.name)
		s.names.Store(place, l.name)
		end := func() { l.kill(); _ = l.Close() } // it was read
		stop := context.AfterFunc(ctx, end)
		defer stop()
		go l.tell(ctx, in)
		for x := (actors.Message{}); err == nil; {
			if x, err = l.hear(); err == nil && x.Kind == actors.Failed {
				end()
				l.ended()
				return 0, fmt.Errorf("%s %s: %w", what, l.name, x.Err)
			} else if err == nil {
				say(x)
			}
		}
		why := ""
		switch {
		case ctx.Err() != nil:
			why = fmt.Sprintf("%v (rollout.silence) and ", context.Cause(ctx))
		case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.As(err, new(*net.OpError)):
			why = fmt.Sprintf("said what is no reply (%v) and ", err)
		}
		end()
		return 0, fmt.Errorf("%s %s %s%s", what, l.name, why, l.ended())
	}
}

// Serve is a worker process, the one of a place: it draws or judges for a run that another process leads, until
// that is gone. A process is one where Serves says so. Programs that it begins do not have the names of environment.
func Serve(c *configs.Config, fleet Fleet, place int, names ...string) error {
	serve, name := samplerProcess, os.Getenv(envSampler)
	if os.Getenv(envJudge) != "" {
		serve = judgeProcess
	}
	ours(names...)
	number, err := strconv.Atoi(name)
	if err != nil {
		return fmt.Errorf("%s: %w", envSampler, err)
	}
	edges, err := fleet.Transport(place)
	if err != nil {
		return err
	}
	defer edges.Close() //nolint:errcheck // nobody comes
	edge, err := edges.Dial(0)
	if err != nil {
		return exit.With(fmt.Errorf("the process that trains: %w", err), exit.Unreachable)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends where it is asked to end, or its agent is gone
		_ = edge.Close()                     // which ends what it is told
		<-time.After(goesWithin)
		os.Exit(exit.Failed) // one that is stuck must not stay
	}()
	defer edge.Close() //nolint:errcheck // whoever listened may be gone
	l := newLine(edge)
	l.says(hello(int64(number))) // before what takes long
	return serve(c, l)
}

// works says that this process is a worker of a run, which its environment says no more.
var works atomic.Bool

// Serves tells whether this process is a worker of a run.
func Serves() bool { return os.Getenv(envSampler) != "" || works.Load() }

// tokenizer is that of a run.
func tokenizer(c *configs.Config) (tok *token.Tokenizer, conf *token.Config, err error) {
	if tok, conf, err = setup.RunTokenizer(c); err == nil && tok != nil {
		err = c.CheckVocab(tok.VocabSize())
	}
	return tok, conf, err
}

// ours keeps from programs that this process begins what makes it a worker of a run: its environment, with more names
// of it.
func ours(names ...string) {
	works.Store(true)
	for _, name := range append(names, envSampler, envJudge) {
		_ = os.Unsetenv(name) // the names are good ones
	}
}
