package core

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// cursor is an action under way: a position in its list of segments.
type cursor struct {
	a     plan.Action
	pc    int32
	class int32 // of the microbatch's shape
	blank bool  // the class, and with it the segments, are not known before the microbatch's data has come
	void  bool  // the stage does nothing for microbatches of this class
	segs  []Segment
	w     *wiring // of the action's stage
}

// begin points the cursor at the first segment of action a and forgets all that the action before left behind.
// A rank whose shapes follow the batch has no segments yet: they are lowered once the shape of the microbatch is known.
func (c *cursor) begin(r *Rank, a plan.Action) {
	*c = cursor{a: a, w: r.wiring(a.Stage), blank: r.l.Shaped}
	if !c.blank {
		c.segs = r.l.Lower(a, r.eval(), 0)
	}
}

// shape fills in what follows from the microbatch's data.
func (c *cursor) shape(r *Rank) {
	c.class, c.blank = r.inbox.class(c.a), false
	c.segs = r.l.Lower(c.a, r.eval(), c.class)
	c.void = len(r.l.Lower(withKind(c.a, plan.F), r.eval(), c.class)) == 0
}

// absent reports whether nothing comes along a wire for microbatches of a class.
func (r *Rank) absent(w *wire, class int32) bool {
	return w.is&optional != 0 && r.l.Absent(w.id, class)
}

// peerOf is the rank at the other end of a wire that sends what action a takes.
func (r *Rank) peerOf(w *wire, a plan.Action, back bool) actors.Ref {
	if w.is&routed == 0 {
		return w.peer
	}
	from := r.l.Routes(w.id, back).From
	return from[int(a.Micro)%len(from)]
}

// atLastSegment reports whether the segment now at pc is the action's last job. An action without segments
// has one empty job.
func (c *cursor) atLastSegment() bool { return int(c.pc) >= len(c.segs)-1 }

// Wait is what a cursor lacks. It is a plain value, put into words only when somebody asks.
type Wait struct {
	lack  lack
	a     plan.Action
	peer  actors.Ref // of an activation or gradient
	group int32      // of a collective
	part  int32      // of its members
	seg   int32
}

// from is the actor that must act.
func (r *Rank) from(w Wait) actors.Ref {
	switch w.lack {
	case lackPart:
		return r.groups[w.group].Members[w.part]
	case lackData:
		return r.l.Loader
	case lackCommit:
		return r.l.Coordinator
	}
	return w.peer
}

type lack uint8

const (
	nothing lack = iota
	lackPart
	lackData
	lackActivation
	lackGradient
	lackCommit
	lackCopy
)

// is notes what is lacking, if anybody wants to know more than that.
func (w *Wait) is(l lack) lack {
	if w != nil {
		w.lack = l
	}
	return l
}

// what is the wait in words.
func (w Wait) what() string {
	switch w.lack {
	case lackPart:
		return fmt.Sprintf("part %d of %v segment %d", w.part, w.a, w.seg)
	case lackData:
		return fmt.Sprintf("data of microbatch %d", w.a.Micro)
	case lackActivation:
		return fmt.Sprintf("activation %v", w.a)
	case lackGradient:
		return fmt.Sprintf("gradient %v", w.a)
	case lackCommit:
		return "the commit of the step"
	case lackCopy:
		return "the copy of its state in memory"
	}
	return ""
}

// missing is the first thing that c's next job still lacks. Who asks for more than that gives a place for the
// rest; ranks look for what they lack at every message, and give none.
func (r *Rank) missing(c *cursor, more *Wait) lack {
	if c.blank {
		if !r.inbox.hasBatch(c.a) {
			return more.is(lackData)
		}
		c.shape(r)
	}
	if c.pc > 0 {
		if c.segs[c.pc-1].Ready {
			if r.verdict == nil {
				return more.is(lackCommit)
			}
			if r.copying() { // of what the update changes
				return more.is(lackCopy)
			}
		}
		for _, at := range c.segs[c.pc].Await {
			x := &c.segs[at.Segment].Comms[at.Comm]
			g := &r.groups[x.Group]
			if m := r.inbox.absent(partKey{c.a, at.Segment, at.Comm}, x.parts(g)); m >= 0 {
				if more != nil {
					more.group, more.part, more.seg = int32(x.Group), int32(x.From(g, m)), at.Segment
				}
				return more.is(lackPart)
			}
		}
		return nothing
	}
	switch c.a.Kind {
	case plan.F:
		if !r.inbox.hasBatch(c.a) {
			return more.is(lackData)
		}
		for i := range c.w.in {
			if p := &c.w.in[i]; !r.absent(p, c.class) && !r.inbox.hasPort(portKey{c.a, p.id}) {
				if more != nil {
					more.peer = r.peerOf(p, c.a, false)
				}
				return more.is(lackActivation)
			}
		}
	case plan.B, plan.I:
		for i := range c.w.out {
			if p := &c.w.out[i]; p.is&withGrad != 0 && !r.absent(p, c.class) &&
				!r.inbox.hasPort(portKey{withKind(c.a, plan.B), p.id}) {
				if more != nil {
					more.peer = r.peerOf(p, c.a, true)
				}
				return more.is(lackGradient)
			}
		}
	}
	return nothing
}

