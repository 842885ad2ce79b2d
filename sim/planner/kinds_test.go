package planner

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// TestTwoKinds: with devices of two kinds, stages get layers by the rates of theirs, and that is faster than
// as many layers everywhere; all plans that are offered were simulated with each rank's own rates.
func TestTwoKinds(t *testing.T) {
	req := configs.Request{File: "../../configs/runs/pretrain-llama-3.2-1b.yaml",
		Args: []string{"model.init=random", "train.global_batch=16"}}
	p, err := New(Request{Run: req, Cluster: "h100", Hosts: "1x4"})
	require.NoError(t, err)
	m := *p.Machine
	m.Second = &cost.Second{From: 2, Flops: m.Flops / 2, Memory: m.Memory, Bandwidth: m.Bandwidth / 2,
		Overhead: m.Overhead}
	p.Machine, p.Space.Machine, p.Exact = &m, &m, 6
	all, err := p.Find(context.Background())
	require.NoError(t, err)
	simulated := 0
	for i := range all {
		if all[i].Simulated > 0 {
			simulated++
		}
	}
	require.GreaterOrEqual(t, simulated, 6)

	c := all[0]
	c.Chunks, c.RecomputeLayers, c.Context = 0, nil, search.Context{}
	c.PP, c.TP, c.DP, c.SP, c.Loops, c.Schedule, c.Zero, c.Batch, c.Micro = 2, 1, 2, false, 1, "1f1b", 0,
		1, 8
	require.Equal(t, []int{13, 3}, p.weighed(&c), "the last stage has the head as well")
	for i := range all {
		if all[i].Simulated > 0 && all[i].PP > 1 && all[i].Loops == 1 {
			require.Contains(t, p.Settings(&all[i]), "plan.layers="+listText(all[i].Layers), "a plan's name is its file's")
		}
	}
	step := func(layers string) float64 {
		cfg, err := p.config(append(p.Settings(&c), "plan.layers="+layers)...)
		require.NoError(t, err)
		s, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: &m})
		require.NoError(t, err)
		return s.Step
	}
	require.Less(t, step("[13,3]"), 0.75*step("[8,8]"))
	require.Less(t, step("[13,3]"), 0.95*step("[11,5]"))
	require.Less(t, step("[13,3]"), step("[14,2]"))

	text := m.Write()
	back, err := cost.Read("two.yaml", text)
	require.NoError(t, err)
	require.Equal(t, 2, back.Second.From)
	require.InEpsilon(t, m.Second.Flops, back.Second.Flops, 1e-5)
	_, err = cost.Read("two.yaml", []byte(strings.Replace(string(text), "  from: 2\n", "", 1)))
	require.ErrorContains(t, err, "second.from: is missing")
}

// composedOn is the search for a small Qwen2.5-VL, a quarter of whose tokens are images, on four devices, of
// which those from one on are half as fast.
func composedOn(t *testing.T, from int) *Search {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
model:
  name: qwen-vl/2.5-3b
  init: random
  overrides: {hidden_size: 512, num_hidden_layers: 12, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 64, intermediate_size: 1024, vocab_size: 2048,
    rope_scaling: {rope_type: mrope, mrope_section: [8, 12, 12]}, vision: {depth: 4, hidden_size: 512, intermediate_size: 1024, num_heads: 4, fullatt_block_indexes: [1, 3]}}
data: {kind: media, paths: [none], tokenizer: none, seq_len: 1024}
train: {steps: 2, global_batch: 32, micro_batch: 2}
plan: {encoder: {patches: 4096}}
`), 0o644))
	p, err := New(Request{Run: configs.Request{File: file}, Cluster: "h100", Hosts: "1x4"})
	require.NoError(t, err)
	m := *p.Machine
	m.Second = &cost.Second{From: from, Flops: m.Flops / 2, Memory: m.Memory, Bandwidth: m.Bandwidth / 2,
		Overhead: m.Overhead}
	p.Machine, p.Space.Machine = &m, &m
	_, err = p.Space.Enumerate()
	require.NoError(t, err)
	return p
}

// TestTwoKindsComposed: stages of a model with a vision encoder get layers by the rates of their devices and
// by what they encode, wherever the encoder runs, and a step is shorter than with as many layers everywhere.
func TestTwoKindsComposed(t *testing.T) {
	p := composedOn(t, 2)
	layers := map[string][]int{}
	for _, e := range []search.Encoder{{Over: search.OverNone, TP: 1}, {Over: search.OverFirst, TP: 1},
		{Over: search.OverAll, TP: 1}, {Over: search.OverOwn, TP: 1, Ranks: 1}} {
		c := search.Candidate{TP: 1, PP: 2, DP: 2, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 8,
			Recompute: "selective", Encoder: e}
		if e.Ranks > 0 { // the encoder's rank is of the second kind, and so is one of the decoder's
			c.PP, c.DP, c.Micro = 3, 1, 16
		}
		simulated := c
		require.NoError(t, p.SimulateComposed(&simulated))
		require.Empty(t, simulated.Why, e.Over)
		n := p.weighed(&c)
		require.Equal(t, n, simulated.Layers, "what is simulated is what is named")
		layers[e.Over] = n
		best, even := math.Inf(1), 0.0
		for k := 1; k <= 10; k++ {
			split := []int{k, 12 - k}
			if c.PP == 3 {
				split = []int{k, (12 - k) / 2, (13 - k) / 2}
			}
			cfg, err := p.under(&c, "plan.layers="+strings.ReplaceAll(fmt.Sprint(split), " ", ","))
			require.NoError(t, err)
			s, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: p.Machine})
			require.NoError(t, err)
			if best = min(best, s.Step); split[0] == 12/c.PP {
				even = s.Step
			}
		}
		t.Logf("encoder %s: layers %v take %.3g ms, the best that were tried %.3g ms, even ones %.3g ms",
			e.Over,
			layers[e.Over], 1e3*simulated.Simulated, 1e3*best, 1e3*even)
		require.Less(t, simulated.Simulated, 1.08*best, e.Over)
		require.LessOrEqual(t, simulated.Simulated, 1.001*even, e.Over)
	}
	require.Less(t, layers[search.OverNone][0], layers[search.OverAll][0], "the first stage encodes alone")
	few := composedOn(t, 0)
	require.Equal(t, 0, few.fewer(4).Second.From)
	require.Equal(t, 1, p.fewer(2).Second.From)
	require.Same(t, p.Machine, p.fewer(1))
}
