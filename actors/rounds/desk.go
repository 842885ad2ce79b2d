package rounds

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
)

// Task is a group of a round's answers of which a sampler draws a part.
// In the words of the field: rollout.
type Task struct {
	Part
	Group int // of the round's prompts
}

// order is what a sampler is told of a task.
func (t Task) order(kind actors.Kind, sampler uint32) actors.Message {
	return actors.Message{Kind: kind, Epoch: sampler, Step: t.Publication, Values: []float64{float64(t.Publication),
		float64(t.Round), float64(t.From), float64(t.To), float64(t.Group)}}
}

// TaskOf is the task of an order, or of its result, by their Values. Of others there is none that anybody has.
func TaskOf(m *actors.Message) (t Task) {
	v := m.Values
	if len(v) != 5 {
		return Task{Group: -1}
	}
	return Task{Part{int64(v[0]), int64(v[1]), int64(v[2]), int64(v[3])}, int(v[4])}
}

// seat is a sampler.
type seat struct {
	loaded int64 // the publication that it has, -1 for none
	tasks  []Task
}

// Desk hands tasks to samplers: a pool's desk, whose Ask makes the publication Step. Load has a sampler take the weights
// of Step, where it has nothing under way, and Task draw with them; TaskOf tells what. Its methods are for one goroutine.
type Desk struct {
	s      Schedule
	groups int // prompts of a round
	hold   int // tasks that a sampler has at once

	published int64 // publications that are made
	trained   int64 // rounds that are trained on
	last      int64 // rounds to draw, 0 for any number
	seats     map[uint32]*seat
	order     []uint32        // samplers, by when they came
	waiting   []Task          // that nobody draws, in order of publications and rounds
	left      map[int64]int   // groups with their parts that are not drawn, of rounds that are begun
	late      map[int64]int64 // the publication that draws a round whole, of those that nobody had
	open      map[Task]bool   // tasks that are not done
}

// NewDesk is the desk of a run that begins: of a schedule, rounds of so many groups, samplers that have so
// many tasks at once, and so many rounds in all (0 for any number).
func NewDesk(s Schedule, groups, hold int, rounds int64) *Desk {
	return &Desk{s: s, groups: groups, hold: max(1, hold), last: rounds, seats: map[uint32]*seat{},
		left: map[int64]int{}, late: map[int64]int64{}, open: map[Task]bool{}}
}

// Resume sets a desk to where a run goes on: so many rounds are trained on and so many publications were
// made, and what they draw is drawn of the rounds that are had. The others that they would have begun are
// drawn whole by the next publication.
func (d *Desk) Resume(trained, publications int64, had func(round int64) bool) {
	d.trained, d.published = trained, publications
	for r := trained; d.s.Begin(r) < publications; r++ {
		if !had(r) {
			d.late[r] = publications
			continue
		}
		d.left[r] = 0
		for _, p := range d.s.Parts(r) {
			if p.Publication >= publications {
				d.left[r] += d.groups
			}
		}
	}
}

// parts are those of a round, which may be late.
func (d *Desk) parts(round int64) []Part {
	if p, late := d.late[round]; late {
		return []Part{{Publication: p, Round: round}}
	}
	return d.s.Parts(round)
}

// Work are the parts that a publication draws at this desk.
func (d *Desk) Work(publication int64) (out []Part) {
	for r := publication; d.s.Begin(r) <= publication; r++ {
		for _, p := range d.parts(r) {
			if p.Publication == publication && (d.last == 0 || r < d.last) {
				out = append(out, p)
			}
		}
	}
	return out
}

// Join brings a sampler in, under a number that no other had.
func (d *Desk) Join(sampler uint32) []actors.Message {
	if d.seats[sampler] != nil {
		panic(fmt.Sprintf("rounds: sampler %d comes twice", sampler))
	}
	d.seats[sampler] = &seat{loaded: -1}
	d.order = append(d.order, sampler)
	return d.deal()
}

// Lose takes a sampler out: its tasks go to others, as they were. One that is gone is not lost again.
func (d *Desk) Lose(sampler uint32, _ actors.Time, _ *actors.Message) []actors.Message {
	s := d.seats[sampler]
	if s == nil {
		return nil
	}
	delete(d.seats, sampler)
	d.order = slices.DeleteFunc(d.order, func(k uint32) bool { return k == sampler })
	d.waiting = append(slices.Clone(s.tasks), d.waiting...)
	slices.SortStableFunc(d.waiting, inOrder)
	return d.deal()
}

