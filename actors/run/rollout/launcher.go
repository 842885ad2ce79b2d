package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/topology/machine"
)

// Environment of processes that help the one that trains: envSampler marks each, with its number, and
// envJudge those that judge. What one is told comes by its standard input, and what it says goes to the file
// that it is given third beside those of every program; or both go over an edge.
const (
	envSampler = "LFACTOR_SAMPLER"
	envJudge   = "LFACTOR_JUDGE"
	// samplerReply is the number of that file.
	samplerReply = 3
)

// launcher begins the worker processes that help the one that trains: on this host, or, where the run's processes are a
// fleet's, on its hosts.
type launcher struct {
	of       *Of
	over     context.Context // ends with the run
	children *machine.Children
	// begins begins a process in a place: of those of a fleet its number, else any.
	begins func(place int, env ...string) (*workerProcess, error)
	edges  links.Transport // of a fleet's, nil where there is none
	next   atomic.Int64    // number of the one that comes last
	waits  sync.Map        // of channels for those that come, by these numbers
}

// newLauncher readies it; close is to be called.
func newLauncher(o *Of, over context.Context) (s *launcher, err error) {
	s = &launcher{of: o, over: over, children: machine.NewChildren()}
	if s.begins = s.here; o.Fleet == nil {
		return s, nil
	}
	s.begins = s.there
	if s.edges, err = o.Fleet.Transport(0); err == nil {
		go s.accept()
	}
	return s, err
}

// close lets nobody come any more.
func (s *launcher) close() {
	if s != nil && s.edges != nil {
		_ = s.edges.Close() // nobody is to come
	}
}

// workerProcess is one of them, as the process that trains has it.
type workerProcess struct {
	name string // for people: "pid 4711"
	*line
	close func()        // ends what comes from it
	kill  func()        // ends it
	ended func() string // waits until it has ended, and says how
}

// here begins a process of this host.
func (s *launcher) here(_ int, env ...string) (*workerProcess, error) {
	worker := s.of.Worker
	cmd := exec.Command(worker[0], worker[1:]...)
	cmd.Env = append(append(os.Environ(), envSampler+"=1"), env...)
	cmd.Stderr = s.of.Warnings
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches the leader alone
	out, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer said.Close() //nolint:errcheck // the child has its own
	cmd.ExtraFiles = []*os.File{said}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = machine.StartTied(cmd) // one that is stopped would not see its input end
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	s.children.Began(cmd.Process.Pid)
	return &workerProcess{name: fmt.Sprintf("pid %d", cmd.Process.Pid), line: newLine(out, in),
		close: func() { _ = out.Close() },        // it is only read
		kill:  func() { _ = cmd.Process.Kill() }, // it may have ended
		ended: func() string {
			text, _ := s.children.End(cmd.ProcessState, cmd.Wait())
			return text
		}}, nil
}

// member is the life of a worker process as a member of a pool: what it is told it does, and what it says counts.
func (s *launcher) member(what string, env ...string) crew.Run {
	return func(ctx context.Context, place int, in <-chan actors.Message, say func(actors.Message)) (int32, error) {
		l, err := s.begins(place, env...)
		if err != nil {
			return 0, fmt.Errorf("a %s: %w", what, err)
		}
		s.of.Say("%s process: %s", strings.TrimSuffix(what, " process"), l.name)
		end := func() { l.kill(); l.close() }
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
	if fleet == nil {
		return serve(c, newLine(os.Stdin, os.NewFile(samplerReply, "replies")))
	}
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
	l := newLine(edge, edge)
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

// ours keeps from programs that this process begins what makes it a worker of a run: the file of its replies,
// and its environment, with more names of it.
func ours(names ...string) {
	works.Store(true)
	syscall.CloseOnExec(samplerReply)
	for _, name := range append(names, envSampler, envJudge) {
		_ = os.Unsetenv(name) // the names are good ones
	}
}
