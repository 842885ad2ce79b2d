package sim

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Monitor watches a run for what the protocols promise: every rank runs its program in order with all inputs,
// once a step, and updates once; no edge carries more than its credits; a step is opened only when the one before is
// committed, and committed when every rank has closed it once; nothing is left over at the end.
type Monitor struct {
	l      *Layout
	rows   []*rowWatch
	credit map[edgeKey]int
	owed   int                  // credits of all edges that have not come back
	closed map[actors.Ref]int64 // last step that each rank closed
	open   map[actors.Ref]int64
	step   int64 // committed
	epoch  uint32
	awake  []uint32 // epoch in which each rank's last step was opened
	came   map[cameKey]bool
	holds  []int64 // the step whose update each rank's parameters hold
	whole  bool    // collectives are one event a member
	lost   bool    // a rank is, since the coordinator was told
	went   int64   // the step that all who are left went back to last, 0 where one was lost since
	ready  int     // ranks that are, for the step under way
	commit int64   // the newest step for which all were
	least  int64   // the oldest that may be taken for it
	books  []*ledger
	course course
	saves  saves
	gone   map[int]bool          // ranks that are gone for good, as the coordinator knows
	places map[[2]int64]int64    // by epoch and step: where experts lie
	filed  map[int64]int64       // by step: where they lie in its checkpoint
	loads  map[actors.Ref]uint32 // by loader: the epoch in which it was asked last
	wild   map[int64]bool        // steps that are to be given up
	fault  string
}

// cameKey is what may come once.
type cameKey struct {
	to            actors.Ref
	kind          actors.Kind
	step          int64
	a             plan.Action
	seg, comm, at int32
}

// edgeKey names one direction of one port of a rank, for which credits and order are checked.
type edgeKey struct {
	rank int
	to   actors.Ref
	edge int32 // port·2 + direction
}

// rowWatch is where a rank is in its program. Of an overlapped pair either part may be next.
type rowWatch struct {
	step    int64
	epoch   uint32
	pc      int
	seg     [2]int // of the entry's action and of the one it overlaps
	over    [2]bool
	updates int
}

// NewMonitor watches one run of a layout.
func NewMonitor(l *Layout) *Monitor {
	m := &Monitor{l: l, credit: map[edgeKey]int{}, closed: map[actors.Ref]int64{}, open: map[actors.Ref]int64{},
		came: map[cameKey]bool{}, step: l.Run.First - 1, commit: l.Run.First - 1, least: l.Run.First - 1,
		places: map[[2]int64]int64{}, filed: map[int64]int64{}, gone: map[int]bool{}}
	for range l.Ranks {
		m.rows = append(m.rows, &rowWatch{})
		m.holds = append(m.holds, l.Run.First-1)
	}
	m.awake, m.loads = make([]uint32, len(l.Ranks)), map[actors.Ref]uint32{}
	m.startBooks()
	return m
}

// Fault is the first promise that was broken, "" if none was.
func (m *Monitor) Fault() string { return m.fault }

// broken notes a broken promise of the protocol. The first alone is kept, since those after it mostly follow from it.
func (m *Monitor) broken(format string, a ...any) {
	if m.fault == "" {
		m.fault = fmt.Sprintf(format, a...)
	}
}

// Attach makes options that let the monitor watch.
func (m *Monitor) Attach(o Options) Options {
	m.wild = map[int64]bool{}
	for _, x := range o.Faults {
		if x.Kind == Wild {
			m.wild[int64(x.Nth)] = true
		}
	}
	o.See, o.Span, o.Report, m.whole = m.see, m.span, m.report, o.Whole
	return o
}

// rank is the number of the rank at address r, or -1 if no rank has it.
func (m *Monitor) rank(r actors.Ref) int {
	for i, x := range m.l.RankRefs {
		if x == r {
			return i
		}
	}
	return -1
}

