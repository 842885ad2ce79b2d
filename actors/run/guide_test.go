package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// guideRun trains a vision-language model that an expert of actions stands behind, and returns its losses
// and its checkpoints.
func guideRun(t *testing.T, dir, folder, words, out string, more ...string) ([]float64, string, error) {
	t.Helper()
	model := fmt.Sprintf("{path: %q, init: random}", filepath.Join("../../stages/family/testdata", folder))
	own := strings.HasSuffix(folder, ".yaml") || filepath.IsAbs(folder)
	if filepath.IsAbs(folder) {
		model = fmt.Sprintf("{path: %q}", folder)
	} else if own {
		model = fmt.Sprintf("{file: %q}", filepath.Join(dir, folder))
	}
	text := fmt.Sprintf(`model: %s
data: {paths: [%q], tokenizer: %q, seq_len: 48, split: [1, 0, 0]}
policy: {expert: flow, horizon: 4, view_size: 16, question: "what now {task} ?", expert_width: 12, expert_heads: 2,
  expert_layers: 2, expert_actions: 4, expert_state: 3}
train: {steps: 3, global_batch: 8, micro_batch: 2, seed: 3}
optimizer: {lr: 4.0e-3}
schedule: {warmup_steps: 0}
`, model, filepath.Join(dir, "set"), words)
	if own { // what gives actions is the model's own
		from, to := strings.Index(text, "policy:"), strings.Index(text, "train:")
		text = text[:from] + "policy: {view_size: 16}\n" + text[to:]
	}
	saved := filepath.Join(out, "saved")
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true,
		Args: append([]string{"checkpoint.save_hf=true", "log.dir=" + filepath.Join(out, "log"),
			"checkpoint.dir=" + saved}, more...)})
	if err != nil {
		return nil, "", err
	}
	var losses []float64
	err = Train(context.Background(), cfg, Options{Step: func(m Metrics) {
		losses = append(losses,
			m.Loss)
	}})
	return losses, saved, err
}

// guidePlans are those of which a small model is trained under each.
var guidePlans = [][]string{{"plan.pp=2", "plan.dp=2", "plan.zero=1"}, {"plan.dp=2", "plan.zero=3"},
	{"plan.tp=2", "plan.sequence_parallel=true"}, {"plan.cp=2"}, {"plan.pp=2", "plan.layers=[2, 1]"},
	{"plan.encoder.over=first", "plan.pp=2"},
	{"plan.encoder.over=own", "plan.encoder.ranks=1"}}

// TestGuides: every family of models that see is a policy whose actions are numbers, by a line of a run file:
// with the same losses under plans, as one that resumes, and acting the same after its export, without its recordings.
func TestGuides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	for i, s := range seers {
		t.Run(s.folder, func(t *testing.T) {
			t.Parallel()
			words := filepath.Join(t.TempDir(), "words")
			seerWords(t, words, s.mark, s.processor)
			one, saved, err := guideRun(t, dir, s.folder, words, t.TempDir())
			require.NoError(t, err)
			require.Equal(t, policyActs(t, saved, view), policyActs(t, filepath.Join(saved,
				"release_hf_weights"),
				view))
			plans := guidePlans
			all := s.folder == "qwen3-vl" || s.folder == "gemma3-vision"
			if !all {
				plans = guidePlans[i%3 : i%3+1]
			}
			for _, p := range plans {
				got, _, err := guideRun(t, dir, s.folder, words, t.TempDir(), p...)
				require.NoError(t, err, p)
				require.InEpsilonSlice(t, one, got, 1e-5, "%v", p)
			}
			if all || strings.HasSuffix(s.folder, "pi0fast") { // readouts, whose questions do not read them
				read := []string{"policy.expert_readouts=3"}
				with, saved, err := guideRun(t, dir, s.folder, words, t.TempDir(), read...)
				require.NoError(t, err)
				require.NotEqual(t, one, with)
				require.Equal(t, policyActs(t, saved, view), policyActs(t, filepath.Join(saved,
					"release_hf_weights"),
					view))
				got, _, err := guideRun(t, dir, s.folder, words, t.TempDir(), append(read, plans[0]...)...)
				require.NoError(t, err)
				require.InEpsilonSlice(t, with, got, 1e-5)
			}
			if !all {
				return
			}
			again := t.TempDir()
			first, _, err := guideRun(t, dir, s.folder, words, again, "train.steps=2",
				"schedule.decay_steps=3")
			require.NoError(t, err)
			second, _, err := guideRun(t, dir, s.folder, words, again, "schedule.decay_steps=3")
			require.NoError(t, err)
			require.Equal(t, one, append(first, second...))
		})
	}
}

