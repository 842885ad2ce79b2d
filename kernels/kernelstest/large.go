package kernelstest

import (
	"fmt"
	"math"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// exponential are the operations with an exponential, a sigmoid or a softmax in them: what they do with large numbers
// is a matter of the order of rounding, which the other cases, of unit variance, do not show.
var exponential = map[kernels.Op]bool{
	kernels.Attention: true, kernels.AttentionBwd: true, kernels.AttentionBias: true, kernels.AttentionBiasBwd: true,
	kernels.AttentionPart: true, kernels.AttentionPartBwd: true, kernels.AttentionMerge: true,
	kernels.AttentionSink: true, kernels.AttentionSinkBwd: true, kernels.AttentionSparse: true,
	kernels.AttentionSparseBwd: true, kernels.IndexLoss: true, kernels.IndexLossBwd: true,
	kernels.LinearLSE: true, kernels.LSEJoin: true, kernels.LinearCE: true, kernels.LinearCEDX: true,
	kernels.LinearCEDW: true, kernels.LinearCEBwd: true, kernels.TokenNLL: true, kernels.GroupNLL: true, kernels.LogitsNLL: true,
	kernels.SwiGLU: true, kernels.SwiGLUBwd: true, kernels.BoundedGLU: true, kernels.BoundedGLUBwd: true,
	kernels.Act: true, kernels.ActBwd: true, kernels.GateRows: true, kernels.GateRowsBwd: true,
	kernels.Route: true, kernels.RouteBwd: true, kernels.ZLoss: true, kernels.ZLossBwd: true,
	kernels.DeltaGates: true, kernels.DeltaGatesBwd: true, kernels.PointLoss: true, kernels.PointLossDX: true,
	kernels.Objective: true, kernels.ObjectiveBwd: true, kernels.Divergence: true, kernels.DivergenceBwd: true,
	kernels.Contrast: true, kernels.ContrastBwd: true,
}

// largeBy are what one operand's numbers are multiplied with; the last puts -Inf in place of one of them.
var largeBy = []float64{1e3, 1e5, 1e7, 1e9, 1e12, 1e20, 1e30, math.Inf(-1)}

// larger is a case whose n-th operand is multiplied, before anything is computed from it.
type larger struct {
	at    int     // which of the operands drawn, from 1; 0 for none
	by    float64 // -Inf to put one -Inf
	drawn int     // operands so far
}

// next multiplies v if it is this operand's turn.
func (l *larger) next(v []float64) {
	if l.drawn++; l.drawn != l.at || len(v) == 0 {
		return
	}
	if math.IsInf(l.by, -1) {
		v[len(v)/2] = l.by
		return
	}
	for i := range v {
		v[i] *= l.by
	}
}

// large runs the exponential operations with each drawn operand far above its size. A result is finite where the
// reference's is, and no larger than the operands make it. It is not held closer: two scores of 1e9 lie 64 apart or
// are the same to a float32, and lse, which gradients start from, is rounded as much.
// A part that leaves operations or cases out has one operand and one size of each case, by turns.
func large(t *testing.T, b kernels.Backend, part Part) {
	whole := part.Has == nil && part.Every == 0 && part.Plant == 0
	ran, ops := 0, map[kernels.Op]bool{}
	for i, r := range part.runs(part.Plant) {
		if !exponential[r.Op] || r.gen.a == tensor.F16 || r.size() > largeMax {
			continue
		}
		usual := 1.0
		for i, w := range r.wanted() {
			if w != nil && w.DType.Float() && !r.scratch(i) {
				usual = max(usual, largest(values(w)))
			}
		}
		n := r.drawn()
		for at := 1; at <= n; at++ {
			for k, by := range largeBy {
				turn := (at-1)*len(largeBy) + k
				if math.IsInf(by, -1) && r.Leaky || !whole && turn != i%(n*len(largeBy)) {
					continue
				}
				caught(t, func() { r.large(t, b, larger{at: at, by: by}, usual) })
				ran, ops[r.Op] = ran+1, true
			}
		}
	}
	for op := range exponential {
		if whole && !ops[op] {
			t.Errorf("%s has no case that is small enough", op)
		}
	}
	t.Logf("%d operations, %d operands of cases that were large", len(ops), ran)
}

// largeMax is how many elements a case may have, for speed.
const largeMax = 3000

// drawn is how many operands the case draws.
func (r *run) drawn() int {
	g := newGen(r.name, r.gen.a)
	r.Call(g)
	return g.large.drawn
}

func (r *run) large(t *testing.T, b kernels.Backend, l larger, usual float64) {
	g := newGen(r.name, r.gen.a)
	g.large = l
	got := r.Case.Call(g)
	got.Op = r.Op
	want := *got
	want.Out = nil
	for _, o := range got.Out {
		want.Out = append(want.Out, clone(o))
	}
	ref.New().Run(&want)
	b.Run(got)
	b.Sync()
	by := max(l.by, 1)
	for i, o := range want.Out {
		if o == nil || !o.DType.Float() || r.scratch(i) {
			continue
		}
		w, y := values(o), values(got.Out[i])
		most := 64 * max(largest(w), usual*by)
		for j := range w {
			name := fmt.Sprintf("%s, operand %d times %g: out %d[%d] of %v", r.name, l.at, l.by, i, j, o)
			switch {
			case !finite(w[j]) || math.Abs(w[j]) > 1e36: // what leads to it may be infinite
			case !finite(y[j]):
				t.Errorf("%s is %v, want %v", name, y[j], w[j])
				return
			case most < math.MaxFloat32 && math.Abs(y[j]) > most:
				t.Errorf("%s is %v, want %v: no operand makes more than %v", name, y[j], w[j], most)
				return
			}
		}
	}
}

// largest is the greatest magnitude of the finite elements.
func largest(v []float64) float64 {
	m := 0.0
	for _, x := range v {
		if finite(x) {
			m = max(m, math.Abs(x))
		}
	}
	return m
}