// see checks one delivered message against all that the protocol promises. Messages of an epoch
// that has ended are passed over, because receivers throw them away too.
func (m *Monitor) see(e Event) {
	m.seeSave(e)
	m.seeCommit(e)
	switch { // a new epoch begins: what the one before promised is void
	case (e.M.Kind == actors.Rewind || e.M.Kind == actors.Claim) && e.M.Epoch > m.epoch:
		m.epoch, m.owed = e.M.Epoch, 0
		clear(m.credit)
		clear(m.closed)
		clear(m.open)
		clear(m.came)
		if m.lost = true; e.M.Kind == actors.Rewind {
			m.step = e.M.Step
		}
	case e.M.Kind == actors.Done:
	case e.M.Epoch < m.epoch:
		return
	case e.M.Kind == actors.Open:
		m.awake[m.rank(e.To)] = e.M.Epoch
	}
	switch e.M.Kind {
	case actors.Activation, actors.Cotangent, actors.Part, actors.Batch, actors.Load:
		m.once(e)
	}
	switch e.M.Kind {
	case actors.Activation, actors.Cotangent, actors.Credit:
		m.seeEdge(e)
	case actors.Open:
		m.seeOpen(e)
	case actors.Closed:
		if e.M.Step > 0 && m.closed[e.M.From]+1 != e.M.Step && m.closed[e.M.From] != 0 {
			m.broken("rank %d closed step %d after step %d", m.rank(e.M.From), e.M.Step, m.closed[e.M.From])
		}
		if e.M.Step > 0 { // an evaluation is not a step
			m.closed[e.M.From] = e.M.Step
		}
	}
}

// seeEdge counts what edges carry: K-1, and with the count at the end K-2.
func (m *Monitor) seeEdge(e Event) {
	if e.M.Kind == actors.Credit {
		k := edgeKey{m.rank(e.To), e.M.From, e.M.Comm}
		n := core.CreditsOf(e.M.Values)
		m.owed -= n
		if m.credit[k] -= n; m.credit[k] < 0 || n < 1 {
			m.broken("edge %d of rank %d got %v credits back for messages it did not carry", k.edge, k.rank, n)
		}
		return
	}
	dir := int32(0)
	if e.M.Kind == actors.Cotangent {
		dir = 1
	}
	k := edgeKey{m.rank(e.M.From), e.To, e.M.Port*2 + dir}
	m.owed++
	if m.credit[k]++; k.rank >= 0 && m.credit[k] > m.l.Ranks[k.rank].Credits {
		m.broken("edge %d of rank %d carries %d messages on %d credits", k.edge, k.rank, m.credit[k],
			m.l.Ranks[k.rank].Credits)
	}
}

// seeOpen holds the opening of a step to S-1 and R-2.
func (m *Monitor) seeOpen(e Event) {
	if e.M.Step <= 0 {
		return
	}
	if e.M.Step != m.step+1 {
		m.broken("step %d was opened after step %d", e.M.Step, m.step)
	}
	if held := m.holds[m.rank(e.To)]; held != e.M.Step-1 {
		m.broken("step %d was opened on rank %d, whose parameters are those of step %d", e.M.Step, m.rank(e.To), held)
	}
	if m.open[e.To] == e.M.Step {
		m.broken("step %d was opened twice on rank %d", e.M.Step, m.rank(e.To))
	}
	m.open[e.To] = e.M.Step
}

// left notes that the coordinator has ended an epoch: a save is void, unless its parts are written and it is
// committed all the same.
func (m *Monitor) left() {
	m.lost, m.went = true, 0
	if m.saves.job == 0 {
		m.saves.begun = 0
	}
}

// succeeded notes that a coordinator has taken over: a commit that reached nobody who is left is none, and a
// checkpoint whose commit was under way either.
func (m *Monitor) succeeded() {
	m.saves.job = 0
	m.left()
	newest := m.l.Run.First - 1
	for i, b := range m.books {
		if !b.lost {
			newest = max(newest, m.holds[i])
		}
	}
	m.least = min(m.commit, newest)
}

