package rollout

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/cpu"
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
	away     *away // where there is a fleet, else nil
}

// newStaff readies it; close is to be called.
func newLauncher(o *Of, over context.Context) (*launcher, error) {
	s := &launcher{of: o, over: over, children: machine.NewChildren()}
	if f := o.Fleet; f != nil {
		var err error
		if s.away, err = newAway(f); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// close lets nobody come any more.
func (s *launcher) close() {
	if s != nil && s.away != nil {
		s.away.close()
	}
}

// workerProcess is one of them, as the process that trains has it.
type workerProcess struct {
	name  string // for people: "pid 4711"
	in    io.WriteCloser
	out   *gob.Decoder
	close func()        // ends what comes from it
	kill  func()        // ends it
	ended func() string // waits until it has ended, and says how
}

// begin begins a process in a place: of those of a fleet its number, else any.
func (s *launcher) begin(place int, env ...string) (*workerProcess, error) {
	if s.away != nil {
		return s.there(place, env)
	}
	return s.here(env)
}

// here begins a process of this host.
func (s *launcher) here(env []string) (*workerProcess, error) {
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
	return &workerProcess{name: fmt.Sprintf("pid %d", cmd.Process.Pid), in: in, out: gob.NewDecoder(bufio.NewReader(out)),
		close: func() { _ = out.Close() },        // it is only read
		kill:  func() { _ = cmd.Process.Kill() }, // it may have ended
		ended: func() string {
			text, _ := s.children.End(cmd.ProcessState, cmd.Wait())
			return text
		}}, nil
}

// wire is what a worker process has of the one that trains.
type wire struct {
	told *gob.Decoder
	mu   sync.Mutex
	out  *gob.Encoder
}

// say tells the process that trains something. Where nobody listens any more, what is told ends as well.
func (w *wire) say(x any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(x) // see above
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
		return serve(c, &wire{told: gob.NewDecoder(bufio.NewReader(os.Stdin)),
			out: gob.NewEncoder(os.NewFile(samplerReply, "replies"))})
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
	w := &wire{told: gob.NewDecoder(bufio.NewReader(edge)), out: gob.NewEncoder(flushing{edge})}
	w.say(hello{number, cpu.Level()}) // before what takes long
	return serve(c, w)
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