// sevenOf16 is a small GR00T N1.7 of three robots.
const sevenOf16 = `model_type: groot_n1d7
hidden_size: 16
num_hidden_layers: 3
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 8
intermediate_size: 24
vocab_size: 120
max_position_embeddings: 256
rms_norm_eps: 1.0e-6
rope_theta: 5000000
tie_word_embeddings: true
text_model_type: qwen3
attention_bias: false
qk_norm: true
rope_scaling: {rope_type: default, mrope_section: [2, 1, 1], mrope_interleaved: true}
initializer_range: 0.1
eos_token_id: [2]
in_channels: 4
state_size: 5
chunk_size: 4
embodiments: 3
dit_width: 12
dit_heads: 3
dit_layers: 5
dit_output: 10
mixer_heads: 4
mixer_layers: 1
action_positions: 8
text_every: 2
vision:
  kind: qwen3_vl
  depth: 2
  hidden_size: 16
  intermediate_size: 24
  deepstack_visual_indexes: [0]
  num_heads: 2
  patch_size: 4
  temporal_patch_size: 2
  merge: 2
  num_position_embeddings: 16
  hidden_act: gelu_pytorch_tanh
  image_token_id: 116
  video_token_id: 117
  vision_start_token_id: 118
`

// TestGrootSevenRun: GR00T N1.7 learns with the same losses under plans, resumes, has weights for each robot,
// acts the same after its export, which goes on, and refuses what it says itself.
func TestGrootSevenRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	words := filepath.Join(dir, "sight")
	seerWords(t, words, "<|image_pad|>", qwenSight)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "seven.yaml"), []byte(sevenOf16), 0o644))
	run := func(out string, more ...string) ([]float64, string, error) {
		return guideRun(t, dir, "seven.yaml", words, out, more...)
	}
	one, saved, err := run(t.TempDir())
	require.NoError(t, err)
	for _, p := range guidePlans {
		got, _, err := run(t.TempDir(), p...)
		require.NoError(t, err, p)
		require.InEpsilonSlice(t, one, got, 1e-5, "%v", p)
	}
	again := t.TempDir()
	first, _, err := run(again, "train.steps=2", "schedule.decay_steps=3")
	require.NoError(t, err)
	second, _, err := run(again, "schedule.decay_steps=3")
	require.NoError(t, err)
	require.Equal(t, one, append(first, second...))
	exported := filepath.Join(saved, "release_hf_weights")
	require.Equal(t, policyActs(t, saved, view), policyActs(t, exported, view))
	on, _, err := guideRun(t, dir, exported, words, t.TempDir())
	require.NoError(t, err)
	require.NotEqual(t, one, on)
	frozen, _, err := run(t.TempDir(), "freeze=[model.*, visual.*, projector.*]")
	require.NoError(t, err)
	require.Equal(t, one[0], frozen[0])
	require.NotEqual(t, one, frozen)
	other, _, err := run(t.TempDir(), "policy.embodiments=[2]")
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	for arg, want := range map[string]string{"policy.question=go {task}": "policy.question: the model has a question",
		"policy.horizon=3":       "policy.horizon: the model says itself",
		"policy.expert=flow":     "hosts what gives actions",
		"policy.embodiments=[3]": "robot 3, and the model has weights for 3"} {
		_, _, err := run(t.TempDir(), arg)
		require.ErrorContains(t, err, want, arg)
	}
}