// spikes reports whether a step that all are ready for is out of the ordinary, and so is not to be committed:
// C-5. Where nothing is usual yet, or nothing was taken for large, none is.
func (m *Monitor) spikes(step int64) bool {
	x := m.l.Run.Spikes
	return x.On() && m.l.Norm != nil && step > x.After && m.l.Norm(step) > x.Norm*x.Norm
}

// seeCommit follows which step is decided, and where everybody is sent after a loss: C-1, C-5, D-3, R-1 and H-1.
func (m *Monitor) seeCommit(e Event) {
	switch {
	case e.M.Kind == actors.Started && e.M.Step > 0 && e.To == m.l.Coordinator:
		m.succeeded()
	case e.M.Kind == actors.Down && e.To == m.l.Coordinator:
		if e.M.Member == 1 { // that it has ended was told before, or by who took over
			m.gone[m.rank(e.M.From)] = true
			break
		}
		m.left()
	case e.M.Epoch < m.epoch:
	case e.M.Kind == actors.Open && e.M.Step > 0 && (m.lost || e.M.Step > m.commit+1 || m.ready == len(m.l.Ranks)):
		m.lost, m.ready = false, 0
	case e.M.Kind == actors.Ready && !m.lost:
		if m.ready++; m.ready == len(m.l.Ranks) && !m.spikes(e.M.Step) {
			m.commit, m.least = e.M.Step, e.M.Step
		}
	case e.M.Kind == actors.Commit && !m.lost && e.M.Step != m.commit:
		m.broken("step %d is committed while %d of %d ranks are ready", e.M.Step, m.ready, len(m.l.Ranks))
	case e.M.Kind == actors.Rewind && e.M.Epoch > m.epoch:
		switch {
		case e.M.Segment == core.FromMember && (e.M.Step > m.commit || e.M.Step < m.least):
			m.broken("all are to hold step %d, the newest that is committed is step %d", e.M.Step, m.commit)
		case e.M.Segment == core.FromDisk && m.saves.job != 0:
			m.broken("all are sent back to step %d while the checkpoint of step %d is committed, which "+
				"may remove it", e.M.Step, m.saves.begun)
		case e.M.Segment == core.FromDisk && e.M.Step != m.saves.kept, e.M.Step < m.saves.kept:
			m.broken("all are sent back to step %d, the newest durable state is that of step %d", e.M.Step,
				m.saves.kept)
		}
		m.commit, m.least, m.ready = e.M.Step, e.M.Step, 0
	}
}

// once notes data that comes a second time: L-1.
func (m *Monitor) once(e Event) {
	k := cameKey{to: e.To, kind: e.M.Kind, step: e.M.Step, a: e.M.Action, seg: e.M.Segment, comm: e.M.Comm,
		at: e.M.Member}
	switch e.M.Kind {
	case actors.Part:
		k.at = int32(e.M.From)
	case actors.Load:
		k.at = int32(e.M.From)
		m.loads[e.To] = max(m.loads[e.To], e.M.Epoch)
	case actors.Activation, actors.Cotangent:
		k.at = e.M.Port
	}
	if m.came[k] && e.M.Step > 0 { // evaluations are the same batches every time
		m.broken("%v came twice in step %d", e.M.Action, e.M.Step)
	}
	m.came[k] = true
}

