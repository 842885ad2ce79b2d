package run

import (
	"bufio"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/topology/machine"
)

// envSampler marks a process that draws answers for a run: what it is told comes by its standard input, and
// what it says goes to the file that it is given third beside those of every program.
const envSampler = "LFACTOR_SAMPLER"

// samplerReply is the number of that file.
const samplerReply = 3

// samplerTries is how many processes may end in a row while nobody draws anything.
const samplerTries = 10

// samplerStart is how long a process may take to begin, beside rollout.silence.
const samplerStart = time.Minute

// beatEvery is how often a sampler that draws says so, at most.
const beatEvery = time.Second

// told is what a sampler is told: weights, or a task.
type told struct {
	Weights *weights
	Task    rounds.Task
	Drafts  []draft
}

// reply is what a sampler says: that it is at work, what it has drawn, or why it ends.
type reply struct {
	Done bool // of a task
	Task rounds.Task
	Got  []draft
	Err  string
}

// crew are the sampler processes of a run.
type crew struct {
	r        *rollouts
	children *machine.Children
	mu       sync.Mutex
	vain     int // processes that have ended since something was drawn
}

// process is a sampler in a process of its own.
type process struct {
	crew     *crew
	number   int
	cmd      *exec.Cmd
	in       io.WriteCloser
	commands chan command
	silent   *time.Timer // ends it when it says nothing while it has something to do
	mu       sync.Mutex
	open     int // tasks that it has not drawn
	why      string
	heard    bool // it has said something
}

// start starts a sampler process. One that cannot be started is lost at once.
func (c *crew) start(number int) sampler {
	r := c.r
	p := &process{crew: c, number: number, commands: make(chan command, r.commandsMost())}
	p.silent = time.AfterFunc(time.Hour, p.hangs)
	p.silent.Stop()
	worker := r.d.r.io.Worker
	p.cmd = exec.Command(worker[0], worker[1:]...)
	p.cmd.Env = append(os.Environ(), envSampler+"=1")
	p.cmd.Stderr = r.d.r.io.Warnings
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C reaches the leader alone
	out, said, err := os.Pipe()
	if err == nil {
		p.cmd.ExtraFiles = []*os.File{said}
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if said != nil {
		_ = said.Close() // the child has its own
	}
	if err != nil {
		go r.lost(number, fmt.Errorf("a sampler process: %w", err))
		return p
	}
	c.children.Began(p.cmd.Process.Pid)
	r.d.r.report.say("sampler process: pid %d", p.cmd.Process.Pid)
	go p.tell()
	go p.hear(out)
	return p
}

// tell passes commands on.
func (p *process) tell() {
	e := gob.NewEncoder(p.in)
	for c := range p.commands {
		if err := e.Encode(told{c.weights, c.task, c.drafts}); err != nil {
			break // it has ended, which its reader sees
		}
	}
	_ = p.in.Close() // asks it to end
	for range p.commands {
	}
}

// hear takes what the process says until it ends.
func (p *process) hear(out *os.File) {
	defer out.Close() //nolint:errcheck // it is only read
	r := p.crew.r
	d := gob.NewDecoder(bufio.NewReader(out))
	var err error
	for err == nil {
		var x reply
		if err = d.Decode(&x); err != nil {
			break
		}
		if x.Done {
			p.crew.drew()
		}
		p.mu.Lock()
		if p.heard = true; x.Done {
			p.open--
		}
		if p.silent.Stop(); p.open > 0 {
			p.silent.Reset(p.patience())
		}
		p.mu.Unlock()
		switch {
		case x.Err != "":
			err = errors.New(x.Err)
		case x.Done:
			r.drawn(p.number, x.Task, x.Got)
		}
	}
	p.silent.Stop()
	_ = p.cmd.Process.Kill() // it may have ended
	how := p.cmd.Wait()
	text, _ := p.crew.children.End(p.cmd.ProcessState, how)
	p.mu.Lock()
	if p.why != "" {
		text = p.why + " and " + text
	}
	p.mu.Unlock()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		text = err.Error()
	}
	r.lost(p.number, fmt.Errorf("sampler process %d %s", p.cmd.Process.Pid, text))
}

// hangs ends a process that has said nothing for too long.
func (p *process) hangs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 {
		p.why = fmt.Sprintf("said nothing for %v (rollout.silence)", p.crew.r.silence())
		_ = p.cmd.Process.Kill() // it may have ended
	}
}

// silence is how long a sampler with something to do may say nothing.
func (r *rollouts) silence() time.Duration {
	return time.Duration(r.d.r.cfg.Run.Rollout.Silence * float64(time.Second))
}

// patience is how long the process may say nothing from now on.
func (p *process) patience() time.Duration {
	if !p.heard {
		return p.crew.r.silence() + samplerStart
	}
	return p.crew.r.silence()
}

// drew says that some process has drawn something.
func (c *crew) drew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vain = 0
}

func (p *process) load(w *weights) { p.commands <- command{weights: w} }

func (p *process) draw(t rounds.Task, all []draft) {
	p.mu.Lock()
	p.open++
	p.silent.Reset(p.patience())
	p.mu.Unlock()
	p.commands <- command{task: t, drafts: all}
}

// again has another process take the place of this one, unless the last few have all been in vain. The caller
// holds the table.
func (p *process) again(why error) bool {
	close(p.commands)
	c := p.crew
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vain++; c.vain >= samplerTries {
		return false
	}
	c.r.d.r.report.say("! %v; another takes its place, and what it drew is drawn again", why)
	go c.r.join(c.start)
	return true
}

func (p *process) close() { close(p.commands) }

// samplerProcess draws answers for a run in another process, until that is gone.
func (r *Run) samplerProcess(in io.Reader, out io.Writer) error {
	if err := r.readTokenizer(); err != nil {
		return err
	}
	stops, err := r.stops()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	e := gob.NewEncoder(out)
	say := func(x reply) {
		mu.Lock()
		defer mu.Unlock()
		_ = e.Encode(x) // whoever listened is gone, and the commands end with it
	}
	d, err := newDrawer(r.cfg, stops)
	if err != nil {
		say(reply{Err: err.Error()})
		return nil
	}
	defer d.close()
	say(reply{}) // it has begun
	commands := make(chan command)
	go func() {
		defer close(commands)
		for from := gob.NewDecoder(bufio.NewReader(in)); ; {
			var x told
			if err := from.Decode(&x); err != nil {
				return // the run is gone, or ends
			}
			commands <- command{x.Weights, x.Task, x.Drafts}
		}
	}()
	last := time.Now()
	d.beat = func() {
		if time.Since(last) > beatEvery {
			last = time.Now()
			say(reply{})
		}
	}
	if err := d.work(commands, func(t rounds.Task, got []draft) {
		say(reply{Done: true, Task: t, Got: got})
	}); err != nil {
		say(reply{Err: err.Error()})
	}
	return nil
}
