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
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
)

// unetOf24 is a small U-Net of SDXL's kind, which reads the states of two encoders of 12 numbers beside each other.
const unetOf24 = `model_type: UNet2DConditionModel
hidden_size: 16
num_hidden_layers: 14
num_attention_heads: 2
intermediate_size: 64
latent_patch: [1, 1, 1]
in_channels: 3
out_channels: 3
text_dim: 24
block_out_channels: [8, 16]
down_block_types: [DownBlock2D, CrossAttnDownBlock2D]
transformer_layers_per_block: [1, 1]
heads_per_block: [1, 2]
layers_per_block: 1
norm_num_groups: 4
use_linear_projection: true
addition_time_embed_dim: 4
projection_class_embeddings_input_dim: 34
`

// clipWords is a folder of a small CLIP with a tokenizer of words.
func clipWords(t *testing.T, dir, golden string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	wordTokenizer(t, dir, 40)
	for _, name := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile(filepath.Join("../../stages/texts/testdata", golden, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
}

// TestUNetRun: a U-Net of SDXL's kind trains with two encoders of captions, whose states stand beside each
// other, with the same losses in one stage, in three and by lines on several ranks; its export goes on as
// diffusers' folder and draws; and sizes that could meet in a microbatch and live encoders are refused.
func TestUNetRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	clipWords(t, filepath.Join(dir, "one"), "clip")
	clipWords(t, filepath.Join(dir, "two"), "clip-projected")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(unetOf24), 0o644))
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	more := []string{"diffusion.text_encoder_2=" + filepath.Join(dir, "two"), "data.seq_len=64"}
	run := func(model string, args ...string) ([]float64, string) {
		return encodersRun(t, model, dir, filepath.Join(dir, "one"), append(args, more...)...)
	}
	one, export := run(model)
	require.Len(t, one, 4)
	three, _ := run(model, "plan.pp=3", "plan.layers=[5, 5, 4]", "plan.recompute=full")
	require.InEpsilonSlice(t, one, three, 1e-5)
	lines, _ := run(model, "plan.cp=2", "plan.zero=1", "plan.recompute=full", "train.micro_batch=1")
	require.InEpsilonSlice(t, one, lines, 1e-5)
	lines, _ = run(model, "plan.cp=4", "plan.pp=2", "plan.layers=[6, 8]", "train.micro_batch=1")
	require.InEpsilonSlice(t, one, lines, 1e-5)
	require.FileExists(t, filepath.Join(export, "unet", "diffusion_pytorch_model.safetensors"))
	on, _ := run(fmt.Sprintf("{path: %q}", filepath.Join(export, "unet")))
	require.NotEqual(t, one, on)

	m, err := trained.Open(filepath.Dir(export), "")
	require.NoError(t, err)
	defer m.Close()
	var drawn []diffusion.Picture
	require.NoError(t, diffusion.Draw(m, context.Background(), []string{"red disc", "blue", ""},
		diffusion.Drawing{Steps: 3,
			Guidance: 2, Batch: 2}, func(p diffusion.Picture) error {
			drawn = append(drawn, p)
			return nil
		}))
	require.Len(t, drawn, 3)
	require.Len(t, drawn[0].Pixels, 3*8*8)

	for _, c := range []struct{ arg, want string }{
		{"diffusion.encoders=live", "diffusion.encoders: the model reads two encoders"},
		{"diffusion.sizes=[8x8, 8x6]", "could meet in a microbatch"}} {
		err := openRun(model, dir, append([]string{c.arg, "train.micro_batch=2"}, more...)...)
		require.ErrorContains(t, err, c.want)
	}
}

// TestOddHeads: attention of a U-Net has no rotary embedding, and its heads any size; a denoiser that rotates pairs is
// refused by that reason.
func TestOddHeads(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	clipWords(t, filepath.Join(dir, "one"), "clip")
	odd := strings.NewReplacer("text_dim: 24", "text_dim: 12", "addition_time_embed_dim: 4\n", "",
		"projection_class_embeddings_input_dim: 34\n", "", "[8, 16]", "[8, 20]", "[1, 2]", "[1, 4]", "hidden_size: 16",
		"hidden_size: 20", "heads: 2", "heads: 4", "size: 64", "size: 80").Replace(unetOf24)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(odd), 0o644))
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	one, export := encodersRun(t, model, dir, filepath.Join(dir, "one"), "data.seq_len=64")
	two, _ := encodersRun(t, model, dir, filepath.Join(dir, "one"), "data.seq_len=64", "plan.pp=2", "plan.layers=[6, 8]")
	require.Equal(t, one, two)
	text, err := os.ReadFile(filepath.Join(export, "unet", "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(text), "\"attention_head_dim\": [\n    1,\n    4\n  ]")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(strings.NewReplacer("head_dim: 12",
		"head_dim: 11", "hidden_size: 24", "hidden_size: 22").Replace(wanOf12)), 0o644))
	require.ErrorContains(t, openRun(model, dir), "head_dim: 11 is odd: rotary embeddings turn pairs")
}

