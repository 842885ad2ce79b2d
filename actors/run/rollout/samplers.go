package rollout

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs"
)

// samplerTries is how many processes may end in a row while nobody draws anything.
const samplerTries = 10

// samplerStart is how long a process may take to begin, beside rollout.silence.
const samplerStart = time.Minute

// beatEvery is how often a sampler that draws says so, at most.
const beatEvery = time.Second

// told is what a sampler is told: weights, or a task.
type told struct {
	Weights *Weights
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

// samplerProcs are the sampler processes of a run.
type samplerProcs struct {
	r        *Source
	launcher *launcher
	mu       sync.Mutex
	vain     int // processes that have ended since something was drawn
}

// process is a sampler in a process of its own.
type process struct {
	samplerProcs *samplerProcs
	number       int
	place        int // of its own, whichever process draws there
	commands     chan command
	silent       *time.Timer // ends it when it says nothing while it has something to do
	mu           sync.Mutex
	worker       *workerProcess // nil before it has begun
	open         int            // tasks that it has not drawn
	why          string
	heard        bool // it has said something
}

// at starts a sampler process in a place. One that cannot be started is lost at once.
func (c *samplerProcs) at(place int) func(number int) sampler {
	return func(number int) sampler {
		p := &process{samplerProcs: c, number: number, place: place, commands: make(chan command, c.r.commandsMost())}
		p.silent = time.AfterFunc(time.Hour, p.hangs)
		p.silent.Stop()
		go p.run()
		return p
	}
}

// run begins the process, and takes what it says until it ends.
func (p *process) run() {
	l, err := p.samplerProcs.launcher.begin(p.place)
	if err != nil {
		p.silent.Stop()
		p.samplerProcs.r.lost(p.number, fmt.Errorf("a sampler process: %w", err))
		return
	}
	p.samplerProcs.r.Say("sampler process: %s", l.name)
	p.mu.Lock()
	if p.worker = l; p.open > 0 { // what it is given to do began to wait with the order for it
		p.silent.Reset(p.patience())
	}
	p.mu.Unlock()
	go p.tell(l)
	p.hear(l)
}

// tell passes commands on.
func (p *process) tell(l *workerProcess) {
	e := gob.NewEncoder(l.in)
	for c := range p.commands {
		if err := e.Encode(told{c.weights, c.task, c.drafts}); err != nil {
			break // it has ended, which its reader sees
		}
	}
	_ = l.in.Close() // asks it to end
	for range p.commands {
	}
}

// hear takes what the process says until it ends.
func (p *process) hear(l *workerProcess) {
	defer l.close()
	r := p.samplerProcs.r
	var err, told error
	for err == nil && told == nil {
		var x reply
		if err = l.out.Decode(&x); err != nil {
			break
		}
		if x.Done {
			p.samplerProcs.drew()
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
			told = errors.New(x.Err)
		case x.Done:
			r.drawn(p.number, x.Task, x.Got)
		}
	}
	p.silent.Stop()
	l.kill()
	how := fmt.Errorf("sampler process %s %s%s", l.name, p.because(err), l.ended())
	if told != nil {
		how = fmt.Errorf("sampler process %s: %w", l.name, told)
	}
	r.lost(p.number, how)
}

// because is what is known of the end of a process beside how it ended.
func (p *process) because(err error) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.why != "":
		return p.why + " and "
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, new(*net.OpError)):
		return ""
	}
	return fmt.Sprintf("said what is no reply (%v) and ", err)
}

// hangs ends a process that has said nothing for too long.
func (p *process) hangs() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open > 0 && p.worker != nil { // how long it may take to begin is its fleet's matter
		p.why = fmt.Sprintf("said nothing for %v (rollout.silence)", p.samplerProcs.r.silence())
		p.worker.kill()
		p.worker.close()
	}
}

// silence is how long a sampler with something to do may say nothing.
func (r *Source) silence() time.Duration {
	return time.Duration(r.Cfg.Run.Rollout.Silence * float64(time.Second))
}

// patience is how long the process may say nothing from now on.
func (p *process) patience() time.Duration {
	if !p.heard {
		return p.samplerProcs.r.silence() + samplerStart
	}
	return p.samplerProcs.r.silence()
}

// drew says that some process has drawn something.
func (c *samplerProcs) drew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vain = 0
}

func (p *process) load(w *Weights) { p.commands <- command{weights: w} }

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
	c := p.samplerProcs
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.vain++; c.vain >= samplerTries {
		return false
	}
	c.r.Say("! %v; another takes its place, and what it drew is drawn again", why)
	go c.r.join(c.at(p.place))
	return true
}

func (p *process) close() { close(p.commands) }

// samplerProcess draws answers for a run in another process, until that is gone.
func samplerProcess(c *configs.Config, w *wire) error {
	tok, conf, err := tokenizer(c)
	if err != nil {
		return err
	}
	stops, err := Stops(c, tok, conf)
	if err != nil {
		return err
	}
	d, err := NewDrawer(c, stops)
	if err != nil {
		w.say(reply{Err: err.Error()})
		return nil
	}
	defer d.Close()
	w.say(reply{}) // it has begun
	commands := make(chan command)
	go func() {
		defer close(commands)
		for {
			var x told
			if err := w.told.Decode(&x); err != nil {
				return // the run is gone, or ends
			}
			commands <- command{x.Weights, x.Task, x.Drafts}
		}
	}()
	last := time.Now()
	d.beat = func() {
		if time.Since(last) > beatEvery {
			last = time.Now()
			w.say(reply{})
		}
	}
	if err := d.work(commands, func(t rounds.Task, got []draft) {
		w.say(reply{Done: true, Task: t, Got: got})
	}); err != nil {
		w.say(reply{Err: err.Error()})
	}
	return nil
}
