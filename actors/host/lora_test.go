package host

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// TestLoraGolden: with PEFT's adapters loaded, loss and every adapter's gradient agree with PEFT, also when
// the base model is cut over tensor-parallel ranks and stages; the base model has no gradient at all.
//
//lfvet:long a table of cases
func TestLoraGolden(t *testing.T) {
	g := openGolden(t, "qwen2")
	conf, err := checkpoint.ReadAdapterConfig("testdata/lora")
	require.NoError(t, err)
	adapters, err := checkpoint.OpenAdapter("testdata/lora")
	require.NoError(t, err)
	defer adapters.Close()
	var facts struct{ Loss float64 }
	text, err := os.ReadFile("testdata/lora/golden.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &facts))
	want, err := checkpoint.OpenFile("testdata/lora/golden.safetensors")
	require.NoError(t, err)
	defer want.Close()
	lora := &block.Lora{Targets: conf.Targets.Names, Rank: conf.R, Alpha: conf.Alpha}
	fill := func(kind string, p *grad.Param, r family.Region, dst []float32) (bool, error) {
		if kind != "param" || !strings.Contains(p.Name, ".lora_") {
			return g.fill(kind, p, r, dst)
		}
		row, rows, col, cols := r.Box(p)
		raw := make([]byte, 4*len(dst))
		err := adapters.ReadRanges(checkpoint.AdapterPrefix+p.Name,
			[][2]int{{row, row + rows}, {col, col + cols}}, raw)
		tensor.Widen(tensor.F32, raw, dst)
		return true, err
	}
	for _, mesh := range []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 1, 2)} {
		l, err := layout.New(&layout.Design{Model: g.m, Lora: lora, Mesh: mesh, Schedule: "1f1b", Micro: 1,
			Rows: len(g.batch().IDs), Optim: optim.Config{Name: "adamw"},
			Frozen: func(name string) bool { return !strings.Contains(name, ".lora_") }})
		require.NoError(t, err)
		loss, seen := 0.0, 0
		o := RunOptions{Coord: core.RunLayout{First: 1, Last: 1, LossScale: core.LossScale{Scale: 1},
			LR: func(int64) float64 { return 0 }},
			Backend: func(int) kernels.Backend { return goldenBackends["cpu"]() }, Fill: fill,
			Batches: func(int64, int) ([]family.Microbatch, error) { return []family.Microbatch{g.batch()}, nil },
			Observe: func(m actors.Message) {
				if m.Text == core.TopicStep {
					loss = core.SummaryOf(m.Values).Loss
				}
			}}
		grads := make([]map[string][]float32, mesh.Size())
		o.WrapDevice = func(rank int, d Device) Device {
			return spy{Rank: d.(*Rank), see: func(r *Rank) {
				grads[rank] = map[string][]float32{}
				for _, p := range r.c.Params {
					grads[rank][p.Name] = append([]float32(nil), r.owned[p.Name].F32()...)
				}
			}}
		}
		require.NoError(t, Run(l, o))
		require.InEpsilon(t, facts.Loss, loss, 1e-5)
		for rank, part := range l.Ranks {
			for _, p := range part.Params {
				require.Contains(t, p.Name, ".lora_")
				row, rows, col, cols := p.Region.Box(p.Param)
				raw := make([]byte, 4*rows*cols)
				require.NoError(t, want.ReadRanges("grad."+checkpoint.AdapterPrefix+p.Name,
					[][2]int{{row, row + rows}, {col, col + cols}}, raw))
				golden := make([]float32, rows*cols)
				tensor.Widen(tensor.F32, raw, golden)
				exact := make([]float64, len(golden))
				for i, v := range golden {
					exact[i] = float64(v)
				}
				require.LessOrEqual(t, relative(grads[rank][p.Name], exact), 1e-4, "%v %s", mesh, p.Name)
				seen++
			}
		}
		require.GreaterOrEqual(t, seen, 16)
	}
}