// openRun is what a run's start says of a configuration.
func openRun(model, dir string, args ...string) error {
	text := fmt.Sprintf("model: %s\ndata: {paths: [%q], seq_len: 64}\ndiffusion: {autoencoder: pixels, "+
		"sizes: [8x8], text_encoder: %q}\n", model, filepath.Join(dir, "a.tar"), filepath.Join(dir, "one"))
	cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true, Args: args})
	if err != nil {
		return err
	}
	r, err := Open(cfg)
	if err == nil {
		r.Close()
	}
	return err
}

// TestTwoSizes: a U-Net, and a denoiser that encodes pixels itself, learn images of two sizes in one step, each
// sequence of one, though both would fit into it.
func TestTwoSizes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shapes(t, filepath.Join(dir, "a.tar"), 8, 16)
	clipWords(t, filepath.Join(dir, "one"), "clip")
	unet := strings.NewReplacer("text_dim: 24", "text_dim: 12", "addition_time_embed_dim: 4\n", "",
		"projection_class_embeddings_input_dim: 34\n", "").Replace(unetOf24)
	for _, c := range []struct {
		model, text string
		args        []string
	}{
		{unet, filepath.Join(dir, "one"), []string{"diffusion.sizes=[8x8, 8x16]", "data.seq_len=256"}},
		{wanOf12, "none", []string{"diffusion.sizes=[16x16, 16x32]", "diffusion.latents=live",
			"data.seq_len=64",
			"diffusion.autoencoder=" + filepath.Join(autoencodersOf, "kl")}},
	} {
		file := filepath.Join(dir, "model.yaml")
		require.NoError(t, os.WriteFile(file, []byte(c.model), 0o644))
		var losses [2][]float64
		for i, plan := range []string{"plan.pp=1", "plan.pp=2"} {
			losses[i], _ = encodersRun(t, fmt.Sprintf("{file: %q}", file), dir, c.text,
				append(c.args, plan, "train.micro_batch=1")...)
			require.Len(t, losses[i], 4)
		}
		require.Equal(t, losses[0], losses[1], c.text)
	}
}

// TestUNetLive: a U-Net whose blocks read captions at several depths gives the same losses to the bit whether
// the encoder's states are made beside the data or by blocks before it, which may lie in stages of their own;
// one that learns gives others, the same in one stage and in three.
func TestUNetLive(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	clipWords(t, filepath.Join(dir, "one"), "clip")
	text := strings.NewReplacer("text_dim: 24", "text_dim: 12", "addition_time_embed_dim: 4\n", "",
		"projection_class_embeddings_input_dim: 34\n", "").Replace(unetOf24)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(text), 0o644))
	run := func(args ...string) []float64 {
		losses, _ := encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml")), dir,
			filepath.Join(dir, "one"), append(args, "data.seq_len=64")...)
		require.Len(t, losses, 4)
		return losses
	}
	cached := run()
	require.Equal(t, cached, run("diffusion.encoders=live"))
	require.Equal(t, cached, run("diffusion.encoders=live", "plan.pp=3", "plan.layers=[5, 5, 4]"))
	vae := "diffusion.autoencoder=" + filepath.Join(autoencodersOf, "kl")
	latents := run(vae, "diffusion.sizes=[16x16]")
	for _, plan := range []string{"plan.encoder.over=none", "plan.encoder.over=own plan.encoder.ranks=1",
		"plan.pp=3 plan.layers=[5,5,4]"} {
		require.Equal(t, latents, run(append(strings.Fields(plan), vae, "diffusion.sizes=[16x16]",
			"diffusion.encoders=live", "diffusion.latents=live")...), plan)
	}
	learns := run("diffusion.encoders=live", "diffusion.train_text_encoder=true")
	require.NotEqual(t, cached, learns)
	require.InEpsilonSlice(t, learns, run("diffusion.encoders=live", "diffusion.train_text_encoder=true",
		"plan.pp=3", "plan.layers=[5, 5, 4]", "plan.recompute=full"), 1e-5)
}
