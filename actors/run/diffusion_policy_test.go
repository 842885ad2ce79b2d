package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// netOf8 is a small Diffusion Policy, which sees 8 by 8 pixels in two steps.
const netOf8 = `model_type: diffusion
hidden_size: 16
num_hidden_layers: 10
num_attention_heads: 4
intermediate_size: 16
in_channels: 3
state_size: 2
chunk_size: 8
views: 1
view_height: 8
view_width: 8
backbone_width: 4
action_channels: [8, 16]
action_groups: 4
keypoints: 2
crop_height: 6
crop_width: 5
freq_dim: 8
observation_steps: 2
executed_steps: 3
noise_steps: 20
inference_steps: 5
action_scheduler: %s
`

// TestDiffusionPolicyRun: Diffusion Policy trains on a LeRobot data set with the same losses in stages, with
// replicas and with tp; it acts from its noise alone, and what it sees of the step before matters; its
// export acts the same and goes on; and what does not fit is refused with its key.
func TestDiffusionPolicyRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	load := func(model, out string, more ...string) (*configs.Config, error) {
		text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 8, split: [1, 0, 0]}\n"+
			"policy: {normalize: min_max}\ntrain: {steps: 3, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n",
			model,
			filepath.Join(dir, "set"))
		return configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
			"checkpoint.save_hf=true"}, more...)})
	}
	train := func(model string, more ...string) (losses []float64, saved string) {
		out := t.TempDir()
		cfg, err := load(model, out, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses, filepath.Join(out, "saved")
	}
	for _, scheduler := range []string{"DDPM", "DDIM"} {
		file := filepath.Join(dir, scheduler+".yaml")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, netOf8, scheduler), 0o644))
		model := fmt.Sprintf("{file: %q}", file)
		one, saved := train(model)
		require.Len(t, one, 3)
		exported := filepath.Join(saved, "release_hf_weights")
		on, _ := train(fmt.Sprintf("{path: %q}", exported))
		require.NotEqual(t, one[0], on[0])
		got := netActs(t, saved, view)
		require.Equal(t, got, netActs(t, exported, view))
		if scheduler == "DDIM" {
			continue
		}
		for _, plan := range [][]string{{"plan.pp=2"}, {"plan.dp=2", "plan.zero=2"}, {"plan.tp=2"}} {
			other, _ := train(model, plan...)
			require.InEpsilonSlice(t, one, other, 1e-5, "%v", plan)
		}
		for _, c := range []struct{ arg, want string }{
			{"model.overrides.chunk_size=6", "chunk_size: 6 is no multiple of 4"},
			{"model.overrides.executed_steps=8", "executed_steps: 8, and a chunk of 8 has 7"},
			{"model.overrides.crop_height=9", "crop_height: a part of 9 by 5 pixels, of views of 8 by 8"},
			{"model.overrides.action_kernel=4", "action_kernel: 4 is even"},
			{"model.overrides.inference_steps=21", "inference_steps: 21, and there are 20"},
			{"model.overrides.noise_schedule=none", `noise_schedule: "none" is not known`},
			{"model.overrides.state_size=3",
				"policy.state_key: states have 2 numbers, and the model reads 3"},
			{"diffusion.times=beta", "diffusion.times: the policy says itself"}} {
			cfg, err := load(model, t.TempDir(), c.arg)
			if err == nil {
				var r *Run
				if r, err = Open(cfg); err == nil {
					r.Close()
				}
			}
			require.ErrorContains(t, err, c.want)
		}
	}
}

// netActs is what a saved Diffusion Policy does.
func netActs(t *testing.T, path string, view *media.Image) [][]float64 {
	t.Helper()
	m, err := trained.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	require.Equal(t, 5, actor.Steps)
	can := actor.Abilities()
	require.Equal(t, [4]int{2, 3, 3, 2}, [4]int{can.Numbers, can.Chunk, can.Width, can.Steps})
	require.False(t, can.Joins)
	now := policies.Look{State: []float64{1, 2}, Views: []*media.Image{view}}
	seen := policies.Seen{State: now.State, Views: now.Views, Seed: 3}
	again, other, moved := seen, seen, seen
	again.Before = []policies.Look{now}
	other.Seed = 4
	moved.Before = []policies.Look{{State: []float64{4, 0}, Views: now.Views}}
	chunks, err := actor.Act([]policies.Seen{seen, again, other, moved})
	require.NoError(t, err)
	require.Len(t, chunks[0], 3)
	require.Equal(t, chunks[0], chunks[1]) // the first step of an episode stands for the one before
	require.NotEqual(t, chunks[0], chunks[2])
	require.NotEqual(t, chunks[0], chunks[3])
	again.Before = []policies.Look{now, now}
	_, err = actor.Act([]policies.Seen{again})
	require.ErrorContains(t, err, "3 steps are observed, and the model reads 2")
	return chunks[0]
}
