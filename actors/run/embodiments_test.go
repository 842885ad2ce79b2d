package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// xvlaOf16 is a small X-VLA of two robots.
const xvlaOf16 = `model_type: xvla
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 2
intermediate_size: 32
vocab_size: 8
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 4
state_size: 5
chunk_size: 4
views: 1
tower_widths: [8, 12]
tower_depths: [1, 1]
tower_heads: [2, 3]
tower_groups: [2, 3]
tower_kernels: [7, 3]
tower_strides: [4, 2]
tower_paddings: [3, 1]
tower_window: 3
tower_view: 16
tower_places: 4
tower_times: 2
text_hidden_size: 12
text_layers: 2
text_heads: 2
text_intermediate_size: 20
text_positions: 40
embodiments: 3
soft_prompts: 2
time_width: 8
policy_positions: 64
prompt_size: 6
`

// robotPolicy trains small policies that have weights for each robot.
type robotPolicy struct {
	t          *testing.T
	dir, model string
	view       *media.Image
	more       []string // arguments of every run
}

func newRobotPolicy(t *testing.T, model string) *robotPolicy {
	p := &robotPolicy{t: t, dir: t.TempDir()}
	p.view = shown(t, p.dir)
	file := filepath.Join(p.dir, "of.yaml")
	require.NoError(t, os.WriteFile(file, []byte(model), 0o644))
	p.model = fmt.Sprintf("{file: %q}", file)
	return p
}

func (p *robotPolicy) load(model, out string, more ...string) (*configs.Config, error) {
	text := fmt.Sprintf("model: %s\ndata: {paths: [%q], tokenizer: %q, seq_len: 4, split: [1, 0, 0]}\n"+
		"train: {steps: 3, global_batch: 4}\noptimizer: {lr: 1.0e-3}\n", model, filepath.Join(p.dir, "set"),
		filepath.Join(p.dir, "words"))
	return configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: append([]string{
		"log.dir=" + filepath.Join(out, "log"), "checkpoint.dir=" + filepath.Join(out, "saved"),
		"checkpoint.save_hf=true"}, append(slices.Clone(p.more), more...)...)})
}

func (p *robotPolicy) train(model, out string, more ...string) (losses []float64) {
	cfg, err := p.load(model, out, more...)
	require.NoError(p.t, err)
	require.NoError(p.t, Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		losses = append(losses, m.Loss)
	}}))
	return losses
}

// act is what a policy does as a robot, "" for the first.
func (p *robotPolicy) act(saved, as string) [][]float64 {
	m, err := trained.Open(saved, "")
	require.NoError(p.t, err)
	defer m.Close()
	actor, err := policies.NewActor(m)
	require.NoError(p.t, err)
	defer actor.Close()
	if as != "" {
		require.NoError(p.t, actor.As(as))
	}
	chunks, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1, 2},
		Views: []*media.Image{p.view}}})
	require.NoError(p.t, err)
	return chunks[0]
}

// learns is what every policy does: it learns with the same losses under plans, goes on where it stopped, and
// acts the same after its export, which goes on.
func (p *robotPolicy) learns() (one []float64, exported string) {
	t, out := p.t, p.t.TempDir()
	one = p.train(p.model, out)
	require.Len(t, one, 3)
	for _, plan := range [][]string{{"plan.pp=2", "plan.dp=2"}, {"plan.dp=2", "plan.zero=2"}, {"plan.tp=2",
		"plan.sequence_parallel=true"}} {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), plan...), 1e-5, "%v", plan)
	}
	again := t.TempDir()
	require.Equal(t, one[:2], p.train(p.model, again, "train.steps=2", "schedule.decay_steps=3"))
	require.Equal(t, one[2:], p.train(p.model, again, "schedule.decay_steps=3"))

	saved := filepath.Join(out, "saved")
	exported = filepath.Join(saved, "release_hf_weights")
	require.Equal(t, p.act(saved, ""), p.act(exported, ""))
	require.NotEqual(t, one, p.train(fmt.Sprintf("{path: %q}", exported), t.TempDir()))
	return one, exported
}

