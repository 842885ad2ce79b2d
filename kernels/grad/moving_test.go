package grad

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestMoving: values move by sums over the rows of a microbatch, of which those whose place is none do not count. What
// passes keeps its own gradient, and a rule reads values that were declared before.
func TestMoving(t *testing.T) {
	twice := RegisterMove("test_twice", func(value, _ []float32, with [][]float32, f [2]float64) {
		for i := range value {
			value[i] = float32(f[0]) * with[0][i]
		}
	})
	require.PanicsWithValue(t, `grad: the rule "test_twice" is registered twice`, func() { RegisterMove("test_twice", nil) })
	tape := NewTape(Options{DType: tensor.F32})
	w := tape.Param("w", []int{4, 1}, -1, 1, true)
	mean := tape.Moving("mean", []int{1, 2}, Average, [2]float64{0.75})
	other := tape.Moving("other", []int{1, 2}, twice, [2]float64{2}, mean)
	rows := tape.View(tape.Const("rows", []float32{1, 2, 4, 8}), 4, 1)
	y := tape.Summed(w, mean, rows, tape.ConstI32("at", []int32{1, 0, 1, 7}))
	zero := tape.View(tape.Const("zero", make([]float32, 4)), 4, 1)
	ones := tape.Const("weight", []float32{1, 1, 1, 1})
	tape.Loss(tape.PointLoss(tape.Add(y, tape.Scale(tape.Detach(tape.Take(tape.View(other, 2, 1), tape.ConstI32("first",
		[]int32{0, 0, 0, 0}))), 0)), zero, ones, nil, kernels.AbsoluteLoss, 0))
	tr := tape.Finish()
	r := &Runner{Backend: ref.New(), Pool: tensor.NewPool("moving", 0), Seed: 1, Params: map[string]*tensor.Tensor{
		"w":    tensor.Of(tensor.F32, []float32{1, 1, 1, 1}, 4, 1),
		"mean": tensor.Of(tensor.F32, []float32{4, 8}, 1, 2), "other": tensor.Of(tensor.F32, []float32{0, 0}, 1, 2)},
		Grads: map[string]*tensor.Tensor{}}
	for range 2 { // microbatches
		f := r.NewFrame(tr, nil, nil, nil)
		for _, ph := range []Phase{F, I, W} {
			for s := range f.Trace.Segments(ph) {
				_, err := r.Step(f, ph, s, nil)
				require.NoError(t, err)
			}
		}
	}
	require.Equal(t, []float32{2, 2, 2, 2}, r.Grads["w"].F32())
	require.Equal(t, []float32{4, 10}, r.Grads["mean"].F32())
	value := r.Params["mean"].F32()
	Rule{Op: Average}.Move()(value, r.Grads["mean"].F32(), nil, [2]float64{0.75})
	require.Equal(t, []float32{4, 8.5}, value)
	for _, p := range tr.Params {
		if p.Name == "other" {
			require.Equal(t, []string{"mean"}, p.Rule.With)
			p.Rule.Move()(r.Params["other"].F32(), nil, [][]float32{value}, p.Rule.Attr.F)
		}
		require.Equal(t, p.Name != "w", p.Fixed)
	}
	require.Equal(t, []float32{8, 17}, r.Params["other"].F32())
}
