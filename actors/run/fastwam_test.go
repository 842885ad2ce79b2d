package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/trained"
)

// fastwamOf8 is a small FastWAM that sees 8 by 8 pixels.
const fastwamOf8 = `model_type: fastwam
hidden_size: 24
num_hidden_layers: 2
num_attention_heads: 4
head_dim: 6
intermediate_size: 24
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 3
state_size: 2
chunk_size: 4
views: 1
view_height: 8
view_width: 8
text_dim: 14
freq_dim: 8
text_rows: 5
expert_hidden_size: 12
expert_intermediate_size: 20
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 5
video_every: 1
`

// together are arguments by which samples are computed together that are computed by themselves without.
var together = []string{"train.micro_batch=2", "data.seq_len=8 train.global_batch=2"}

// wanEncoders are a small autoencoder of clips and a small encoder of captions as a pipeline of Wan's has
// them.
func wanEncoders(t *testing.T) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	for name, of := range map[string]string{"vae": "latent/testdata/wan",
		"text_encoder": "texts/testdata/umt5"} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, name), os.DirFS("../../stages/"+of)))
	}
	for _, rest := range []string{"vae", "text_encoder"} { // what the golden cases have beside
		require.NoError(t, os.Remove(filepath.Join(dir, rest, "golden.safetensors")))
	}
	wordTokenizer(t, filepath.Join(dir, "text_encoder"), 1)
	return dir, []string{"diffusion.autoencoder=" + filepath.Join(dir, "vae"),
		"diffusion.text_encoder=" + filepath.Join(dir, "text_encoder")}
}

// TestFastWAMRun: FastWAM learns from clips of recordings with the same losses under plans, goes on where it
// stopped, and acts the same after its export; its clips are read where the encoders are, and kept.
func TestFastWAMRun(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, fastwamOf8)
	var dir string
	dir, p.more = wanEncoders(t)
	one, exported := p.learns()
	out := t.TempDir()
	require.Equal(t, one, p.train(p.model, out, "diffusion.cache=off"))
	require.NoDirExists(t, filepath.Join(out, "log", "latents"))
	require.NotEqual(t, one, p.train(p.model, t.TempDir(), "policy.learn_padding=false"))
	for _, more := range together {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
	}

	p.more = nil
	require.NotEmpty(t, p.act(exported, "")) // by the encoders that its config.json names
	require.NoError(t, os.Rename(dir, dir+".away"))
	for arg, want := range map[string]string{"policy.crop=0.9": "the model reads a clip",
		"diffusion.sizes=[8x8]": "policies of robots do not read it", "plan.dp=1": "diffusion.autoencoder"} {
		cfg, err := p.load(p.model, t.TempDir(), arg)
		if err == nil {
			_, err = Open(cfg)
		}
		require.ErrorContains(t, err, want)
	}
}

// lingbotOf8 is a small LingBot-VA that sees 8 by 8 pixels.
const lingbotOf8 = `model_type: lingbot_va
hidden_size: 48
num_hidden_layers: 2
num_attention_heads: 4
head_dim: 12
intermediate_size: 24
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 5
chunk_size: 4
views: 1
view_height: 8
view_width: 8
text_dim: 14
freq_dim: 8
text_rows: 5
video_channels: 2
video_patch: [1, 1, 2]
video_scale: [4, 4, 4]
video_frames: 5
video_every: 1
`

// TestLingBotRun: LingBot-VA learns from clips of recordings as FastWAM does, and acts by a clip that it
// draws on from what it sees.
func TestLingBotRun(t *testing.T) {
	t.Parallel()
	p := newRobotPolicy(t, lingbotOf8)
	_, p.more = wanEncoders(t)
	one, exported := p.learns()
	for _, more := range together {
		require.InEpsilonSlice(t, one, p.train(p.model, t.TempDir(), strings.Fields(more)...), 1e-5, more)
	}
	actions := p.act(exported, "")
	m, err := trained.Open(exported, "")
	require.NoError(t, err)
	defer m.Close()
	actor, err := m.NewActor()
	require.NoError(t, err)
	defer actor.Close()
	require.Equal(t, []any{2, false}, []any{actor.Abilities().Chunk, actor.Abilities().Joins})
	require.Len(t, actions, 2) // those of the frame that is seen lie before it
	require.Len(t, actions[0], 3)
	for i := range p.view.Pix {
		p.view.Pix[i] = 200
	}
	require.NotEqual(t, actions, p.act(exported, "")) // it draws on from what it sees
}