// TestGuideLearns: an expert of either kind comes to do what it was shown; what a run says of it has its effect,
// and what does not go together is refused with its key.
func TestGuideLearns(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	view := shown(t, dir)
	words := filepath.Join(dir, "sight")
	seerWords(t, words, "<|image_pad|>", qwenSight)
	run := func(more ...string) ([]float64, string, error) {
		return guideRun(t, dir, "qwen2.5-vl", words, t.TempDir(), more...)
	}
	plain, first, err := run()
	require.NoError(t, err)
	for _, kind := range []string{"flow", "l1", "l1 policy.expert_readouts=2",
		"diffusion policy.expert_readouts=1"} {
		losses, saved, err := run(append(strings.Fields("policy.expert="+kind), "train.steps=80",
			"policy.expert_width=24",
			"train.global_batch=10",
			"train.micro_batch=5", "policy.normalize=min_max")...)
		require.NoError(t, err)
		share := 0.75
		if strings.HasPrefix(kind, "diffusion") { // of noise that is drawn anew for each sample
			share = 0.9
		}
		require.Less(t, losses[len(losses)-1], share*losses[0], kind)
		m, err := trained.Open(saved, "")
		require.NoError(t, err)
		actor, err := policies.NewActor(m)
		require.NoError(t, err)
		got, err := actor.Act([]policies.Seen{{Task: "red disc", State: []float64{1, 2},
			Views: []*media.Image{view}}})
		require.NoError(t, err)
		require.InDelta(t, 1, got[0][0][2], 0.3, kind) // the same in every recording
		actor.Close()
		m.Close()
	}
	for _, more := range []string{"policy.expert=l1", "policy.expert_readouts=2", "policy.expert_width=24",
		"policy.expert_layers=3",
		"policy.expert_heads=3", "policy.expert_actions=5", "policy.expert_robots=2 policy.embodiments=[1]",
		"policy.horizon=3", "policy.question=now", "policy.view_size=24", "policy.state_dropout=0.9",
		"policy.learn_padding=false", "policy.brightness=0.5"} {
		other, _, err := run(strings.Fields(more)...)
		require.NoError(t, err, more)
		require.NotEqual(t, plain, other, more)
	}
	_, _, err = run("model.path="+filepath.Join(first, "release_hf_weights"), "model.init=load")
	require.NoError(t, err)
	for arg, want := range map[string]string{"policy.tokens=bins": "policy.expert: policy.tokens says",
		"policy.expert_width=13":                            "policy.expert_width: 13 is no multiple",
		"policy.horizon=256":                                "policy.horizon: 256",
		"policy.expert_actions=2":                           "the model has room for 2",
		"policy.expert_state=1":                             "the model has room for 1",
		"policy.expert_readouts=256":                        "policy.expert_readouts",
		"policy.expert_readouts=40":                         "data.seq_len is 48",
		"policy.expert=diffusion policy.normalize=identity": "policy.normalize: policy.expert: diffusion gives",
		"policy.expert=none":                                "policy.expert_width: the model is no policy",
		"data.seq_len=8":                                    "data.seq_len is 8",
		"policy.embodiments=[1]":                            "robot 1, and the model has weights for 1",
		"diffusion.times=logit_normal":                      "diffusion.times: the policy says itself",
		"lora.rank=2":                                       "lora.merge: adapters are no place",
		"lora.rank=2 lora.adapters_only=false":              "lora.merge: adapters are no place"} {
		_, _, err := run(strings.Fields(arg)...)
		require.ErrorContains(t, err, want, arg)
	}
	_, _, err = guideRun(t, dir, "qwen3", words, t.TempDir())
	require.ErrorContains(t, err, "policy.expert")
}