// report holds the end of the run to S-2 and R-3, and that of a step to what all ranks have made of it.
func (m *Monitor) report(r actors.Message) {
	switch {
	case r.Text == core.TopicEnd && m.saves.begun > 0:
		m.broken("the run ends before the save of step %d is durable", m.saves.begun)
	case r.Text == core.TopicEnd && len(m.gone) > 0 && m.l.Run.SaveEvery == 0 && !m.l.Run.SaveAtEnd:
	case r.Text == core.TopicEnd && len(m.gone) > 0 && (m.saves.kept != r.Step || r.Step < m.went):
		m.broken("the run ends for good after step %d, the newest durable state is that of step %d, and all who "+
			"are left went back to step %d", r.Step, m.saves.kept, m.went)
	case r.Text == core.TopicEnd && len(m.gone) > 0:
	case r.Text == core.TopicEnd && m.l.Run.SaveAtEnd && m.saves.kept != m.step:
		m.broken("the run ends after step %d, the newest durable state is that of step %d", m.step, m.saves.kept)
	}
	switch r.Text {
	case core.TopicBroken:
		m.left()
	case core.TopicBack:
		m.went = r.Step
	}
	if r.Text != core.TopicStep {
		return
	}
	for i, ref := range m.l.RankRefs {
		if m.lost { // it was decided, and not all are left to close it
			break
		}
		if m.closed[ref] != r.Step {
			m.broken("step %d was committed, rank %d has closed step %d", r.Step, i, m.closed[ref])
		}
		m.audit(i, r.Step)
	}
	m.step = r.Step
}

// span checks a job against the program.
func (m *Monitor) span(s Span) {
	for _, o := range s.Made {
		if o.Epoch = m.loads[s.Ref]; s.Rank >= 0 {
			o.Epoch = m.awake[s.Rank]
		}
	}
	m.book(s)
	if s.Rank < 0 || s.Job.Engine != actors.Compute {
		return
	}
	// it has not heard of the epoch yet, or catches up with what was decided before
	if m.awake[s.Rank] < m.epoch {
		if s.Job.Kind == actors.UpdatePhase {
			m.applies(s)
		}
		return
	}
	m.origins(s.Rank, s.Job)
	if s.Job.Step < 0 {
		return
	}
	w, l := m.rows[s.Rank], m.l.Ranks[s.Rank]
	if w.step != s.Job.Step || w.epoch != m.epoch {
		*w = rowWatch{step: s.Job.Step, epoch: m.epoch}
	}
	row := l.Program.Rows[l.Row]
	m.pass(s.Rank, w, row)
	if s.Job.Kind == actors.UpdatePhase {
		if w.pc != len(row) {
			m.broken("rank %d updates in step %d after %d of %d actions", s.Rank, w.step, w.pc, len(row))
		}
		if int(s.Job.Segment) != w.updates {
			m.broken("rank %d runs segment %d of the optimizer step of step %d, it should be %d", s.Rank,
				s.Job.Segment, w.step, w.updates)
		}
		w.updates++
		m.applies(s)
		return
	}
	if w.pc >= len(row) {
		m.broken("rank %d runs %v beyond its program", s.Rank, s.Job.Action)
		return
	}
	m.inputs(s.Rank, s.Job)
	m.advance(w, l, row[w.pc], s)
	m.adds(s.Rank, s.Job)
}

// pass goes over the actions that a rank has nothing to do for.
func (m *Monitor) pass(rank int, w *rowWatch, row []plan.Entry) {
	for w.pc < len(row) {
		e := &row[w.pc]
		w.over[0] = w.over[0] || m.void(rank, w.step, e.Action)
		w.over[1] = w.over[1] || e.With.Kind != plan.None && m.void(rank, w.step, e.With)
		if !w.over[0] || e.With.Kind != plan.None && !w.over[1] {
			return
		}
		w.pc++
		w.seg, w.over = [2]int{}, [2]bool{}
	}
}

// applies notes the job that changes a rank's parameters, the first after the segment in which it was ready,
// and holds it to C-2 and M-2.
func (m *Monitor) applies(s Span) {
	n, segs := int(s.Job.Segment), m.segments(s.Rank, s.Job)
	m.books[s.Rank].half = n > 0 && len(segs[n].Comms) > 0
	if n == 0 || !segs[n-1].Ready {
		return
	}
	v := s.Job.Values
	if !core.IsVerdict(v) || core.VerdictOf(v).LR != m.l.Run.LR(s.Job.Step) {
		m.broken("rank %d updates in step %d with %v, which the coordinator has not committed", s.Rank, s.Job.Step, v)
	}
	if core.IsVerdict(v) {
		m.bookUpdate(s.Rank, s.Job)
	}
	if at := m.books[s.Rank].copying; s.Start < at {
		m.broken("rank %d updates in step %d while its state is copied", s.Rank, s.Job.Step)
	}
	m.holds[s.Rank] = s.Job.Step
}

