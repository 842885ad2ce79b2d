package layout

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/topology"
)

// Memory is what a rank needs, in bytes, before anything is allocated.
// In the words of the field: optimizer offload.
type Memory struct {
	Params, State, Grads int64
	Away                 int64 // optimizer state that waits on the host, and is in none of the others
	// the most at any moment of the program, beside gradients that have their accumulators by then
	Activations int64
	Update      int64 // beyond parameters, state and gradients, in the optimizer step
	// Worst is Activations where all tokens go to this rank's experts, or as many as the job's bound lets;
	// of other models it is the same.
	Worst int64
}

// Total is the most that is live at once, with experts evenly used.
func (m Memory) Total() int64 { return m.Params + m.State + m.Grads + max(m.Activations, m.Update) }

// WorstTotal is the same whatever the routing.
func (m Memory) WorstTotal() int64 { return m.Params + m.State + m.Grads + max(m.Worst, m.Update) }

// WorstShare is how many times the rows of even routing a rank may receive: all that its experts can get of
// all tokens, or the job's bound.
func (l *Layout) WorstShare() float64 {
	j := l.Design
	most := j.Model.WorstShare(j.Mesh.Len(topology.EP))
	if j.RoutingBound > 0 {
		most = min(most, j.RoutingBound)
	}
	return most
}

func classOf(d tensor.DType, shape []int) int64 {
	return tensor.ClassBytes(int64(tensor.Len(shape) * d.Size()))
}

// Memory predicts the peak of rank r from the traces and the program.
func (l *Layout) Memory(r int) Memory {
	j, part := l.Design, l.Ranks[r]
	var m Memory
	for _, p := range part.All {
		shape := p.Local
		if p.Packed.Form > 0 {
			shape = p.Value.Local
		}
		o := grad.Options{Mesh: l.meshes[p.Side]}
		if dp := o.Members(o.ZeroAxes(p.Fold)); j.Zero == 3 && dp > 1 && !p.Largest {
			shape = rowsOfShape(shape, 0, (shape[0]+dp-1)/dp)
		}
		m.Params += classOf(p.Value.DType, shape)
	}
	inTwo := map[int]bool{} // parameters of which this rank sums a part of the rows first
	for _, x := range l.Exchanges(&part, SumWhole) {
		for _, i := range x.Params {
			inTwo[i] = true
		}
	}
	read := int64(0)  // of one gradient at a time, out of fixed point
	owned := int64(0) // gradients of a rank's own rows, which are what is left of them when matrices are turned
	for i := range part.Params {
		p := &part.Params[i]
		own := classOf(l.gradType(p), rowsOfShape(p.Local, p.Own.From, p.Own.To))
		if n := l.stateBytes(p); p.Away {
			m.Away += n
		} else {
			m.State += n
		}
		full := classOf(l.gradType(p), p.Local)
		owned += own
		if l.gradType(p) != tensor.F32 {
			read = max(read, classOf(tensor.F32, rowsOfShape(p.Local, p.Own.From, p.Own.To)))
		}
		if j.Zero >= 2 && len(p.Zero) > 0 {
			m.Grads += own
		} else {
			m.Grads += full
		}
		// A rank's own parts of sums are held until the last member has taken them, behind which the next sums begin.
		if len(p.Sum) > 0 {
			m.Update += full
		}
		if len(p.Reduce) > 0 && inTwo[i] {
			o := grad.Options{Mesh: l.meshes[p.Side]}
			_, rows := grad.ShardRows(p.Own.To-p.Own.From, 0, o.Members(p.replicas()))
			m.Update += classOf(l.gradType(p), rowsOfShape(p.Local, 0, rows))
			if j.Zero == 1 && len(p.Zero) > 0 { // the last member to take its own rows of the whole may be slow
				m.Update += own
			}
		} else if len(p.Reduce) > 0 {
			m.Update += own
		}
		if p.Tie > 0 {
			m.Update += own
		}
	}
	// the replay has the gradients' accumulators as they are made
	m.Activations = max(0, l.rowPeaks(1)[part.Row]-m.Grads)
	m.Worst = max(0, l.rowPeaks(l.WorstShare())[part.Row]-m.Grads)
	m.Update = max(m.Update+l.left[part.Row]+read, l.updatePeak(&part)-m.Grads, l.turningPeak(&part)+owned-m.Grads)
	for _, x := range l.Moves(&part) { // a block's tensors are made anew of the rows that come
		m.Update = max(m.Update, l.movedBytes(&part, x))
	}
	return m
}

