package pool

import (
	"errors"
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// Queue is a desk on which the task that was asked first goes to a member before others. Tasks of one Comm go to the
// member that did the last of them, while that is there and free.
type Queue struct {
	Places int                          // of its pool
	Most   int                          // members that a task may be lost with before it is given up, 0 for any number
	Wait   actors.Duration              // of a task for room, where a member finds none
	Limit  int                          // tasks that may wait, 0 for any number
	Hold   int                          // tasks that a member has at once, of one Comm; 0 is 1
	Loads  bool                         // a member is told of another Comm by a Load; else it is given tasks together alone
	Ready  func(t *actors.Message) bool // whether a task may be done now; nil for all

	waiting []*task // by when they were asked
	seats   []*seat // the one that was used longest ago first
	asked   int
	deals   int
	failed  error
}

// ErrFull is the answer to a task where as many wait as may.
var ErrFull = errors.New("too many tasks wait")

// task is one that was asked and is not answered.
type task struct {
	m     actors.Message
	n     int
	since actors.Time
	lost  int // members
}

// seat is a member.
type seat struct {
	member uint32
	begun  bool
	chain  int32 // the Comm that goes on here, 0 for none
	dealt  int   // when it was given its tasks
	tasks  []*task
}

func (q *Queue) seat(member uint32) int {
	return slices.IndexFunc(q.seats, func(s *seat) bool { return s.member == member })
}

// Join implements Desk.
func (q *Queue) Join(member uint32) []actors.Message {
	q.seats = append(q.seats, &seat{member: member})
	return q.Deal()
}

// Lose implements Desk.
func (q *Queue) Lose(member uint32, now actors.Time, how *actors.Message) (out []actors.Message) {
	i := q.seat(member)
	tasks := q.seats[i].tasks
	q.seats = slices.Delete(q.seats, i, i+1)
	for _, t := range tasks {
		over := false
		switch {
		case how.Kind == Ended && how.Port == Full:
			over = now-t.since >= actors.Time(q.Wait)
		case how.Kind == Ended && how.Port == Untried:
		default:
			t.lost++
			over = q.Most > 0 && t.lost >= q.Most
		}
		if over {
			out = append(out, t.answer(how.Err))
			continue
		}
		at, _ := slices.BinarySearchFunc(q.waiting, t.n, func(x *task, n int) int { return x.n - n })
		q.waiting = slices.Insert(q.waiting, at, t)
	}
	return append(out, q.Deal()...)
}

// answer is the error of a task that nobody does.
func (t *task) answer(err error) actors.Message {
	t.m.Kind, t.m.Err = Answer, err
	return t.m
}

// Take takes a task from a member that has a result of it: the task as it was asked, nil where it has none such.
func (q *Queue) Take(member uint32, m *actors.Message) *actors.Message {
	i := q.seat(member)
	s := q.seats[i]
	k := slices.IndexFunc(s.tasks, func(t *task) bool { return t.m.Step == m.Step })
	if k < 0 {
		return nil
	}
	t := s.tasks[k]
	if s.tasks = slices.Delete(s.tasks, k, k+1); t.m.Payload != nil {
		t.m.Payload.Release()
	}
	if m.Port == Freed {
		s.chain = 0
	}
	if !q.Loads {
		q.seats = append(slices.Delete(q.seats, i, i+1), s)
	}
	return &t.m
}

// Result implements Desk.
func (q *Queue) Result(member uint32, m *actors.Message) (counts bool, out []actors.Message) {
	if q.Take(member, m) == nil {
		return false, nil
	}
	return true, q.Deal()
}

// Tell implements Desk.
func (q *Queue) Tell(now actors.Time, m *actors.Message) []actors.Message {
	switch m.Kind {
	case Ask:
		q.asked++
		t := &task{m: *m, n: q.asked, since: now}
		if q.failed != nil {
			return []actors.Message{t.answer(q.failed)}
		}
		q.waiting = append(q.waiting, t)
		out := q.Deal()
		if n := len(q.waiting) - 1; q.Limit > 0 && n >= q.Limit {
			q.waiting = q.waiting[:n]
			out = append(out, t.answer(ErrFull))
		}
		return out
	case Free:
		for _, s := range q.seats {
			if s.chain == m.Comm {
				s.chain = 0
			}
		}
	}
	return nil
}

// Shut implements Desk.
func (q *Queue) Shut(err error) (out []actors.Message) {
	q.Places--
	if q.failed = err; err == nil {
		return q.Deal() // a task may have waited for the place
	}
	for _, t := range q.waiting {
		out = append(out, t.answer(err))
	}
	q.waiting = nil
	return out
}

// Deal gives tasks that wait to members, the oldest first: what comes later does not overtake it. Member says how many
// tasks a member is given together.
func (q *Queue) Deal() (out []actors.Message) {
	q.deals++
	for i := 0; i < len(q.waiting); {
		t := q.waiting[i]
		if q.Ready != nil && !q.Ready(&t.m) {
			i++
			continue
		}
		s := q.best(t)
		if s == nil {
			if q.Most == 0 || t.lost == 0 {
				break
			}
			i++ // it waits for a fresh member alone
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		m := t.m
		if m.Epoch = s.member; q.Loads && s.chain != m.Comm {
			out = append(out, actors.Message{Kind: Load, Epoch: s.member, Comm: m.Comm})
		}
		s.tasks, s.chain, s.begun, s.dealt, m.Kind = append(s.tasks, t), m.Comm, true, q.deals, Task
		if out = append(out, m); m.Payload != nil {
			m.Payload.Retain() // others may have to do it too
		}
	}
	for i := range out {
		out[i].Member = int32(len(q.seats[q.seat(out[i].Epoch)].tasks))
	}
	return out
}

// best is the member for a task, nil where there is none.
func (q *Queue) best(t *task) (best *seat) {
	least := 0
	for _, s := range q.seats {
		if n := q.fit(t, s); n > 0 && (best == nil || n < least) {
			best, least = s, n
		}
	}
	return best
}

// fit is how well a member fits a task, the less the better, or 0: of those with nothing to do the one that its Comm goes
// on with, or one that nothing goes on with, or a fresh one, or any; else one of its Comm with room, and few tasks. A
// task that may be lost with few is for a fresh one behind the first, as long as there are some.
func (q *Queue) fit(t *task, s *seat) int {
	chained := s.begun && s.chain == t.m.Comm && s.chain != 0
	marked := t.lost > 0 && q.Most > 0
	switch {
	case marked && s.begun && q.Places > len(q.seats): // the place of the one that was lost comes back
		return 0
	case len(s.tasks) > 0 && (!chained || len(s.tasks) >= q.Hold || !q.Loads && s.dealt != q.deals):
		return 0
	case len(s.tasks) > 0:
		return 4 + len(s.tasks)
	case !s.begun:
		return 3
	case marked:
		return 4
	case chained:
		return 1
	case s.chain == 0:
		return 2
	}
	return 4
}
