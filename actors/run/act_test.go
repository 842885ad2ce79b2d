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

// actOf8 is a small ACT, which sees 8 by 8 pixels.
const actOf8 = `model_type: act
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 2
intermediate_size: 24
initializer_range: 0.1
in_channels: 3
state_size: 2
chunk_size: 4
views: 1
view_height: 8
view_width: 8
backbone_width: 4
decoder_layers: 2
vae_layers: 1
latent_size: 4
`

// TestACTRun: ACT trains on a LeRobot data set with the same losses in stages, with replicas and with tp; it
// acts, the same after its export, which goes on; and what does not fit is refused with its key.
func TestACTRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "act.yaml"), []byte(actOf8), 0o644))
	load := func(model, out string, more ...string) (*configs.Config, error) {
		text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 4, split: [1, 0, 0]}\n"+
			"policy: {normalize: mean_std}\ntrain: {steps: 3, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n",
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
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "act.yaml"))
	one, saved := train(model)
	require.Len(t, one, 3)
	require.Less(t, one[2], one[0])
	for _, plan := range [][]string{{"plan.pp=2"}, {"plan.dp=2", "plan.zero=2"}, {"plan.tp=2",
		"plan.sequence_parallel=true"}} {
		got, _ := train(model, plan...)
		require.InEpsilonSlice(t, one, got, 1e-5, "%v", plan)
	}
	exported := filepath.Join(saved, "release_hf_weights")
	b, err := os.ReadFile(filepath.Join(exported, "config.json"))
	require.NoError(t, err)
	require.NotContains(t, string(b), "view_height") // lerobot refuses keys that are not its own
	on, _ := train(fmt.Sprintf("{path: %q}", exported))
	require.Less(t, on[0], one[0])

	got := acts(t, saved, view)
	require.Len(t, got, 4)
	require.Len(t, got[0], 3)
	for k, a := range acts(t, exported, view) {
		require.InDeltaSlice(t, got[k], a, 1e-5)
	}
	for _, c := range []struct{ arg, want string }{
		{"model.overrides.state_size=3", "policy.state_key: states have 2 numbers, and the model reads 3"},
		{"model.overrides.in_channels=4",
			"policy.action_key: actions have 3 numbers, and the model gives 4"},
		{"model.overrides.views=2", "policy.cameras: 1 cameras, and the model reads 2"},
		{"model.overrides.latent_size=13", "latent_size: 13, more than the 12 numbers"},
		{"diffusion.loss=huber", "diffusion.loss: "}} {
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

// acts is what a saved ACT does, which is the same from any noise; what is missing or misshapen is refused.
func acts(t *testing.T, path string, view *media.Image) [][]float64 {
	t.Helper()
	m, err := trained.Open(path, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	_, err = actor.Act([]policies.Seen{{State: []float64{1, 2}}})
	require.ErrorContains(t, err, "camera 1 is missing")
	_, err = actor.Act([]policies.Seen{{State: []float64{1}, Views: []*media.Image{view}}})
	require.ErrorContains(t, err, "observation.state: 1 numbers")
	chunks, err := actor.Act([]policies.Seen{{State: []float64{1, 2}, Views: []*media.Image{view}, Seed: 3},
		{State: []float64{1, 2}, Views: []*media.Image{view}, Seed: 4}})
	require.NoError(t, err)
	require.Equal(t, chunks[0], chunks[1])
	return chunks[0]
}