// advance checks that a job is the next of its rank's program, and moves on. Of two actions that
// run together each goes through its own segments, and the entry is over when both are.
func (m *Monitor) advance(w *rowWatch, l *core.RankLayout, e plan.Entry, s Span) {
	part := 0
	if s.Job.Action == e.With {
		part = 1
	} else if s.Job.Action != e.Action {
		m.broken("rank %d runs %v, its program says %v", s.Rank, s.Job.Action, e)
		return
	}
	if int(s.Job.Segment) != w.seg[part] || w.over[part] {
		m.broken("rank %d runs segment %d of %v, it should be %d", s.Rank, s.Job.Segment, s.Job.Action, w.seg[part])
	}
	segs := l.Lower(s.Job.Action, false, s.Job.Class)
	pc := w.seg[part]
	w.seg[part]++
	w.over[part] = pc >= len(segs)-1
	if w.over[0] && (w.over[1] || e.With.Kind == plan.None) {
		w.pc++
		w.seg, w.over = [2]int{}, [2]bool{}
	}
}

// inputs checks that a job got everything it needs.
func (m *Monitor) inputs(rank int, j *actors.Job) {
	l, want := m.l.Ranks[rank], 0
	switch {
	case j.Segment > 0:
		segs := l.Lower(j.Action, false, j.Class)
		for _, at := range segs[j.Segment].Await {
			if x := &segs[at.Segment].Comms[at.Comm]; m.whole || x.Shift != 0 {
				want++
			} else {
				want += len(l.Groups[x.Group].Members)
			}
		}
	case j.Action.Kind == plan.F:
		want = 1
		for _, p := range l.Ports {
			if p.To == int(j.Action.Stage) && !m.absent(l, p, j.Class) {
				want++
			}
		}
	case j.Action.Kind != plan.W:
		for _, p := range l.Ports {
			if p.From == int(j.Action.Stage) && p.Grad && !m.absent(l, p, j.Class) {
				want++
			}
		}
	}
	if len(j.In) != want {
		m.broken("rank %d runs %v segment %d with %d inputs of %d", rank, j.Action, j.Segment, len(j.In), want)
	}
}

// absent reports whether nothing comes along a port for a class of microbatches.
func (m *Monitor) absent(l *core.RankLayout, p core.Port, class int32) bool {
	return p.Optional && l.Absent != nil && l.Absent(p.ID, class)
}

// End checks what a run left behind, K-2, I-3 and I-4 among it: what was taken twice leaves a panic, a stall,
// a credit or a payload too many, or states that are not those of one update a step. A run without faults
// must also have ended well.
func (m *Monitor) End(r *Result, steps int64) string {
	switch {
	case m.fault != "":
	case r.Stall != nil:
		m.broken("%v", r.Stall)
	case r.Failed != "":
		m.broken("%s", r.Failed)
	case int64(len(r.Steps)) != steps && len(m.gone) == 0:
		m.broken("%d steps were committed, not %d", len(r.Steps), steps)
	case m.owed != 0 && len(m.gone) == 0: // else it may have left a step
		m.broken("%d credits never came back", m.owed)
	case r.Leaked != 0 || r.Open != 0 && len(m.gone) == 0:
		m.broken("%d payloads and %d frames were left over", r.Leaked, r.Open)
	}
	for i := range m.books {
		if m.fault == "" && len(m.gone) == 0 {
			m.audit(i, m.l.Run.First+steps-1)
		}
	}
	return m.fault
}
