package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// comeback is what a process that is started again must know of the run: newer checkpoints than the one that
// the run began with may lie on the disk by now. On hosts with storage of their own every process is told.
type comeback struct {
	Life  int    // how often it was started before
	First int64  // the run's first step
	From  string // the checkpoint that the run began with, "" for none
	Step  int64  // of it, where it is one of checkpoint.dir; 0 for none
}

// again is the environment of a process that is started again.
func (r *Run) again(life int) string {
	text, err := json.Marshal(comeback{Life: life, First: r.start.first, From: r.start.origin, Step: r.start.step})
	if err != nil {
		panic(err) // numbers and a string
	}
	return envAgain + "=" + string(text)
}

// comeBack reads what again has written.
func (r *Run) comeBack() error {
	text := os.Getenv(envAgain)
	if text == "" || workerProc() == 0 {
		return nil
	}
	c, err := comebackOf(os.Environ())
	if err != nil {
		return err
	}
	r.life, r.start.first, r.start.origin, r.start.step = c.Life, c.First, c.From, c.Step
	return nil
}

// saved is the state after a step: of a checkpoint, or what the run began with.
func (r *Run) saved(step int64) (family.FillFunc, func(), error) {
	c, err := r.savedFile(step)
	switch {
	case err != nil:
		return nil, nil, err
	case c == nil:
		return r.start.fill, func() {}, nil
	}
	return r.filled(c, step)
}

// savedFile is the checkpoint of a step, nil where the run began with none.
func (r *Run) savedFile(step int64) (*checkpoint.Reader, error) {
	path := r.start.origin
	if r.mirror != nil && (step != r.start.first-1 || r.start.step > 0) {
		return r.mirror.Open(step)
	}
	if step != r.start.first-1 {
		entries, err := checkpoint.List(r.cfg.Run.Checkpoint.Dir)
		if err != nil {
			return nil, err
		}
		path = ""
		for _, e := range entries {
			if e.Step == step {
				path = e.Path
			}
		}
		if path == "" {
			return nil, fmt.Errorf("%s has no checkpoint of step %d", r.cfg.Run.Checkpoint.Dir, step)
		}
	}
	if path == "" {
		return nil, nil
	}
	return checkpoint.Open(path)
}

// laid says where experts lie in a state that saved gives, and what the next move goes by. A run that takes
// no more than weights from a checkpoint begins with experts in order.
func (r *Run) laid(step int64) (x core.Laid) {
	if r.job.MoveEvery == 0 || step == r.start.first-1 && step == 0 {
		return x
	}
	c, err := r.savedFile(step)
	if err != nil || c == nil { // whoever reads the weights says so
		return x
	}
	defer c.Close()
	var v []float64
	if c.Section(expertsSection, &v) != nil { // it has none where experts have not moved
		return x
	}
	return r.layout.Fitting(core.LaidOf(v))
}

// expertsSection is what the manifest says of where experts lie.
const expertsSection = "experts"

// filled reads the state of a step from a checkpoint: all of it, unless the run began with that step and
// took it from checkpoint.load.
func (r *Run) filled(c *checkpoint.Reader, step int64) (family.FillFunc, func(), error) {
	loaded := step == r.start.first-1 && r.start.step == 0
	return family.FromCheckpoint(c, (r.cfg.Run.Checkpoint.LoadOptimizer || !loaded) && moments(c)),
		func() { _ = c.Close() }, nil // it is only read
}

// marks are the places in the data behind steps that a run may go back to: the last ones, the newest saved
// one, and the one that is being saved.
type marks struct {
	recent  map[int64]dataset.Position
	saved   map[int64]dataset.Position
	durable int64
}

// marksMax bounds the steps that may be gone back to without a checkpoint.
const marksMax = 1024

// enter keeps the position of the data before a step, and drops one that is too old to be asked for.
func (m *marks) enter(step int64, p dataset.Position) {
	m.recent[step] = p
	delete(m.recent, step-marksMax)
}

