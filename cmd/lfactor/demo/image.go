package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// imageSteps are enough for the demo to show what it claims.
const imageSteps = 3400

// latentSteps are those of its autoencoder before.
const latentSteps = 700

// imageModel is a small transformer of Wan's kind.
const imageModel = `model_type: WanTransformer3DModel
hidden_size: 128
num_hidden_layers: 4
num_attention_heads: 4
head_dim: 32
intermediate_size: 384
in_channels: 8
out_channels: 8
latent_patch: [1, 2, 2]
text_dim: 64
text_rows: 8
freq_dim: 64
`

// imageText is a small encoder of captions, which learns with the model.
const imageText = `{"architectures": ["UMT5EncoderModel"], "model_type": "umt5", "vocab_size": %d, "d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 1}
`

// imageNoise is flow matching: what the model says of noisy latents is noise less picture.
const imageNoise = `{"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0}
`

// DemoImageConfig is a run file like any other.
const DemoImageConfig = `
model: {file: %q}
data: {kind: media, paths: [%q], seq_len: 16, split: [1, 0, 0]}
diffusion: {scheduler: %q, autoencoder: %q, posterior: mode, sizes: [32x32], text_encoder: %q, encoders: live, train_text_encoder: true, caption_dropout: 0.05, times: logit_normal, times_mean: -1.0}
train: {steps: %d, global_batch: 32, micro_batch: 16, log_interval: %d, seed: 5}
optimizer: {lr: 2.0e-3, min_lr: 1.0e-4, beta2: 0.99, weight_decay: 0.01, ema: 0.998}
schedule: {kind: cosine, warmup_steps: 30}
plan: {dp: 2, zero: 1, threads: 1}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

// demoImage draws pictures with captions, trains a small model of diffusion on them, and has it draw
// combinations that it has not seen, which the rules that drew the data judge.
func demoImage(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := cleared(dir, "autoencoder", "checkpoints", "run", "shards", "text_encoder",
		"vae"); err != nil {
		return err
	}
	n, err := writeFigures(in("shards"), 4000)
	if err != nil {
		return err
	}
	if err := settled(dir, figuresOf(false), map[string]string{"model.yaml": imageModel,
		"scheduler_config.json": imageNoise}); err != nil {
		return err
	}
	tellData(n, "pictures", len(figuresOf(true)), len(figuresOf(false)), began)
	if err := learnLatents(ctx, dir, max(1, steps*latentSteps/imageSteps), os.Stderr); err != nil {
		return err
	}
	text := fmt.Sprintf(DemoImageConfig, in("model.yaml"), in("shards/figures-{00..03}.tar"),
		in("scheduler_config.json"), in("vae"), in("text_encoder"),
		steps, max(1, steps/20), in("checkpoints"), steps, in("run"))
	cfg, err := configs.Load(configs.Request{File: "demo --image", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	var untrained []float64
	if err := asUntrained(ctx, cfg, func(checkpoints string) error {
		all, err := drawFigures(ctx, checkpoints, figuresOf(true), 1, true)
		untrained = scoreFigures(all)
		return err
	}); err != nil {
		return err
	}
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	return imageVerdict(ctx, cfg, dir, untrained, began, show)
}

// writeFigures writes n pictures of the combinations of training with their captions.
func writeFigures(dir string, n int) (int, error) {
	all := figuresOf(false)
	return writeShards(dir, "figures", n, rand.New(rand.NewPCG(31, 32)), func(r *rand.Rand) []dataset.Part {
		f := all[r.IntN(len(all))]
		var b bytes.Buffer
		if err := png.Encode(&b, f.draw(r)); err != nil {
			panic(fmt.Sprintf("demo: an image in memory cannot be written: %v", err))
		}
		return []dataset.Part{{Name: "png", Bytes: b.Bytes()}, {Name: "txt", Bytes: []byte(f.caption())}}
	})
}

// captionText writes an encoder of captions without weights, with a tokenizer trained on them.
func captionText(dir string, captions []string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := token.Train(token.TrainConfig{VocabSize: 320, Special: []string{"<pad>", "</s>"}},
		slices.Values(captions))
	if err != nil {
		return err
	}
	if text, err = endsWith(text, "</s>"); err != nil {
		return err
	}
	settings, err := json.Marshal(map[string]any{"tokenizer_class": "PreTrainedTokenizerFast",
		"eos_token": "</s>",
		"pad_token": "<pad>"})
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": settings} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	tok, _, err := trained.TokenizerAt(dir)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, imageText, tok.VocabSize()),
		0o644)
}

// endsWith has a tokenizer.json put a special token behind every text, so that an empty one has a token
// too.
func endsWith(text []byte, end string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	var added []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
	}
	if err := json.Unmarshal(all["added_tokens"], &added); err != nil {
		return nil, err
	}
	for _, a := range added {
		if a.Content == end {
			all["post_processor"] = fmt.Appendf(nil, `{"type": "TemplateProcessing", "single": [{"Sequence": {"id": `+
				`"A", "type_id": 0}}, {"SpecialToken": {"id": %q, "type_id": 0}}], "pair": [{"Sequence": {"id": "A", `+
				`"type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {%[1]q: {"id": %[1]q, `+
				`"ids": [%[2]d], "tokens": [%[1]q]}}}`, end, a.ID)
		}
	}
	return json.MarshalIndent(all, "", " ")
}

