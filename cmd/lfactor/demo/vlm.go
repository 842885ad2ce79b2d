package demo

import (
	"bufio"
	_ "embed" // of DemoVLMConfig
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/trained"
)

// DemoVLMConfig is a run file like any other, with places for special tokens' ids, paths and steps.
//
//go:embed recipes/vlm.yaml
var DemoVLMConfig string

// question is one of the four kinds, with the answer for a scene.
type question struct {
	Kind, Text string
	Answer     func(s scene) string
}

// SceneQuestions are what a model is asked about a scene.
var SceneQuestions = []question{
	{"colour", "What colour are the shapes?", func(s scene) string { return sceneColours[s[colour]] }},
	{"shape", "What shape is drawn?", func(s scene) string { return sceneShapes[s[shape]] }},
	{"count", "How many shapes are there?", func(s scene) string { return sceneCounts[s[count]] }},
	{"place", "Where are the shapes?", func(s scene) string { return scenePlaces[s[place]] }},
}

// Scenes lists the combinations that are, or are not, in run.
func Scenes(held bool) []scene { return scenesOf(held, len(scenePlaces)) }

// WriteScenes writes n images of the combinations of training, each with a caption or two questions, in four shards.
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

// SceneTurns is a conversation about an image: all four questions in some order, or a request for a caption.
func SceneTurns(s scene, r *rand.Rand) (out []turn) {
	if r.IntN(6) == 0 {
		return []turn{{"user", "<image>Describe the picture."}, {"assistant", s.caption()}}
	}
	for _, k := range r.Perm(len(SceneQuestions)) {
		q := SceneQuestions[k]
		out = append(out, turn{"user", q.Text}, turn{"assistant", q.Answer(s)})
	}
	out[0].Content = "<image>" + out[0].Content
	return out
}