// find gives the position of the data at a step, from the recent ones or from that of a checkpoint;
// false if neither has it.
func (m *marks) find(step int64) (dataset.Position, bool) {
	p, ok := m.recent[step]
	if !ok {
		p, ok = m.saved[step]
	}
	return p, ok
}

// hold remembers the place of a state that is going to be saved, which may take longer than the last
// steps are remembered.
func (d *data) hold(step int64) {
	p := d.position(step)
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.marks.saved, func(s int64, _ dataset.Position) bool { return s != d.marks.durable })
	d.marks.saved[step] = p
}

// durable says that the state of a step is saved: older ones are not gone back to any more.
func (d *data) durable(step int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.marks.durable = step
	maps.DeleteFunc(d.jumps, func(s int64, _ dataset.Position) bool { return s <= step })
	maps.DeleteFunc(d.marks.saved, func(s int64, _ dataset.Position) bool { return s < step })
}

// position is where the data stands after a step: one of the last, or one whose state is or is being saved.
func (d *data) position(step int64) dataset.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, ok := d.marks.find(step)
	switch {
	case ok:
		return p
	case step == d.r.start.first-1:
		return d.began
	}
	panic(fmt.Sprintf("run: nobody knows any more where the data stood after step %d", step))
}

// backTo is a place in the data, with steps that go on elsewhere than behind the one before them.
type backTo struct {
	dataset.Position
	Jumps map[int64]dataset.Position `json:"jumps,omitempty"`
}

// aside has steps from first on read what lies behind the samples of step behind, and writes down the place after step.
func (d *data) aside(step, first, behind int64) string {
	p := d.position(behind)
	p.Step = first - 1 // loaders count from 0
	d.mu.Lock()
	if d.jumps == nil {
		d.jumps = map[int64]dataset.Position{}
	}
	maps.DeleteFunc(d.jumps, func(s int64, _ dataset.Position) bool { return s > first })
	d.jumps[first] = p
	d.mu.Unlock()
	return d.place(step)
}

// jump goes to where a step goes on, if that is not behind the one before it.
func (d *data) jump(step int64) error {
	d.mu.Lock()
	p, ok := d.jumps[step]
	d.mu.Unlock()
	if !ok {
		return nil
	}
	return d.train.Seek(p)
}

// place writes down where the data stands after a step; every call gives another text, so that those who
// read it know that they go back once more.
func (d *data) place(step int64) string {
	if d.r.heir != nil && !d.reached {
		if err := d.reach(step); err != nil {
			return err.Error() // which whoever seeks there reports
		}
	}
	d.backs++
	p := backTo{Position: d.position(step), Jumps: map[int64]dataset.Position{}}
	d.mu.Lock()
	for s, to := range d.jumps { //lfvet:order each by itself
		if s > step {
			p.Jumps[s] = to
		}
	}
	d.mu.Unlock()
	text, err := json.Marshal(p)
	if err != nil {
		panic(err) // numbers and strings
	}
	return strconv.Itoa(d.r.life<<20+d.backs) + " " + string(text) // one that leads in another's place counts anew
}

// seek makes the step behind a place the next one. All replicas' loaders of a process ask for it.
func (d *data) seek(place string) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	if d.sought == place {
		return nil
	}
	var n int
	var p backTo
	if k, err := fmt.Sscanf(place, "%d", &n); k != 1 || err != nil {
		return fmt.Errorf("not a place in the data: %q", place)
	}
	if err := json.Unmarshal([]byte(place[len(strconv.Itoa(n))+1:]), &p); err != nil {
		return fmt.Errorf("a place in the data: %w", err)
	}
	if err := d.train.Seek(p.Position); err != nil {
		return err
	}
	d.sought = place
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jumps = p.Jumps
	for _, m := range d.recent {
		m.old = true
	}
	return nil
}
