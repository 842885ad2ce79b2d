package sim

import (
	"math"
	"reflect"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// update is one change of a rank's parameters: by which step, with which rate, as which update, with
// gradients of which loss scale, and on how many samples.
type update struct {
	step    int64
	rate    float64
	number  int64
	scale   float64
	samples int
}

// sample is what a gradient was made of: the data of a step, and the backward action that used it.
type sample struct {
	step int64
	a    plan.Action
}

// ledger is the symbolic state of a rank: its parameters are the updates that were applied, its
// gradients the samples that have been added since.
type ledger struct {
	updates []update
	grads   []sample
	copied  map[int64][]update // by step: what a copy in memory holds, whoever keeps it
	// by step: what a snapshot copied; it survives the rank's loss once it is durable
	saved   map[int64][]update
	written map[int64]actors.Time // by step: when its part of the checkpoint was on disk
	copying actors.Time           // end of the copy under way
	snapped actors.Time           // end of the newest snapshot
	busy    actors.Time           // end of the last compute job
	lost    bool                  // the rank holds no state
	placed  placed
	half    bool // it has applied an update, and what others have applied has not come yet
}

// saves is what the monitor knows of checkpoints: only what was durable may be gone back to, and the run
// may not end before.
type saves struct {
	begun   int64 // the step of the save under way, 0 for none
	kept    int64 // the newest durable state
	job     actors.JobID
	ordered int64 // the step of the last save that was begun
}

// startBooks opens the books of all ranks as of the step before the first, which counts as saved and written.
func (m *Monitor) startBooks() {
	for range m.l.Ranks {
		first := m.l.Run.First - 1
		m.books = append(m.books, &ledger{copied: map[int64][]update{},
			saved: map[int64][]update{first: nil}, written: map[int64]actors.Time{first: 0}})
	}
	m.saves = saves{kept: m.l.Run.First - 1, ordered: m.l.Run.First - 1}
}

// course is what the layout alone says of a run: its updates, how many there are after each step from the first on,
// and the loss scale then. A step whose gradients overflow makes no update, nor one that is given up.
type course struct {
	updates []update
	count   []int
	scale   []core.LossScale
}

// until works the course out up to a step, with C-4.
func (m *Monitor) until(step int64) *course {
	c, run := &m.course, &m.l.Run
	if c.count == nil {
		c.count, c.scale = []int{0}, []core.LossScale{run.LossScale}
	}
	for n := run.First + int64(len(c.count)) - 1; n <= step; n++ {
		s := c.scale[len(c.scale)-1]
		over := m.l.Overflow != nil && m.l.Overflow(n, s.Scale)
		if !over && !m.wild[n] {
			number := run.OptimSteps + int64(len(c.updates)) + 1
			c.updates = append(c.updates, update{step: n, rate: run.LR(n), number: number, scale: s.Scale})
			if run.Spikes.On() { // every parameter has a norm of 1 in a step that is committed
				norm := math.Sqrt(float64(m.parameters()))
				s.Usual.Norm, s.Usual.Count = s.Usual.Norm+(1-0.98)*(norm-s.Usual.Norm), s.Usual.Count+1
			}
		}
		if !m.wild[n] {
			s.Update(over)
		}
		c.count, c.scale = append(c.count, len(c.updates)), append(c.scale, s)
	}
	return c
}

// parameters counts those whose norms ranks report.
func (m *Monitor) parameters() (n int) {
	for _, list := range m.l.Run.Norms {
		n += len(list)
	}
	return n
}

// after is the number of updates and the loss scale after a step.
func (m *Monitor) after(step int64) (updates int, scale core.LossScale) {
	n := step - m.l.Run.First + 1
	c := m.until(step)
	return c.count[n], c.scale[n]
}

// samples lists what the gradients of a step are made of on a rank: every backward of its program once.
func (m *Monitor) samples(rank int, step int64) (out []sample) {
	l := m.l.Ranks[rank]
	split := map[plan.Action]bool{}
	each(l.Program.Rows[l.Row], func(a plan.Action) {
		if a.Kind == plan.W {
			split[a] = true
		}
	})
	each(l.Program.Rows[l.Row], func(a plan.Action) {
		full := a.Kind == plan.W || a.Kind == plan.B && !split[asKind(a, plan.W)]
		if full && !m.void(rank, step, a) {
			out = append(out, sample{step, a})
		}
	})
	return
}

// each calls f for the actions of a row in order, both of them where two run together.
func each(row []plan.Entry, f func(a plan.Action)) {
	for _, e := range row {
		for _, a := range [2]plan.Action{e.Action, e.With} {
			if a.Kind != plan.None {
				f(a)
			}
		}
	}
}

func asKind(a plan.Action, k plan.Kind) plan.Action { a.Kind = k; return a }

// class is the class of shape of an action's microbatch.
func (m *Monitor) class(rank int, step int64, a plan.Action) int32 {
	l := m.l.Ranks[rank]
	at := slices.Index(m.l.LoaderRefs, l.Loader)
	if m.l.Class == nil || at < 0 {
		return 0
	}
	return m.l.Class(step, m.l.Loaders[at].Ranks[0], int(a.Micro))
}

// void reports whether a rank passes over an action, because its stage does nothing for the microbatch.
func (m *Monitor) void(rank int, step int64, a plan.Action) bool {
	l := m.l.Ranks[rank]
	return l.Shaped && len(l.Lower(asKind(a, plan.F), step < 0, m.class(rank, step, a))) == 0
}

// book enters a job into the books, and holds one that restores a state to E-2.
func (m *Monitor) book(s Span) {
	j := s.Job
	if s.Rank < 0 {
		m.bookSave(s)
		return
	}
	b := m.books[s.Rank]
	switch j.Kind {
	case actors.SnapshotJob, actors.KeepJob, actors.StateJob:
		if held := m.holds[s.Rank]; held != j.Step || b.lost || b.half {
			m.broken("rank %d copies its state for step %d, it holds that of step %d", s.Rank, j.Step, held)
		}
		b.copying = max(b.copying, s.End)
		if j.Kind != actors.SnapshotJob {
			b.copied[j.Step] = slices.Clone(b.updates)
			b.placed.keep(j.Step)
			break
		}
		b.saved[j.Step], b.snapped = slices.Clone(b.updates), s.End
		m.file(s.Rank, j.Step)
		delete(b.written, j.Step)
	case actors.WriteJob:
		if len(j.In) > 0 {
			m.stands(s)
			break
		}
		if _, ok := b.saved[j.Step]; !ok || s.Start < b.snapped {
			m.broken("rank %d writes the state of step %d, which is not copied", s.Rank, j.Step)
		}
		b.written[j.Step] = s.End
	case actors.RestoreJob:
		was := m.source(s.Rank, j)
		m.replace(s.Rank, j)
		if s.Start < b.busy {
			m.broken("rank %d reads the state of step %d while a job runs", s.Rank, j.Step)
		}
		if s.Start < b.copying {
			m.broken("rank %d reads the state of step %d while its state is copied", s.Rank, j.Step)
		}
		b.updates, b.grads, b.lost = slices.Clone(was), nil, false
		m.holds[s.Rank], b.half = j.Step, false
		m.audit(s.Rank, j.Step)
	case actors.RunSegment, actors.UpdatePhase:
		if b.lost {
			m.broken("rank %d runs %v without a state", s.Rank, j.Action)
		}
		m.bookPlaces(s.Rank, j)
		b.busy = s.End
	}
}

// source is the state that a rank goes to: what it holds, or what it is given, or what is durable. M-1.
func (m *Monitor) source(rank int, j *actors.Job) []update {
	b := m.books[rank]
	switch {
	case len(j.In) > 0:
		o := j.In[0].Payload.(*Blob).of
		if from := m.rank(o.From); o.Step != j.Step || from != rank && !m.same(rank, from) {
			m.broken("rank %d is given the state of rank %d after step %d, it is to go to step %d", rank,
				from, o.Step, j.Step)
		}
		return m.books[m.rank(o.From)].copied[o.Step]
	case j.Segment == core.FromMember:
		if b.half {
			m.broken("rank %d is to hold step %d, and has not heard what others made of it", rank, j.Step)
		}
		if b.lost || m.holds[rank] != j.Step {
			m.broken("rank %d is to hold step %d and holds step %d", rank, j.Step, m.holds[rank])
		}
		return b.updates
	case j.Segment == core.FromCopy:
		m.broken("rank %d goes to a copy of step %d that it has not", rank, j.Step)
	case j.Step != m.saves.kept:
		m.broken("rank %d goes back to step %d, the newest durable state is that of step %d", rank, j.Step,
			m.saves.kept)
	}
	return b.saved[j.Step]
}

// same reports whether two ranks hold the same state.
func (m *Monitor) same(rank, other int) bool {
	return m.l.Run.Same != nil && slices.Contains(m.l.Run.Same[rank], other)
}

// stands books what a rank writes in the place of one that is gone for good: the state that one had.
func (m *Monitor) stands(s Span) {
	in := s.Job.In[0]
	o, rank := in.Payload.(*Blob).of, m.rank(actors.Ref(in.Member))
	from := m.rank(o.From)
	if !m.gone[rank] || o.Step != s.Job.Step || from != rank && !m.same(rank, from) {
		m.broken("rank %d writes the state of rank %d after step %d as that of rank %d after step %d", s.Rank,
			from, o.Step, rank, s.Job.Step)
	}
	b := m.books[rank]
	b.updates = slices.Clone(m.books[from].copied[o.Step])
	b.saved[s.Job.Step], b.written[s.Job.Step] = b.updates, s.End
	m.audit(rank, s.Job.Step)
}

// bookSave follows the coordinator's part of a save: D-1 and D-2.
func (m *Monitor) bookSave(s Span) {
	switch s.Job.Kind {
	case actors.BeginJob:
		if m.saves.begun > 0 {
			m.broken("the save of step %d begins while that of step %d is under way", s.Job.Step, m.saves.begun)
		}
		for i, ref := range m.l.RankRefs {
			if closed := m.closed[ref]; !m.gone[i] &&
				(m.holds[i] != s.Job.Step || closed != 0 && closed != s.Job.Step) {
				m.broken("the save of step %d begins while rank %d holds step %d and has closed step %d",
					s.Job.Step, i, m.holds[i], closed)
			}
		}
		m.saves.begun, m.saves.ordered, m.saves.job = s.Job.Step, s.Job.Step, 0
	case actors.CommitJob:
		for i, b := range m.books {
			if at, ok := b.written[s.Job.Step]; !ok || at > s.Start {
				m.broken("the checkpoint of step %d is committed before rank %d has written it", s.Job.Step, i)
			}
		}
		n, scale := m.after(s.Job.Step)
		want := core.Filed{Updates: m.l.Run.OptimSteps + int64(n), Scale: scale.Scale, Good: scale.Good,
			Left: scale.Left, Usual: scale.Usual, Reach: scale.Reach}
		got := core.FiledOf(s.Job.Values)
		// where experts lie a coordinator that has taken over may not know
		if got.Laid = (core.Laid{}); !reflect.DeepEqual(got, want) {
			m.broken("the checkpoint of step %d says %+v, it should say %+v", s.Job.Step, got, want)
		}
		m.saves.job = s.Job.ID
	}
}

// seeSave notes what ends a save or makes it void, and a rank's loss of its state.
func (m *Monitor) seeSave(e Event) {
	switch {
	case e.M.Kind == actors.Started && e.M.Step > 0 && m.rank(e.To) >= 0:
		b := m.books[m.rank(e.To)]
		b.updates, b.grads, b.busy, b.copying, b.lost, b.half = nil, nil, 0, 0, true, false
	case e.To != m.l.Coordinator:
	case e.M.Kind == actors.Done && e.M.Job == m.saves.job && m.saves.job != 0:
		if e.M.Err == nil {
			m.saves.kept = m.saves.begun
		}
		m.saves.begun, m.saves.job = 0, 0
	}
}

// adds notes the last job of an action: a backward has then added to the gradients.
func (m *Monitor) adds(rank int, j *actors.Job) {
	l := m.l.Ranks[rank]
	last := int(j.Segment) >= len(l.Lower(j.Action, false, j.Class))-1
	if !last || j.Action.Kind != plan.B && j.Action.Kind != plan.W {
		return
	}
	b := m.books[rank]
	b.grads = append(b.grads, sample{j.Step, j.Action})
}

// bookUpdate books the job that changes a rank's parameters.
func (m *Monitor) bookUpdate(rank int, j *actors.Job) {
	b := m.books[rank]
	want, grads := m.samples(rank, j.Step), b.grads
	b.grads = nil
	for _, x := range want {
		i := slices.Index(grads, x)
		if i < 0 {
			m.broken("rank %d updates in step %d without the gradients of %v", rank, j.Step, x.a)
			return
		}
		grads = slices.Delete(grads, i, i+1)
	}
	for _, x := range grads {
		// the B of a split backward
		split := func(y sample) bool { return y.step == x.step && x.a == asKind(y.a, plan.B) }
		if !slices.ContainsFunc(want, split) {
			m.broken("rank %d updates in step %d with gradients of %v of step %d", rank, j.Step, x.a, x.step)
		}
	}
	if v := core.VerdictOf(j.Values); !v.Overflow {
		b.updates = append(b.updates, update{step: j.Step, rate: v.LR, number: v.Update,
			scale: 1 / v.Factor, samples: len(want)})
	}
	m.audit(rank, j.Step)
}

// audit compares a rank's symbolic state with what the layout says it is after a step: C-3 and E-3.
func (m *Monitor) audit(rank int, step int64) {
	b := m.books[rank]
	n, _ := m.after(step)
	if len(b.updates) != n {
		m.broken("rank %d has the parameters of %d updates after step %d, not of %d", rank, len(b.updates), step, n)
		return
	}
	for i, x := range b.updates {
		w := m.course.updates[i]
		w.samples = len(m.samples(rank, w.step))
		if x != w {
			m.broken("rank %d: update %d is %+v, it should be %+v", rank, i, x, w)
		}
	}
}

// origins checks that every input of a job was made by the job that the program says, in the same step
// and epoch: I-1, I-2 and E-1.
func (m *Monitor) origins(rank int, j *actors.Job) {
	l := m.l.Ranks[rank]
	for _, in := range j.In {
		blob, ok := in.Payload.(*Blob)
		if !ok || blob.of == nil {
			m.broken("rank %d runs %v with an input that nobody made", rank, j.Action)
			continue
		}
		o := blob.of
		want := Origin{From: o.From, Step: j.Step, Action: j.Action, Epoch: m.awake[rank]}
		switch {
		case in.Comm >= 0:
			at := m.segments(rank, j)[j.Segment].Await[in.Comm]
			want.Segment = at.Segment
			x := &m.segments(rank, j)[at.Segment].Comms[at.Comm]
			g := &l.Groups[x.Group]
			if want.From = g.Members[x.From(g, int(in.Member))]; m.whole && len(g.Members) > 1 {
				want.From = o.From
			}
		case in.Port < 0:
			want.From, want.Action = l.Loader, plan.Action{Kind: plan.F, Micro: j.Action.Micro, Chunk: j.Action.Chunk}
		default:
			want.Action.Stage = int16(l.Ports[in.Port].From)
			if j.Action.Kind != plan.F {
				want.Action.Stage, want.Action.Kind = int16(l.Ports[in.Port].To), o.Action.Kind
				if o.Action.Kind != plan.B && o.Action.Kind != plan.I {
					want.Action.Kind = plan.B
				}
			}
			want.Segment = o.Segment
			if l.Routes == nil || l.Routes(in.Port, false) == nil {
				want.From = l.Peer(int(want.Action.Stage))
			}
		}
		if *o != want {
			m.broken("rank %d runs %v segment %d of step %d with what actor %d made in %v segment %d of step %d, "+
				"epoch %d", rank, j.Action, j.Segment, j.Step, o.From, o.Action, o.Segment, o.Step, o.Epoch)
		}
	}
}

// segments are those of a job's action.
func (m *Monitor) segments(rank int, j *actors.Job) []core.Segment {
	l := m.l.Ranks[rank]
	switch {
	case j.Kind != actors.UpdatePhase:
	case core.MovesExperts(j.Values):
		return l.Moving
	default:
		return l.Update
	}
	return l.Lower(j.Action, j.Step < 0, j.Class)
}
