package sim

import (
	"fmt"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Blob is the payload of a simulation: a size and a count of references.
type Blob struct {
	n    int64
	refs int32
	pool *blobs
}

// blobs counts the payloads that are alive and keeps the dead for reuse.
type blobs struct {
	live int64
	idle []*Blob
}

func (b *blobs) get(n int64) actors.Payload {
	b.live++
	if k := len(b.idle); k > 0 {
		x := b.idle[k-1]
		b.idle = b.idle[:k-1]
		x.n, x.refs = n, 1
		return x
	}
	return &Blob{n: n, refs: 1, pool: b}
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

// device is what a rank's jobs run on: its accounts of time and memory.
type device struct {
	l     *core.RankLayout
	sizes []int // members of each group, before collectives became one event
	in    [][]core.Port
	out   [][]core.Port
	held  []frame // open frames: few, so they are looked up by walking the list
	now   int64   // bytes
	peak  int64
	slow  float64
	step  int64 // of the row's last account
	Account
	last int64 // end of the last compute job
	from int64 // start of the step's first action, end of its last
	to   int64
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

func (d *device) init(s *Sim, l *core.RankLayout) {
	d.l, d.slow = l, 1
	stages := len(l.Program.StageRank)
	d.in, d.out = make([][]core.Port, stages), make([][]core.Port, stages)
	for _, p := range l.Ports {
		d.out[p.From], d.in[p.To] = append(d.out[p.From], p), append(d.in[p.To], p)
	}
	if s.l.Memory.Base != nil {
		d.now = s.l.Memory.Base(l.Rank)
	}
	d.peak = d.now
}

// do runs a job on the actor's device: it takes the engine when it is free and tells the actor when it is done.
func (s *Sim) do(self actors.Ref, j actors.Job) {
	c := &s.cells[self]
	m := actors.Message{Kind: actors.Done, From: self, Job: j.ID, Step: j.Step, Action: j.Action, Segment: j.Segment, Text: j.Text}
	seg := &noSegment
	switch {
	case c.rank >= 0:
		seg = s.rankJob(&s.dev[c.rank], &j, &m)
	case c.loader >= 0:
		s.batch(&s.l.Loaders[c.loader].Ranks[0], &m)
	}
	for _, in := range j.In {
		in.Payload.Release()
	}
	begin := max(s.now, c.free[j.Engine])
	took := s.duration(c, &j, seg)
	c.free[j.Engine] = begin + took
	if c.rank >= 0 {
		s.account(&s.dev[c.rank], &j, begin, took, &m)
	}
	if s.o.Span != nil {
		s.o.Span(Span{int(c.rank), self, &j, actors.Time(begin), actors.Time(begin + took)})
	}
	s.post(begin+took, self, m)
}

func (s *Sim) duration(c *cell, j *actors.Job, seg *core.Segment) int64 {
	took := s.p.Job(int(c.rank), j, seg)
	if took < 0 {
		panic(fmt.Sprintf("sim: %v takes %d ns", j.Action, took))
	}
	if s.o.Jitter > 0 {
		took += int64(s.rng.Float64() * s.o.Jitter * float64(took))
	}
	if c.rank >= 0 && s.dev[c.rank].slow != 1 {
		took = int64(float64(took) * s.dev[c.rank].slow)
	}
	if c.loader >= 0 {
		took += s.faults.lateLoader
	}
	return took
}

var noSegment core.Segment

// rankJob makes the results of a segment: a part for every member of its collectives, and behind the last one the stage's
// ports.
func (s *Sim) rankJob(d *device, j *actors.Job, m *actors.Message) *core.Segment {
	var segs []core.Segment
	switch j.Kind {
	case actors.RunSegment:
		segs = d.l.Lower(j.Action, j.Step < 0)
	case actors.UpdatePhase:
		segs = d.l.Update
	default:
		return &noSegment
	}
	pc := int(j.Segment)
	seg := &noSegment
	if pc < len(segs) {
		seg = &segs[pc]
	}
	m.Out = s.list()
	for i, comm := range seg.Comms {
		n := len(d.l.Groups[comm.Group].Members)
		for k := range n {
			m.Out = append(m.Out, actors.Output{Comm: int32(i), Member: int32(k), Payload: s.blobs.get(comm.Bytes / int64(max(1, n)))})
		}
	}
	last := pc >= len(segs) || pc == len(segs)-1 && len(seg.Comms) == 0
	if j.Kind == actors.RunSegment {
		if err := s.frame(d, j, last); err != nil {
			s.drop(m)
			m.Out, m.Err = m.Out[:0], err
			return seg
		}
	}
	if !last || j.Kind != actors.RunSegment {
		return seg
	}
	ports, back := d.out[j.Action.Stage], false
	switch j.Action.Kind {
	case plan.F:
	case plan.B, plan.I:
		ports, back = d.in[j.Action.Stage], true
	default:
		ports = nil
	}
	for _, p := range ports {
		if !back || p.Grad {
			m.Out = append(m.Out, actors.Output{Comm: -1, Port: p.ID, Payload: s.blobs.get(p.Bytes)})
		}
	}
	return seg
}

func (s *Sim) list() []actors.Output {
	if n := len(s.outs); n > 0 {
		out := s.outs[n-1]
		s.outs = s.outs[:n-1]
		return out
	}
	return make([]actors.Output, 0, 4)
}

// frame keeps the account of an action's memory: the worst of it from its first job, what it leaves after its last.
func (s *Sim) frame(d *device, j *actors.Job, last bool) error {
	if s.l.Memory.Foot == nil || j.Segment > 0 && !last {
		return nil
	}
	peak, after := s.l.Memory.Foot(d.l.Rank, j)
	i, held := d.find(j.Action), int64(0)
	if i >= 0 {
		held = d.held[i].bytes
	}
	if j.Segment == 0 {
		d.peak = max(d.peak, d.now-held+peak)
		if limit := s.l.Memory.Limit; limit > 0 && d.now-held+peak > limit {
			return fmt.Errorf("%v needs %d bytes, the limit is %d: out of memory", j.Action, d.now-held+peak, limit)
		}
	}
	if !last {
		return nil
	}
	d.now += after - held
	switch {
	case after != 0 && i >= 0:
		d.held[i].bytes = after
	case after != 0:
		d.held = append(d.held, frame{j.Action, after})
	case i >= 0:
		d.held[i] = d.held[len(d.held)-1]
		d.held = d.held[:len(d.held)-1]
	}
	return nil
}

// frame is the memory of one microbatch or chunk in one stage.
type frame struct {
	a     plan.Action
	bytes int64
}

func (d *device) find(a plan.Action) int {
	for i := range d.held {
		if f := &d.held[i].a; f.Micro == a.Micro && f.Stage == a.Stage && f.Chunk == a.Chunk {
			return i
		}
	}
	return -1
}

// batch makes the data of a step: every microbatch and chunk.
func (s *Sim) batch(first *actors.Ref, m *actors.Message) {
	l := s.dev[s.cells[*first].rank].l
	m.Out = s.list()
	for mb := range l.Program.Micro {
		for c := range l.Program.NumChunks(mb) {
			m.Out = append(m.Out, actors.Output{Comm: int32(mb), Member: int32(c), Payload: s.blobs.get(s.l.BatchBytes)})
		}
	}
}

// account books a job's time and the wait before it.
func (s *Sim) account(d *device, j *actors.Job, begin, took int64, m *actors.Message) {
	if n := len(s.vals); n > 0 {
		m.Values, s.vals = s.vals[n-1], s.vals[:n-1]
		clear(m.Values)
	} else {
		m.Values = make([]float64, core.ClosedLen)
	}
	m.Values[core.ClosedBusy], m.Values[core.ClosedPeak] = float64(took), float64(d.peak)
	if j.Engine != actors.Compute || j.Step < 0 {
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
	d.to = d.last
	d.Span = d.to - d.from
}
