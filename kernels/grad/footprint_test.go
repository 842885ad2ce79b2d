package grad_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestFootprint: what a frame is said to hold after each phase and at its worst is what it holds, with every
// policy, in the first microbatch of a step, which makes the gradients, and in a later one.
func TestFootprint(t *testing.T) {
	for _, split := range []bool{false, true} {
		for _, o := range []grad.Options{{}, {Recompute: grad.RecomputeSelective},
			{Recompute: grad.RecomputeFull},
			{Recompute: grad.RecomputeFull, RecomputePerPhase: true}, {KeepLogits: true, Split: split},
			{Offload: func(v *grad.Value) bool { return len(v.Shape) == 2 }}, {Choose: someTensors},
			{Choose: someTensors, Recompute: grad.RecomputeFull},
			{Choose: someTensors, Recompute: grad.RecomputeSelective, RecomputePerPhase: true}} {
			footprint(t, o, split)
		}
	}
}

// someTensors has one of each choice, and leaves the others to the policies.
func someTensors(_ int, tensor string) grad.Choice {
	switch tensor {
	case "attention", "wg":
		return grad.Away
	case "ln1", "swiglu", "wu":
		return grad.Again
	case "ln2", "rope":
		return grad.Keep
	}
	return grad.ByPolicy
}

func footprint(t *testing.T, o grad.Options, split bool) {
	name := fmt.Sprintf("split %v, recompute %v, per phase %v, logits %v, offload %v", split,
		o.Recompute, o.RecomputePerPhase, o.KeepLogits, o.Offload != nil)
	c := small
	tr := c.stage(o, 0, c.layers)
	foot, w := tr.Memory(split, 1), newWorld(t, c, tr)
	run, phases := w.ranks[0], []grad.Phase{grad.F, grad.B}
	if split {
		phases = []grad.Phase{grad.F, grad.I, grad.W}
	}
	made := func() (n int64) {
		for _, g := range run.Grads {
			n += tensor.ClassBytes(int64(g.Size()))
		}
		return n
	}
	most := int64(0)
	for micro := range 2 {
		f := run.NewFrame(tr, w.data(run.Pos, 0, 1), nil, nil)
		for _, ph := range phases {
			before := made()
			w.phase([]*grad.Frame{f}, ph)
			if ph == grad.F || micro > 0 {
				most = max(most, before+foot.Peak[ph])
			} else {
				most = max(most, before+foot.First[ph])
				require.Equal(t, foot.Made[ph], made()-before, "%s: accumulators of %v", name, ph)
			}
			require.Equal(t, foot.After[ph]+made(), run.Pool.Live(), "%s: after %v of microbatch %d",
				name, ph, micro)
			require.Equal(t, most, run.Pool.Peak(), "%s: up to %v of microbatch %d", name, ph, micro)
		}
		f.Loss()
		f.Close()
		require.Equal(t, made(), run.Pool.Live(), "%s: gradients alone are left", name)
		require.Equal(t, made(), foot.Grads, name)
	}
	require.Equal(t, tensor.ClassBytes(4), foot.After[phases[len(phases)-1]], "%s: the loss", name)
}

// TestDrop: a frame that is given up, before its backward or behind the half of it, leaves gradients alone.
func TestDrop(t *testing.T) {
	for _, half := range []bool{false, true} {
		tr := small.stage(grad.Options{}, 0, small.layers)
		w := newWorld(t, small, tr)
		run := w.ranks[0]
		f := run.NewFrame(tr, w.data(run.Pos, 0, 1), nil, nil)
		w.phase([]*grad.Frame{f}, grad.F)
		if half {
			w.phase([]*grad.Frame{f}, grad.I)
		}
		require.Positive(t, run.Pool.Live())
		f.Drop()
		var grads int64
		for _, g := range run.Grads {
			grads += tensor.ClassBytes(int64(g.Size()))
		}
		require.Equal(t, grads, run.Pool.Live(), "behind I: %v", half)
	}
}

// TestDispatchedRows: under even sharing a rank gets as many rows as it sends.
func TestDispatchedRows(t *testing.T) {
	found := 0
	for _, s := range raggedStage(grad.Options{Mesh: []grad.MeshAxis{{Name: "dp", Size: 2, Data: true,
		Zero: true},
		{Name: "ep", Size: 2, Fold: 1}}}).Segments(grad.F) {
		for _, x := range s.Comm {
			if x.Op.Name == "dispatch" {
				found++
				require.Equal(t, []int{raggedRows, raggedWidth}, x.Out[0].Local)
			}
		}
	}
	require.Equal(t, 2, found)
}

// TestChoose: what a name says of a tensor comes before the policies. A tensor that stays under full recompute is held
// behind the forward, and one that is moved or computed again is not, with other shapes of it.
func TestChoose(t *testing.T) {
	held := func(o grad.Options, name string, c grad.Choice) int64 {
		if name != "" {
			o.Choose = func(_ int, tensor string) grad.Choice {
				if tensor == name {
					return c
				}
				return grad.ByPolicy
			}
		}
		return small.stage(o, 0, small.layers).Memory(false, 1).After[grad.F]
	}
	bytes := map[string]int64{} // of all layers' tensors
	for _, m := range small.stage(grad.Options{}, 0, small.layers).Made() {
		bytes[m.Tensor] += tensor.ClassBytes(m.Bytes)
	}
	everything := func(*grad.Value) bool { return true }
	for _, name := range []string{"wg", "swiglu", "wv"} {
		require.Positive(t, bytes[name], name)
		none, full := held(grad.Options{}, "", 0), held(grad.Options{Recompute: grad.RecomputeFull}, "", 0)
		away := held(grad.Options{Offload: everything}, "", 0)
		require.Equal(t, none-bytes[name], held(grad.Options{}, name, grad.Away), name)
		require.Equal(t, none-bytes[name], held(grad.Options{}, name, grad.Again), name)
		require.Equal(t, none, held(grad.Options{}, name, grad.Keep), name)
		require.Equal(t, full+bytes[name], held(grad.Options{Recompute: grad.RecomputeFull}, name,
			grad.Keep), name)
		require.Equal(t, away+bytes[name], held(grad.Options{Offload: everything}, name, grad.Keep), name)
		require.Equal(t, away, held(grad.Options{Offload: everything}, name, grad.Again), name)
	}
}
