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

// vqbetOf8 is a small VQ-BeT, whose codes are learnt for two steps.
const vqbetOf8 = `model_type: vqbet
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 2
intermediate_size: 64
in_channels: 3
state_size: 2
chunk_size: 8
views: 1
view_height: 8
view_width: 8
backbone_width: 4
keypoints: 2
crop_height: 6
crop_width: 5
observation_steps: 2
action_tokens: 3
token_actions: 5
code_steps: 2
codes: 3
code_size: 6
code_hidden: 8
gpt_positions: 12
gpt_input: 10
gpt_output: 14
offset_weight: 10
`

// TestVQBeTRun: VQ-BeT trains on a LeRobot data set with the same losses in stages, with replicas, ZeRO and tp, and in
// float32's way in bf16; a run that stops in either phase goes on with the bits of one that went on. It acts by the seed
// that it is asked with; its export acts the same, and goes on when a run says that its codes are learnt.
func TestVQBeTRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view, file := shown(t, dir), filepath.Join(dir, "vqbet.yaml")
	require.NoError(t, os.WriteFile(file, []byte(vqbetOf8), 0o644))
	load := func(model, out string, more ...string) (*configs.Config, error) {
		text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 8, split: [1, 0, 0]}\npolicy: {normalize: min_max}\n"+
			"train: {steps: 4, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n", model, filepath.Join(dir, "set"))
		return configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
			"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
			"checkpoint.save_hf=true"}, more...)})
	}
	train := func(model, out string, more ...string) (losses []float64, saved string) {
		cfg, err := load(model, out, more...)
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses, filepath.Join(out, "saved")
	}
	model := fmt.Sprintf("{file: %q}", file)
	one, saved := train(model, t.TempDir())
	require.Len(t, one, 4)
	for _, plan := range [][]string{{"plan.pp=2"}, {"plan.dp=2", "plan.zero=2"}, {"plan.dp=2", "plan.zero=3"},
		{"plan.dp=2", "plan.zero=1", "plan.offload_optimizer=true"}, {"plan.tp=2"}} {
		other, _ := train(model, t.TempDir(), plan...)
		require.InEpsilonSlice(t, one, other, 1e-4, "%v", plan)
	}
	narrow, _ := train(model, t.TempDir(), "train.precision=bf16")
	require.InEpsilonSlice(t, one, narrow, 0.1)
	for _, stop := range []string{"1", "3"} { // in either phase
		out := t.TempDir()
		_, _ = train(model, out, "train.steps="+stop, "schedule.decay_steps=4")
		rest, _ := train(model, out, "schedule.decay_steps=4", "plan.dp=2", "plan.zero=1")
		require.InEpsilonSlice(t, one[len(one)-len(rest):], rest, 1e-4)
	}
	exported := fmt.Sprintf("{path: %q}", filepath.Join(saved, "release_hf_weights"))
	got := vqbetActs(t, saved, view)
	require.Equal(t, got, vqbetActs(t, filepath.Join(saved, "release_hf_weights"), view))
	on, _ := train(exported, t.TempDir(), "model.overrides.code_steps=0")
	require.NotEqual(t, one[2], on[0])
	for _, c := range []struct{ model, arg, want string }{
		{exported, "train.steps=3", "code_steps: " + filepath.Join(saved, "release_hf_weights") + " has learnt what these"},
		{model, "model.overrides.chunk_size=9", "chunk_size: 9, but observation_steps, action_tokens and token_actions make 8"},
		{model, "model.overrides.views=2", "views: 2 cameras, and the model reads one"},
		{model, "model.overrides.gpt_positions=7", "gpt_positions: 7, and a sample has 8 rows"},
		{model, "policy.learn_padding=false", "policy.learn_padding: false, and this model learns windows of actions whole"},
		{model, "model.overrides.crop_height=9", "crop_height: a part of 9 by 5 pixels, of views of 8 by 8"}} {
		cfg, err := load(c.model, t.TempDir(), c.arg)
		if err == nil {
			var r *Run
			if r, err = Open(cfg); err == nil {
				r.Close()
			}
		}
		require.ErrorContains(t, err, c.want)
	}
}

// vqbetActs is what a saved VQ-BeT does.
func vqbetActs(t *testing.T, path string, view *media.Image) [][]float64 {
	t.Helper()
	m, err := trained.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	can := actor.Abilities()
	require.Equal(t, [4]int{2, 5, 3, 2}, [4]int{can.Numbers, can.Chunk, can.Width, can.Steps})
	require.False(t, can.Joins)
	seen := policies.Seen{State: []float64{1, 2}, Views: []*media.Image{view}, Seed: 3}
	robots := []policies.Seen{seen, seen}
	for seed := range 20 {
		other := seen
		other.Seed = uint64(100 + seed)
		robots = append(robots, other)
	}
	chunks, err := actor.Act(robots)
	require.NoError(t, err)
	require.Len(t, chunks[0], 5)
	require.Equal(t, chunks[0], chunks[1])
	require.NotEqual(t, chunks[2:12], chunks[12:]) // other codes are drawn
	return chunks[0]
}
