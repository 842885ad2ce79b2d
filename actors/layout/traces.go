package layout

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// TraceKey names a trace of a rank.
type TraceKey struct {
	Stage, Chunk int
	Eval         bool
	Class        int32 // of the microbatch's shape
}

// PhaseOf is the phase of a trace that an action runs.
var PhaseOf = map[plan.Kind]grad.Phase{plan.F: grad.F, plan.B: grad.B, plan.I: grad.I, plan.W: grad.W}

// options gathers what recording a stage depends on. Whatever changes the trace has to pass here,
// since the planner, the memory model and the ranks all record with these same options.
func (l *Layout) options(eval bool, stage, chunk int) grad.Options {
	j := l.Design
	o := grad.Options{Mesh: l.meshes[l.Side(stage)], DType: j.DType, ShardGrads: j.Zero >= 2, ShardParams: j.Zero == 3,
		FixedPoint: j.FixedPoint, Frozen: j.Frozen, Recompute: j.Recompute, NoGrad: eval, Chunk: chunk,
		Chunks: max(1, j.Chunks)}
	if j.Offload > 0 && !eval {
		o.Offload = func(v *grad.Value) bool { return tensor.Len(v.Shape)*v.DType.Size() >= j.Offload }
	}
	if len(j.Chosen) > 0 && !eval {
		o.Choose = l.choose
	}
	// A gradient that nobody upstream wants, as that of a frozen encoder, is not computed.
	o.InputGrad = func(port string) bool {
		for _, f := range l.Stages[stage].In {
			if f.Port == port {
				return l.wants(f.Peer, port)
			}
		}
		return false
	}
	if l.split && l.Side(stage) == DecoderSide {
		o.RecomputePerPhase = true
	}
	o.Each, o.Overlap = l.each(stage, chunk), j.Overlap || j.Pairs
	o.Split = l.split
	if !eval {
		o.Bucket = l.bucketBytes(stage)
	}
	o.SeqLen, o.Scores, o.Device, o.Program = l.seqLen, j.Scores, j.Device, j.Software
	o.MostRows, o.SumWhole = j.RoutingBound, j.SumWhole
	// An encoder may keep its last values only where no other microbatch needs the room.
	o.KeepLogits = stage >= len(j.Parts) && l.held[stage-len(j.Parts)] <= 1 && !l.follows()
	return o
}

// seqLen is the length of the sequences that a tensor of borders cuts, as far as the plan knows it.
func (l *Layout) seqLen(data string) int {
	switch d := l.Design.Dims; data {
	case "cu_seqlens":
		return l.Design.SeqLen
	case "vis.cu":
		return d[block.Patches] / max(1, d[block.Frames])
	}
	return 0
}

// each is what the blocks of a stage have of their own, nil where all are alike.
func (l *Layout) each(stage, chunk int) func(int) (tensor.DType, grad.Recompute) {
	j := l.Design
	keep := j.Chunks > 1 && chunk+j.KeepChunks >= j.Chunks
	spared := l.spared(stage)
	if j.Component == nil && !keep && spared == nil {
		return nil
	}
	return func(block int) (tensor.DType, grad.Recompute) {
		c := fit.ComponentPlan{DType: j.DType, Recompute: j.Recompute}
		if j.Component != nil {
			c = j.Component(j.Model.Blocks[block].Component)
		}
		if keep || spared[block] {
			c.Recompute = grad.RecomputeNone
		}
		return c.DType, c.Recompute
	}
}

// spared are the layers of a stage of the decoder that recompute nothing because enough before them do.
func (l *Layout) spared(stage int) map[int]bool {
	n := l.Design.RecomputeLayers
	if len(n) == 0 || l.Side(stage) != DecoderSide {
		return nil
	}
	left, out := n[0], map[int]bool{}
	if len(n) > 1 {
		left = n[stage-len(l.Design.Parts)]
	}
	for i := l.Stages[stage].From; i < l.Stages[stage].To; i++ {
		if b := l.Design.Model.Blocks[i]; b.Recompute && b.Component == family.Foundation {
			out[i] = left <= 0
			left--
		}
	}
	return out
}

// wants reports whether a stage takes a gradient for a port that it gives: something behind it learns.
func (l *Layout) wants(stage int, port string) bool {
	for _, p := range l.Main(stage).Out {
		if p.Name == port {
			return p.Grad
		}
	}
	return false
}

