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

// autoencodersOf has the small autoencoders that diffusers wrote.
const autoencodersOf = "../../stages/family/autoencoders/testdata"

// TestLatentsAgree: an autoencoder gives the same losses to the bit whether its latents are made beside the
// data, kept or not, by blocks before the denoiser, or by blocks on ranks of their own, with the encoder of
// captions there too; for one of pictures and one of clips, in float32 and beside a denoiser in bfloat16, on one
// rank and under plans that cut the denoiser.
func TestLatentsAgree(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ autoencoder, channels string }{{"kl", "3"}, {"wan", "4"}} {
		t.Run(c.autoencoder, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			squares(t, filepath.Join(dir, "a.tar"))
			captionWords(t, filepath.Join(dir, "text"))
			text := strings.NewReplacer("in_channels: 3", "in_channels: "+c.channels, "out_channels: 3",
				"out_channels: "+c.channels).Replace(wanOf12)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(text), 0o644))
			model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
			vae, err := filepath.Abs(filepath.Join(autoencodersOf, c.autoencoder))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, "pixels.yaml"), []byte(wanOf12), 0o644))
			_, export := encodersRun(t, fmt.Sprintf("{file: %q}", filepath.Join(dir, "pixels.yaml")), dir,
				filepath.Join(dir, "text"),
				"diffusion.encoders=live", "diffusion.train_text_encoder=true")
			encoder := filepath.Join(export, "text_encoder")
			losses := func(args ...string) []float64 {
				got, _ := encodersRun(t, model, dir, encoder, append([]string{"diffusion.sizes=[16x16]",
					"diffusion.autoencoder=" + vae}, args...)...)
				require.Len(t, got, 4)
				return got
			}
			live := []string{"diffusion.latents=live", "diffusion.encoders=live"}
			rounded := []string{"train.precision=bf16", "train.low_precision=mxfp8"}
			require.Equal(t, losses(rounded...), losses(append(rounded, live...)...),
				"encoders are not rounded")
			for _, precision := range []string{"train.precision=fp32", "train.precision=bf16"} {
				cached := losses(precision)
				for _, plan := range []string{"plan.encoder.over=none", "plan.encoder.over=first",
					"plan.encoder.over=own plan.encoder.ranks=2", "plan.pp=2",
					"plan.encoder.over=all plan.pp=2 plan.overlap=true"} {
					args := append(strings.Fields(plan), precision)
					require.Equal(t, cached, losses(append(args, live...)...), "%s", args)
				}
				require.Equal(t, cached, losses("diffusion.latents=live", precision))
				require.Equal(t, cached, losses("diffusion.cache=off", precision))
			}
			for _, cut := range []string{"plan.dp=2 plan.zero=1", "plan.cp=2", "plan.tp=2",
				"plan.tp=2 plan.cp=2", "plan.tp=2 plan.pp=2",
				"plan.tp=2 plan.sequence_parallel=true", "plan.dp=2 plan.zero=3",
				"plan.dp=2 plan.zero=2 plan.pp=2"} {
				cached, own := losses(strings.Fields(cut)...), "plan.encoder.over=own plan.encoder.ranks=1"
				all := losses(append(strings.Fields(cut), live...)...)
				if require.InEpsilonSlice(t, cached, all, 1e-5, cut); !strings.Contains(cut, "tp") {
					require.Equal(t, cached, all, cut) // tp shares the encoder of captions out too
				}
				require.Equal(t, cached, losses(append(strings.Fields(cut), "diffusion.latents=live")...),
					cut)
				require.Equal(t, cached, losses(append(strings.Fields(cut+" "+own), live...)...), cut)
			}
		})
	}
}

// TestClipLatentsAgree: the same of clips, whose first frame is given in some, and with two models that share
// out the levels of noise; also where clips are encoded a frame of latents at a time.
func TestClipLatentsAgree(t *testing.T) {
	dir := t.TempDir()
	clipsOf(t, filepath.Join(dir, "a.tar"))
	text := strings.NewReplacer("in_channels: 3", "in_channels: 4", "out_channels: 3",
		"out_channels: 4").Replace(wanOf12)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(text), 0o644))
	model := fmt.Sprintf("{file: %q}", filepath.Join(dir, "model.yaml"))
	for _, more := range []string{"diffusion.first_frame=0.5 train.micro_batch=2",
		"diffusion.experts=both diffusion.boundary=0.5 train.micro_batch=2"} {
		args := append(strings.Fields(more), "data.seq_len=3",
			"diffusion.autoencoder="+filepath.Join(autoencodersOf,
				"wan"))
		cached, _ := givenRun(t, model, dir, args...)
		for _, frames := range []string{"0", "1", "9"} { // of two
			parts, _ := givenRun(t, model, dir, append(args, "diffusion.encode_frames="+frames)...)
			require.Equal(t, cached, parts, "%s %s", more, frames)
		}
		for _, plan := range []string{"plan.encoder.over=none",
			"plan.encoder.over=none diffusion.encode_frames=1",
			"plan.encoder.over=own plan.encoder.ranks=1",
			"plan.encoder.over=own plan.encoder.ranks=1 diffusion.encode_frames=1"} {
			live, saved := givenRun(t, model, dir, append(append(args, strings.Fields(plan)...),
				"diffusion.latents=live")...)
			require.Equal(t, cached, live, "%s %s", more, plan)
			m, err := trained.Open(saved, "")
			require.NoError(t, err)
			drawn := 0
			require.NoError(t, diffusion.Draw(m, context.Background(), []string{""}, diffusion.Drawing{Steps: 2,
				Guidance: 1},
				func(diffusion.Picture) error { drawn++; return nil }))
			require.Equal(t, 1, drawn)
			m.Close()
		}
	}
}

// TestEncodeFramesIsRefused: parts of clips are refused by their key where nothing is encoded, where an autoencoder
// takes pictures, cached or live, and where they are no number of frames.
func TestEncodeFramesIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	squares(t, filepath.Join(dir, "a.tar"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.yaml"), []byte(wanOf12), 0o644))
	kl, err := filepath.Abs(filepath.Join(autoencodersOf, "kl"))
	require.NoError(t, err)
	load := func(args ...string) error {
		text := fmt.Sprintf("model: {file: %q}\ndata: {paths: [%q], seq_len: 64}\ndiffusion: {sizes: [16x16], "+
			"text_encoder: none}\n", filepath.Join(dir, "model.yaml"), filepath.Join(dir, "a.tar"))
		cfg, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Files: true,
			Args: args})
		if err != nil {
			return err
		}
		r, err := Open(cfg)
		if err == nil {
			r.Close()
		}
		return err
	}
	pictures := "diffusion.autoencoder=" + kl
	for _, latents := range []string{"cached", "live"} {
		latents := "diffusion.latents=" + latents
		require.ErrorContains(t, load(pictures, latents, "diffusion.encode_frames=1"),
			"diffusion.encode_frames: the autoencoder takes pictures")
		require.NoError(t, load(pictures, latents, "diffusion.encode_frames=0"), latents)
	}
	pixels := "diffusion.autoencoder=pixels"
	require.ErrorContains(t, load(pixels, "diffusion.encode_frames=1"),
		"diffusion.encode_frames: the model learns pixels, which nothing encodes")
	require.NoError(t, load(pixels, "diffusion.encode_frames=0"))
	for _, frames := range []string{"-1", "1.5", "1048577", "all"} {
		require.ErrorContains(t, load(pictures, "diffusion.encode_frames="+frames),
			"diffusion.encode_frames", frames)
	}
}
