package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/sim/planner"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// composedRun is a run file of a small Qwen2.5-VL, a quarter of whose tokens are images.
const composedRun = `
model:
  name: qwen-vl/2.5-3b
  init: random
  overrides: {hidden_size: 512, num_hidden_layers: 8, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 64, intermediate_size: 1024, vocab_size: 2048,
    rope_scaling: {rope_type: mrope, mrope_section: [8, 12, 12]}, vision: {depth: 4, hidden_size: 256, intermediate_size: 512, num_heads: 4, fullatt_block_indexes: [1, 3]}}
data: {kind: media, paths: [none], tokenizer: none, seq_len: 256}
train: {steps: 2, global_batch: 32, micro_batch: 2}
plan: {encoder: {patches: 512}}
`

func composedFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(composedRun), 0o644))
	return file
}

// TestPlanComposed finds plans for a model with a vision encoder: every place of the encoder takes part, and
// each plan uses the devices and sequences that there are.
func TestPlanComposed(t *testing.T) {
	t.Parallel()
	file := composedFile(t)
	out, err := simOutput(t, "plan", file, "--hosts", "1x4", "--cluster", "h100", "-o", "json")
	require.NoError(t, err)
	var all []search.Candidate
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all, planner.Reranked)
	over := map[string]bool{}
	for i := range all {
		c := &all[i]
		over[c.Encoder.Over] = true
		require.Equal(t, 4, c.DP*(c.TP*c.PP+c.Encoder.Ranks), "%v", c)
		require.Equal(t, 32, c.Batch*c.Micro*c.DP, "%v", c)
		require.LessOrEqual(t, c.Zero, 1, "%v", c)
		require.Zero(t, c.TP%max(1, c.Encoder.TP)*boolInt(c.Encoder.Over != search.OverOwn), "%v", c)
		if i > 0 {
			require.LessOrEqual(t, all[i-1].Simulated, c.Simulated)
		}
		if c.Micro >= 2*c.PP { // a claim on time is about pipelines that fill
			require.InEpsilon(t, c.Simulated, c.Step, 0.25, "%v: closed form and simulation", c)
		}
	}
	require.Subset(t, keysOf(over), []string{search.OverNone, search.OverFirst, search.OverAll,
		search.OverOwn})
	text, err := simOutput(t, "plan", file, "--hosts", "1x4", "--cluster", "h100")
	require.NoError(t, err)
	require.Contains(t, text, "ENCODER")
	blocks, err := searchOf(t, file, "--hosts", "1x4", "--cluster", "h100").Profile(search.Variant{TP: 1,
		Batch: 1, Recompute: "none"})
	require.NoError(t, err)
	for i, b := range blocks {
		require.Positive(t, b.F, "block %d: the tower works on images", i)
		require.Positive(t, b.Params, "block %d", i)
	}
	// Where memory is short, plans are found behind those that need too much.
	out, err = simOutput(t, "plan", file, "--hosts", "1x4", "--cluster", "h100", "-o", "json",
		"plan.memory=160MiB")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Empty(t, all[0].Why)
	require.LessOrEqual(t, all[0].Memory, int64(160<<20))
	_, err = simOutput(t, "plan", file, "--hosts", "1x2", "--cluster", "h100", "plan.memory=1MiB")
	require.ErrorContains(t, err, "it would fit with devices of")
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestPlanComposedSimulated: a candidate takes as long, and as much memory, as lfactor sim says of its
// settings, and nearly so where replicas are left out.
func TestPlanComposedSimulated(t *testing.T) {
	t.Parallel()
	file := composedFile(t)
	for _, c := range []search.Candidate{
		{TP: 2, PP: 2, DP: 2, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 8, Recompute: "none",
			Encoder: search.Encoder{Over: search.OverNone, TP: 2}},
		{TP: 2, PP: 2, DP: 2, Zero: 1, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 8, Recompute: "none",
			Encoder: search.Encoder{Over: search.OverFirst, TP: 1}},
		{TP: 1, PP: 4, DP: 2, Schedule: "zb-2p", Loops: 1, Batch: 2, Micro: 8, Recompute: "none",
			Encoder: search.Encoder{Over: search.OverAll, TP: 1}},
		{TP: 1, PP: 2, DP: 2, Zero: 1, Schedule: "interleaved", Loops: 2, Batch: 2, Micro: 8,
			Recompute: "full", Encoder: search.Encoder{Over: search.OverOwn, TP: 1, Ranks: 2, Ahead: 2}},
	} {
		t.Run(c.Encoder.Over, func(t *testing.T) {
			p := searchOf(t, file, "--hosts", "1x8", "--cluster", "h100")
			_, err := p.Space.Enumerate()
			require.NoError(t, err)
			require.NoError(t, p.Space.Estimate(&c))
			estimated := c.Memory
			whole := c
			require.NoError(t, p.SimulateComposed(&whole))
			require.Empty(t, whole.Why)
			out, err := simOutput(t, append([]string{"sim", file, "--cluster", "h100", "--steps", "2", "-o",
				"json"}, p.Settings(&c)...)...)
			require.NoError(t, err)
			var s rehearsal.Summary
			require.NoError(t, json.Unmarshal([]byte(out), &s))
			require.Equal(t, s.Step, whole.Simulated)
			peak := int64(0)
			for _, r := range s.Ranks {
				peak = max(peak, r.Peak)
			}
			require.Equal(t, peak, whole.Memory)
			require.Less(t, float64(estimated)/float64(peak), 1.5,
				"blocks that are traced apart share no temporaries")
			require.Greater(t, float64(estimated)/float64(peak), 0.6,
				"the program chose to encode further ahead")

			folded := c
			p.Whole = 4
			require.NoError(t, p.SimulateComposed(&folded))
			require.InEpsilon(t, whole.Simulated, folded.Simulated, 0.06)
			require.InEpsilon(t, whole.Memory, folded.Memory, 0.02)
		})
	}
}

