package run

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// piOf8 is a small policy of Pi0.5's kind, which sees 8 by 8 pixels.
const piOf8 = `model_type: pi05
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 1
head_dim: 4
intermediate_size: 24
vocab_size: 8
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 4
expert_hidden_size: 12
expert_intermediate_size: 20
chunk_size: 4
views: 1
view_size: 8
view_patch: 4
view_hidden_size: 12
view_intermediate_size: 18
view_heads: 2
view_layers: 1
`

// shown writes a LeRobot data set in which a hand follows a light, and a policy's file and words.
func shown(t *testing.T, dir string) (view *media.Image) {
	t.Helper()
	var all []recordings.RobotEpisode
	for i := range 6 {
		e := recordings.RobotEpisode{Task: "red disc"}
		for k := range 5 {
			img := image.NewRGBA(image.Rect(0, 0, 8, 8))
			for p := range 64 {
				img.Set(p%8, p/8, color.RGBA{uint8(40 * i), uint8(50 * k), 0, 255})
			}
			var b bytes.Buffer
			require.NoError(t, png.Encode(&b, img))
			e.Frames = append(e.Frames, recordings.RobotStep{Images: [][]byte{b.Bytes()},
				State: []float32{float32(k),
					float32(i)},
				Action: []float32{float32(i - k), float32(k), 1}})
			if view == nil {
				var err error
				view, err = media.Decode(b.Bytes(), media.Options{})
				require.NoError(t, err)
			}
		}
		all = append(all, e)
	}
	require.NoError(t, recordings.WriteRobot(filepath.Join(dir, "set"), recordings.RobotTop(10, 8), all))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(piOf8), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("red disc"), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "words"), 0o755))
	wordTokenizer(t, filepath.Join(dir, "words"), 7)
	return view
}

// policyActs: a policy acts the same twice, otherwise from other noise or with its camera covered, and
// whoever else is asked.
func policyActs(t *testing.T, saved string, view *media.Image) [][]float64 {
	t.Helper()
	m, err := trained.Open(saved, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	defer actor.Close()
	a := policies.Seen{Task: "red disc", State: []float64{1, 2}, Views: []*media.Image{view}, Seed: 3}
	covered := policies.Seen{Task: "red disc", State: []float64{1, 2}, Seed: 3}
	first, err := actor.Act([]policies.Seen{a})
	require.NoError(t, err)
	require.Len(t, first[0], 4)
	require.Len(t, first[0][0], 3)
	both, err := actor.Act([]policies.Seen{covered, a})
	require.NoError(t, err)
	require.NotEqual(t, both[0], both[1])
	for k, v := range first[0] {
		require.InDeltaSlice(t, v, both[1][k], 1e-4)
	}
	a.Seed = 4
	other, err := actor.Act([]policies.Seen{a})
	require.NoError(t, err)
	require.NotEqual(t, first, other)
	_, err = actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1}}})
	require.ErrorContains(t, err, "observation.state: 1 numbers, and the statistics have 2")

	_, err = m.Generate("red", sample.Params{}, io.Discard) // a model that does not speak
	require.ErrorContains(t, err, "the model is a policy of a robot")
	err = diffusion.Draw(m, context.Background(), []string{"red"}, diffusion.Drawing{}, nil)
	require.ErrorContains(t, err, "neither speaks nor draws")
	return first[0]
}

