package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/topology/machine"
)

// videoSteps are enough for the demo to show what it claims.
const videoSteps = 2000

// motionGuidance is little: a model that gives clean clips overshoots with more.
const motionGuidance = 1.5

// Clips are of so many frames of so many rows and columns, in which a shape moves so many pixels a frame.
const (
	clipFrames = 5
	clipSide   = 16
	clipSpeed  = 2.2
)

// videoModel is a small transformer of Wan's kind. A token is a whole clip: places are told by turns of
// heads, which say how far tokens lie apart, and a model this small does not find out of noise which of them
// lies where.
const videoModel = `model_type: WanTransformer3DModel
hidden_size: 128
num_hidden_layers: 3
num_attention_heads: 4
head_dim: 32
intermediate_size: 384
in_channels: 3
out_channels: 3
latent_patch: [5, 16, 16]
text_dim: 64
text_rows: 16
freq_dim: 64
`

// videoNoise has the model say the clean picture: patches have more numbers than the model is wide, and
// noise would not pass through it.
const videoNoise = `{"_class_name": "DDIMScheduler", "num_train_timesteps": 1000, "beta_schedule": "squaredcos_cap_v2",
 "prediction_type": "sample", "clip_sample": true, "timestep_spacing": "trailing", "set_alpha_to_one": true}
`