// start hands the next job of c to the device, with everything that came for it.
func (r *Rank) start(ctx actors.Context, c *cursor) {
	clear(r.ins)     // the job before has ended, and with it its use of the list
	var j actors.Job // field by field: a literal is copied here
	j.Kind, j.Engine, j.Step, j.Action = actors.RunSegment, actors.Compute, r.step, c.a
	j.Segment, j.Class, j.Values, j.In = c.pc, c.class, r.scalars, r.ins[:0]
	if c.a.Kind == plan.Step {
		j.Kind = actors.UpdatePhase
		if r.verdict != nil {
			j.Values = r.verdict
		}
	}
	if c.pc > 0 {
		for i, at := range c.segs[c.pc].Await {
			parts := r.inbox.parts(partKey{c.a, at.Segment, at.Comm})
			x := &c.segs[at.Segment].Comms[at.Comm]
			for m := range x.parts(&r.groups[x.Group]) {
				j.In = append(j.In, actors.Input{Comm: int32(i), Member: int32(m), Payload: parts[m]})
			}
		}
	} else {
		r.inputs(ctx, c, &j)
	}
	if r.hungry {
		r.used.Wait += float64(ctx.Now() - r.since)
		r.hungry = false
	}
	r.since, r.ins = ctx.Now(), j.In
	r.do(ctx, &j)
	if c.a.Kind == plan.Step && c.pc > 0 && c.segs[c.pc-1].Ready {
		r.applying = r.running
	}
}

// inputs gathers the data, activations or cotangents of an action's first job and returns their credits.
func (r *Rank) inputs(ctx actors.Context, c *cursor, j *actors.Job) {
	switch c.a.Kind {
	case plan.F:
		if b := r.inbox.batch(c.a); b != nil {
			j.In = append(j.In, actors.Input{Comm: -1, Port: -1, Payload: b})
		}
		for i := range c.w.in {
			if p := &c.w.in[i]; !r.absent(p, c.class) {
				r.take(ctx, c, j, plan.F, p, 0)
			}
		}
	case plan.B, plan.I:
		for i := range c.w.out {
			if p := &c.w.out[i]; p.is&withGrad != 0 && !r.absent(p, c.class) {
				r.take(ctx, c, j, plan.B, p, 1)
			}
		}
	}
}

// take moves a port's value into a job and gives its credit back.
func (r *Rank) take(ctx actors.Context, c *cursor, j *actors.Job, k plan.Kind, p *wire, dir int32) {
	j.In = append(j.In, actors.Input{Comm: -1, Port: p.id, Payload: r.inbox.port(portKey{withKind(c.a, k), p.id})})
	if peer := r.peerOf(p, c.a, dir == 1); peer != ctx.Self() {
		ctx.Send(peer, actors.Message{Kind: actors.Credit, From: ctx.Self(), Epoch: r.epoch, Comm: p.id*2 +
			dir, Values: one})
	}
}

var one = []float64{1}

// finish routes a job's results and moves the cursor on. Of two overlapped actions one goes on until its next
// segment awaits something; then it is the other's turn, ready or not, so that every rank of a group issues
// its collectives in one order.
func (r *Rank) finish(ctx actors.Context, c *cursor, m *actors.Message) {
	ended := c.atLastSegment()
	for i := range m.Out {
		if o := &m.Out[i]; o.Comm >= 0 {
			r.sendPart(ctx, c, o)
		} else {
			r.sendPort(ctx, c, o)
		}
	}
	if n := int(c.pc); c.a.Kind == plan.Step && !c.segs[n].Ready {
		if more := Behind(m.Values); len(more) > 0 {
			r.loads = slices.Clone(more)
		}
	}
	if n := int(c.pc); n < len(c.segs) && c.segs[n].Ready {
		ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Ready, Step: r.step, Epoch: r.epoch, Text: r.why,
			Values: append(r.used.Values(), Behind(m.Values)...)})
	}
	c.pc++
	switch {
	case ended:
		r.end()
	case r.under == 2 && len(c.segs[c.pc].Await) > 0:
		r.turn = 1 - r.turn
	}
}

// end drops the action whose turn it is.
func (r *Rank) end() {
	if r.turn == 0 && r.under == 2 {
		r.cur[0] = r.cur[1]
	}
	r.turn = 0
	r.under--
}

