package run

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestDelayedGoesOn: the magnitudes that scales follow from are state: a run that is ended and goes on has
// the losses and weights of one left alone, on a plan that changes no sum too. Exports and frozen layers
// have none, and keys that would not be read are refused.
func TestDelayedGoesOn(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	delayed := []string{"train.low_precision=delayed", "train.precision=bf16", "train.amax_history=4"}
	run := func(dir, steps string, more ...string) map[int64]float64 {
		losses, said, err := spikeIn(t, dir, docs, append(more, append(delayed, "train.steps="+steps,
			"schedule.decay_steps=12",
			"checkpoint.save_hf=true")...)...)
		require.NoError(t, err, said)
		return losses
	}
	alone := t.TempDir()
	want := run(alone, "12")
	weights := values(t, filepath.Join(alone, "saved"), 12, checkpoint.Param)
	scales := "model.layers.1.mlp.up_proj.weight.scales"
	require.Contains(t, weights, scales)
	require.Positive(t, weights[scales][4])
	for _, plan := range [][]string{nil, {"plan.pp=2"}, {"plan.recompute=full"}} {
		dir := t.TempDir()
		first := run(dir, "7")
		for step, x := range run(dir, "12", plan...) {
			first[step] = x
		}
		require.Equal(t, want, first, "%v", plan)
		require.Equal(t, weights, values(t, filepath.Join(dir, "saved"), 12, checkpoint.Param), "%v", plan)
	}
	f, err := checkpoint.OpenDir(filepath.Join(alone, "saved", "release_hf_weights"))
	require.NoError(t, err)
	defer f.Close()
	for _, x := range f.Tensors() {
		require.NotContains(t, x.Name, "scales")
	}
	dir := t.TempDir()
	run(dir, "2", `freeze=["*.mlp.*"]`)
	require.NotContains(t, values(t, filepath.Join(dir, "saved"), 2, checkpoint.Param), scales)
	for args, want := range map[string][]string{
		"train.low_precision_gather: train.low_precision = block has no powers of two": {"train.low_precision=block",
			"train.precision=bf16", "train.low_precision_gather=true"},
		"train.adaptive has products take weights as they are": {"train.low_precision=mxfp8",
			"train.precision=bf16",
			"train.low_precision_gather=true", "train.adaptive.limit=0.1"},
		"train.adaptive has products take numbers as they are": {"train.low_precision=mxfp8",
			"train.precision=bf16",
			"train.low_precision_dispatch=true", "train.adaptive.limit=0.1", "model.name=qwen/3-30b-a3b"},
		"multiplies rows as they are": {"train.low_precision=mxfp8", "train.precision=bf16",
			"train.low_precision_dispatch=true", "model.name=qwen/3-30b-a3b", `train.low_precision_keep=["*.experts.*"]`},
		"layers that do not learn have scales of now": {"train.low_precision=delayed",
			"train.precision=bf16",
			"train.amax_history=4", "lora.rank=2"},
		"train.low_precision_dispatch: the model has no experts": {"train.low_precision=block",
			"train.precision=bf16",
			"train.low_precision_dispatch=true"},
		"train.low_precision_dispatch: train.low_precision = none has no scales": {"train.low_precision_dispatch=true",
			"model.name=qwen/3-30b-a3b"},
		"train.amax_history: is not read": {"train.amax_history=4"},
		"samples products whose scales are of now": {"train.low_precision=delayed", "train.precision=bf16",
			"train.adaptive.limit=0.1"},
	} {
		_, err := spikeConfig(t, t.TempDir(), docs, want...)
		require.ErrorContains(t, err, args)
	}
}
