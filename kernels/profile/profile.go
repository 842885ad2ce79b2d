// Package profile records which kernel calls and jobs ran when, and adds them up: where the time of training steps went, and
// what of it was spent outside kernels. Nothing of it is in the way of a run that is not recorded: a lane wraps a backend.
package profile

import (
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

// eventsMax bounds what a recorder holds, over all lanes; once it is reached nothing more is recorded and Report ends with the
// last step that is there in full.
const eventsMax = 1 << 20

// Recorder gathers the events of one process. Its methods may be called from any goroutine.
type Recorder struct {
	began   time.Time
	off     atomic.Bool
	events  atomic.Int64
	mu      sync.Mutex
	lanes   []*Lane
	loading spans
	marks   []int64 // ends of steps
}

// New returns a recorder that is on.
func New() *Recorder { return &Recorder{began: time.Now()} }

func (r *Recorder) now() int64 { return int64(time.Since(r.began)) }

// Stop ends recording: from here on a call costs one load of a flag.
func (r *Recorder) Stop() { r.off.Store(true) }

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

// Mark notes that a step has ended. What is reported lies between the first mark and the last.
func (r *Recorder) Mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.off.Load() {
		r.marks = append(r.marks, r.now())
	}
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

// Job runs f as a job of a phase.
func (l *Lane) Job(p Phase, f func()) {
	start := l.r.now()
	defer func() {
		if !l.r.room() {
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

// Wrap returns b with its calls recorded in the lane.
func (l *Lane) Wrap(b kernels.Backend) kernels.Backend { return backend{b, l} }

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
	k, x := keyOf(c), call{span: span{start, end}, flops: Flops(c), bytes: bytesOf(c)}
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
