package host

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology"
)

// fastCase is golden.json of bench/golden/policies_pi0fast.py.
type fastCase struct {
	Samples []struct {
		Tokens, Answer []int32
		Views          []bool
	}
	Loss       float64
	Losses     []float64
	Dead       []string
	Drawn      [][]int32
	Parameters int64
}

// openFast opens it.
func openFast(t *testing.T) (*denoised, *fastCase) {
	dir := filepath.Join("testdata", "pi0fast")
	text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
	require.NoError(t, err)
	var want fastCase
	require.NoError(t, json.Unmarshal(text, &want))
	g := &denoised{Loss: want.Loss, Losses: want.Losses, Dead: want.Dead, Parameters: want.Parameters}
	g.t = t
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	g.m, err = family.Build(c, 0)
	require.NoError(t, err)
	file, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { file.Close() })
	g.w, err = g.m.OpenWeights(file, dir)
	require.NoError(t, err)
	g.file, err = checkpoint.OpenFile(filepath.Join(dir, "golden.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { g.file.Close() })
	mb, learnt := &family.Microbatch{Cu: []int32{0}}, 0
	var prompts []int32
	for i := range want.Samples {
		from, s := len(mb.IDs), &want.Samples[i]
		ids, pics := g.asked(&want, i)
		for j := range pics.Grids {
			for k, span := range pics.Grids[j].Spans {
				for row := span[0]; row < span[1]; row++ {
					ids[row] = -1
				}
				pics.Grids[j].Spans[k] = [2]int32{int32(from) + span[0], int32(from) + span[1]}
			}
		}
		prompts = append(prompts, int32(len(ids)))
		for k, id := range s.Answer {
			ids = append(ids, id)
			if k > 0 {
				learnt++
			}
		}
		for k := range ids {
			target := int32(-100)
			if next := k + 1 - int(prompts[i]); next > 0 && next < len(s.Answer) {
				target = s.Answer[next]
			}
			mb.Targets, mb.Positions = append(mb.Targets, target), append(mb.Positions, int32(k))
		}
		mb.IDs = append(mb.IDs, ids...)
		mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
		mb.Images.Grids = append(mb.Images.Grids, pics.Grids...)
		mb.Images.Values = append(mb.Images.Values, pics.Values...)
	}
	for _, target := range mb.Targets {
		weight := float32(0)
		if target >= 0 {
			weight = 1 / float32(learnt)
		}
		mb.Weights = append(mb.Weights, weight)
	}
	mb.More = family.PromptsKey.With(mb.More, prompts) // lerobot's answer begins with a token that prompts do not see
	g.made = mb
	return g, &want
}

// asked is the prompt of a sample, with the views that it has before its words.
func (g *denoised) asked(want *fastCase, i int) (ids []int32, pics family.Images) {
	v := g.m.Vision
	side := v.Tile / v.Patch
	for k, there := range want.Samples[i].Views {
		if !there {
			continue
		}
		p := family.Grid{T: 1, H: side, W: side, Spans: [][2]int32{{int32(len(ids)),
			int32(len(ids) + side*side)}}}
		for range side * side {
			ids = append(ids, int32(g.m.Config.Vision.ImageToken))
		}
		pics.Grids = append(pics.Grids, p)
		pics.Values = append(pics.Values, v.Cut(g.floats(fmt.Sprintf("image.%d.%d", i, k)), 1)...)
	}
	return append(ids, want.Samples[i].Tokens...), pics
}

// TestPi0Fast holds PaliGemma as a model that writes actions to lerobot's Pi0-FAST: the loss within 1e-5,
// every gradient and twenty steps of AdamW within 1e-4, and the tokens that it draws greedily, to the token.
func TestPi0Fast(t *testing.T) {
	t.Parallel()
	g, want := openFast(t)
	require.Equal(t, g.Parameters, g.m.Count())
	for bn, make := range goldenBackends {
		loss, _ := g.forward(make(), tensor.F32, false)
		require.InEpsilon(t, g.Loss, loss, 1e-5, bn)
	}
	g.trains(topology.Grid(1, 1, 1), 20, nil)
	gen, err := sample.New(g.m, nil, tensor.F32, cpu.New(1), tensor.NewPool("fast", 0), func(p *grad.Param,
		r family.Region, dst []float32) error {
		_, err := g.w.Read(p, r, dst)
		return err
	})
	require.NoError(t, err)
	defer gen.Close()
	for i := range want.Samples {
		ids, pics := g.asked(want, i)
		ids = append(ids, want.Samples[i].Answer[0])
		var drawn []int32
		gen.Reset()
		for len(drawn) < 6 {
			logits, err := gen.LogitsWith(ids, pics)
			require.NoError(t, err)
			last, best := logits[len(logits)-g.m.Spec.Vocab:], int32(0)
			for id := range last {
				if last[id] > last[best] {
					best = int32(id)
				}
			}
			drawn = append(drawn, best)
			ids, pics = []int32{best}, family.Images{}
		}
		require.Equal(t, want.Drawn[i][:6], drawn)
	}
}

// TestPi0FastPlans trains it under plans of each axis and holds three steps to those of one device in PyTorch.
func TestPi0FastPlans(t *testing.T) {
	t.Parallel()
	for _, v := range denoisePlans {
		if v.ring || v.pp > 2 || v.dp > 1 {
			continue // of one sequence alone; of two samples in one microbatch
		}
		t.Run(v.String(), func(t *testing.T) {
			g, _ := openFast(t)
			parts := 2 * v.cp * v.tp
			n := len(g.made.IDs)
			mesh := layout.MeshOf(&configs.Plan{PP: v.pp, DP: 1, TP: 1, CP: v.cp, Ulysses: v.u, EP: 1,
				ETP: 1})
			g.trains(mesh, 3, func(j *layout.Design) {
				j.Schedule, j.Zero, j.Recompute, j.Overlap = v.schedule, v.zero, v.recompute, v.overlap
				j.Micro, j.Rows = 1, (n+parts-1)/parts*parts
			})
		})
	}
}
