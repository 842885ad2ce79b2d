package sim

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Blob is the payload of a simulation: a size, a count of references, and in a run that somebody watches what made it.
type Blob struct {
	n    int64
	refs int32
	// of a collective in which each member gets a part of its own
	apart bool
	pool  *blobs
	of    *Origin
}

// Origin says which job made a payload: of the data of a step the loader's job, and the action is F of its
// microbatch and chunk.
type Origin struct {
	From    actors.Ref
	Step    int64
	Action  plan.Action
	Segment int32
	Epoch   uint32 // the watcher's, who knows it
}

// blobs counts the payloads that are alive and keeps the dead for reuse.
type blobs struct {
	live  int64
	idle  []*Blob
	fresh []Blob
}

// get gives a payload of n bytes with one reference. Payloads that were released are used again,
// since a long simulation sends millions of them.
func (b *blobs) get(n int64) actors.Payload {
	b.live++
	if k := len(b.idle); k > 0 {
		x := b.idle[k-1]
		b.idle = b.idle[:k-1]
		x.n, x.refs, x.apart, x.of = n, 1, false, nil
		return x
	}
	if len(b.fresh) == 0 {
		b.fresh = make([]Blob, 256)
	}
	x := &b.fresh[0]
	b.fresh = b.fresh[1:]
	*x = Blob{n: n, refs: 1, pool: b}
	return x
}

// Bytes is the size.
func (b *Blob) Bytes() int64 { return b.n }

// Retain adds a reference.
func (b *Blob) Retain() { b.refs++ }

// Release drops one.
func (b *Blob) Release() {
	if b.refs--; b.refs > 0 {
		return
	}
	if b.refs < 0 {
		panic("sim: payload released twice")
	}
	b.pool.live--
	b.pool.idle = append(b.pool.idle, b)
}

// device is what a rank's jobs run on: its accounts of time and memory. One compute job of a rank is under
// way at a time, and its results lie here.
type device struct {
	// of a job's end
	outs   []actors.Output
	values [core.UsageLen]float64
	flying bool // a compute job is under way, and its results lie here
	eval   bool
	// of its beginning
	class  int32
	action plan.Action // whose segments and memory are at hand
	segs   []core.Segment
	rank   *core.Rank
	early  *core.Early
	slow   float64
	last   int64 // end of the last compute job
	began  int64 // its beginning
	from   int64 // start of the step's first action
	step   int64 // of the row's last account
	Account
	peak int64
	// of an action's beginning and end
	need  int64 // bytes of the action at its worst
	leave int64 // and after it
	now   int64 // bytes
	base  int64 // bytes that are held all the time
	l     *core.RankLayout
	w     *wires
	held  []int64 // bytes of open frames, by wires.frame
}

// Account sums up a rank's last step, in nanoseconds.
type Account struct {
	Busy   int64 // in actions
	Update int64 // in the optimizer step's jobs
	Bubble int64 // idle before the first segment of an action: the pipeline
	Comm   int64 // idle before a later segment: collectives inside actions
	Sync   int64 // idle inside the optimizer step
	Span   int64 // first action's start to last action's end
}

// touchResults reads what the end of a job needs.
func (d *device) touchResults() int64 {
	sum := int64(len(d.outs)) + int64(d.values[5]) + int64(d.class)
	if cap(d.outs) > 0 {
		sum += int64(d.outs[:1][0].Port)
	}
	return sum
}

// touch reads what the beginning of one needs.
func (d *device) touch() int64 {
	sum := d.touchResults() + int64(len(d.segs)) + d.last + d.Busy + d.peak + d.base
	if len(d.held) > 0 && int(d.action.Stage) < len(d.w.local) {
		sum += d.held[min(d.w.frame(d.action), len(d.held)-1)]
	}
	return sum
}

// init sets up the account of a rank's device, whose memory begins with what the rank holds all the
// time. Without a model of memory it counts none.
func (d *device) init(s *Sim, l *core.RankLayout, rank *core.Rank) {
	d.l, d.slow, d.w, d.rank, d.early = l, 1, s.wiresOf(l), rank, l.Early
	if s.l.Memory.Foot != nil {
		d.held = make([]int64, d.w.stages*d.w.micro*d.w.chunks)
	}
	if s.l.Memory.Base != nil {
		d.base = s.l.Memory.Base(l.Rank)
	}
	d.now, d.peak = d.base, max(d.peak, d.base)
}

