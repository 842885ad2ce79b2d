package core

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// cursor is an action under way: a position in its list of segments.
type cursor struct {
	a    plan.Action
	segs []Segment
	pc   int
}

func (r *Rank) cursor(a plan.Action) *cursor { return &cursor{a: a, segs: r.l.Lower(a, r.eval())} }

// last reports whether the segment now at pc is the action's last job. Parts that arrive after the last segment's
// communications are taken in by a job of their own.
func (c *cursor) last() bool {
	return c.pc >= len(c.segs) || c.pc == len(c.segs)-1 && len(c.segs[c.pc].Comms) == 0
}

// Wait is what a cursor lacks. It is a plain value, put into words only when somebody asks: ranks look for what they lack at
// every message.
type Wait struct {
	From actors.Ref
	lack lack
	a    plan.Action
	part int32 // of a collective
	seg  int32
}

type lack uint8

const (
	nothing lack = iota
	lackPart
	lackData
	lackActivation
	lackGradient
)

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
	}
	return ""
}

// missing is the first thing that c's next job still lacks.
func (r *Rank) missing(c *cursor) Wait {
	if c.pc > 0 {
		for i, comm := range c.segs[c.pc-1].Comms {
			g := r.l.Groups[comm.Group]
			if m := r.inbox.absent(partKey{c.a, int32(c.pc - 1), int32(i)}, len(g.Members)); m >= 0 {
				return Wait{From: g.Members[m], lack: lackPart, a: c.a, part: int32(m), seg: int32(c.pc - 1)}
			}
		}
		return Wait{}
	}
	switch c.a.Kind {
	case plan.F:
		if !r.inbox.hasBatch(c.a) {
			return Wait{From: r.l.Loader, lack: lackData, a: c.a}
		}
		for _, p := range r.inputsOf(int(c.a.Stage)) {
			if !r.inbox.hasPort(portKey{at(c.a, plan.F), p.ID}) {
				return Wait{From: r.l.Peer(p.From), lack: lackActivation, a: c.a}
			}
		}
	case plan.B, plan.I:
		for _, p := range r.outputsOf(int(c.a.Stage)) {
			if p.Grad && !r.inbox.hasPort(portKey{at(c.a, plan.B), p.ID}) {
				return Wait{From: r.l.Peer(p.To), lack: lackGradient, a: c.a}
			}
		}
	}
	return Wait{}
}

// start hands the next job of c to the device, with everything that came for it.
func (r *Rank) start(ctx actors.Context, c *cursor) {
	j := actors.Job{Kind: actors.RunSegment, Engine: actors.Compute, Step: r.step, Action: c.a, Segment: int32(c.pc), Values: r.scalars}
	if c.a.Kind == plan.Step {
		j.Kind = actors.UpdatePhase
	}
	if c.pc > 0 {
		for i, comm := range c.segs[c.pc-1].Comms {
			parts := r.inbox.parts(partKey{c.a, int32(c.pc - 1), int32(i)})
			for m := range r.l.Groups[comm.Group].Members {
				j.In = append(j.In, actors.Input{Comm: int32(i), Member: int32(m), Payload: parts[m]})
			}
		}
	} else {
		r.inputs(ctx, c, &j)
	}
	if r.hungry {
		r.values[ClosedWait] += float64(ctx.Now() - r.since)
		r.hungry = false
	}
	r.since = ctx.Now()
	r.do(ctx, j)
}

// inputs gathers the data, activations or cotangents of an action's first job and returns their credits.
func (r *Rank) inputs(ctx actors.Context, c *cursor, j *actors.Job) {
	take := func(k plan.Kind, p Port, from int, back int32) {
		pay := r.inbox.port(portKey{at(c.a, k), p.ID})
		j.In = append(j.In, actors.Input{Comm: -1, Port: p.ID, Payload: pay})
		if peer := r.l.Peer(from); peer != ctx.Self() {
			ctx.Send(peer, actors.Message{Kind: actors.Credit, Epoch: r.epoch, Comm: p.ID*2 + back, Values: one})
		}
	}
	switch c.a.Kind {
	case plan.F:
		if b := r.inbox.batch(c.a); b != nil {
			j.In = append(j.In, actors.Input{Comm: -1, Port: -1, Payload: b})
		}
		for _, p := range r.inputsOf(int(c.a.Stage)) {
			take(plan.F, p, p.From, 0)
		}
	case plan.B, plan.I:
		for _, p := range r.outputsOf(int(c.a.Stage)) {
			if p.Grad {
				take(plan.B, p, p.To, 1)
			}
		}
	}
}

