package demo

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/latent"
	"github.com/lfactor/lfactor/stages/trained"
)

// drawing is a demo of a model that draws: it learns drawn pictures with captions, and draws combinations that it has
// not seen, which the rules that drew the data judge.
type drawing struct {
	name, what, shards string // of the page, as "clips of 5 frames", and of the data's files
	known, held        []scene
	samples            int
	chance             *rand.Rand
	caption            func(scene) string
	part               func(scene, *rand.Rand) dataset.Part
	before             func() error // makes what the run needs besides
	guidance           float64
	see                func(diffusion.Picture) (saw scene, picture template.URL, err error)
	rules              []rule
	columns            []column
	title, headline    string
	enough             func(shares [][]float64) error
}

// rule is a thing that may be right of a picture.
type rule struct {
	name  string
	holds func(saw, want scene) bool
}

// column is a set of pictures: of some combinations, each so many times, told their captions or not. Its key is that of
// the result, its label follows numbers, and its heading stands on the page.
type column struct {
	key, label, heading string
	of                  []scene
	each                int
	told, shown         bool
}

// drawnPicture is a picture that a model drew.
type drawnPicture struct {
	Picture template.URL
	Caption string
	Right   bool // by the last rule
}

// imageSteps are those of the demo of pictures, and latentSteps those of its autoencoder before.
const imageSteps, latentSteps = 3400, 700

// same is a rule for one place of a scene.
func same(at int) func(saw, want scene) bool {
	return func(saw, want scene) bool { return saw[at] == want[at] }
}

// image is the demo of pictures of 32 by 32 pixels, drawn in the latents of an autoencoder that it trains first.
func (s *session) image() error {
	if err := s.clear("autoencoder", "vae"); err != nil {
		return err
	}
	held := scenesOf(true, 1)
	return s.draws("image", &drawing{name: "pictures", what: "pictures", shards: "figures", known: scenesOf(false, 1),
		held: held, samples: 4000, chance: rand.New(rand.NewPCG(31, 32)), caption: scene.figure, guidance: 2.5,
		part: func(f scene, r *rand.Rand) dataset.Part {
			return dataset.Part{Name: "png", Bytes: pngOf(f.paint(r))}
		}, before: s.learnLatents, see: func(p diffusion.Picture) (scene, template.URL, error) {
			img := media.FromPlanes(p.Pixels, p.Size, 0)
			return seen(img), dataURL("png", img.PNG()), nil
		},
		rules: []rule{{"colour", same(colour)}, {"shape", same(shape)}, {"count", same(count)},
			{"all", func(saw, want scene) bool { return saw == want }}},
		columns: []column{{"right", "right", "Drawn by their captions", held, 6, true, true},
			{"right_without", "without the caption", "Drawn without captions", held, 2, false, true}},
		title:    "Pictures of unseen combinations",
		headline: fmt.Sprintf("%d pictures of %d combinations that were not in training:\n", 6*len(held), len(held)),
		enough: func(got [][]float64) error {
			if with, without := got[0], got[1]; min(with[0], with[1], with[2]) < 0.8 || without[3] > 0.2 {
				return errors.New("four in five pictures should have the colour, the shape and the count of their " +
					"captions, and one in five at most all of them without")
			}
			return nil
		}})
}

// video is the demo of clips. A token of its model is a whole clip: places are told by turns of heads, which say how far
// tokens lie apart, and a model this small does not find out of noise which of them lies where. Its scheduler has the
// model say the clean picture: patches have more numbers than the model is wide, and noise would not pass through it. It
// is guided little: a model that gives clean clips overshoots with more.
func (s *session) video() error {
	known, held := scenesOf(false, 1), scenesOf(true, 1)
	both := func(saw, want scene) bool { return saw[colour] == want[colour] && saw[move] == want[move] }
	return s.draws("video", &drawing{name: "clips", what: fmt.Sprintf("clips of %d frames", clipFrames), shards: "clips",
		known: known, held: held, samples: 3000, chance: rand.New(rand.NewPCG(33, 34)), caption: scene.motion,
		part:     func(m scene, r *rand.Rand) dataset.Part { return dataset.Part{Name: "gif", Bytes: m.clip(r)} },
		guidance: 1.5, before: func() error { return nil },
		see: func(p diffusion.Picture) (scene, template.URL, error) {
			var frames []*media.Image
			for t := range p.Size[0] {
				frames = append(frames, media.FromPlanes(p.Pixels, p.Size, t))
			}
			b, err := media.GIF(frames, 4)
			return sawMotion(frames), dataURL("gif", b), err
		}, rules: []rule{{"colour", same(colour)}, {"direction", same(move)},
			{"both", both}}, columns: []column{{"right", "right", "combinations of training", known, 1, true, true},
			{"right_unseen", "unseen", "unseen combinations", held, 4, true, true},
			{"right_without", "without the caption", "without captions", known, 1, false, false}},
		title: "Clips of captions",
		headline: fmt.Sprintf("%d clips of combinations of training, and %d of %d that were not in it:\n", len(known),
			4*len(held), len(held)),
		enough: func(got [][]float64) error {
			if got[0][1] < 0.9 || got[2][1] > 0.6 {
				return errors.New("nine in ten shapes should go where their captions say, and about one in four without")
			}
			return nil
		}})
}