// rowPeaks are the activations of all rows, replayed once, where ranks receive so many times the rows of even routing.
func (l *Layout) rowPeaks(share float64) []int64 {
	if l.peaks[share] == nil {
		peaks, err := l.activations(share)
		if err != nil {
			panic(fmt.Sprintf("layout: a checked program does not run: %v", err))
		}
		l.peaks[share] = peaks
	}
	return l.peaks[share]
}

// footKey names a footprint.
type footKey struct {
	TraceKey
	split bool
	share float64
}

// foot is what a frame of a stage holds on a rank whose backward is one piece, or split.
func (l *Layout) foot(k TraceKey, split bool, share float64) *grad.Footprint {
	tr, key := l.Trace(k), footKey{k, split, share}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.feet[key]
	if f == nil {
		f = tr.Memory(split, share)
		l.feet[key] = f
	}
	return f
}

// activations are the most that frames and what was handed over take on each row of the program: the program
// is replayed in the order in which its actions run as soon as they can, by the costs of the traces.
func (l *Layout) activations(share float64) ([]int64, error) {
	t, err := l.Program.Evaluate(l.costs())
	if err != nil {
		return nil, err
	}
	type event struct {
		at         float64
		begin      bool
		row, index int
	}
	var events []event
	for r := range t.Start {
		for i := range t.Start[r] {
			events = append(events, event{t.Start[r][i], true, r, i}, event{t.End[r][i], false, r, i})
		}
	}
	// what ends at a moment makes room for what begins then
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), boolOrder(a.begin, b.begin))
	})
	x := l.NewReplay()
	x.share = share
	for _, e := range events {
		entry := l.Program.Rows[e.row][e.index]
		for _, a := range []plan.Action{entry.Action, entry.With} {
			if e.begin {
				x.Begin(e.row, a, l.Class)
			} else {
				x.End(e.row, a, l.Class)
			}
		}
	}
	for row := range l.Program.Rows {
		l.left[row] = x.under(row, nil)
	}
	return x.led.Peak, nil
}

// boolOrder compares as slices.SortFunc wants it, with false before true.
func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// Replay accounts the memory of all rows while actions begin and end, in whatever order they do.
type Replay struct {
	l     *Layout
	led   *plan.Ledger
	grads []map[accumulators]int64 // by row: bytes of the gradients that it has accumulators of
	share float64                  // of the rows of even routing
	// by row and axes: what members that are behind may still have to take of what its actions sent
	trail []map[uint64]int64
}

// accumulators are those that a phase of a stage makes.
type accumulators struct {
	stage int
	ph    grad.Phase
}

// NewReplay begins with rows that hold nothing.
func (l *Layout) NewReplay() *Replay {
	rows := len(l.Program.Rows)
	x := &Replay{l: l, led: plan.NewLedger(rows), grads: make([]map[accumulators]int64, rows), share: 1,
		trail: make([]map[uint64]int64, rows)}
	for row := range x.grads {
		x.grads[row] = map[accumulators]int64{}
	}
	return x
}

// Peak is the most that each row has held so far, beside parameters and state.
func (x *Replay) Peak() []int64 { return x.led.Peak }

