package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/trained"
)

// scene is a drawn image: count small shapes of one kind and colour in one corner.
type scene struct{ Colour, Shape, Count, Place int }

var (
	sceneColours = []string{"red", "green", "blue", "yellow", "purple", "white"}
	sceneShapes  = []string{"circle", "square", "triangle", "cross"}
	sceneCounts  = []string{"one", "two", "three", "four"}
	scenePlaces  = []string{"top left", "top right", "bottom left", "bottom right"}
	scenePaints  = []color.RGBA{{220, 40, 40, 255}, {40, 190, 60, 255}, {50, 80, 230, 255},
		{235, 215, 40, 255}, {170, 60, 200, 255}, {245, 245, 245, 255}}
)

// question is one of the four kinds, with the answer for a scene.
type question struct {
	Kind, Text string
	Answer     func(s scene) string
}

// SceneQuestions are what a model is asked about a scene.
var SceneQuestions = []question{
	{"colour", "What colour are the shapes?", func(s scene) string { return sceneColours[s.Colour] }},
	{"shape", "What shape is drawn?", func(s scene) string { return sceneShapes[s.Shape] }},
	{"count", "How many shapes are there?", func(s scene) string { return sceneCounts[s.Count] }},
	{"place", "Where are the shapes?", func(s scene) string { return scenePlaces[s.Place] }},
}

// caption describes a scene in a sentence.
func (s scene) caption() string {
	plural := ""
	if s.Count > 0 {
		plural = "s"
		if sceneShapes[s.Shape] == "cross" {
			plural = "es"
		}
	}
	return fmt.Sprintf("%s %s %s%s in the %s", sceneCounts[s.Count], sceneColours[s.Colour],
		sceneShapes[s.Shape], plural, scenePlaces[s.Place])
}

// held reports whether a combination is kept out of training: every colour, shape, count and place is seen,
// one in six of their combinations is not.
func (s scene) held() bool { return (s.Colour+2*s.Shape+3*s.Count+5*s.Place)%6 == 1 }

const sceneSide = 112

// draw paints a scene: places, sizes and brightness differ from one drawing to the next.
func (s scene) draw(r *rand.Rand) image.Image {
	img := image.NewRGBA(image.Rect(0, 0, sceneSide, sceneSide))
	ground := uint8(20 + r.IntN(40))
	for i := 0; i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = ground, ground, ground, 255
	}
	half := sceneSide / 2
	cells := r.Perm(4)[:s.Count+1]
	for _, c := range cells {
		x := float64(s.Place%2*half + c%2*half/2 + half/4 + r.IntN(5) - 2)
		y := float64(s.Place/2*half + c/2*half/2 + half/4 + r.IntN(5) - 2)
		paintShape(img, s.Shape, x, y, 8+2*r.Float64(), scenePaints[s.Colour])
	}
	return img
}

// paintShape fills the pixels that a shape of radius size around (x, y) covers.
func paintShape(img *image.RGBA, shape int, x, y, size float64, c color.RGBA) {
	for py := int(y - size); py <= int(y+size); py++ {
		for px := int(x - size); px <= int(x+size); px++ {
			dx, dy := (float64(px)+0.5-x)/size, (float64(py)+0.5-y)/size
			in := false
			switch sceneShapes[shape] {
			case "circle":
				in = dx*dx+dy*dy <= 1
			case "square":
				in = math.Max(math.Abs(dx), math.Abs(dy)) <= 0.85
			case "triangle":
				in = dy <= 0.8 && math.Abs(dx) <= (dy+0.9)/1.7
			case "cross":
				in = math.Min(math.Abs(dx), math.Abs(dy)) <= 0.3 && math.Max(math.Abs(dx), math.Abs(dy)) <= 1
			}
			if in && image.Pt(px, py).In(img.Rect) {
				img.SetRGBA(px, py, c)
			}
		}
	}
}

func (s scene) Png(r *rand.Rand) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, s.draw(r)); err != nil {
		panic(fmt.Sprintf("demo: an image in memory cannot be written: %v", err))
	}
	return b.Bytes()
}

// Scenes lists the combinations that are, or are not, in run.
func Scenes(held bool) (out []scene) {
	for c := range sceneColours {
		for s := range sceneShapes {
			for n := range sceneCounts {
				for p := range scenePlaces {
					if x := (scene{c, s, n, p}); x.held() == held {
						out = append(out, x)
					}
				}
			}
		}
	}
	return
}