// draws makes the data of a demo, trains its model, and has it draw.
func (s *session) draws(name string, d *drawing) error {
	if err := s.clear("checkpoints", "run", "shards", "text_encoder"); err != nil {
		return err
	}
	n, err := writeShards(s.in("shards"), d.shards, d.samples, d.chance, func(r *rand.Rand) []dataset.Part {
		x := d.known[r.IntN(len(d.known))]
		return []dataset.Part{d.part(x, r), {Name: "txt", Bytes: []byte(d.caption(x))}}
	})
	if err := errors.Join(err, s.textEncoder(d), s.lay(name, "", nil)); err != nil {
		return err
	}
	s.tell("data    %d drawn %s with captions in webdataset shards; %d of %d combinations are held out (%v)\n", n, d.what,
		len(d.held), len(d.held)+len(d.known), s.so(100*time.Millisecond))
	if err := d.before(); err != nil {
		return err
	}
	cfg, err := s.config(name+".yaml", nil)
	if err != nil {
		return err
	}
	untrained, err := s.untrained(d, cfg)
	if err != nil {
		return err
	}
	if err := run.Train(s.ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	return s.drawnVerdict(d, untrained)
}

// textEncoder writes a small encoder of captions without weights, with a tokenizer trained on them.
func (s *session) textEncoder(d *drawing) error {
	var captions []string
	for _, x := range d.known {
		captions = append(captions, d.caption(x))
	}
	ids, err := s.tokenizer("text_encoder", "text_encoder", token.TrainConfig{VocabSize: 320,
		Special: []string{"<pad>", "</s>"}}, captions)
	if err != nil {
		return err
	}
	// Every text ends with a special token, so that an empty one has a token too.
	if err := rewriteJSON(s.in("text_encoder", "tokenizer.json"), map[string]any{
		"post_processor": json.RawMessage(fmt.Sprintf(`{"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", `+
			`"type_id": 0}}, {"SpecialToken": {"id": %q, "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, `+
			`{"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {%[1]q: {"id": %[1]q, "ids": [%[2]d], `+
			`"tokens": [%[1]q]}}}`, "</s>", ids["</s>"]))}); err != nil {
		return err
	}
	return s.lay("text_encoder", "text_encoder", values{"vocab": ids["vocab"]})
}

// rewriteJSON sets keys of a file.
func rewriteJSON(path string, keys map[string]any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for k, v := range keys {
		if all[k], err = json.Marshal(v); err != nil {
			return err
		}
	}
	if text, err = json.MarshalIndent(all, "", " "); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// untrained are the shares that are right of what the model draws before it has learnt: one step without a rate
// makes its checkpoint.
func (s *session) untrained(d *drawing, cfg *configs.Config) ([]float64, error) {
	first, dir := *cfg, cfg.Run.Checkpoint.Dir+"-untrained"
	defer os.RemoveAll(dir) //nolint:errcheck // what is left of it does no harm
	r := &first.Run
	r.Checkpoint.Dir, r.Checkpoint.SaveHF, r.Log.Dir = dir, false, filepath.Join(dir, "log")
	r.Train.Steps, r.Optimizer.LR, r.Optimizer.MinLR, r.Schedule.WarmupSteps = 1, 0, 0, 0
	if err := run.Train(s.ctx, &first, run.Options{}); err != nil {
		return nil, err
	}
	shares, _, err := s.drawn(d, dir, column{of: d.held, each: 1, told: true})
	return shares, err
}

// drawn has the newest checkpoint of a directory draw a column, by the average of its weights, and gives the shares that
// are right by each rule.
func (s *session) drawn(d *drawing, dir string, c column) (right []float64, out []drawnPicture, err error) {
	m, err := trained.Open(dir, "", trained.Average(true))
	if err != nil {
		return nil, nil, err
	}
	defer m.Close()
	captions := make([]string, len(c.of)*c.each)
	for i := range captions {
		if c.told {
			captions[i] = d.caption(c.of[i/c.each])
		}
	}
	right = make([]float64, len(d.rules))
	o := diffusion.Drawing{Steps: 15, Guidance: d.guidance, Seed: 1, Batch: 16}
	err = diffusion.Draw(m, s.ctx, captions, o, func(p diffusion.Picture) error {
		want := c.of[len(out)/c.each]
		saw, picture, err := d.see(p)
		x := drawnPicture{Picture: picture, Caption: d.caption(want)}
		for i, r := range d.rules {
			if x.Right = r.holds(saw, want); x.Right {
				right[i] += 1 / float64(len(captions))
			}
		}
		out = append(out, x)
		return err
	})
	return right, out, err
}

// pageColumn is a column as the page shows it.
type pageColumn struct {
	Head   string
	Shares []float64 // of a hundred
	Drawn  []drawnPicture
}

// drawnVerdict has the model draw each column and shows a table of what is right.
func (s *session) drawnVerdict(d *drawing, untrained []float64) error {
	left := s.left()
	left[d.name] = s.in(d.name + ".html")
	result := map[string]any{"files": left, "right_untrained": untrained}
	var shares [][]float64
	var columns []pageColumn
	add := func(heading string, right []float64, drawn []drawnPicture) {
		p := pageColumn{Head: heading, Drawn: drawn}
		for _, share := range right {
			p.Shares = append(p.Shares, 100*share)
		}
		shares, columns = append(shares, right), append(columns, p)
	}
	for _, c := range d.columns {
		right, pictures, err := s.drawn(d, s.in("checkpoints"), c)
		if err != nil {
			return err
		}
		if !c.shown {
			pictures = nil
		}
		result[c.key] = right
		add(c.heading, right, pictures)
	}
	add("untrained", untrained, nil)
	s.say("%s", d.headline)
	width, names := 0, make([]string, len(d.rules))
	for i, r := range d.rules {
		names[i], width = r.name, max(width, len(r.name))
	}
	for i, name := range names {
		line := fmt.Sprintf("  %-*s", max(7, width), name)
		for j, c := range append(d.columns, column{label: "untrained"}) {
			sep := []string{" %5.1f %% right", " · " + c.label + " %5.1f %%"}[min(1, j)]
			line += fmt.Sprintf(sep, 100*shares[j][i])
		}
		s.say("%s\n", line)
	}
	if err := s.page("drawn.html", left[d.name], map[string]any{"Title": "lfactor " + s.name,
		"Head": d.title, "Rules": names, "Columns": columns}); err != nil {
		return err
	}
	s.end(result)
	s.say("%s %s · metrics %s · export %s, for diffusers\n", d.name, left[d.name], left["metrics"], left["export"])
	return s.over(d.enough(shares))
}

// dataURL is a picture within a page.
func dataURL(kind string, picture []byte) template.URL {
	return template.URL("data:image/" + kind + ";base64," + base64.StdEncoding.EncodeToString(picture))
}

// writeShards writes n drawn samples, in four webdataset shards, and says how many it wrote: parts are those of one, of
// what is drawn by chance.
func writeShards(dir, name string, n int, chance *rand.Rand, parts func(r *rand.Rand) []dataset.Part) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	for shard := range 4 {
		w, err := format.CreateShard(filepath.Join(dir, fmt.Sprintf("%s-%02d.tar", name, shard)))
		if err != nil {
			return 0, err
		}
		for i := range n / 4 {
			if err := w.Add(fmt.Sprintf("%02d-%05d", shard, i), parts(chance)); err != nil {
				return 0, err
			}
		}
		if err := w.Close(); err != nil {
			return 0, err
		}
	}
	return n / 4 * 4, nil
}

// learnLatents trains a small autoencoder of Wan's kind on drawn pictures, and puts it into vae as diffusers has it. It
// takes patches of 4×4 pixels for one place: with no convolution on all pixels it learns in seconds.
func (s *session) learnLatents() error {
	steps := max(1, s.steps*latentSteps/imageSteps)
	cfg, err := s.train("latents.yaml", values{"steps": steps, "warmup": min(100, steps/4)}, run.Options{})
	if err != nil {
		return err
	}
	if err := os.Rename(s.in("autoencoder/checkpoints/release_hf_weights/vae"), s.in("vae")); err != nil {
		return err
	}
	return measureLatents(cfg, s.in("vae"))
}

// measureLatents writes the mean and the deviation of an autoencoder's channels over drawn pictures into its
// config.json: a denoiser learns numbers as wide as its noise.
func measureLatents(cfg *configs.Config, dir string) error {
	b, err := kernels.Open(cfg.Run.Device, kernels.Options{})
	if err != nil {
		return err
	}
	defer kernels.Close(b)
	a, err := latent.Open(dir, b)
	if err != nil {
		return err
	}
	defer a.Close()
	r, all := rand.New(rand.NewPCG(33, 34)), scenesOf(false, 1)
	sum, squares, n := make([]float64, a.Latent), make([]float64, a.Latent), 0.0
	const places = figureSide * figureSide
	for range 64 {
		img, planes := all[r.IntN(len(all))].paint(r), make([]float32, 3*places) // [3 1 H W] from -1 to 1
		for i := range planes {
			planes[i] = float32(img.Pix[4*(i%places)+i/places])/127.5 - 1
		}
		mean, _, err := a.Frozen().Encode(planes, [3]int{1, figureSide, figureSide})
		if err != nil {
			return err
		}
		each := len(mean) / a.Latent
		for i, v := range mean {
			sum[i/each] += float64(v)
			squares[i/each] += float64(v) * float64(v)
		}
		n += float64(each)
	}
	for c := range sum {
		sum[c] /= n
		squares[c] = math.Sqrt(max(1e-12, squares[c]/n-sum[c]*sum[c]))
	}
	return rewriteJSON(filepath.Join(dir, "config.json"), map[string]any{"latents_mean": sum, "latents_std": squares})
}
