package pool

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// Queue is a desk whose members do one task at a time, the one that was asked first before others. Tasks of one Comm go
// to the member that did the last of them, while that is there and free.
type Queue struct {
	Places int             // of its pool
	Most   int             // members that a task may be lost with before it is given up, 0 for any number
	Wait   actors.Duration // of a task for room, where a member finds none

	waiting []*task // by when they were asked
	seats   []*seat // the one that was used longest ago first
	asked   int
	failed  error
}

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
	chain  int32 // whose tasks go on here, 0 for none
	task   *task
}

var _ Desk = (*Queue)(nil)

// Join implements Desk.
func (q *Queue) Join(member uint32) []actors.Message {
	q.seats = append(q.seats, &seat{member: member})
	return q.deal()
}

// Lose implements Desk.
func (q *Queue) Lose(member uint32, now actors.Time, how *actors.Message) (out []actors.Message) {
	i := slices.IndexFunc(q.seats, func(s *seat) bool { return s.member == member })
	t := q.seats[i].task
	q.seats = slices.Delete(q.seats, i, i+1)
	if t == nil {
		return nil
	}
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
		return append(q.answer(t, how.Err), q.deal()...)
	}
	at := slices.IndexFunc(q.waiting, func(x *task) bool { return x.n > t.n })
	if at < 0 {
		at = len(q.waiting)
	}
	q.waiting = slices.Insert(q.waiting, at, t)
	return q.deal()
}

// answer is the error of a task that nobody does.
func (q *Queue) answer(t *task, err error) []actors.Message {
	t.m.Kind, t.m.Err = Answer, err
	return []actors.Message{t.m}
}

// Result implements Desk.
func (q *Queue) Result(member uint32, m *actors.Message) (counts bool, out []actors.Message) {
	i := slices.IndexFunc(q.seats, func(s *seat) bool { return s.member == member })
	s := q.seats[i]
	if s.task == nil || s.task.m.Step != m.Step {
		return false, nil
	}
	if p := s.task.m.Payload; p != nil {
		p.Release()
	}
	s.task = nil
	if m.Port == Freed {
		s.chain = 0
	}
	q.seats = append(slices.Delete(q.seats, i, i+1), s)
	return true, q.deal()
}

// Tell implements Desk.
func (q *Queue) Tell(now actors.Time, m *actors.Message) []actors.Message {
	switch m.Kind {
	case Ask:
		q.asked++
		t := &task{m: *m, n: q.asked, since: now}
		if q.failed != nil {
			return q.answer(t, q.failed)
		}
		q.waiting = append(q.waiting, t)
		return q.deal()
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
		return q.deal() // a task may have waited for the place
	}
	for _, t := range q.waiting {
		out = append(out, q.answer(t, err)...)
	}
	q.waiting = nil
	return out
}

// deal gives tasks to members.
func (q *Queue) deal() (out []actors.Message) {
	for i := 0; i < len(q.waiting); {
		t := q.waiting[i]
		s := q.best(t)
		if s == nil {
			i++
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		s.task, s.chain, s.begun = t, t.m.Comm, true
		m := t.m
		m.Kind, m.Epoch = Task, s.member
		if out = append(out, m); m.Payload != nil {
			m.Payload.Retain() // others may have to do it too
		}
	}
	return out
}

// best is the free member for a task, nil where there is none: the one that its Comm goes on with, or one that nothing
// goes on with, or a fresh one, or the one that was used longest ago. A task that a member was lost with is for a fresh
// one, as long as there are some.
func (q *Queue) best(t *task) *seat {
	kinds := []func(s *seat) bool{
		func(s *seat) bool { return s.begun && s.chain == t.m.Comm && s.chain != 0 },
		func(s *seat) bool { return s.begun && s.chain == 0 },
		func(s *seat) bool { return !s.begun },
		func(s *seat) bool { return true },
	}
	if t.lost > 0 {
		if kinds = kinds[2:]; q.Places > len(q.seats) { // the place of the one that was lost comes back
			kinds = kinds[:1]
		}
	}
	for _, of := range kinds {
		for _, s := range q.seats {
			if s.task == nil && of(s) {
				return s
			}
		}
	}
	return nil
}
