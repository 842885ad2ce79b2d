package heads

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
)

// disk is the store of all heads: what most of them have.
type disk struct {
	w         *world
	values    map[string]string
	ever      map[string]bool // keys that were ever set
	jobs      map[string]*decide.Job
	revision  int64
	term      int64
	terms     int
	slow      time.Duration // until when writes take long
	events    int           // the newest
	away      map[string]bool
	lostHosts int
}

// newDisk makes the empty store that all heads of this world share.
func newDisk(w *world) *disk {
	return &disk{w: w, values: map[string]string{}, ever: map[string]bool{}, jobs: map[string]*decide.Job{},
		away: map[string]bool{}}
}

// List implements decide.Lister.
func (d *disk) List(prefix string, see func(string, []byte) error) error {
	var keys []string
	for k := range d.values { //lfvet:order sorted below
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := see(strings.TrimPrefix(k, prefix), []byte(d.values[k])); err != nil {
			return err
		}
	}
	return nil
}

// sorted are the jobs by their numbers.
func (d *disk) sorted() (out []*decide.Job) {
	for _, j := range d.jobs { //lfvet:order sorted below
		out = append(out, j)
	}
	slices.SortFunc(out, func(a, b *decide.Job) int { return decide.ByName(a.ID, b.ID) })
	return out
}

// latency is how long a write takes.
func (d *disk) latency() time.Duration {
	if d.w.now < d.slow {
		return d.w.span(20*time.Millisecond, 2*time.Second)
	}
	return d.w.span(100*time.Microsecond, 3*time.Millisecond)
}

// errLate is the end of a wait for the store, which may have taken what was written.
var errLate = errors.New("deadline exceeded")

// commit is a head's: it comes to the disk after a while, where its term counts, and is answered after another.
func (d *disk) commit(s *seat, c decide.Commit) {
	w, term, life := d.w, s.term, s.life
	w.after(d.latency(), func() {
		answer := func(in decide.Input, after time.Duration) {
			w.after(after, func() {
				if s.life == life {
					s.step(in)
				}
			})
		}
		switch {
		case s.cut: // nobody hears of it
			answer(decide.Unstored{N: c.N, Err: errLate}, time.Second)
		case term != d.term:
			answer(decide.Over{Refused: true}, w.span(50*time.Microsecond, 5*time.Millisecond))
		default:
			if !w.calm && w.chance(0.01) { // refused for a moment
				answer(decide.Unstored{N: c.N, Err: errors.New("no leader")}, time.Millisecond)
				return
			}
			d.apply(c.Ops)
			if !w.calm && w.chance(0.01) { // taken, and nobody hears of it
				answer(decide.Unstored{N: c.N, Err: errLate}, time.Second)
				return
			}
			answer(decide.Stored{N: c.N}, w.span(50*time.Microsecond, time.Millisecond))
		}
	})
}

// apply carries operations out. What it says of jobs is held to H-8.
func (d *disk) apply(ops []store.Op) {
	d.revision++
	seen := map[string]bool{}
	for _, op := range ops {
		if seen[op.Key] {
			d.w.fail("store", "the key %s is twice in one commit", op.Key)
		}
		seen[op.Key] = true
	}
	for _, op := range ops {
		if op.Value == nil {
			delete(d.values, op.Key)
			continue
		}
		d.checkOp(op)
		d.values[op.Key], d.ever[op.Key] = string(op.Value), true
		if id, ok := strings.CutPrefix(op.Key, "jobs/"); ok {
			j := &decide.Job{}
			if err := json.Unmarshal(op.Value, j); err != nil {
				d.w.fail("store", "%s: %v", op.Key, err)
			}
			if j.State == decide.Ended && j.Code == 0 && !j.Stop && !d.w.complete[id] {
				d.w.fail("H-8", "job %s has ended as one that is done, and is not: %s", id, j.Why)
			}
			d.jobs[id] = j
		}
	}
	d.checkHosts()
}

// checkOp holds a write to the promises: numbers of events have no gaps, an event stays what it is (H-6),
// a host is lost once for each time that it went away (H-3), and nothing of strangers is stored (H-7).
func (d *disk) checkOp(op store.Op) {
	if strings.Contains(op.Key+string(op.Value), stranger) {
		d.w.fail("H-7", "a stranger has written %s: %s", op.Key, op.Value)
	}
	number, ok := strings.CutPrefix(op.Key, "events/")
	if !ok {
		return
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		d.w.fail("H-6", "%s is no event", op.Key)
		return
	}
	if old, ok := d.values[op.Key]; ok {
		if old != string(op.Value) {
			d.w.fail("H-6", "event %d was %s and is %s", n, old, op.Value)
		}
		return // a commit that was repeated
	}
	if n != d.events+1 {
		d.w.fail("H-6", "event %d comes behind event %d", n, d.events)
	}
	d.events = n
	var e decide.Event
	if err := json.Unmarshal(op.Value, &e); err != nil {
		d.w.fail("H-6", "event %d: %v", n, err)
	}
	d.w.note("event %d %s %s", n, e.Kind, e.Text)
	switch {
	case e.Kind == "head": // all agents connect anew, or are away
		for k := range d.values { //lfvet:order all of them
			if name, ok := strings.CutPrefix(k, "members/"); ok {
				d.away[name] = true
			}
		}
	case e.Kind == "join":
		d.away[e.Host] = false
	case e.Kind == "suspect":
		d.away[e.Host] = true
	case e.Kind == "lost":
		d.lostHosts++
		if !d.away[e.Host] {
			d.w.fail("H-3", "host %s is lost a second time, or was not away: %s", e.Host, e.Text)
		}
		d.away[e.Host] = false
	}
}

// checkHosts holds the jobs that run to H-4: no two have one host.
func (d *disk) checkHosts() {
	of := map[string]string{}
	for _, j := range d.sorted() {
		if j.State != decide.Running {
			continue
		}
		hosts := slices.Clone(j.Hosts)
		for _, p := range j.Procs {
			if p.Gen > 0 && !p.Over {
				hosts = append(hosts, p.Host)
			}
		}
		for _, x := range hosts {
			if other, ok := of[x]; ok && other != j.ID {
				d.w.fail("H-4", "host %s has jobs %s and %s", x, other, j.ID)
			}
			of[x] = j.ID
		}
	}
}