// SceneTokenizer trains a tokenizer on captions and questions and writes it with a template, Qwen2.5-VL's without
// its system prompt, and the processor's settings; it returns the ids of special tokens, and the vocabulary's
// size under "vocab".
func SceneTokenizer(dir string) (map[string]int32, error) {
	var words []string
	for _, s := range Scenes(false) {
		words = append(words, s.caption(), "user\n", "assistant\n", "Describe the picture.")
		for _, q := range SceneQuestions {
			words = append(words, q.Text, q.Answer(s))
		}
	}
	s := &session{dir: dir}
	return s.tokenizer("", "vlm/tokenizer", token.TrainConfig{VocabSize: 384, Special: []string{"<|endoftext|>",
		"<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}}, words)
}

// tokenizer trains one on texts and writes it into a folder of the demo's, with what lies beside it; it returns the ids
// of special tokens, and the vocabulary's size under "vocab".
func (s *session) tokenizer(folder, beside string, c token.TrainConfig, texts []string) (map[string]int32, error) {
	text, err := token.Train(c, slices.Values(texts))
	if err := errors.Join(err, s.lay(beside, folder, values{"vocab": 0})); err != nil {
		return nil, err
	}
	if err := write(s.in(folder, "tokenizer.json"), text); err != nil {
		return nil, err
	}
	tok, _, err := trained.TokenizerAt(s.in(folder))
	if err != nil {
		return nil, err
	}
	ids := map[string]int32{"vocab": int32(tok.VocabSize())}
	for _, special := range c.Special {
		id, ok := tok.TokenID(special)
		if !ok {
			return nil, fmt.Errorf("the trained tokenizer lacks %s", special)
		}
		ids[special] = id
	}
	return ids, nil
}

// vlm draws images, trains a small Qwen2.5-VL on them with its encoder on an actor of its own, and asks about images
// whose combinations it has not seen.
func (s *session) vlm() error {
	if err := s.clear("checkpoints", "run", "shards", "tokenizer"); err != nil {
		return err
	}
	images, err := WriteScenes(s.in("shards"), 2400)
	if err != nil {
		return err
	}
	ids, err := SceneTokenizer(s.in("tokenizer"))
	if err != nil {
		return err
	}
	s.tell("data    %d drawn images with captions and questions in webdataset shards; %d of %d combinations are held "+
		"out (%v)\n", images, len(Scenes(true)), len(Scenes(true))+len(Scenes(false)), s.so(100*time.Millisecond))
	cfg, err := s.load(fmt.Appendf(nil, DemoVLMConfig, ids["vocab"], ids["<|im_end|>"], ids["<|image_pad|>"],
		ids["<|video_pad|>"], ids["<|vision_start|>"], s.in("shards/scenes-{00..03}.tar"), s.in("tokenizer"), s.steps,
		max(1, s.steps/20), s.in("checkpoints"), s.steps, s.in("run")))
	if err != nil {
		return err
	}
	line := &hostTimeline{Timeline: rehearsal.Timeline{Last: int64(s.steps) - 1}}
	if err := run.Train(s.ctx, cfg, run.Options{Progress: os.Stderr, Trace: line.see}); err != nil {
		return err
	}
	return s.vlmVerdict(line)
}

// hostTimeline keeps the jobs of one step of a real run.
type hostTimeline struct {
	rehearsal.Timeline
	mu sync.Mutex
}

func (t *hostTimeline) see(e host.TraceEvent) {
	rank := int(e.Ref - layout.RankRef(0))
	if e.Job.Step != t.Last || e.Job.Kind != actors.RunSegment && e.Job.Kind != actors.UpdatePhase || rank < 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Add(rank, e.Job, int64(e.Start), int64(e.End))
}

// vlmFigure is an image as a page shows it, with what was answered.
type vlmFigure struct {
	Picture template.URL
	Answers []vlmAnswer
}

type vlmAnswer struct {
	Kind, Said string
	Right      bool
}

// vlmVerdict asks the four questions about held-out combinations, with and without their images.
func (s *session) vlmVerdict(line *hostTimeline) error {
	q, done, err := trained.OpenQuiz(s.in("tokenizer"), s.in("checkpoints"))
	if err != nil {
		return err
	}
	defer done()
	r, held := rand.New(rand.NewPCG(21, 22)), Scenes(true)
	var figures []vlmFigure
	right, sum, blind := map[string]int{}, 0, 0
	for _, x := range held {
		png := x.Png(r)
		f := vlmFigure{Picture: dataURL("png", png)}
		for _, k := range SceneQuestions {
			said, err := q.Ask(k.Text, png)
			if err != nil {
				return err
			}
			without, err := q.Ask(k.Text, nil)
			if err != nil {
				return err
			}
			if said == k.Answer(x) {
				right[k.Kind]++
				sum++
			}
			if without == k.Answer(x) {
				blind++
			}
			f.Answers = append(f.Answers, vlmAnswer{k.Kind, said, said == k.Answer(x)})
		}
		figures = append(figures, f)
	}
	n := len(held) * len(SceneQuestions)
	s.say("%d questions about %d images of combinations that were not in training:\n", n, len(held))
	for _, k := range SceneQuestions {
		s.say("  %-7s %5.1f %% right\n", k.Kind, 100*float64(right[k.Kind])/float64(len(held)))
	}
	with, without := 100*float64(sum)/float64(n), 100*float64(blind)/float64(n)
	s.say("with the image %.1f %% · the same model without it %.1f %%\n", with, without)
	left := s.left()
	left["answers"] = s.in("answers.html")
	var drawn strings.Builder
	w := bufio.NewWriter(&drawn)
	line.Draw(w)
	w.Flush() // a builder takes all
	if err := s.page("answers.html", left["answers"], map[string]any{"With": with, "Without": without,
		"Figures": figures, "Line": template.HTML(drawn.String())}); err != nil {
		return err
	}
	s.end(map[string]any{"right_with_image": with / 100, "right_without": without / 100, "files": left})
	s.say("images, answers and a step's timeline %s · metrics %s · Hugging Face export %s\n", left["answers"],
		left["metrics"], left["export"])
	var fault error
	if with <= 90 || without > 40 {
		fault = errors.New("the model should answer more than 90 % with images and at most 40 % without")
	}
	return s.over(fault)
}