// demoVideoConfig is a run file like any other.
const demoVideoConfig = `
model: {file: %q}
data: {kind: media, paths: [%q], seq_len: 1, split: [1, 0, 0]}
diffusion: {scheduler: %q, autoencoder: pixels, sizes: [%dx%dx%d], fps: 0, text_encoder: %q, encoders: live, train_text_encoder: true, caption_dropout: 0.05, times: logit_normal, times_mean: -0.5}
train: {steps: %d, global_batch: 64, micro_batch: 32, log_interval: %d, seed: 5}
optimizer: {lr: 2.0e-3, min_lr: 1.0e-4, beta2: 0.99, weight_decay: 0.01, ema: 0.998}
schedule: {kind: cosine, warmup_steps: 30}
plan: {dp: 2, zero: 1, threads: 1}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

// moves are where a shape goes: what it is called, and pixels to the right and down a frame.
var moves = []struct {
	name string
	x, y float64
}{{"left", -1, 0}, {"right", 1, 0}, {"up", 0, -1}, {"down", 0, 1}}

// motion is a clip of a shape of a colour that goes somewhere.
type motion struct{ Colour, Shape, Move int }

// held reports whether a combination is kept out of training: every colour, shape and direction is seen,
// one in six of their combinations is not.
func (m motion) held() bool { return (m.Colour+2*m.Shape+3*m.Move)%6 == 1 }

// motionsOf lists the combinations that are, or are not, kept out of training.
func motionsOf(held bool) (out []motion) {
	for c := range sceneColours {
		for s := range sceneShapes {
			for d := range moves {
				if m := (motion{c, s, d}); m.held() == held {
					out = append(out, m)
				}
			}
		}
	}
	return out
}

func (m motion) caption() string {
	return fmt.Sprintf("%s %s goes %s", sceneColours[m.Colour], sceneShapes[m.Shape], moves[m.Move].name)
}

// draw is the clip as a moving GIF: the shape passes the middle about half-way.
func (m motion) draw(r *rand.Rand) []byte {
	paint, to := scenePaints[m.Colour], moves[m.Move]
	colours := color.Palette{color.RGBA{figureGround, figureGround, figureGround, 255}, paint}
	g := &gif.GIF{}
	x, y := clipSide/2+r.Float64()*2-1, clipSide/2+r.Float64()*2-1
	size := 2.6 + r.Float64()*0.6
	for t := range clipFrames {
		by := clipSpeed * (float64(t) - float64(clipFrames-1)/2)
		frame := image.NewRGBA(image.Rect(0, 0, clipSide, clipSide))
		draw.Draw(frame, frame.Bounds(), &image.Uniform{C: colours[0]}, image.Point{}, draw.Src)
		paintShape(frame, m.Shape, x+by*to.x, y+by*to.y, size, paint)
		p := image.NewPaletted(frame.Bounds(), colours)
		draw.Draw(p, p.Bounds(), frame, image.Point{}, draw.Src)
		g.Image, g.Delay = append(g.Image, p), append(g.Delay, 10)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		panic(fmt.Sprintf("demo: a clip in memory cannot be written: %v", err))
	}
	return b.Bytes()
}

// sawMotion is what the rules that drew clips find in one: -1 where they find nothing. What is brighter than
// the background in the first frame and in the last has a middle each, and the way between them is the
// direction.
func sawMotion(frames []*media.Image) motion {
	middle := func(p *media.Image) (x, y float64, at []image.Point) {
		for row := range p.H {
			for column := range p.W {
				if figured(p, column, row) {
					at = append(at, image.Pt(column, row))
					x, y = x+float64(column), y+float64(row)
				}
			}
		}
		n := max(1, float64(len(at)))
		return x / n, y / n, at
	}
	x0, y0, first := middle(frames[0])
	x1, y1, last := middle(frames[len(frames)-1])
	m := motion{-1, -1, -1}
	if min(len(first), len(last)) < 3 { // shapes are small here, and may leave the picture in part
		return m
	}
	m.Colour = colourOf(frames[0], blob{at: first})
	if m.Colour != colourOf(frames[len(frames)-1], blob{at: last}) {
		m.Colour = -1
	}
	if math.Hypot(x1-x0, y1-y0) < clipSpeed { // it stands
		return m
	}
	best := math.Inf(-1)
	for i, to := range moves {
		if along := (x1-x0)*to.x + (y1-y0)*to.y; along > best {
			m.Move, best = i, along
		}
	}
	return m
}

// demoVideo draws clips with captions, trains a small model of diffusion on them, and has it draw
// combinations that it has not seen, which the rules that drew the data judge.
func demoVideo(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"checkpoints", "run", "shards", "text_encoder"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	n, err := writeMotions(in("shards"), 3000)
	if err != nil {
		return err
	}
	var captions []string
	for _, m := range motionsOf(false) {
		captions = append(captions, m.caption())
	}
	if err := captionText(in("text_encoder"), captions); err != nil {
		return err
	}
	for name, text := range map[string]string{"model.yaml": videoModel,
		"scheduler_config.json": videoNoise} {
		if err := os.WriteFile(in(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr,
		"data    %d drawn clips of %d frames with captions in webdataset shards; %d of %d combinations are "+
			"held out (%v)\n", n, clipFrames, len(motionsOf(true)),
		len(motionsOf(true))+len(motionsOf(false)),
		time.Since(began).Round(100*time.Millisecond))
	text := fmt.Sprintf(demoVideoConfig, in("model.yaml"), in("shards/clips-{00..03}.tar"),
		in("scheduler_config.json"),
		clipFrames, clipSide, clipSide, in("text_encoder"), steps, max(1, steps/20), in("checkpoints"),
		steps,
		in("run"))
	cfg, err := configs.Load(configs.Request{File: "demo --video", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	untrained, err := untrainedMotions(ctx, cfg)
	if err != nil {
		return err
	}
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	return videoVerdict(ctx, cfg, dir, untrained, began, show)
}

// writeMotions writes n clips of the combinations of training with their captions, in four shards.
func writeMotions(dir string, n int) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	r, all := rand.New(rand.NewPCG(33, 34)), motionsOf(false)
	for shard := range 4 {
		w, err := format.CreateShard(filepath.Join(dir, fmt.Sprintf("clips-%02d.tar", shard)))
		if err != nil {
			return 0, err
		}
		for i := range n / 4 {
			m := all[r.IntN(len(all))]
			if err := w.Add(fmt.Sprintf("%02d-%05d", shard, i), []dataset.Part{{Name: "gif",
				Bytes: m.draw(r)},
				{Name: "txt", Bytes: []byte(m.caption())}}); err != nil {
				return 0, err
			}
		}
		if err := w.Close(); err != nil {
			return 0, err
		}
	}
	return n / 4 * 4, nil
}

// drawnMotion is a clip that a model drew, and what the rules see in it.
type drawnMotion struct {
	want, seen motion
	frames     []*media.Image
}

// drawMotions has the newest checkpoint of a directory draw combinations some times each.
func drawMotions(ctx context.Context, checkpoints string, of []motion, each int, told bool) ([]drawnMotion,
	error) {
	m, err := trained.Open(checkpoints, "", trained.Average(true))
	if err != nil {
		return nil, err
	}
	defer m.Close()
	var captions []string
	var out []drawnMotion
	for _, want := range of {
		for range each {
			caption := want.caption()
			if !told {
				caption = ""
			}
			captions, out = append(captions, caption), append(out, drawnMotion{want: want})
		}
	}
	o := trained.Drawing{Steps: figureSteps, Guidance: motionGuidance, Seed: 1, Batch: 16}
	at := 0
	err = m.Draw(ctx, captions, o, func(p trained.Picture) error {
		d := &out[at]
		at++
		for t := range p.Size[0] {
			d.frames = append(d.frames, media.FromPlanes(p.Pixels, p.Size, t))
		}
		d.seen = sawMotion(d.frames)
		return nil
	})
	return out, err
}

// untrainedMotions is what the model draws before it has learnt: one step without a rate makes its
// checkpoint.
func untrainedMotions(ctx context.Context, cfg *configs.Config) (s [3]float64, err error) {
	first := *cfg
	dir := cfg.Run.Checkpoint.Dir + "-untrained"
	defer os.RemoveAll(dir) //nolint:errcheck // what is left of it does no harm
	first.Run.Checkpoint.Dir, first.Run.Checkpoint.SaveHF, first.Run.Log.Dir = dir, false, filepath.Join(dir,
		"log")
	first.Run.Train.Steps, first.Run.Optimizer.LR, first.Run.Optimizer.MinLR = 1, 0, 0
	first.Run.Schedule.WarmupSteps = 0
	if err := run.Train(ctx, &first, run.Options{}); err != nil {
		return s, err
	}
	all, err := drawMotions(ctx, dir, motionsOf(true), 1, true)
	return scoreMotions(all), err
}

// scoreMotions are the shares of clips whose colour, direction, and both are right.
func scoreMotions(all []drawnMotion) (s [3]float64) {
	for _, d := range all {
		by := 1 / float64(len(all))
		for i, right := range []bool{d.seen.Colour == d.want.Colour, d.seen.Move == d.want.Move,
			d.seen.Colour == d.want.Colour && d.seen.Move == d.want.Move} {
			if right {
				s[i] += by
			}
		}
	}
	return s
}

// videoVerdict has the model draw combinations that were held out, with and without their captions.
func videoVerdict(ctx context.Context, cfg *configs.Config, dir string, untrained [3]float64,
	began time.Time,
	show *shown) error {
	known, err := drawMotions(ctx, cfg.Run.Checkpoint.Dir, motionsOf(false), 1, true)
	if err != nil {
		return err
	}
	unseen, err := drawMotions(ctx, cfg.Run.Checkpoint.Dir, motionsOf(true), 4, true)
	if err != nil {
		return err
	}
	blind, err := drawMotions(ctx, cfg.Run.Checkpoint.Dir, motionsOf(false), 1, false)
	if err != nil {
		return err
	}
	with, without, held := scoreMotions(known), scoreMotions(blind), scoreMotions(unseen)
	fmt.Fprintf(show.out, "%d clips of combinations of training, and %d of %d that were not in it:\n",
		len(known),
		len(unseen), len(motionsOf(true)))
	for i, name := range []string{"colour", "direction", "both"} {
		fmt.Fprintf(show.out,
			"  %-9s %5.1f %% right · unseen %5.1f %% · without the caption %5.1f %% · untrained %5.1f %%\n",
			name, 100*with[i], 100*held[i], 100*without[i], 100*untrained[i])
	}
	page := filepath.Join(dir, "clips.html")
	if err := writeClips(page, append(known, unseen...), with, held, without, untrained); err != nil {
		return err
	}
	left := files(dir)
	left["clips"] = page
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "right": with, "right_unseen": held,
		"right_without":   without,
		"right_untrained": untrained, "seconds": time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(show.out, "clips %s · metrics %s · export %s, for diffusers\n", page, left["metrics"],
		left["export"])
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	if cfg.Run.Train.Steps < videoSteps {
		fmt.Fprintf(show.out, "%d steps show less than %d do\n", cfg.Run.Train.Steps, videoSteps)
		return nil
	}
	if with[1] < 0.9 || without[1] > 0.6 {
		return fmt.Errorf("nine in ten shapes should go where their captions say, and about one in four without")
	}
	return nil
}

// writeClips writes a page that needs nothing else: what was drawn of each caption.
func writeClips(name string, all []drawnMotion, with, held, without, untrained [3]float64) error {
	var files []string
	for _, d := range all {
		b, err := media.GIF(d.frames, 4)
		if err != nil {
			return err
		}
		files = append(files, base64.StdEncoding.EncodeToString(b))
	}
	return machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprint(w, "<!doctype html><meta charset=\"utf-8\"><title>lfactor demo --video</title><style>"+
			"body{font-family:sans-serif;margin:2em}figure{display:inline-block;width:9em;margin:.4em;"+
			"vertical-align:top}img{width:8em;image-rendering:pixelated}figcaption{font-size:85%}"+
			".no{color:#b00}</style>\n")
		fmt.Fprint(w, "<h1>Clips of captions</h1><table><tr><th><th>colour<th>direction<th>both\n")
		for i, s := range [][3]float64{with, held, without, untrained} {
			fmt.Fprintf(w, "<tr><td>%s<td>%.1f %%<td>%.1f %%<td>%.1f %%\n",
				[]string{"combinations of training",
					"unseen combinations", "without captions", "untrained"}[i], 100*s[0], 100*s[1], 100*s[2])
		}
		fmt.Fprint(w, "</table>\n")
		for i, d := range all {
			class := ""
			if d.seen.Colour != d.want.Colour || d.seen.Move != d.want.Move {
				class = " class=\"no\""
			}
			fmt.Fprintf(w,
				"<figure><img src=\"data:image/gif;base64,%s\" alt=\"\"><figcaption%s>%s</figcaption></figure>\n",
				files[i], class, html.EscapeString(d.want.caption()))
		}
	})
}