// forget gives up all frames, as before a saved state is read.
func (d *device) forget() {
	clear(d.held)
	d.now, d.segs = d.base, nil
}

// do runs a job on the actor's device: it takes the engine when it is free and tells the actor when it is done.
func (s *Sim) do(self actors.Ref, j *actors.Job) {
	c := &s.cells[self]
	var m actors.Message // field by field: a literal is copied here
	m.Kind, m.From, m.Job, m.Step, m.Action = actors.Done, self, j.ID, j.Step, j.Action
	m.Segment, m.Text, m.Epoch = j.Segment, j.Text, c.life
	seg, reads := &noSegment, int64(0)
	if d := c.dev; d != nil {
		seg = s.rankJob(d, j, &m)
	} else if at := s.extras[self].loader; at >= 0 {
		reads = int64(s.p.Read * float64(s.batch(s.kept(s.l.Loaders[at].Ranks)[0], &m)))
	} else if j.Kind == actors.CommitJob && s.faults.any {
		if s.durable.under == nil {
			s.durable.under = map[actors.JobID]durable{}
		}
		s.durable.under[j.ID] = durable{step: j.Step, values: j.Values}
	}
	begin := max(s.now, c.free[j.Engine])
	if seg.Back > 0 { // it is fetched while the job before runs
		copied := &c.free[actors.Copy]
		*copied = max(*copied, c.dev.began) + int64(s.p.Copy*float64(seg.Back))
		begin = max(begin, *copied)
	}
	took := s.duration(self, c, j, seg) + reads
	if seg.Through > 0 { // both ways at once, beside the work
		begin = max(begin, c.free[actors.Copy])
		took = max(took, int64(s.p.Copy*float64(seg.Through)))
		c.free[actors.Copy] = begin + took
	}
	c.free[j.Engine] = begin + took
	if c.dev != nil && j.Engine == actors.Compute {
		c.dev.began = begin
	}
	if seg.Away > 0 {
		c.free[actors.Copy] = max(c.free[actors.Copy], begin+took) + int64(s.p.Copy*float64(seg.Away))
	}
	if c.dev != nil && j.Engine == actors.Compute {
		c.dev.account(j, begin, took, &m)
		if seg.Ready {
			s.norms(c.dev, j, &m)
		}
		s.wild(c.dev, j, &m)
		c.dev.flying = s.lies(self, &m)
	}
	if s.o.Span != nil {
		s.spans(Span{Rank: int(s.rankOf[self]), Ref: self, Job: j, Start: actors.Time(begin),
			End:  actors.Time(begin + took),
			Made: s.mark(self, j, m.Out)})
	}
	for i := range j.In {
		j.In[i].Payload.Release()
	}
	s.post(begin+took, self, &m)
}

// norms appends the squared norms that a rank reports when it is ready: 1 each, or +Inf on one rank
// where gradients overflow.
func (s *Sim) norms(d *device, j *actors.Job, m *actors.Message) {
	if s.l.Run.Norms == nil {
		return
	}
	norm := 1.0
	if s.l.Norm != nil {
		norm = s.l.Norm(j.Step)
	}
	here := int(j.Step)%len(s.l.Ranks) == d.l.Rank
	if here && s.l.Overflow != nil && s.l.Overflow(j.Step, core.OpeningOf(j.Values).Scale) {
		norm = math.Inf(1)
	}
	v := append(make([]float64, 0, 2*core.UsageLen), m.Values...)
	for range s.l.Run.Norms[d.l.Rank] {
		v = append(v, norm)
	}
	m.Values = v
}

