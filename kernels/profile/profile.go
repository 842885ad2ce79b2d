// Package profile records which kernel calls and jobs ran when, and adds them up: where the time of training
// steps went, and what of it was spent outside kernels. Nothing of it is in the way of a run that is not
// recorded: a lane wraps a backend.
package profile

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/kernels"
)

// Phase is what a job is part of.
type Phase uint8

// The phases of a step, which a lane's jobs are of one after the other, and Save, which may go on beside them.
const (
	Forward Phase = iota
	Backward
	Optimizer
	Save
	numPhases
)

// String is the phase's name.
func (p Phase) String() string { return [...]string{"forward", "backward", "optimizer", "save"}[p] }

// eventsMax bounds what a recorder holds, over all lanes; once it is reached nothing more is recorded.
const eventsMax = 1 << 20

// Recorder gathers the events of one process. Its methods may be called from any goroutine.
type Recorder struct {
	began   time.Time
	off     atomic.Bool
	events  atomic.Int64
	mu      sync.Mutex
	lanes   []*Lane
	loading spans
	most    int     // steps to record after the first, 0 for all
	step    int64   // the newest that has begun
	marks   []int64 // when steps began
}

// New returns a recorder that is on until so many steps after the first have ended, 0 for no end.
func New(steps int) *Recorder { return &Recorder{began: time.Now(), most: steps} }

func (r *Recorder) now() int64 { return int64(time.Since(r.began)) }

// Stop ends recording: from here on a call costs one load of a flag.
func (r *Recorder) Stop() { r.off.Store(true) }

// settle waits until devices have told of all calls that were issued to them, and stops watching them.
func (r *Recorder) settle() {
	r.mu.Lock()
	lanes := slices.Clone(r.lanes)
	r.mu.Unlock()
	for _, l := range lanes {
		if l.device != nil {
			l.device.Watch(nil)
		}
	}
}

// room counts an event in, or stops the recorder when it is full.
func (r *Recorder) room() bool {
	if r.off.Load() {
		return false
	}
	if r.events.Add(1) > eventsMax {
		r.Stop()
		return false
	}
	return true
}

// begin notes that a job of a step has begun. A step lasts from its first job on any lane to that of the next.
func (r *Recorder) begin(step, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step <= r.step || r.off.Load() {
		return
	}
	r.step, r.marks = step, append(r.marks, at)
	if r.most > 0 && len(r.marks) == r.most+2 {
		r.Stop()
	}
}

// borders are those of the steps that are there in full, without the first, which warms up.
func (r *Recorder) borders() []int64 {
	if len(r.marks) < 2 || len(r.lanes) == 0 {
		return nil
	}
	b := r.marks[1:]
	if r.off.Load() {
		return b
	}
	var end int64
	for _, l := range r.lanes {
		l.mu.Lock()
		for _, s := range l.jobs[:Save] {
			if n := len(s); n > 0 {
				end = max(end, s[n-1].end)
			}
		}
		l.mu.Unlock()
	}
	return append(slices.Clone(b), end)
}

// Load notes that a loader's job has just ended, which took so long.
func (r *Recorder) Load(took time.Duration) {
	if !r.room() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.now()
	r.loading = append(r.loading, span{end - int64(took), end})
}

// Lane is a rank: its jobs and kernel calls.
type Lane struct {
	Name    string
	threads int
	r       *Recorder
	mu      sync.Mutex
	jobs    [numPhases]spans
	keys    map[key]int32
	kinds   []key // by call.kind
	calls   []call

	device kernels.Timed // nil where calls have run when Run returns
	phase  atomic.Int32  // of the job that issues calls to the device
}

type call struct {
	span
	kind         int32
	flops, bytes float64
}

// Lane adds a lane; threads are those of its backend.
func (r *Recorder) Lane(name string, threads int) *Lane {
	l := &Lane{Name: name, threads: threads, r: r, keys: map[key]int32{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lanes = append(r.lanes, l)
	return l
}

// Job runs f as a job of a phase; steps count from 1, 0 or less is a job of none.
func (l *Lane) Job(p Phase, step int64, f func()) {
	start := l.r.now()
	if p != Save && step > 0 && !l.r.off.Load() {
		l.r.begin(step, start)
	}
	l.phase.Store(int32(p))
	defer func() {
		if l.device != nil || !l.r.room() {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.jobs[p] = append(l.jobs[p], span{start, l.r.now()})
	}()
	f()
}

// backend records the calls of another.
type backend struct {
	kernels.Backend
	l *Lane
}

// Wrap returns b with its calls recorded in the lane. A device that tells when it ran them is watched, and
// is what is returned: the phases of its lane are then when it worked, and not when work was issued.
func (l *Lane) Wrap(b kernels.Backend) kernels.Backend {
	if d, ok := b.(kernels.Timed); ok && d.Watch(l.issued) {
		l.device = d
		return b
	}
	return backend{b, l}
}

// issued is told of a call that a device will run, and gives who is to be told when it did.
func (l *Lane) issued(c *kernels.Call) func(start, end time.Time) {
	if !l.r.room() {
		return nil
	}
	k, x, p := keyOf(c), call{flops: Flops(c), bytes: bytesOf(c)}, Phase(l.phase.Load())
	return func(start, end time.Time) {
		x.span = span{int64(start.Sub(l.r.began)), int64(end.Sub(l.r.began))}
		l.put(k, x)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.jobs[p] = append(l.jobs[p], x.span)
	}
}

// Run runs the call and notes what it took.
func (b backend) Run(c *kernels.Call) {
	if b.l.r.off.Load() {
		b.Backend.Run(c)
		return
	}
	start := b.l.r.now()
	b.Backend.Run(c)
	end := b.l.r.now()
	if b.l.r.room() {
		b.l.add(c, start, end)
	}
}

func (l *Lane) add(c *kernels.Call, start, end int64) {
	l.put(keyOf(c), call{span: span{start, end}, flops: Flops(c), bytes: bytesOf(c)})
}

func (l *Lane) put(k key, x call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.keys[k]
	if !ok {
		i = int32(len(l.kinds))
		l.keys[k], l.kinds = i, append(l.kinds, k)
	}
	x.kind = i
	l.calls = append(l.calls, x)
}
