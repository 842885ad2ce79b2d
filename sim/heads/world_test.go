package heads

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// Options are those of a run.
type Options struct {
	Seed   uint64
	Heads  int           // 0: by the seed, 1 or 3
	Hosts  int           // 0: by the seed, 2 to 6
	Faulty time.Duration // for how long faults happen; 0: 30 s
	Trace  func(line string)
}

// Result is what came of a run.
type Result struct {
	Err    error  // the first promise that was broken, with the time
	Hash   uint64 // of the history
	Events int    // that were carried out
	Jobs   int    // that were done
	Faults int    // that happened
	Terms  int
	Lost   int // hosts
}

// calmFor is how long a cluster has after the last fault until all jobs have to be done.
const calmFor = 5 * time.Minute

// world is a cluster in virtual time.
type world struct {
	o     Options
	rng   *rand.Rand
	now   time.Duration
	seq   int
	queue events
	hash  interface {
		Write(p []byte) (int, error)
		Sum64() uint64
	}
	disk    *disk
	seats   []*seat
	hosts   []*host // in the order in which they came
	conns   map[int64]*conn
	number  int64 // of connections and questions
	asks    map[int64]func(decide.Answer)
	tokens  []string
	joined  map[string]int  // how often a token has let a host in
	began   map[string]bool // generations of processes that were started
	jobs    int             // that were submitted and taken
	calm    bool
	faults  int
	steps   int
	broken  error
	drained map[string]bool
	// jobs whose work is done
	complete map[string]bool
}

// event is something that happens at a time.
type event struct {
	at  time.Duration
	seq int
	do  func()
}

// events are a heap, the earliest first; of one time the one that was planned first.
type events []event

// Len implements heap.Interface.
func (e events) Len() int { return len(e) }

// Less implements heap.Interface.
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}

// Swap implements heap.Interface.
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

// Pop implements heap.Interface.
func (e *events) Pop() any {
	n := len(*e) - 1
	x := (*e)[n]
	(*e)[n] = event{}
	*e = (*e)[:n]
	return x
}

// Run runs one seed.
func Run(o Options) Result {
	w := &world{o: o, rng: rand.New(rand.NewPCG(o.Seed, 0x68656164)), hash: fnv.New64a(),
		conns: map[int64]*conn{}, asks: map[int64]func(decide.Answer){}, joined: map[string]int{},
		began: map[string]bool{}, drained: map[string]bool{}, complete: map[string]bool{}}
	if w.o.Faulty == 0 {
		w.o.Faulty = 30 * time.Second
	}
	if w.o.Heads == 0 {
		w.o.Heads = 1 + 2*w.rng.IntN(2)
	}
	if w.o.Hosts == 0 {
		w.o.Hosts = 2 + w.rng.IntN(5)
	}
	w.disk = newDisk(w)
	for n := range w.o.Heads {
		w.seats = append(w.seats, &seat{w: w, n: n, up: true, base: time.Unix(1e9, 0)})
	}
	for n := range w.o.Hosts {
		w.addHost(fmt.Sprint("h", n+1))
	}
	w.after(w.span(time.Millisecond, 50*time.Millisecond), func() { w.elect(w.seats[0]) })
	w.users()
	w.chaos()
	w.after(w.o.Faulty, w.becalm)
	end := w.o.Faulty + calmFor
	for len(w.queue) > 0 && w.broken == nil && w.now < end && !w.done() {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		w.steps++
		e.do()
	}
	if w.broken == nil && !w.done() {
		w.fail("L", "%s", w.undone())
	}
	return Result{Err: w.broken, Hash: w.hash.Sum64(), Events: w.steps, Jobs: w.jobs, Faults: w.faults,
		Terms: w.disk.terms, Lost: w.disk.lostHosts}
}

// after plans something.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

// span draws a time between two, as often near the first as near the second by their logarithms.
func (w *world) span(a, b time.Duration) time.Duration {
	x := w.rng.Float64()
	return a + time.Duration(float64(b-a)*x*x*x)
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// note writes a line of the history.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%12v ", w.now) + fmt.Sprintf(format, args...)
	_, _ = w.hash.Write([]byte(line)) // a hash takes all
	if w.o.Trace != nil {
		w.o.Trace(line)
	}
}

// fail notes that a promise was broken.
func (w *world) fail(promise, format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("seed %d, at %v: %s: %s", w.o.Seed, w.now, promise, fmt.Sprintf(format, args...))
		w.note("! %v", w.broken)
	}
}

// done reports whether there is nothing more to wait for.
func (w *world) done() bool {
	return w.calm && w.now > w.o.Faulty+10*time.Second && w.undone() == ""
}

// undone says what has not come to its end.
func (w *world) undone() string {
	for _, j := range w.disk.sorted() {
		if j.State != decide.Ended {
			return fmt.Sprintf("job %s is %s for good: %q, on %v, %+v", j.ID, j.State, j.Why, j.Hosts, j.Procs)
		}
	}
	return ""
}
