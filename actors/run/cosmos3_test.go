package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// cosmosOf8 is a small Cosmos3 that sees 8 by 8 pixels.
const cosmosOf8 = `model_type: Cosmos3OmniTransformer
hidden_size: 32
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 2
head_dim: 8
intermediate_size: 24
rms_norm_eps: 1.0e-6
rope_theta: 10000
vocab_size: 64
initializer_range: 0.1
latent_patch: [1, 1, 1]
rope_axes: [2, 1, 1]
robot_rate: 10
in_channels: 5
state_size: 5
embodiments: 4
chunk_size: 4
views: 1
view_height: 8
view_width: 8
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 5
video_every: 1
acting_steps: 4
`

// TestCosmos3Run: Cosmos3 learns from clips of recordings as FastWAM does, with tokens of their tasks, acts by
// a clip that it draws together with the actions, and has a folder of diffusers' names.
func TestCosmos3Run(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, cosmosOf8)
	dir, more := wanEncoders(t)
	p.more = more[:1]
	one, exported := p.learns()
	for _, more := range together {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
	}
	require.NotEqual(t, one, p.train(p.model, t.TempDir(), "policy.embodiments=[2]"))
	p.exportsRobot()
	held := p.train(p.model, t.TempDir(), `freeze=[embed_tokens.*, "layers.*.self_attn.to_[qkv].*", `+
		`layers.*.self_attn.to_out.*, "layers.*.self_attn.norm_[qk].*", layers.*.mlp.*, `+
		`layers.*.input_layernorm.weight, layers.*.post_attention_layernorm.weight]`,
		`optimizer.groups=["action_* lr=5"]`) // as docs/policies.md has it
	require.Equal(t, one[0], held[0])
	require.NotEqual(t, one[2], held[2])
	require.FileExists(t, filepath.Join(exported, "diffusion_pytorch_model.safetensors"))
	actions := p.act(exported, "")
	require.Len(t, actions, 4)
	require.Len(t, actions[0], 3)
	require.NoError(t, os.Rename(dir, dir+".away"))
	m, err := trained.Open(exported, "")
	require.NoError(t, err)
	defer m.Close()
	_, err = policies.NewActor(m)
	require.ErrorContains(t, err, "serve it with --encoders, or set encoders to")
	require.NoError(t, os.Rename(filepath.Join(dir+".away", "text_encoder"), dir+".text"))
	require.NoError(t, policies.Encode(m, dir+".away"))
	actor, err := policies.NewActor(m)
	require.NoError(t, err)
	actor.Close()
	require.NoError(t, os.Rename(dir+".away", dir))
	for i := range p.view.Pix {
		p.view.Pix[i] = 200
	}
	require.NotEqual(t, actions, p.act(exported, "")) // it draws on from what it sees
	for arg, want := range map[string]string{
		"diffusion.text_encoder=" + dir:     "policies of robots do not read it",
		"model.overrides.chunk_size=3":      "from the first to the last of 5 frames the robot takes 4 steps",
		"model.overrides.state_size=4":      "a state is read as actions are",
		"model.overrides.rope_axes=[2,2,1]": "want three numbers that add up to head_dim/2 = 4",
		"model.overrides.robot_rate=1.0e-3": "would lie at place",
		"model.overrides.robot_rate=15":     "/set has 10",
		"policy.embodiments=[4]":            "the model has weights for 4",
		"policy.crop=0.9":                   "the model reads a clip",
		"model.overrides.in_channels=2":     "state_size",
		"model.overrides.video_channels=3":  "the model reads 3 channels",
	} {
		cfg, err := p.load(p.model, t.TempDir(), arg)
		if err == nil {
			var r *Run
			if r, err = Open(cfg); err == nil {
				r.Close()
			}
		}
		require.ErrorContains(t, err, want, arg)
	}
}