// Begin says that a row begins an action on a microbatch of a class, and gives what it holds at the worst of it.
func (x *Replay) Begin(row int, a plan.Action, class int32) int64 {
	ph, ok := PhaseOf[a.Kind]
	if !ok {
		return 0
	}
	f := x.foot(a, class)
	if b, pair := x.l.with[a]; pair {
		if a.Kind == plan.F || b.Kind != plan.F {
			return x.beginPair(row, [2]plan.Action{a, b}, class)
		}
		return x.led.Now[row] // it has begun with its forward
	}
	k := accumulators{int(a.Stage), ph}
	if ph == grad.F || x.has(row, k) {
		return x.led.Begin(row, a, max(f.Peak[ph]+x.under(row, f.Lands[ph]), f.Early[ph][0]+x.under(row, nil)))
	}
	most := x.led.Begin(row, a, max(f.First[ph]+x.under(row, f.Lands[ph]), f.Early[ph][1]+x.under(row, nil)))
	x.keepGrads(row, k, f.Made[ph])
	return most
}

// sent takes in what an action of a row leaves under way: along the axes of its own communications, members
// have taken what went before.
func (x *Replay) sent(row int, trail map[uint64]int64) {
	if x.trail[row] == nil {
		x.trail[row] = map[uint64]int64{}
	}
	maps.Copy(x.trail[row], trail)
}

// under is what is under way of what a row has sent, in bytes, but along axes over which members have taken it.
func (x *Replay) under(row int, taken map[uint64]bool) (n int64) {
	for axes, bytes := range x.trail[row] {
		if !taken[axes] {
			n += bytes
		}
	}
	return n
}

// has reports whether a row has the accumulators that a phase makes, by itself or by the phases of a backward
// in one piece, or in two.
func (x *Replay) has(row int, k accumulators) bool {
	with := func(ph grad.Phase) bool {
		_, made := x.grads[row][accumulators{k.stage, ph}]
		return made
	}
	return with(k.ph) || with(grad.B) || k.ph == grad.B && with(grad.I) && with(grad.W)
}

// keepGrads makes the accumulators of a phase of a row's stage.
func (x *Replay) keepGrads(row int, k accumulators, bytes int64) {
	x.grads[row][k] = bytes
	x.led.Keep(row, bytes)
}

// Updated says that a row's optimizer step is done, which gives its gradients' accumulators back.
func (x *Replay) Updated(row int) {
	for _, bytes := range x.grads[row] {
		x.led.Keep(row, -bytes)
	}
	clear(x.grads[row])
}

// beginPair takes in what a forward and a backward whose segments alternate hold at the worst moment of both,
// and gives what the row holds then in all.
func (x *Replay) beginPair(row int, pair [2]plan.Action, class int32) int64 {
	var course [2][]grad.Moment
	var segs [2][]core.Segment
	var now [2]int64
	for i, a := range pair {
		course[i], segs[i] = x.foot(a, class).Course[PhaseOf[a.Kind]], x.l.Lower(a, false, class)
		now[i] = x.led.Held(row, a)
	}
	before, made, k := now[0]+now[1], int64(0), accumulators{int(pair[1].Stage), PhaseOf[pair[1].Kind]}
	most, taken := before+x.under(row, nil), map[uint64]bool(nil)
	for i, s := range core.Alternate(segs) {
		m := course[i][s]
		if i == 1 && !x.has(row, k) {
			made = m.Made
		}
		if m.Late {
			taken = x.foot(pair[i], class).Lands[PhaseOf[pair[i].Kind]]
		}
		most = max(most, m.Most+now[1-i]+made+x.under(row, taken))
		now[i] = m.After
	}
	all := x.led.Reach(row, most-before)
	// what the backward holds until it ends is in that; whichever ends first, it is not counted again
	x.led.End(row, pair[1], x.foot(pair[1], class).After[PhaseOf[pair[1].Kind]])
	if !x.has(row, k) {
		x.keepGrads(row, k, x.foot(pair[1], class).Made[k.ph])
	}
	return all
}

