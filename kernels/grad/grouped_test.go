package grad_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// experts records a model with three experts over nine rows: a projection, up, activation, down and a loss.
func experts(o grad.Options) *grad.Trace {
	const rows, d, f, v, g = 9, 6, 8, 10, 3
	t := grad.NewTape(o)
	t.Block(0, func() {
		off := t.Data("off", tensor.I32, g+1)
		x := t.Linear(t.Data("x", tensor.F32, rows, d), t.Param("in", []int{d, d}, -1, 1, true), nil)
		h := t.Act(t.GroupedLinear(x, t.Param("up", []int{g, f, d}, 1, 1, true), off), kernels.SiLU)
		y := t.Place("residual",
			t.Add(x, t.GroupedLinear(h, t.Param("down", []int{g, d, f}, 2, 1, true), off)))
		t.Loss(t.LinearCrossEntropy(y, t.Param("head", []int{v, d}, 0, 1, true),
			t.Data("target", tensor.I32, rows), t.Data("weight", tensor.F32, rows), 0))
	})
	return t.Finish()
}

func expertData() map[string]*tensor.Tensor {
	r := rand.New(rand.NewPCG(8, 9))
	target, weight := make([]int32, 9), make([]float32, 9)
	for i := range target {
		target[i], weight[i] = int32(r.IntN(10)), 1./9
	}
	return map[string]*tensor.Tensor{"x": randT(r, 1, 9, 6),
		"off": tensor.Of(tensor.I32, []int32{0, 4, 4, 7}, 4), "target": tensor.Of(tensor.I32, target, 9),
		"weight": tensor.Of(tensor.F32, weight, 9)}
}

// runExperts gives the loss and each rank's gradients.
func runExperts(t *testing.T, tr *grad.Trace, tp int,
	full map[string]*tensor.Tensor) (float64, []map[string]*tensor.Tensor) {
	w := &world{t: t, o: tr.Options}
	var fs []*grad.Frame
	for r := range tp {
		run := &grad.Runner{Backend: ref.New(), Pool: tensor.NewPool(fmt.Sprint("rank", r), 0).Poison(),
			Host: tensor.NewPool("host", 0), Pos: []int{r}[:len(tr.Mesh)],
			Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
		for _, p := range tr.Params {
			run.Params[p.Name] = sectionOf(&tr.Options, full[p.Name], p.Place, run.Pos)
		}
		w.ranks = append(w.ranks, run)
		fs = append(fs, run.NewFrame(tr, expertData(), nil, nil))
	}
	w.phase(fs, grad.F)
	loss := 0.0
	var grads []map[string]*tensor.Tensor
	w.phase(fs, grad.B)
	for r, f := range fs {
		loss = f.Loss()
		f.Close()
		grads = append(grads, w.ranks[r].Grads)
	}
	return loss, grads
}

// TestExperts: gradients through grouped products are those of finite differences, and the same on two ranks
// that share every expert's rows and columns.
func TestExperts(t *testing.T) {
	one, full := experts(grad.Options{}), map[string]*tensor.Tensor{}
	r := rand.New(rand.NewPCG(5, 6))
	for _, p := range one.Params {
		full[p.Name] = randT(r, 0.4, p.Shape...)
	}
	loss, grads := runExperts(t, one, 1, full)
	for _, p := range one.Params {
		g, v := grads[0][p.Name].F32(), full[p.Name].F32()
		for i := 0; i < len(v); i += 5 {
			const step = 0x1p-7
			x := v[i]
			v[i] = x + step
			up, _ := runExperts(t, one, 1, full)
			v[i] = x - step
			down, _ := runExperts(t, one, 1, full)
			v[i] = x
			// A float32 loss near 2 leaves 1e-7 over twice the step, truncation about as much.
			require.InDelta(t, (up-down)/(2*step), g[i], 1e-4, "%s[%d]", p.Name, i)
		}
	}
	for _, x := range grads[0]["up"].F32()[8*6 : 2*8*6] {
		require.Zero(t, x, "an expert without rows")
	}

	two := experts(grad.Options{Mesh: []grad.MeshAxis{{Name: "tp", Size: 2}}})
	shared, parts := runExperts(t, two, 2, full)
	require.InDelta(t, loss, shared, 1e-6)
	for _, p := range two.Params {
		for rank, have := range parts {
			want, got := sectionOf(&two.Options, grads[0][p.Name], p.Place, []int{rank}).F32(),
				append([]float32(nil), have[p.Name].F32()...)
			if p.Grad[0].Kind == grad.Partial {
				for i, x := range parts[1-rank][p.Name].F32() {
					got[i] += x
				}
			}
			require.InDeltaSlice(t, want, got, 1e-6, "%s on rank %d", p.Name, rank)
		}
	}
	require.Equal(t, grad.Sharded, two.Params[1].Place[0].Kind)
	require.Panics(t, func() {
		tape := grad.NewTape(grad.Options{})
		tape.GroupedLinear(tape.Data("x", tensor.F32, 4, 2), tape.Param("w", []int{3, 5, 2}, 0, 1, true),
			tape.Data("off", tensor.I32, 3))
	}, "three matrices want four offsets")
}