// sendPart sends one member its part of a collective. The part for the rank itself takes the short
// way into its own inbox, so that a member counts all parts alike.
func (r *Rank) sendPart(ctx actors.Context, c *cursor, o *actors.Output) {
	a, seg, segs := c.a, c.pc, c.segs
	// A collective that starts before the step's end belongs to the update, whatever action ran then.
	if o.Early {
		a, seg, segs = stepAction, r.l.Early.Segment, r.l.Update
	}
	x := &segs[seg].Comms[o.Comm]
	g := &r.groups[x.Group]
	m := actors.Message{Kind: actors.Part, From: ctx.Self(), Epoch: r.epoch, Step: r.step, Action: a,
		Segment: seg, Comm: o.Comm, Member: int32(g.Pos), Payload: o.Payload}
	if x.Shift != 0 {
		m.Member = 0 // the only part
	}
	if to := g.Members[o.Member]; to != ctx.Self() {
		ctx.Send(to, m)
	} else {
		r.inbox.part(&m)
	}
}

// sendPort sends what a segment gave at a port to the stage at its other end: an activation after a forward,
// a cotangent after a backward. A port that the stage lacks is a defect of the layout and panics.
func (r *Rank) sendPort(ctx actors.Context, c *cursor, o *actors.Output) {
	m := actors.Message{Kind: actors.Activation, From: ctx.Self(), Epoch: r.epoch, Step: r.step, Action: c.a,
		Port: o.Port, Payload: o.Payload}
	ends, dir := c.w.out, int32(0)
	if c.a.Kind != plan.F {
		m.Kind, m.Action.Kind, ends, dir = actors.Cotangent, plan.B, c.w.in, 1
	}
	for i := range ends {
		if w := &ends[i]; w.id == o.Port {
			// The receiver looks the message up under its own stage, not under the sender's.
			m.Action.Stage = w.far
			if w.is&routed != 0 {
				r.fanOut(ctx, &m, dir)
			} else {
				r.sendTo(ctx, w.peer, &m, dir)
			}
			return
		}
	}
	panic(fmt.Sprintf("core: rank %d: port %d is none of stage %d", r.l.Rank, o.Port, c.a.Stage))
}

// fanOut sends a port's value to every rank that its route names for the microbatch; the last takes over the reference.
func (r *Rank) fanOut(ctx actors.Context, m *actors.Message, dir int32) {
	to := r.l.Routes(m.Port, dir == 1).To
	peers := to[int(m.Action.Micro)%len(to)]
	if len(peers) == 0 {
		drop(m)
		return
	}
	for range peers[1:] {
		m.Payload.Retain()
	}
	for _, p := range peers {
		r.sendTo(ctx, p, m, dir)
	}
}

// sendTo hands a message of a port to peer. Two stages on one rank need no credit, since the inbox takes the message at
// once. dir is 0 for activations and 1 for gradients, which have edges of their own.
func (r *Rank) sendTo(ctx actors.Context, peer actors.Ref, m *actors.Message, dir int32) {
	if peer == ctx.Self() {
		r.inbox.put(m)
		return
	}
	r.edge(m.Port*2+dir, peer).send(ctx, m)
}

// Waits implements actors.Behaviour.
func (r *Rank) Waits() actors.Wait {
	switch {
	case r.running != 0 && r.under > 0:
		c := &r.cur[r.turn]
		return actors.Wait{For: actors.None, What: fmt.Sprintf("%v segment %d of %s", c.a, c.pc, StepName(r.step)),
			Since: r.since, Busy: true, Held: r.held()}
	case r.phase == behind && (len(r.io) > 0 || r.running != 0 || r.target.given && r.target.state == nil):
		return actors.Wait{For: actors.None, What: fmt.Sprintf("going back to step %d", r.target.step), Since: r.since,
			Busy: true, Held: r.held()}
	case r.phase != working:
		return actors.Wait{For: r.l.Coordinator, What: "the next step", Since: r.since, Held: r.held()}
	case r.under > 0:
		c := &r.cur[r.turn]
		w := Wait{a: c.a, peer: actors.None}
		r.missing(c, &w)
		return actors.Wait{For: r.from(w), What: w.what(), Since: r.since, Held: r.held()}
	}
	return actors.Wait{For: actors.None}
}

// held lists the edges on which this rank holds messages for want of credit.
func (r *Rank) held() (out []actors.Held) {
	for _, p := range r.l.Ports {
		for dir := range int32(2) {
			for i := range r.edges {
				if e := &r.edges[i]; e.id == p.ID*2+dir && e.credits == 0 && e.waiting() > 0 {
					out = append(out, actors.Held{To: e.to, Edge: p.edgeName(dir), Count: e.waiting(),
						Credits: r.l.Credits})
				}
			}
		}
	}
	return out
}

// edgeName is what reports call the edge of a port in one direction, with the stages that it joins:
// 0 is forward, 1 is backward.
func (p Port) edgeName(dir int32) string {
	if dir == 0 {
		return fmt.Sprintf("activation %d→%d", p.From, p.To)
	}
	return fmt.Sprintf("gradient %d→%d", p.To, p.From)
}
