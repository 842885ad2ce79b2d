package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// rlNumbers are those that are added, from 0 up, and rlHeld the sums that are kept out of training.
const rlNumbers, rlHeld = 20, 80

// rlSum is a problem.
type rlSum struct{ a, b int }

func (s rlSum) prompt() string { return fmt.Sprintf("%d+%d=", s.a, s.b) }
func (s rlSum) answer() string { return fmt.Sprint(s.a + s.b) }

// rlSums are all problems in a fixed random order; the first rlHeld are held out.
func rlSums() (all []rlSum) {
	for a := range rlNumbers {
		for b := range rlNumbers {
			all = append(all, rlSum{a, b})
		}
	}
	r := rand.New(rand.NewPCG(41, 42))
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// rl teaches a small model a little addition by texts, stopped long before it can add, and the rest by rewards of
// answers that it draws.
func (s *session) rl() error {
	if err := s.clear("texts-run", "texts-checkpoints", "run", "checkpoints", "tokenizer"); err != nil {
		return err
	}
	if err := s.rlTexts(); err != nil {
		return err
	}
	before, right, err := rlAsk(s.in("texts-checkpoints", "release_hf_weights"))
	if err != nil {
		return err
	}
	s.say("after texts: %.0f %% of the held-out sums are right\n", 100*right)
	if _, err := s.train("rlanswers.yaml", values{"at": "", "ahead": "",
		"kept": "interval: 100000, keep: 1, save_hf: true"}, run.Options{}); err != nil {
		return err
	}
	after, risen, err := rlAsk(s.in("checkpoints", "release_hf_weights"))
	if err != nil {
		return err
	}
	rewards, err := rlRewards(s.in("run", rollout.FileName))
	if err != nil {
		return err
	}
	for i := range after {
		after[i].Was, after[i].WasRight = before[i].Said, before[i].Right
	}
	page := s.in("rl.html")
	if err := s.page("rl.html", page, map[string]any{"Rows": after, "Before": fmt.Sprintf("%.0f %%", 100*right),
		"After": fmt.Sprintf("%.0f %%", 100*risen),
		"Curve": template.HTML(record.Curve("reward", "mean reward of a step", rewards, nil))}); err != nil {
		return err
	}
	s.end(map[string]any{"accuracy_before": right, "accuracy_after": risen, "reward_first": rewards[0].Y,
		"reward_last": rewards[len(rewards)-1].Y, "page": page})
	s.say("after rewards: %.0f %%; curve and answers: %s\ndone in %v\n", 100*risen, page, s.so(time.Second))
	switch {
	case risen > right:
		return nil
	case s.steps < s.full:
		s.say("%d steps are too few to show it; %d are enough\n", s.steps, s.full)
		return nil
	}
	return errors.New("the share of right answers did not rise")
}

// rlTexts writes texts, prompts, the model and a tokenizer of characters, and trains the model on the texts.
func (s *session) rlTexts() error {
	if err := s.rlData(); err != nil {
		return err
	}
	s.tell("data    sums of two numbers below %d: %d in training, %d held out\n", rlNumbers,
		rlNumbers*rlNumbers-rlHeld, rlHeld)
	_, err := s.train("rltexts.yaml", nil, run.Options{})
	return err
}

func (s *session) rlData() error {
	var texts, prompts strings.Builder
	for _, x := range rlSums()[rlHeld:] {
		fmt.Fprintf(&texts, "{\"text\": %q}\n", x.prompt()+x.answer())
		fmt.Fprintf(&prompts, "{\"prompt\": %q, \"answer\": %q}\n", x.prompt(), x.answer())
	}
	return errors.Join(write(s.in("texts.jsonl"), []byte(texts.String())),
		write(s.in("prompts.jsonl"), []byte(prompts.String())), s.lay("rl", "", nil))
}

// rlAnswer is what a model says to a held-out sum, and what it said before.
type rlAnswer struct {
	Prompt, Said, Was string
	Right, WasRight   bool
}

// rlAsk puts the held-out sums to a model, all at once, which takes the likeliest token always; it returns the share of
// right answers besides.
func rlAsk(dir string) (out []rlAnswer, right float64, err error) {
	m, err := trained.Open(dir, "")
	if err != nil {
		return nil, 0, err
	}
	defer m.Close()
	e, done, err := m.Engine(tensor.F32, sample.EngineOptions{Pages: 2 * rlHeld, Running: rlHeld}, nil)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	sums, said := rlSums()[:rlHeld], make([][]int32, rlHeld)
	for i, x := range sums {
		if err := e.Submit(&sample.Request{Prompt: m.Tokenizer.Encode(x.prompt(), false),
			Params: sample.Params{Max: 5, Stop: m.Stops()}, Done: func(sample.End) {}, Emit: func(t sample.Token) bool {
				if !t.Stop {
					said[i] = append(said[i], t.ID)
				}
				return true
			}}); err != nil {
			return nil, 0, err
		}
	}
	for e.Busy() {
		if err := e.Step(); err != nil {
			return nil, 0, err
		}
	}
	n := 0
	for i, x := range sums {
		a := rlAnswer{Prompt: x.prompt(), Said: m.Tokenizer.Decode(said[i], true)}
		if a.Right = a.Said == x.answer(); a.Right {
			n++
		}
		out = append(out, a)
	}
	return out, float64(n) / rlHeld, nil
}

// rlRewards is the mean reward of each step.
func rlRewards(path string) (curve []record.Point, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	n := 0.0
	for lines := json.NewDecoder(f); ; {
		var a struct {
			Step   int64
			Reward float64
		}
		if err := lines.Decode(&a); err == io.EOF {
			return curve, nil
		} else if err != nil {
			return nil, err
		}
		if len(curve) == 0 || curve[len(curve)-1].X != float64(a.Step) {
			curve, n = append(curve, record.Point{X: float64(a.Step)}), 0
		}
		p := &curve[len(curve)-1]
		n++
		p.Y += (a.Reward - p.Y) / n
	}
}
