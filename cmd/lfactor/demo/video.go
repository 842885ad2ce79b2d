package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
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
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
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
	if err := cleared(dir, "checkpoints", "run", "shards", "text_encoder"); err != nil {
		return err
	}
	n, err := writeMotions(in("shards"), 3000)
	if err != nil {
		return err
	}
	if err := settled(dir, motionsOf(false), map[string]string{"model.yaml": videoModel,
		"scheduler_config.json": videoNoise}); err != nil {
		return err
	}
	tellData(n, fmt.Sprintf("clips of %d frames", clipFrames), len(motionsOf(true)), len(motionsOf(false)),
		began)
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
	var untrained []float64
	if err := asUntrained(ctx, cfg, func(checkpoints string) error {
		all, err := drawMotions(ctx, checkpoints, motionsOf(true), 1, true)
		untrained = scoreMotions(all)
		return err
	}); err != nil {
		return err
	}
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	return videoVerdict(ctx, cfg, dir, untrained, began, show)
}

// writeMotions writes n clips of the combinations of training with their captions.
func writeMotions(dir string, n int) (int, error) {
	all := motionsOf(false)
	return writeShards(dir, "clips", n, rand.New(rand.NewPCG(33, 34)), func(r *rand.Rand) []dataset.Part {
		m := all[r.IntN(len(all))]
		return []dataset.Part{{Name: "gif", Bytes: m.draw(r)}, {Name: "txt", Bytes: []byte(m.caption())}}
	})
}

// drawnMotion is a clip that a model drew, and what the rules see in it.
type drawnMotion struct {
	want, seen motion
	frames     []*media.Image
}

// right tells whether colour and direction are.
func (d drawnMotion) right() bool {
	return d.seen.Colour == d.want.Colour && d.seen.Move == d.want.Move
}

// drawMotions has the newest checkpoint of a directory draw each combination some times.
func drawMotions(ctx context.Context, checkpoints string, of []motion, each int,
	told bool) (out []drawnMotion,
	err error) {
	err = drawEach(ctx, checkpoints, of, each, told, motionGuidance, func(want motion, p diffusion.Picture) {
		d := drawnMotion{want: want}
		for t := range p.Size[0] {
			d.frames = append(d.frames, media.FromPlanes(p.Pixels, p.Size, t))
		}
		d.seen = sawMotion(d.frames)
		out = append(out, d)
	})
	return out, err
}

// scoreMotions are the shares of clips whose colour, direction, and both are right.
func scoreMotions(all []drawnMotion) []float64 {
	return shares(all, func(d drawnMotion) bool { return d.seen.Colour == d.want.Colour },
		func(d drawnMotion) bool { return d.seen.Move == d.want.Move }, drawnMotion.right)
}

// videoVerdict has the model draw combinations that were held out, with and without their captions.
func videoVerdict(ctx context.Context, cfg *configs.Config, dir string, untrained []float64,
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
func writeClips(name string, all []drawnMotion, with, held, without, untrained []float64) error {
	var files []string
	for _, d := range all {
		b, err := media.GIF(d.frames, 4)
		if err != nil {
			return err
		}
		files = append(files, base64.StdEncoding.EncodeToString(b))
	}
	return machine.Create(name, func(w *bufio.Writer) {
		writeHead(w, "lfactor demo --video")
		fmt.Fprint(w, "<h1>Clips of captions</h1><table><tr><th><th>colour<th>direction<th>both\n")
		for i, s := range [][]float64{with, held, without, untrained} {
			fmt.Fprintf(w, "<tr><td>%s<td>%.1f %%<td>%.1f %%<td>%.1f %%\n",
				[]string{"combinations of training",
					"unseen combinations", "without captions", "untrained"}[i], 100*s[0], 100*s[1], 100*s[2])
		}
		fmt.Fprint(w, "</table>\n")
		for i, d := range all {
			writeFigure(w, "gif", files[i], d.want.caption(), d.right())
		}
	})
}