// Pictures are drawn in so many steps with some guidance.
const (
	figureGuidance = 2.5
	figureSteps    = 15
)

// drawnFigure is a picture that a model drew, and what the rules see in it.
type drawnFigure struct {
	want, seen figures
	picture    *media.Image
}

// drawFigures has the newest checkpoint of a directory draw each combination some times.
func drawFigures(ctx context.Context, checkpoints string, of []figures, each int,
	told bool) (out []drawnFigure,
	err error) {
	err = drawEach(ctx, checkpoints, of, each, told, figureGuidance, func(want figures, p diffusion.Picture) {
		d := drawnFigure{want: want, picture: media.FromPlanes(p.Pixels, p.Size, 0)}
		d.seen = seen(d.picture)
		out = append(out, d)
	})
	return out, err
}

// scoreFigures are the shares of pictures whose colour, shape, count, and all of them are right.
func scoreFigures(all []drawnFigure) []float64 {
	return shares(all, func(d drawnFigure) bool { return d.seen.Colour == d.want.Colour },
		func(d drawnFigure) bool { return d.seen.Shape == d.want.Shape },
		func(d drawnFigure) bool { return d.seen.Count == d.want.Count },
		func(d drawnFigure) bool { return d.seen == d.want })
}

// imageVerdict has the model draw combinations that were held out, with and without their captions.
func imageVerdict(ctx context.Context, cfg *configs.Config, dir string, untrained []float64,
	began time.Time,
	show *shown) error {
	all, err := drawFigures(ctx, cfg.Run.Checkpoint.Dir, figuresOf(true), 6, true)
	if err != nil {
		return err
	}
	blind, err := drawFigures(ctx, cfg.Run.Checkpoint.Dir, figuresOf(true), 2, false)
	if err != nil {
		return err
	}
	with, without := scoreFigures(all), scoreFigures(blind)
	fmt.Fprintf(show.out, "%d pictures of %d combinations that were not in training:\n", len(all),
		len(figuresOf(true)))
	for i, name := range []string{"colour", "shape", "count", "all"} {
		fmt.Fprintf(show.out, "  %-7s %5.1f %% right · without the caption %5.1f %% · untrained %5.1f %%\n",
			name,
			100*with[i], 100*without[i], 100*untrained[i])
	}
	page := filepath.Join(dir, "pictures.html")
	if err := writePictures(page, all, blind, with, without); err != nil {
		return err
	}
	left := files(dir)
	left["pictures"] = page
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "right": with, "right_without": without,
		"right_untrained": untrained,
		"seconds":         time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(show.out, "pictures %s · metrics %s · export %s, for diffusers\n", page, left["metrics"],
		left["export"])
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	if cfg.Run.Train.Steps < imageSteps {
		fmt.Fprintf(show.out, "%d steps show less than %d do\n", cfg.Run.Train.Steps, imageSteps)
		return nil
	}
	if min(with[0], with[1], with[2]) < 0.8 || without[3] > 0.2 {
		return fmt.Errorf("four in five pictures should have the colour, the shape and the count of their " +
			"captions, and one in five at most all of them without")
	}
	return nil
}

// writePictures writes a page that needs nothing else: what was drawn of each caption, and what the rules
// see.
func writePictures(name string, all, blind []drawnFigure, with, without []float64) error {
	return machine.Create(name, func(w *bufio.Writer) {
		writeHead(w, "lfactor demo --image")
		fmt.Fprintf(w,
			"<h1>Pictures of unseen combinations</h1><p>Right with their captions: colour %.1f %%, shape "+
				"%.1f %%, count %.1f %%, all %.1f %%; without: %.1f %%, %.1f %%, %.1f %%, %.1f %%.</p>\n",
			100*with[0], 100*with[1], 100*with[2], 100*with[3], 100*without[0], 100*without[1],
			100*without[2],
			100*without[3])
		for i, list := range [][]drawnFigure{all, blind} {
			fmt.Fprintf(w, "<h2>%s</h2>\n", []string{"Drawn by their captions", "Drawn without captions"}[i])
			for _, d := range list {
				writeFigure(w, "png", base64.StdEncoding.EncodeToString(d.picture.PNG()), d.want.caption(),
					d.seen == d.want)
			}
		}
	})
}