// DemoVLMConfig is a run file like any other.
const DemoVLMConfig = `
model:
  name: qwen-vl/2.5-3b
  init: random
  overrides:
    hidden_size: 128
    num_hidden_layers: 3
    num_attention_heads: 4
    num_key_value_heads: 2
    head_dim: 32
    intermediate_size: 320
    vocab_size: %d
    max_position_embeddings: 512
    bos_token_id: -1
    eos_token_id: [%d]
    rope_scaling: {rope_type: mrope, mrope_section: [4, 6, 6]}
    initializer_range: 0.1
    vision: {depth: 4, hidden_size: 96, intermediate_size: 256, num_heads: 4, window_size: 56, fullatt_block_indexes: [1, 3], image_token_id: %d, video_token_id: %d, vision_start_token_id: %d}
data: {kind: media, paths: [%q], tokenizer: %q, seq_len: 256, sample_type: chat_mix}
train: {steps: %d, global_batch: 8, micro_batch: 2, log_interval: %d, seed: 3, loss_average: token}
optimizer: {lr: 2.0e-3, min_lr: 1.0e-4, beta2: 0.98, weight_decay: 0.02}
schedule: {kind: cosine, warmup_steps: 30}
plan: {threads: 1, encoder: {over: own, ranks: 1}}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

// demoVLM draws images, trains a small Qwen2.5-VL on them with its encoder on an actor of its own, and
// asks about images whose combinations it has not seen.
func demoVLM(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"checkpoints", "run", "shards", "tokenizer"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	images, err := WriteScenes(in("shards"), 2400)
	if err != nil {
		return err
	}
	ids, err := SceneTokenizer(in("tokenizer"))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "data    %d drawn images with captions and questions in webdataset shards; "+
		"%d of %d combinations are held out (%v)\n",
		images, len(Scenes(true)), len(Scenes(true))+len(Scenes(false)),
		time.Since(began).Round(100*time.Millisecond))
	text := fmt.Sprintf(DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"], in("shards/scenes-{00..03}.tar"), in("tokenizer"),
		steps, max(1, steps/20), in("checkpoints"), steps, in("run"))
	cfg, err := configs.Load(configs.Request{File: "demo --vlm", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	line := &hostTimeline{Timeline: rehearsal.Timeline{Last: int64(steps) - 1}}
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr, Trace: line.see}); err != nil {
		return err
	}
	return vlmVerdict(cfg, dir, began, line, show)
}

// WriteScenes writes n images of the combinations of training, each with a caption or two questions, in
// four shards.
func WriteScenes(dir string, n int) (int, error) {
	all := Scenes(false)
	return writeShards(dir, "scenes", n, rand.New(rand.NewPCG(11, 12)), func(r *rand.Rand) []dataset.Part {
		s := all[r.IntN(len(all))]
		text, err := json.Marshal(map[string]any{"messages": SceneTurns(s, r), "media": "image",
			"name": []string{"0.png"}})
		if err != nil {
			panic(fmt.Sprintf("demo: a sample cannot be JSON: %v", err))
		}
		return []dataset.Part{{Name: "0.png", Bytes: s.Png(r)}, {Name: "json", Bytes: text}}
	})
}

type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// SceneTurns is a conversation about an image: all four questions in some order, or a request for a
// caption.
func SceneTurns(s scene, r *rand.Rand) []turn {
	if r.IntN(6) == 0 {
		return []turn{{"user", "<image>Describe the picture."}, {"assistant", s.caption()}}
	}
	var out []turn
	for i, k := range r.Perm(len(SceneQuestions)) {
		q := SceneQuestions[k]
		text := q.Text
		if i == 0 {
			text = "<image>" + text
		}
		out = append(out, turn{"user", text}, turn{"assistant", q.Answer(s)})
	}
	return out
}

var sceneSpecial = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>",
	"<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}

// sceneTemplate is Qwen2.5-VL's chat template without its system prompt.
const sceneTemplate = `{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// SceneTokenizer trains a tokenizer on captions and questions and writes it with a template and the
// processor's settings; it returns the ids of special tokens, and the vocabulary's size under "vocab".
func SceneTokenizer(dir string) (map[string]int32, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var words []string
	for _, s := range Scenes(false) {
		words = append(words, s.caption(), "user\n", "assistant\n", "Describe the picture.")
		for _, q := range SceneQuestions {
			words = append(words, q.Text, q.Answer(s))
		}
	}
	text, err := token.Train(token.TrainConfig{VocabSize: 384, Special: sceneSpecial}, slices.Values(words))
	if err != nil {
		return nil, err
	}
	tc, err := json.Marshal(map[string]any{"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>",
		"pad_token": "<|endoftext|>", "chat_template": sceneTemplate})
	if err != nil {
		return nil, err
	}
	pc := fmt.Sprintf(`{"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2, "min_pixels": 3136, "max_pixels": %d}`, sceneSide*sceneSide)
	for name, b := range map[string][]byte{"tokenizer.json": text, "tokenizer_config.json": tc,
		"preprocessor_config.json": []byte(pc)} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return nil, err
		}
	}
	tok, _, err := trained.TokenizerAt(dir)
	if err != nil {
		return nil, err
	}
	ids := map[string]int32{"vocab": int32(tok.VocabSize())}
	for _, s := range sceneSpecial {
		id, ok := tok.TokenID(s)
		if !ok {
			return nil, fmt.Errorf("the trained tokenizer lacks %s", s)
		}
		ids[s] = id
	}
	return ids, nil
}