var one = []float64{1}

// finish routes a job's results and moves the cursor on; overlapped actions alternate by turns, never by readiness, so
// that every rank of a group issues its collectives in one order.
func (r *Rank) finish(ctx actors.Context, c *cursor, m actors.Message) {
	ended := c.last()
	for _, o := range m.Out {
		if o.Comm >= 0 {
			r.sendPart(ctx, c, o)
		} else {
			r.sendPort(ctx, c, o)
		}
	}
	c.pc++
	if !ended {
		r.turn = (r.turn + 1) % len(r.cur)
		return
	}
	r.cur = append(r.cur[:r.turn], r.cur[r.turn+1:]...)
	if r.turn >= len(r.cur) {
		r.turn = 0
	}
}

func (r *Rank) sendPart(ctx actors.Context, c *cursor, o actors.Output) {
	g := r.l.Groups[c.segs[c.pc].Comms[o.Comm].Group]
	m := actors.Message{Kind: actors.Part, From: ctx.Self(), Epoch: r.epoch, Step: r.step, Action: c.a, Segment: int32(c.pc), Comm: o.Comm, Member: int32(g.Pos), Payload: o.Payload}
	if to := g.Members[o.Member]; to != ctx.Self() {
		ctx.Send(to, m)
	} else {
		r.inbox.put(m)
	}
}

func (r *Rank) sendPort(ctx actors.Context, c *cursor, o actors.Output) {
	p := r.l.Ports[o.Port]
	m := actors.Message{Kind: actors.Activation, From: ctx.Self(), Epoch: r.epoch, Step: r.step, Action: c.a, Port: p.ID, Payload: o.Payload}
	to, dir := p.To, int32(0)
	m.Action.Kind = plan.F
	if c.a.Kind != plan.F {
		m.Kind, m.Action.Kind, to, dir = actors.Cotangent, plan.B, p.From, 1
	}
	m.Action.Stage = int16(to)
	peer := r.l.Peer(to)
	if peer == ctx.Self() {
		r.inbox.put(m)
		return
	}
	e := r.edge(p.ID*2 + dir)
	e.to = peer
	e.send(ctx, m)
}

// Waits implements actors.Behaviour.
func (r *Rank) Waits() actors.Wait {
	switch {
	case r.running != 0 && len(r.cur) > 0:
		c := r.cur[r.turn]
		return actors.Wait{For: actors.None, What: fmt.Sprintf("%v segment %d of step %d", c.a, c.pc, r.step), Since: r.since, Busy: true, Held: r.held()}
	case !r.open:
		return actors.Wait{For: r.l.Coordinator, What: "the next step", Since: r.since, Held: r.held()}
	case len(r.cur) > 0:
		w := r.missing(r.cur[r.turn])
		return actors.Wait{For: w.From, What: w.what(), Since: r.since, Held: r.held()}
	}
	return actors.Wait{For: actors.None}
}

// held lists the edges on which this rank holds messages for want of credit.
func (r *Rank) held() (out []actors.Held) {
	for _, p := range r.l.Ports {
		for dir := range int32(2) {
			if e := r.edges[p.ID*2+dir]; e != nil && e.credits == 0 && len(e.queue) > 0 {
				out = append(out, actors.Held{To: e.to, Edge: p.edgeName(dir), Count: len(e.queue), Credits: r.l.Credits})
			}
		}
	}
	return out
}

func (p Port) edgeName(dir int32) string {
	if dir == 0 {
		return fmt.Sprintf("activation %d→%d", p.From, p.To)
	}
	return fmt.Sprintf("gradient %d→%d", p.To, p.From)
}
