package layout

import (
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Memory is what a rank needs, in bytes, before anything is allocated.
type Memory struct {
	Params, State, Grads int64
	Activations          int64 // the most at any moment of the program
	Update               int64 // beyond parameters, state and gradients, in the optimizer step
}

// Total is the most that is live at once.
func (m Memory) Total() int64 { return m.Params + m.State + m.Grads + max(m.Activations, m.Update) }

func classOf(d tensor.DType, shape []int) int64 {
	return tensor.ClassBytes(int64(tensor.Len(shape) * d.Size()))
}

// Memory predicts the peak of rank r from the traces and the program.
func (l *Layout) Memory(r int) Memory {
	j, part := l.Job, l.Ranks[r]
	var m Memory
	rows := func(shape []int, from, to int) []int { return append([]int{to - from}, shape[1:]...) }
	for _, p := range part.All {
		shape := p.Local
		o := grad.Options{Mesh: l.meshes[p.Side]}
		if dp := o.Members(o.ZeroAxes(p.Fold)); j.Zero == 3 && dp > 1 {
			shape = rows(shape, 0, (shape[0]+dp-1)/dp)
		}
		m.Params += classOf(p.Value.DType, shape)
	}
	states := int64(len(l.Optimizer.State))
	for _, p := range part.Params {
		own := classOf(tensor.F32, rows(p.Local, p.Own.From, p.Own.To))
		m.State += states * own
		if p.Value.DType != tensor.F32 { // a master copy
			m.State += own
		}
		full := classOf(tensor.F32, p.Local)
		if j.Zero >= 2 && len(p.Zero) > 0 {
			m.Grads += own
		} else {
			m.Grads += full
		}
		if len(p.Reduce) > 0 {
			m.Update += own
		}
	}
	m.Activations = l.activations(part)
	return m
}

// activations replays the rank's program with each frame's footprint.
func (l *Layout) activations(part RankPart) (most int64) {
	type key struct {
		stage, chunk int16
		micro        int32
	}
	held := map[key]int64{}
	type foot struct{ peak, after int64 }
	known := map[TraceKey]map[grad.Phase]foot{}
	of := func(a plan.Action) foot {
		k := TraceKey{int(a.Stage), int(a.Chunk), false, l.Class}
		if known[k] == nil {
			known[k] = map[grad.Phase]foot{}
		}
		ph := PhaseOf[a.Kind]
		f, ok := known[k][ph]
		if !ok {
			f.peak, f.after = l.Traces[k].Footprint(ph)
			known[k][ph] = f
		}
		return f
	}
	var now int64
	for _, e := range l.Program.Rows[part.Row] {
		for _, a := range []plan.Action{e.Action, e.With} {
			if _, ok := PhaseOf[a.Kind]; !ok {
				continue
			}
			k, f := key{a.Stage, a.Chunk, a.Micro}, of(a)
			most = max(most, now-held[k]+f.peak)
			now += f.after - held[k]
			held[k] = f.after
		}
	}
	return most
}