// learns reports whether a stage takes any gradient.
func (l *Layout) learns(stage int) bool {
	return slices.ContainsFunc(l.Main(stage).Out, func(p *grad.Port) bool { return p.Grad })
}

// Main is the trace of a stage that has all its parameters: a training step's, of a microbatch with images.
func (l *Layout) Main(stage int) *grad.Trace { return l.Traces[TraceKey{Stage: stage, Class: l.Class}] }

// Trace is that of a key, made when a class of shape is met for the first time.
func (l *Layout) Trace(k TraceKey) *grad.Trace {
	if tr := l.Traces[k]; tr != nil {
		return tr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	tr := l.more[k]
	if tr == nil {
		tr = l.record(k)
		l.more[k] = tr
	}
	return tr
}

func (l *Layout) record(k TraceKey) *grad.Trace {
	return l.recordWith(l.options(k.Eval, k.Stage, k.Chunk), k)
}

// recordWith records the trace of one stage for one chunk of a microbatch. Chunks share the rows of
// a microbatch evenly.
func (l *Layout) recordWith(o grad.Options, k TraceKey) *grad.Trace {
	j := l.Design
	rows := j.Rows / max(1, j.Chunks)
	return j.Model.Record(o, block.Rec{Shape: j.Model.Shape(rows, k.Class), Lora: j.Lora}, l.Stages[k.Stage])
}

// traces records all traces that a run needs: per stage, chunk and class of shapes, for training and for evaluation.
// From the traces of training it then numbers the parameters and sizes the ports.
func (l *Layout) traces() {
	j := l.Design
	l.Class = j.Model.Planned(j.Rows, j.Dims)
	classes := []int32{l.Class}
	// A microbatch without images has the class 0, and may come wherever not every batch is filled.
	if l.Class > 0 && !l.Filled {
		classes = append(classes, 0)
	}
	for s := range l.Stages {
		for _, class := range classes {
			for c := range max(1, j.Chunks) {
				for _, eval := range []bool{false, true} {
					k := TraceKey{s, c, eval, class}
					l.Traces[k] = l.record(k)
				}
			}
		}
		tr := l.Main(s)
		for i := range l.Ports {
			if p := &l.Ports[i]; p.From == s {
				for _, o := range tr.Out {
					if o.Name == l.Names[i] {
						p.Grad = o.Grad
						p.Bytes = int64(tensor.Len(o.Value.Local) * o.Value.DType.Size())
					}
				}
			}
		}
		for _, p := range tr.Params {
			l.SideOf[p.Name] = l.Side(s)
			if _, ok := l.Index[p.Name]; !ok {
				l.Index[p.Name] = len(l.Order)
				l.Order = append(l.Order, p.Name)
			}
		}
	}
}

type loweredKey struct {
	t TraceKey
	k plan.Kind
}

// Lower lists the segments of an action for microbatches of a class. It may be called from several goroutines.
func (l *Layout) Lower(a plan.Action, eval bool, class int32) []core.Segment {
	if a.Chunk < 0 || int(a.Stage) >= len(l.Stages) {
		return nil
	}
	k := loweredKey{TraceKey{int(a.Stage), int(a.Chunk), eval, class}, a.Kind}
	tr := l.Trace(k.t)
	l.mu.Lock()
	defer l.mu.Unlock()
	segs, ok := l.lower[k]
	if !ok {
		if ph, works := PhaseOf[a.Kind]; works {
			segs = l.lowered(tr, ph, l.Side(k.t.Stage))
		}
		l.lower[k] = segs
	}
	return segs
}

// lowered is what a behaviour knows of a phase of a trace of a side.
func (l *Layout) lowered(tr *grad.Trace, ph grad.Phase, side int) []core.Segment {
	var out []core.Segment
	for _, s := range tr.Segments(ph) {
		seg := core.Segment{Flops: s.Cost.Filled, Bytes: s.Cost.Bytes, Calls: s.Cost.Calls}
		seg.Away, seg.Back = tr.Copies(&s)
		for _, at := range s.Await {
			seg.Await = append(seg.Await, core.Issued{Segment: int32(at.Segment), Comm: int32(at.Comm)})
		}
		for _, n := range s.Comm {
			c := core.Comm{Group: l.Group(side, n.Axes), Bytes: tr.CommBytes(n), Shift: n.Shift(), Apart: n.Apart()}
			seg.Comms = append(seg.Comms, c)
		}
		out = append(out, seg)
	}
	return out
}
