package grad_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// globalAux is what bench/golden/global_aux.py has computed.
type globalAux struct {
	Rows, Width, Experts, Each, Replicas, Micro int
	Coef                                        float64
	Cases                                       []struct {
		Score               string
		X, Weight, Gradient []float64
		Tokens              [][]int
		Losses              [][]float64
	}
}

func narrow(v []float64) (out []float32) {
	for _, x := range v {
		out = append(out, float32(x))
	}
	return
}

// TestStepSums: losses of balance over the batch of a step, and the gradient of the router's weight,
// are those of Megatron-LM's formula in PyTorch, of microbatches with different numbers of tokens: within 1e-6, which
// float32 bounds. A forward that is computed again counts nothing, and a step that begins anew counts from the start.
func TestStepSums(t *testing.T) {
	text, err := os.ReadFile("testdata/global_aux.json")
	require.NoError(t, err)
	var g globalAux
	require.NoError(t, json.Unmarshal(text, &g))
	for i, score := range []routing.Score{routing.Softmax, routing.Sigmoid} {
		for _, rc := range []grad.Recompute{grad.RecomputeNone, grad.RecomputeFull} {
			c := &g.Cases[i]
			tape := grad.NewTape(grad.Options{Recompute: rc,
				Mesh: []grad.MeshAxis{{Name: "dp", Size: g.Replicas, Data: true}}})
			tape.Block(1, func() {
				x, cu := tape.Data("x", tensor.F32, g.Rows, g.Width), tape.Data("cu", tensor.I32, 2)
				w := tape.Param("w", []int{g.Experts, g.Width}, -1, 1, false)
				sums := tape.StepSums(tape.BalanceSums(tape.Linear32(x, w, nil), cu, g.Each, score))
				tape.Loss(tape.BalanceLoss(sums, g.Each, g.Coef*float64(g.Experts)/float64(g.Each)))
			})
			tr := tape.Finish()
			w := &world{t: t, o: tr.Options}
			for r := range g.Replicas {
				w.ranks = append(w.ranks, &grad.Runner{Backend: ref.New(), Pos: []int{r}, Seed: 1,
					Pool: tensor.NewPool(fmt.Sprint("rank", r), 0), Host: tensor.NewPool("host", 0),
					Params: map[string]*tensor.Tensor{"w": tensor.Of(tensor.F32, narrow(c.Weight), g.Experts,
						g.Width)}, Grads: map[string]*tensor.Tensor{}})
				w.members = append(w.members, []int{r})
			}
			for again := range 2 {
				for m := range g.Micro {
					var fs []*grad.Frame
					for r, run := range w.ranks {
						n := g.Rows * g.Width
						at := (m*g.Replicas + r) * n
						fs = append(fs, run.NewFrame(tr, map[string]*tensor.Tensor{
							"x":  tensor.Of(tensor.F32, narrow(c.X[at:at+n]), g.Rows, g.Width),
							"cu": tensor.Of(tensor.I32, []int32{0, int32(c.Tokens[m][r])}, 2)}, nil, nil))
					}
					w.phase(fs, grad.F)
					for r, f := range fs {
						require.InEpsilon(t, c.Losses[m][r], f.Loss(), 1e-6, "%s microbatch %d replica %d",
							c.Score, m, r)
					}
					w.phase(fs, grad.B)
					for _, f := range fs {
						f.Close()
					}
				}
				for k, want := range c.Gradient {
					got := 0.0
					for _, run := range w.ranks {
						got += float64(run.Grads["w"].F32()[k])
					}
					require.InDelta(t, float64(again+1)*want, got, 1e-6, "%s %d", c.Score, k)
				}
				for _, run := range w.ranks {
					run.Forget()
				}
			}
		}
	}
}
