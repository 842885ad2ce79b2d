package run

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/host/links"
)

// Heirs is a Fleet whose other processes do not end with the one that leads: another is started in its
// place, and goes on with them.
type Heirs interface {
	// Inherited tells how often a process that led has ended before this one, 0 for the first, and the other
	// processes of the run by their numbers; some may have ended as well.
	Inherited() (ended int, others map[int]Inherited)
	// On are the hosts of processes of the run, as far as they are known: of this one at least.
	On() map[int]string
}

// on tells which processes are on which hosts; nil for a fleet of this host.
func (r *Run) on() func() map[int]string {
	if f, ok := r.io.Fleet.(Heirs); ok {
		return f.On
	}
	return nil
}

// Inherited is a process that another leader has started.
type Inherited struct {
	Process
	Env   []string // that it was started with
	Ended bool
}

// heir is what a process knows that leads in place of one that has ended, nil for any other.
type heir struct {
	others  map[int]Inherited
	durable int64 // the newest durable step: what is newer the ranks tell
	unread  error // why nothing durable can be read, nil if it can: the ranks have to hold everything
}

// succeeds finds out whether this process leads in place of one that has ended. The others know what the
// run began with.
func (r *Run) succeeds() error {
	f, ok := r.io.Fleet.(Heirs)
	if !ok || workerProc() > 0 {
		return nil
	}
	ended, others := f.Inherited()
	if ended == 0 || r.cfg.Run.Train.Restarts == 0 { // it begins again, and starts the others anew
		return nil
	}
	for n, p := range others {
		c, err := comebackOf(p.Env)
		if err != nil {
			return fmt.Errorf("process %d: %w", n, err)
		}
		r.start.first, r.start.origin, r.start.step = c.First, c.From, c.Step
	}
	r.life, r.heir = ended, &heir{others: others}
	return nil
}

// comebackOf reads what again has written from an environment.
func comebackOf(env []string) (c comeback, err error) {
	for _, e := range env {
		if text, ok := strings.CutPrefix(e, envAgain+"="); ok {
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				return c, fmt.Errorf("%s: %w", envAgain, err)
			}
			return c, nil
		}
	}
	return c, fmt.Errorf("%s is not in the environment that it was started with", envAgain)
}

// inherit finds the newest durable state. What the run began with stays what it was. Where none can be read, as
// hosts are lost that had it or its files are damaged, the other processes may hold all that is needed: what the
// run began with counts then, and the coordinator ends it if they do not.
func (r *Run) inherit() error {
	began, fill := r.start, r.start.fill
	if err := r.newest(); err != nil {
		if began.origin != "" { // where the data stood then is in a checkpoint too
			return err
		}
		r.start = began
		r.heir.unread, r.heir.durable = err, began.first-1
		r.start.from = "what the other processes hold; process 0 has ended, and this one leads in its place. Nothing " +
			"durable can be read"
		r.start.skipped = append(r.start.skipped, err)
		return nil
	}
	r.heir.durable = r.start.first - 1
	r.start.first, r.start.origin, r.start.step, r.start.fill = began.first, began.origin, began.step, fill
	r.start.from = fmt.Sprintf("what the other processes hold; process 0 has ended, and this one leads in its "+
		"place. Step %d is durable", r.heir.durable)
	return nil
}

// recordsEnd is the first step that the records of the run do not keep.
func (r *Run) recordsEnd() int64 {
	if r.heir != nil { // what the ranks hold decides later
		return math.MaxInt64
	}
	return r.start.first
}

// takeIn looks after the processes that another leader has started.
func (w *workers) takeIn(links *links.Links, others map[int]Inherited) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.led = true
	for n, p := range others {
		c, _ := comebackOf(p.Env) // succeeds has read it
		w.list[n], w.lives[n] = p, c.Life
		if !p.Ended {
			links.Expect(n, c.Life, expectWithin)
		}
		w.wg.Add(1)
		go w.keep(n, p, c.Life+1)
	}
}

// expectWithin is how long a process has for its first word to a new leader.
const expectWithin = 3 * time.Second

// reach reads the data up to a step that another leader has seen committed, and enters it into the ledger,
// which may lie on another host.
func (d *data) reach(step int64) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	for s := d.r.heir.durable + 1; s <= step; s++ {
		if _, err := d.step(s); err != nil {
			return fmt.Errorf("the data of step %d: %w", s, err)
		}
		d.commit(s)
	}
	d.reached = true
	return nil
}