// TestPlanComposedIsCarriedOut plans a small model with its encoder for this machine and trains by the plan;
// what the plan says of the encoder is what training does.
func TestPlanComposedIsCarriedOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	_, err := demo.WriteScenes(in("shards"), 64)
	require.NoError(t, err)
	ids, err := demo.SceneTokenizer(in("tokenizer"))
	require.NoError(t, err)
	text := fmt.Sprintf(demo.DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"],
		in("shards/scenes-{00..03}.tar"), in("tokenizer"), 2, 1, in("checkpoints"), 3, in("run"))
	require.NoError(t, os.WriteFile(in("run.yaml"), []byte(text), 0o644))
	_, err = simOutput(t, "plan", in("run.yaml"), "--hosts", "1x4", "--out", in("plan.yaml"))
	require.NoError(t, err)
	written, err := os.ReadFile(in("plan.yaml"))
	require.NoError(t, err)
	require.Contains(t, string(written), "plan.encoder.over: ")
	for name, more := range map[string]string{"plan.yaml": "",
		"first.yaml": "  plan.encoder.over: first\n  plan.encoder.ranks: 0\n  plan.pp: 1\n  plan.dp: " +
			"2\n  plan.tp: 1\n"} {
		if more != "" {
			for _, line := range strings.Split(string(written), "\n") {
				if strings.HasPrefix(line, "model:") {
					require.NoError(t, os.WriteFile(in(name), []byte(line+"\nsettings:\n"+more), 0o644))
				}
			}
		}
		require.NoError(t, os.RemoveAll(in("run")))
		cfg, err := setup.Config(in("run.yaml"), in(name), []string{"checkpoint.dir=''",
			"checkpoint.save_hf=false", "checkpoint.interval=0", "train.steps=2"}, true)
		require.NoError(t, err)
		require.NoError(t, run.Train(context.Background(), cfg, run.Options{}))
		require.Len(t, metrics(t, dir), 2)
		if more != "" {
			require.Equal(t, "first", cfg.Run.Plan.Encoder.Over)
		}
	}
	other, err := configs.Load(configs.Request{File: in("run.yaml"),
		Args: []string{"model.overrides.vision.depth=2", "model.overrides.vision.fullatt_block_indexes=[1]"}})
	require.NoError(t, err)
	p, err := configs.OpenPlan(in("plan.yaml"))
	require.NoError(t, err)
	require.ErrorContains(t, p.Fits(other), "the plan is for another model")
}