// holds is what policies of several robots do beside that: they have weights for each.
func (p *robotPolicy) holds() {
	t := p.t
	p.learns()

	other := filepath.Join(p.dir, "other")
	require.NoError(t, os.CopyFS(other, os.DirFS(filepath.Join(p.dir, "set"))))
	two := t.TempDir()
	paths := fmt.Sprintf("data.paths=[%s, %s]", filepath.Join(p.dir, "set"), other)
	apart := p.train(p.model, two, paths, "policy.embodiments=[0, 2]")
	require.NotEqual(t, apart, p.train(p.model, t.TempDir(), paths, "policy.embodiments=[0, 0]"))
	require.NotEqual(t, p.act(filepath.Join(two, "saved"), "set"), p.act(filepath.Join(two, "saved"),
		"other"))
	p.exportsRobot()
	for arg, want := range map[string]string{"policy.embodiments=[3]": "robot 3, and the model has weights for 3",
		"policy.embodiments=[0, 1]": "2 robots, and data.paths has 1 data sets"} {
		cfg, err := p.load(p.model, t.TempDir(), arg)
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want)
	}
}

// exportsRobot: an export acts as the robot that its run learnt of, which a file may not say wrong.
func (p *robotPolicy) exportsRobot() {
	t, saved := p.t, filepath.Join(p.t.TempDir(), "saved")
	p.train(p.model, filepath.Dir(saved), "policy.embodiments=[2]")
	exported := filepath.Join(saved, "release_hf_weights")
	acted := p.act(saved, "")
	require.Equal(t, acted, p.act(exported, ""))
	steps := filepath.Join(exported, "policy_preprocessor.json")
	text, err := os.ReadFile(steps)
	if os.IsNotExist(err) { // of a family that says it elsewhere
		return
	}
	require.NoError(t, err)
	of := regexp.MustCompile(`("(?:domain_id|embodiment|new_embodiment)": )2`)
	require.Regexp(t, of, string(text))
	says := func(robot string) {
		require.NoError(t, os.WriteFile(steps, of.ReplaceAll(text, []byte("${1}"+robot)), 0o644))
	}
	says("0")
	require.NotEqual(t, acted, p.act(exported, ""))
	for _, bad := range []string{"9", "-1", `"x"`, "{}"} {
		says(bad)
		m, err := trained.Open(exported, "")
		require.NoError(t, err)
		defer m.Close()
		_, err = policies.NewActor(m)
		require.ErrorContains(t, err, "policy_preprocessor.json: ")
		require.ErrorContains(t, err, "robot "+bad)
	}
}

// TestXVLARun: X-VLA trains and acts as holds says.
func TestXVLARun(t *testing.T) {
	t.Parallel()
	newRobotPolicy(t, xvlaOf16).holds()
}

// grootOf8 is a small GR00T of three robots.
const grootOf8 = `model_type: groot
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 4
intermediate_size: 24
vocab_size: 12
rms_norm_eps: 1.0e-6
rope_theta: 1.0e+6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 4
state_size: 5
chunk_size: 4
views: 1
view_size: 8
view_patch: 4
view_hidden_size: 12
view_intermediate_size: 18
view_heads: 2
view_layers: 1
embodiments: 3
image_token: 11
future_tokens: 3
dit_width: 12
dit_heads: 3
dit_layers: 3
dit_output: 10
mixer_heads: 4
mixer_layers: 1
action_positions: 8
`

// grootSixOf8 is the same of N1.6.
const grootSixOf8 = `model_type: groot_n1d6
hidden_size: 16
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 4
intermediate_size: 24
vocab_size: 12
rms_norm_eps: 1.0e-6
rope_theta: 1.0e+6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 4
state_size: 5
chunk_size: 4
views: 1
view_size: 16
view_places: 3
view_patch: 4
view_hidden_size: 12
view_intermediate_size: 18
view_heads: 2
view_layers: 1
embodiments: 3
image_token: 11
tie_word_embeddings: true
text_every: 2
state_mask: true
dit_width: 12
dit_heads: 3
dit_layers: 3
dit_output: 10
action_positions: 8
`

// TestGrootRun: GR00T trains and acts as holds says.
func TestGrootRun(t *testing.T) {
	t.Parallel()
	newRobotPolicy(t, grootOf8).holds()
}

// TestGrootSixRun: and so does N1.6.
func TestGrootSixRun(t *testing.T) {
	t.Parallel()
	newRobotPolicy(t, grootSixOf8).holds()
}
