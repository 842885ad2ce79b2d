package planner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// TestPartly: where memory asks for recomputation in some layers alone, the best plan recomputes in no more
// of each stage than it must: one layer less does not fit, the first stage has at least as many as the
// last, and the step is shorter than that of the best plan that recomputes in all.
func TestPartly(t *testing.T) {
	q := question{text: deep, cluster: "h100", hosts: "1x4", args: []string{"plan.memory=350MiB"}}
	p := q.search(t)
	p.Exact = 4
	all, err := p.Find(context.Background())
	require.NoError(t, err)
	var whole, partly *search.Candidate
	for i := range all {
		switch c := &all[i]; {
		case c.Why != "" || c.Simulated == 0:
		case c.RecomputeLayers != nil && partly == nil:
			partly = c
		case c.RecomputeLayers == nil && c.Recompute != "none" && whole == nil:
			whole = c
		}
	}
	require.NotNil(t, partly)
	require.NotNil(t, whole)
	t.Logf("%v: %.4g ms; %v: %.4g ms", partly, 1e3*partly.Simulated, whole, 1e3*whole.Simulated)
	require.Less(t, partly.Simulated, whole.Simulated)
	require.LessOrEqual(t, partly.Memory, p.Space.Limit)
	l, err := p.laidOut(partly)
	require.NoError(t, err)
	require.NotNil(t, l)
	for s, n := range partly.RecomputeLayers {
		if n == 0 {
			continue
		}
		less := *partly
		less.RecomputeLayers = append([]int{}, partly.RecomputeLayers...)
		less.RecomputeLayers[s]--
		l, err := p.laidOut(&less)
		require.NoError(t, err)
		most := int64(0)
		for r := range l.Ranks {
			most = max(most, l.Memory(r).WorstTotal())
		}
		require.Greater(t, most, p.Space.Limit, "stage %d recomputes in a layer that need not", s)
	}
	cfg, err := p.under(partly)
	require.NoError(t, err)
	require.Equal(t, partly.RecomputeLayers, cfg.Run.Plan.RecomputeLayers)
	step, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: p.Machine})
	require.NoError(t, err)
	require.InEpsilon(t, step.Step, partly.Simulated, 0.03)
}

// TestOwnLayers: what the run file says of the layers of its own stages plays no part in other plans.
func TestOwnLayers(t *testing.T) {
	q := question{file: "../../configs/runs/tiny.yaml", cluster: "a100", hosts: "1x4",
		args: []string{"plan.layers=[3,1]", "plan.recompute=full", "plan.recompute_layers=[1]"}}
	all, err := q.search(t).Find(context.Background())
	require.NoError(t, err)
	for _, c := range all[:8] {
		require.Empty(t, c.Why)
	}
}

const deep = `
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 512, num_hidden_layers: 16, num_attention_heads: 8, num_key_value_heads: 8, head_dim: 64,
    intermediate_size: 1536, vocab_size: 4096}
data: {paths: [none], tokenizer: none, seq_len: 1024}
train: {steps: 2, global_batch: 32, precision: bf16}
`