// mark writes on every result of a job who made it; the data of a step goes by microbatch and chunk, and
// what a job issues for the optimizer step by the segment that it belongs to.
func (s *Sim) mark(self actors.Ref, j *actors.Job, out []actors.Output) []*Origin {
	var list []*Origin
	var own *Origin
	for _, o := range out {
		b, ok := o.Payload.(*Blob)
		switch {
		case !ok:
		case o.Early:
			b.of = &Origin{From: self, Step: j.Step, Action: plan.Action{Kind: plan.Step},
				Segment: s.l.Ranks[s.rankOf[self]].Early.Segment}
			list = append(list, b.of)
		case j.Kind == actors.LoadBatch:
			b.of = &Origin{From: self, Step: j.Step, Action: plan.Action{Kind: plan.F, Micro: o.Comm,
				Chunk: int16(o.Member)}}
			list = append(list, b.of)
		case own != nil:
			b.of = own
		default:
			own = &Origin{From: self, Step: j.Step, Action: j.Action, Segment: j.Segment}
			b.of, list = own, append(list, own)
		}
	}
	return list
}

// duration is how long the job takes in nanoseconds: its price, then jitter, a slow device and a
// late loader on top, each where the run asks for it.
func (s *Sim) duration(self actors.Ref, c *cell, j *actors.Job, seg *core.Segment) int64 {
	took := s.p.Job(int(s.rankOf[self]), j, seg)
	// A negative time would let an event happen before its cause.
	if took < 0 {
		panic(fmt.Sprintf("sim: %v takes %d ns", j.Action, took))
	}
	if s.o.Jitter > 0 {
		took += int64(s.rng.Float64() * s.o.Jitter * float64(took))
	}
	if c.dev != nil && c.dev.slow != 1 {
		took = int64(float64(took) * c.dev.slow)
	}
	if s.faults.lateLoader > 0 && s.extras[self].loader >= 0 {
		took += s.faults.lateLoader
	}
	return took
}

var noSegment core.Segment

// rankJob makes the results of a segment: a part for every member of its collectives, and behind the last
// one the stage's ports.
func (s *Sim) rankJob(d *device, j *actors.Job, m *actors.Message) *core.Segment {
	var segs []core.Segment
	switch j.Kind {
	case actors.RunSegment:
		s.open(d, j)
		segs = d.segs
	case actors.UpdatePhase:
		segs = d.l.Update
		if s.l.Memory.Update != nil {
			d.peak = max(d.peak, d.base+s.l.Memory.Update(d.l.Rank))
		}
		if core.MovesExperts(j.Values) {
			segs = d.l.Moving
		}
	case actors.KeepJob, actors.StateJob:
		m.Out = []actors.Output{{Comm: -1, Port: -1, Payload: s.blobs.get(max(1, d.base))}}
		return &noSegment
	case actors.RestoreJob:
		d.forget()
		if s.l.Memory.Forget != nil {
			s.l.Memory.Forget(d.l.Rank)
		}
		return &noSegment
	default:
		return &noSegment
	}
	pc := int(j.Segment)
	seg := &noSegment
	if pc < len(segs) {
		seg = &segs[pc]
	}
	out := d.outs[:0]
	for i := range seg.Comms {
		if comm := &seg.Comms[i]; !comm.Early {
			out = s.partsOf(d, comm, actors.Output{Comm: int32(i)}, out)
		}
	}
	if e := d.early; e != nil && j.Kind == actors.RunSegment && j.Step >= 0 {
		for _, i := range e.Of(j.Action, j.Class, j.Segment) {
			out = s.partsOf(d, &d.l.Update[e.Segment].Comms[i], actors.Output{Comm: i, Early: true}, out)
		}
	}
	last := pc >= len(segs)-1
	if j.Kind == actors.RunSegment {
		if err := s.frame(d, j, last); err != nil {
			m.Out, m.Err = out, err
			s.drop(m)
			m.Out = nil
			return seg
		}
		if last {
			out = s.portsOf(d, j, out)
		}
	}
	d.outs, m.Out = out, out
	return seg
}

// partsOf makes a member's parts of a communication, each an output like o.
func (s *Sim) partsOf(d *device, comm *core.Comm, o actors.Output, out []actors.Output) []actors.Output {
	g := d.rank.Group(comm.Group)
	n := len(g.Members)
	if comm.Shift != 0 {
		o.Member, o.Payload = int32(((g.Pos+comm.Shift)%n+n)%n), s.blobs.get(comm.Bytes)
		return append(out, o)
	}
	for k := range n {
		o.Member, o.Payload = int32(k), s.blobs.get(comm.Bytes/int64(max(1, n)))
		o.Payload.(*Blob).apart = comm.Apart
		out = append(out, o)
	}
	return out
}