// TestPolicyRun: a policy trains on a LeRobot data set with the same losses in one stage and in two and
// with replicas; it acts the same twice, otherwise from other noise, and whoever else is asked; its
// export goes on; and what does not fit is refused with its key.
func TestPolicyRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	file := func(model string) string {
		return fmt.Sprintf("model: %s\ndata: {paths: [%q], tokenizer: %q, seq_len: 4, split: [1, 0, 0]}\ntrain: {steps: 3, "+
			"global_batch: 4}\noptimizer: {lr: 1.0e-3}\n", model, filepath.Join(dir, "set"),
			filepath.Join(dir,
				"words"))
	}
	train := func(model string, more ...string) (losses []float64, saved string) {
		out := t.TempDir()
		saved = filepath.Join(out, "saved")
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(file(model)),
			Args: append([]string{
				"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + saved,
				"checkpoint.save_hf=true"}, more...)})
		require.NoError(t, err)
		require.NoError(t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
			losses = append(losses, m.Loss)
		}}))
		return losses, saved
	}
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	one, saved := train(model)
	require.Len(t, one, 3)
	for _, plan := range [][]string{{"plan.pp=2"}, {"plan.dp=2", "plan.zero=2"}, {"plan.tp=2",
		"plan.sequence_parallel=true"}} {
		got, _ := train(model, plan...)
		require.InEpsilonSlice(t, one, got, 1e-5, "%v", plan)
	}
	masked, _ := train(model, "policy.learn_padding=false")
	require.NotEqual(t, one, masked)
	policyChanges(t, one, func(more ...string) []float64 {
		losses, _ := train(model, more...)
		return losses
	})
	scaled, _ := train(model, "policy.normalize=mean_std")
	require.NotEqual(t, one, scaled)
	on, _ := train(fmt.Sprintf("{path: %q}", filepath.Join(saved, "release_hf_weights")))
	require.NotEqual(t, one, on)

	policyActs(t, saved, view)
	policyActs(t, filepath.Join(saved, "release_hf_weights"), view) // without its data set
	policyKinds(t, dir, view, one, train)
	for _, c := range []struct{ arg, want string }{
		{"policy.action_key=actions", `policy.action_key: the statistics of`},
		{"policy.cameras=[observation.images.top, b]", "policy.cameras: 2 cameras, and the model has 1"},
		{"diffusion.caption_dropout=0.5", "diffusion.caption_dropout: policies of robots do not read it"},
		{"model.overrides.in_channels=2", "actions have 3 numbers, and the model has room for 2"},
		{"data.paths=[" + filepath.Join(dir, "a.txt") + "]", "recordings of robots, and nothing else"}} {
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(file(model)), Files: true,
			Args: []string{"log.dir=" + t.TempDir(), c.arg}})
		if err == nil {
			var r *Run
			if r, err = Open(cfg); err == nil {
				r.Close()
			}
		}
		require.ErrorContains(t, err, c.want)
	}
}

// policyChanges: views and states that are changed when they are learnt have their effect, which every plan has.
func policyChanges(t *testing.T, one []float64, train func(more ...string) []float64) {
	t.Helper()
	changes := []string{"policy.crop=0.75", "policy.brightness=0.3", "policy.contrast=0.3",
		"policy.saturation=0.3",
		"policy.state_dropout=0.5"}
	changed := train(changes...)
	shared := train(append(changes, "plan.pp=2", "plan.dp=2")...)
	require.InEpsilonSlice(t, changed, shared, 1e-5)
	for _, c := range changes[1:] { // the views have one colour each, of which every part is alike
		other := train(c)
		require.NotEqual(t, one, other, c)
		require.NotEqual(t, changed, other, c)
	}
}

// policyKinds: Pi0 and SmolVLA train in stages and with replicas too, and act the same after their export,
// which goes on.
func policyKinds(t *testing.T, dir string, view *media.Image, one []float64,
	train func(model string, more ...string) ([]float64, string)) {
	t.Helper()
	for name, keys := range map[string]string{"pi0": "state_size: 5\n",
		"smolvla": "state_size: 5\nview_fold: 2\n"} {
		other := strings.Replace(piOf8, "model_type: pi05\n", "model_type: "+name+"\n"+keys, 1)
		path := filepath.Join(dir, name+".yaml")
		require.NoError(t, os.WriteFile(path, []byte(other), 0o644))
		first, saved := train(fmt.Sprintf("{file: %q}", path))
		staged, _ := train(fmt.Sprintf("{file: %q}", path), "plan.pp=2", "plan.dp=2")
		require.InEpsilonSlice(t, first, staged, 1e-5)
		require.NotEqual(t, one, first)
		exported := filepath.Join(saved, "release_hf_weights")
		require.Equal(t, policyActs(t, saved, view), policyActs(t, exported, view))
		on, _ := train(fmt.Sprintf("{path: %q}", exported))
		require.NotEqual(t, first, on)
	}
}
