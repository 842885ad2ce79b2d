package rounds

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
)

// Task is a group of a round's answers of which a sampler draws a part.
// In the words of the field: rollout.
type Task struct {
	Part
	Group int // of the round's prompts
}

// message is the task as it is asked: it and its result have it as Values, and weights are those of a Comm.
func (t Task) message(n int64) actors.Message {
	return actors.Message{Kind: pool.Ask, Step: n, Comm: int32(t.Publication) + 1, Values: []float64{float64(t.Publication),
		float64(t.Round), float64(t.From), float64(t.To), float64(t.Group)}}
}

// TaskOf is the task of a message that a Desk had a sampler told, or of a result that counts.
func TaskOf(m *actors.Message) (t Task) {
	v := m.Values
	return Task{Part{int64(v[0]), int64(v[1]), int64(v[2]), int64(v[3])}, int(v[4])}
}

// PublicationOf is what a sampler takes that is told to Load.
func PublicationOf(m *actors.Message) int64 { return int64(m.Comm) - 1 }

// Desk hands tasks to samplers: a pool's desk, on which Ask makes the publication Step. It gives tasks to samplers with
// room that have the weights, and weights to those with nothing under way. Its methods are for one goroutine.
type Desk struct {
	pool.Queue
	s      Schedule
	groups int // prompts of a round

	published int64           // publications that are made
	trained   int64           // rounds that are trained on
	last      int64           // rounds to draw, 0 for any number
	asked     int64           // tasks
	left      map[int64]int   // groups with their parts that are not drawn, of rounds that are begun
	late      map[int64]int64 // the publication that draws a round whole, of those that nobody had
	open      map[Task]bool   // tasks that are not done
}

// NewDesk is the desk of a run that begins: of a schedule, rounds of so many groups, samplers that have so
// many tasks at once, and so many rounds in all (0 for any number).
func NewDesk(s Schedule, groups, hold int, rounds int64) *Desk {
	d := &Desk{s: s, groups: groups, last: rounds, left: map[int64]int{}, late: map[int64]int64{}, open: map[Task]bool{}}
	d.Queue = pool.Queue{Hold: hold, Loads: true, Ready: func(m *actors.Message) bool { return d.ready(TaskOf(m)) }}
	return d
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

// Publish says that the weights behind round Publication-1 can be had. It is the trainer's credit for what
// they draw. A publication that was made before is made again after a run went back, and changes nothing.
func (d *Desk) Publish(publication int64) (out []actors.Message) {
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
			d.asked++
			m := t.message(d.asked)
			d.open[t] = true
			out = append(out, d.Queue.Tell(0, &m)...)
		}
	}
	return out
}

// Result implements pool.Desk: what comes from a sampler that was lost, or comes twice, does not count.
func (d *Desk) Result(sampler uint32, m *actors.Message) (counts bool, out []actors.Message) {
	asked := d.Take(sampler, m)
	if asked == nil {
		return false, nil
	}
	m.Values = asked.Values
	t := TaskOf(m)
	delete(d.open, t)
	d.left[t.Round]--
	return true, d.Deal()
}

// Tell implements pool.Desk.
func (d *Desk) Tell(_ actors.Time, m *actors.Message) []actors.Message {
	if m.Kind != pool.Ask {
		return nil
	}
	return d.Publish(m.Step)
}

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
