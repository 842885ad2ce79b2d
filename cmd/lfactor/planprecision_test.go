package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlanPrecision: on a machine that multiplies eight bits faster narrow products are kept as they are
// and the wide ones rounded, and what is written is a run file's own; recipes of four bits are for machines
// that have such units; where none is faster that is said, and a recipe that there is not is refused.
func TestPlanPrecision(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := "model: {name: llama/3-8b, init: random, overrides: {num_hidden_layers: 2}}\ndata: {paths: [none.txt]}\ntrain: {steps: 10, global_batch: 2, micro_batch: 1, " +
		"precision: bf16}\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(run), 0o644))
	priced := func(args ...string) (p struct {
		Plain   float64 `json:"step_seconds"`
		Recipes []struct {
			Name    string   `json:"low_precision"`
			Seconds float64  `json:"step_seconds"`
			All     float64  `json:"all_seconds"`
			Keep    []string `json:"low_precision_keep"`
		}
	}) {
		code, out, said := streams(t, dir, "", append([]string{"plan", "run.yaml", "-o", "json",
			"data.seq_len=8192",
			"plan.tp=4", "plan.sequence_parallel=true"}, args...)...)
		require.Equal(t, 0, code, said)
		require.NoError(t, json.Unmarshal([]byte(out), &p))
		return p
	}
	p := priced("--cluster", "h100", "--precision", "auto")
	require.Len(t, p.Recipes, 7)
	for _, r := range p.Recipes {
		require.NotContains(t, r.Name, "fp4")
		require.Less(t, r.Seconds, 0.99*p.Plain)
		require.LessOrEqual(t, r.Seconds, r.All)
		require.Contains(t, r.Keep, "model.layers.*.self_attn.k_proj.weight")
		require.NotContains(t, r.Keep, "model.layers.*.mlp.up_proj.weight")
	}
	best := priced("--cluster", "b200", "--precision", "auto")
	require.Len(t, best.Recipes, 9)
	require.Equal(t, "nvfp4", best.Recipes[0].Name)
	code, out := runIn(t, dir, nil, "plan", "run.yaml", "--precision", "mxfp8", "data.seq_len=64",
		"model.overrides.hidden_size=256", "model.overrides.intermediate_size=512",
		"model.overrides.head_dim=8", "model.overrides.vocab_size=1000")
	require.Equal(t, 0, code, out)
	require.Contains(t, out, "nothing is faster than none on cpu")
	code, out = runIn(t, dir, nil, "plan", "run.yaml", "--precision", "int3")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "want auto, or one of block,")
}
