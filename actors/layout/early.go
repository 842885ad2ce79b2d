package layout

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Gradients that data-parallel ranks sum in the optimizer step are final when a rank's last backward of a
// stage has added to them for the last time. Those of whole buckets are sent right then, so that they travel
// while the backward goes on; the rest follows in the optimizer step, where all are taken in and summed, in
// the same order and so with the same bits. ZeRO 2 and 3 sum each microbatch's gradients, and leave the sums over replicas
// of their groups, where there are several.

// bucket is some parameters of a stage whose gradients are sent together, before the optimizer step.
type bucket struct {
	last   plan.Action // the stage's last backward on the rank
	params []string
}

// bucketBytes is the size from which on the gradients of a stage are sent early, 0 for never.
func (l *Layout) bucketBytes(stage int) int64 {
	j, side := l.Design, l.Side(stage)
	summed := slices.ContainsFunc(l.meshes[side], func(m grad.MeshAxis) bool {
		return m.Size > 1 && (m.Data || j.Zero > 0 && m.Zero) && (j.Zero < 2 || !m.Zero)
	})
	if side != DecoderSide || !summed {
		return 0
	}
	return j.Bucket
}

// lastBackward is the action with which a row's backward of a stage ends.
func (l *Layout) lastBackward(row, stage int) (last plan.Action) {
	for _, e := range l.Program.Rows[row] {
		for _, a := range []plan.Action{e.Action, e.With} {
			if int(a.Stage) == stage && (a.Kind == plan.B || a.Kind == plan.W) {
				last = a
			}
		}
	}
	return last
}

// always reports whether a stage works on microbatches of every class.
func (l *Layout) always(stage, chunk int) bool {
	for _, class := range []int32{0, l.Class} {
		tr := l.Traces[TraceKey{Stage: stage, Chunk: chunk, Class: class}]
		if tr != nil && len(tr.F) == 0 {
			return false
		}
	}
	return true
}

// buckets lists those of a rank, in the order in which they are final. It is the same for all ranks of a row.
func (l *Layout) buckets(part *RankPart) (out []bucket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.early[part.Row]; ok {
		return known
	}
	stages := map[string]int{} // that have a parameter, which is final with the last of them
	for _, s := range part.Stages {
		for _, p := range l.Main(s).Params {
			stages[p.Name]++
		}
	}
	for _, s := range part.Stages {
		most, last := l.bucketBytes(s), l.lastBackward(part.Row, s)
		if most == 0 || last.Kind == plan.None || !l.always(s, int(last.Chunk)) {
			continue
		}
		tr := l.Traces[TraceKey{Stage: s, Chunk: int(last.Chunk), Class: l.Class}]
		b, bytes := bucket{last: last}, int64(0)
		for _, seg := range tr.Segments(PhaseOf[last.Kind]) {
			for _, i := range seg.Final {
				p := tr.Params[i]
				bytes += int64(tensor.Len(p.Local)) * l.gradBytes() / l.shares(p)
				if stages[p.Name] == 1 {
					b.params = append(b.params, p.Name)
				}
			}
			if bytes >= most {
				out = append(out, b)
				b, bytes = bucket{last: last}, 0
			}
		}
	}
	l.early[part.Row] = out
	return out
}

// shares is over how many ranks the gradient of a parameter is shared out as it is made.
func (l *Layout) shares(p *grad.Param) int64 {
	if o := (grad.Options{Mesh: l.meshes[l.SideOf[p.Name]]}); l.Design.Zero > 1 {
		return int64(o.Members(o.ZeroAxes(p.Fold)))
	}
	return 1
}

// bucketOf is 1 + the place of the bucket that a parameter's gradient is sent with, 0 for those that are
// sent in the optimizer step: also what has to be summed over other axes first.
func bucketOf(buckets []bucket, p *ParamPlan) int {
	if len(p.Sum) > 0 {
		return 0
	}
	return 1 + slices.IndexFunc(buckets, func(b bucket) bool { return slices.Contains(b.params, p.Name) })
}

// Early says which exchanges of the segment SumDP the jobs of a rank's program issue, nil for none. What it
// returns is not safe for concurrent use.
func (l *Layout) Early(part *RankPart) *core.Early {
	buckets, exchanges := l.buckets(part), l.Exchanges(part, SumDP)
	if !slices.ContainsFunc(exchanges, func(x Exchange) bool { return x.Bucket > 0 }) {
		return nil
	}
	type place struct {
		a     plan.Action
		class int32
	}
	known := map[place][][]int32{} // by segment
	var lasts []plan.Action
	for _, b := range buckets {
		if !slices.Contains(lasts, b.last) {
			lasts = append(lasts, b.last)
		}
	}
	return &core.Early{Segment: SumDP, Of: func(a plan.Action, class, segment int32) []int32 {
		if !slices.Contains(lasts, a) { // as most
			return nil
		}
		k := place{a, class}
		by, ok := known[k]
		if !ok {
			by = l.issues(a, class, buckets, exchanges)
			known[k] = by
		}
		if int(segment) >= len(by) {
			return nil
		}
		return by[segment]
	}}
}

// issues lists, by segment of an action, the exchanges that are final with it and with none before.
func (l *Layout) issues(a plan.Action, class int32, buckets []bucket, exchanges []Exchange) (out [][]int32) {
	final := map[string]int{}
	tr := l.Trace(TraceKey{Stage: int(a.Stage), Chunk: int(a.Chunk), Class: class})
	for i, x := range exchanges {
		if x.Bucket == 0 || buckets[x.Bucket-1].last != a {
			continue
		}
		if out == nil {
			segs := tr.Segments(PhaseOf[a.Kind])
			out = make([][]int32, len(segs))
			for s := range segs {
				for _, p := range segs[s].Final {
					final[tr.Params[p].Name] = s
				}
			}
		}
		at := 0 // where microbatches of the class do not reach a parameter
		for _, name := range buckets[x.Bucket-1].params {
			at = max(at, final[name])
		}
		out[at] = append(out[at], int32(i))
	}
	return out
}