// portsOf makes the values that leave an action's stage.
func (s *Sim) portsOf(d *device, j *actors.Job, out []actors.Output) []actors.Output {
	var ports []core.Port
	back := false
	switch j.Action.Kind {
	case plan.F:
		ports = d.w.out[j.Action.Stage]
	case plan.B, plan.I:
		ports, back = d.w.in[j.Action.Stage], true
	}
	for i := range ports {
		if p := &ports[i]; (!back || p.Grad) && !(p.Optional && d.l.Absent(p.ID, j.Class)) {
			out = append(out, actors.Output{Comm: -1, Port: p.ID, Payload: s.blobs.get(p.Bytes)})
		}
	}
	return out
}

// open brings an action's segments and memory to hand.
func (s *Sim) open(d *device, j *actors.Job) {
	if eval := j.Step < 0; d.segs == nil || d.action != j.Action || d.eval != eval || d.class != j.Class {
		d.action, d.eval, d.class, d.segs = j.Action, eval, j.Class, d.l.Lower(j.Action, eval, j.Class)
		if s.l.Memory.Foot != nil {
			d.need, d.leave = s.l.Memory.Foot(d.l.Rank, j)
		}
	}
}

// frame keeps the account of an action's memory: the worst of it from its first job, what it leaves after its last.
func (s *Sim) frame(d *device, j *actors.Job, last bool) error {
	if s.l.Memory.Begin != nil {
		return s.replay(d, j, last)
	}
	if s.l.Memory.Foot == nil || j.Segment > 0 && !last {
		return nil
	}
	held := &d.held[d.w.frame(j.Action)]
	if j.Segment == 0 {
		most := d.now - *held + d.need
		d.peak = max(d.peak, most)
		if limit := s.l.Memory.Limit; limit > 0 && most > limit {
			return fmt.Errorf("%v needs %d bytes, the limit is %d: out of memory", j.Action, most, limit)
		}
	}
	if last {
		d.now += d.leave - *held
		*held = d.leave
	}
	return nil
}

// replay keeps the account where ranks hand memory to one another. Evaluation holds less than training.
func (s *Sim) replay(d *device, j *actors.Job, last bool) error {
	if j.Step < 0 {
		return nil
	}
	if j.Segment == 0 {
		most := d.base + s.l.Memory.Begin(d.l.Rank, j)
		d.peak = max(d.peak, most)
		if limit := s.l.Memory.Limit; limit > 0 && most > limit {
			return fmt.Errorf("%v needs %d bytes, the limit is %d: out of memory", j.Action, most, limit)
		}
	}
	if last {
		d.peak = max(d.peak, d.base+s.l.Memory.End(d.l.Rank, j))
	}
	return nil
}

// batch makes the data of a step, every microbatch and chunk, and returns its bytes.
func (s *Sim) batch(first actors.Ref, m *actors.Message) int64 {
	p := s.cells[first].dev.l.Program
	if n := len(s.outs); n > 0 {
		m.Out, s.outs = s.outs[n-1], s.outs[:n-1]
	}
	for mb := range p.Micro {
		class := int32(0)
		if s.l.Class != nil {
			class = s.l.Class(m.Step, first, mb)
		}
		for c := range p.NumChunks(mb) {
			m.Out = append(m.Out, actors.Output{Comm: int32(mb), Member: int32(c), Port: class,
				Payload: s.blobs.get(s.l.BatchBytes)})
		}
	}
	return int64(len(m.Out)) * s.l.BatchBytes
}

// account books a compute job's time and the wait before it.
func (d *device) account(j *actors.Job, begin, took int64, m *actors.Message) {
	used := core.Usage{Busy: float64(took), Peak: float64(d.peak)}
	m.Values = used.Put(d.values[:])
	if j.Step < 0 {
		return
	}
	if d.step != j.Step {
		d.step, d.Account = j.Step, Account{}
		d.last, d.from = begin, begin
	}
	idle := begin - d.last
	d.last = begin + took
	switch {
	case j.Kind == actors.UpdatePhase:
		d.Sync += idle
		d.Update += took
		return
	case j.Segment > 0:
		d.Comm += idle
	default:
		d.Bubble += idle
	}
	d.Busy += took
	d.Span = d.last - d.from
}