// foot is the memory that action a takes for a batch of that class. It differs for schedules that
// split the backward into I and W, since the part for W stays longer.
func (x *Replay) foot(a plan.Action, class int32) *grad.Footprint {
	return x.l.foot(TraceKey{Stage: int(a.Stage), Chunk: int(a.Chunk), Class: class}, a.Kind == plan.I ||
		a.Kind == plan.W, x.share)
}

// loan names what a stage hands over: its forward an activation, its backward a cotangent. Rows that run a
// stage together hand over each its own.
func loan(row int, a plan.Action, stage int, k plan.Kind, port int32) plan.Loan {
	a.Stage, a.Kind = int16(stage), k
	return plan.Loan{Of: a, Port: int(port), Row: row}
}

// End says that a row has ended an action.
func (x *Replay) End(row int, a plan.Action, class int32) {
	ph, ok := PhaseOf[a.Kind]
	if !ok {
		return
	}
	f, stage := x.foot(a, class), int(a.Stage)
	x.sent(row, f.Trail[ph])
	x.led.End(row, a, f.After[ph])
	for _, i := range x.l.portsAt[stage] {
		p := &x.l.Ports[i]
		name := x.l.Names[i]
		if p.From == stage {
			x.gave(row, a, ph, f, p, name)
		}
		if p.To == stage {
			x.took(row, a, ph, f, p, name)
		}
	}
}

// gave hands an activation over when a forward has ended, and lets go what the stage holds of it and of its cotangent.
func (x *Replay) gave(row int, a plan.Action, ph grad.Phase, f *grad.Footprint, p *core.Port, name string) {
	h := f.Gives[name]
	own := x.first(p) == p.ID // of several consumers the first counts the giver's own hold
	switch {
	case ph == grad.F:
		holders := 0
		if own {
			for _, i := range x.l.portsAt[p.From] {
				if x.l.Ports[i].From == p.From && x.l.Names[i] == name {
					holders++
				}
			}
			if h.Until != grad.F {
				holders++
			}
			x.led.Lend(row, loan(row, a, p.From, plan.F, p.ID), h.Bytes, holders)
		}
	case own && h.Until == ph:
		x.led.Drop(loan(row, a, p.From, plan.F, p.ID))
	}
	if got, ok := f.Gets[name]; ok && got == ph && p.Grad {
		x.drop(a, p.To, plan.B, p.ID)
	}
}

// took hands a cotangent over when a backward has ended, and lets go what the stage holds of it and of the activation.
func (x *Replay) took(row int, a plan.Action, ph grad.Phase, f *grad.Footprint, p *core.Port, name string) {
	h := f.Sends[name]
	switch {
	case ph == grad.B || ph == grad.I:
		holders := 1
		if h.Until == grad.W && ph == grad.I {
			holders++
		}
		x.led.Lend(row, loan(row, a, p.To, plan.B, p.ID), h.Bytes, holders)
	case h.Until == ph:
		x.led.Drop(loan(row, a, p.To, plan.B, p.ID))
	}
	if took, ok := f.Takes[name]; !ok && ph == grad.F || ok && took == ph {
		x.drop(a, p.From, plan.F, x.first(p))
	}
}

// first is the port with the lowest number that carries the same activation.
func (x *Replay) first(p *core.Port) int32 {
	for _, i := range x.l.portsAt[p.From] {
		if q := &x.l.Ports[i]; q.From == p.From && x.l.Names[i] == x.l.Names[p.ID] {
			return q.ID
		}
	}
	return p.ID
}

// drop lets go what every row of a stage has handed over to the action's.
func (x *Replay) drop(a plan.Action, stage int, k plan.Kind, port int32) {
	for _, row := range x.rows(stage, a) {
		x.led.Drop(loan(row, a, stage, k, port))
	}
}

// rows are those that run a stage for an action's microbatch.
func (x *Replay) rows(stage int, a plan.Action) []int {
	p := x.l.Program
	if p.Homes == nil {
		return p.StageRank[stage : stage+1]
	}
	h := p.Homes[stage]
	return h[int(a.Micro)%len(h)]
}