// Publish says that the weights behind round Publication-1 can be had. It is the trainer's credit for what
// they draw. A publication that was made before is made again after a run went back, and changes nothing.
func (d *Desk) Publish(publication int64) []actors.Message {
	switch {
	case publication < d.published:
		return nil
	case publication > d.published:
		panic(fmt.Sprintf("rounds: publication %d comes behind %d", publication, d.published-1))
	case publication > d.trained:
		panic(fmt.Sprintf("rounds: publication %d, and %d rounds are trained on", publication, d.trained))
	}
	d.published++
	for _, p := range d.Work(publication) {
		if p.From == 0 {
			d.left[p.Round] = d.groups * len(d.parts(p.Round))
		}
		for g := range d.groups {
			t := Task{p, g}
			d.waiting, d.open[t] = append(d.waiting, t), true
		}
	}
	slices.SortStableFunc(d.waiting, inOrder)
	return d.deal()
}

// Result reports whether a task that a sampler has done counts: what comes from a sampler that was lost, or comes
// twice, does not.
func (d *Desk) Result(sampler uint32, m *actors.Message) (counts bool, out []actors.Message) {
	s, t := d.seats[sampler], TaskOf(m)
	if s == nil {
		return false, nil
	}
	i := slices.Index(s.tasks, t)
	if i < 0 {
		return false, nil
	}
	s.tasks = slices.Delete(s.tasks, i, i+1)
	delete(d.open, t)
	d.left[t.Round]--
	return true, d.deal()
}

// Tell implements pool.Desk.
func (d *Desk) Tell(_ actors.Time, m *actors.Message) []actors.Message {
	if m.Kind != pool.Ask {
		return nil
	}
	return d.Publish(m.Step)
}

// Shut implements pool.Desk: others draw what nobody draws in a place.
func (*Desk) Shut(error) []actors.Message { return nil }

// Complete reports whether all answers of a round are drawn.
func (d *Desk) Complete(round int64) bool { n, begun := d.left[round]; return begun && n == 0 }

// Trained says that the steps of a round are over.
func (d *Desk) Trained(round int64) {
	if round < d.trained {
		return // once more, after a run went back
	}
	if round > d.trained || !d.Complete(round) {
		panic(fmt.Sprintf("rounds: round %d is trained on, which is not drawn or not the next", round))
	}
	d.trained++
	delete(d.left, round)
}

// Worked reports whether all that publications up to one draw is drawn.
func (d *Desk) Worked(publication int64) bool {
	for t := range d.open { //lfvet:order any one decides
		if t.Publication <= publication {
			return false
		}
	}
	return publication < d.published
}

// Needed is the oldest publication that somebody may still ask for.
func (d *Desk) Needed() int64 {
	least := d.published - 1
	for t := range d.open { //lfvet:order the least of all is found
		least = min(least, t.Publication)
	}
	return least
}

// inOrder sorts tasks by their publications, rounds and groups.
func inOrder(a, b Task) int {
	for _, d := range []int64{a.Publication - b.Publication, a.Round - b.Round, int64(a.Group - b.Group)} {
		if d != 0 {
			return int(d)
		}
	}
	return 0
}

// deal gives waiting tasks to samplers with room. A part of an answer waits for the one before it, and a
// sampler takes other weights when it has nothing under way.
func (d *Desk) deal() (out []actors.Message) {
	for i := 0; i < len(d.waiting); {
		t := d.waiting[i]
		if !d.ready(t) {
			i++
			continue
		}
		k, found := d.best(t)
		if !found {
			break // the oldest first: what comes later does not overtake it
		}
		s := d.seats[k]
		if s.loaded != t.Publication {
			s.loaded = t.Publication
			out = append(out, t.order(pool.Load, k))
		}
		s.tasks = append(s.tasks, t)
		out = append(out, t.order(pool.Task, k))
		d.waiting = slices.Delete(d.waiting, i, i+1)
	}
	return out
}

// ready reports whether the part before a task's is drawn.
func (d *Desk) ready(t Task) bool {
	if t.From == 0 {
		return true
	}
	for _, p := range d.parts(t.Round) {
		if p.Publication < t.Publication && d.open[Task{p, t.Group}] {
			return false
		}
	}
	return true
}

// best is the sampler that takes a task: one that has its weights, with the fewest tasks; else one with
// nothing under way.
func (d *Desk) best(t Task) (best uint32, found bool) {
	least := d.hold
	for _, k := range d.order {
		if s := d.seats[k]; s.loaded == t.Publication && len(s.tasks) < least {
			best, least, found = k, len(s.tasks), true
		}
	}
	for _, k := range d.order {
		if s := d.seats[k]; s.loaded != t.Publication && len(s.tasks) == 0 && (!found || least > 0) {
			return k, true
		}
	}
	return best, found
}
