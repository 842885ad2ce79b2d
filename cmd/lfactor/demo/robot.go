package demo

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/topology/machine"
)

// robotSteps are enough for the demo to show what it claims.
const robotSteps = 1500

// robotModel is a small policy of Pi0.5's kind.
const robotModel = `model_type: pi05
hidden_size: 64
num_hidden_layers: 2
num_attention_heads: 4
num_key_value_heads: 1
head_dim: 16
intermediate_size: 128
vocab_size: %d
rms_norm_eps: 1.0e-6
initializer_range: 0.1
latent_patch: [1, 1, 1]
in_channels: 8
expert_hidden_size: 64
expert_intermediate_size: 128
chunk_size: %d
views: 1
view_size: %d
view_patch: 4
view_hidden_size: 64
view_intermediate_size: 128
view_heads: 4
view_layers: 1
`

// DemoRobotConfig is a run file like any other.
const DemoRobotConfig = `
model: {file: %q}
data: {paths: [%q], tokenizer: %q, seq_len: %d, split: [1, 0, 0]}
train: {steps: %d, global_batch: 64, micro_batch: 32, log_interval: %d, seed: 5}
optimizer: {lr: 3.0e-3, min_lr: 1.0e-4, beta2: 0.99, weight_decay: 0.01}
schedule: {kind: cosine, warmup_steps: 50}
plan: {dp: 2, zero: 1, threads: 1}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

// demoRobot has one who sees show how to reach discs on a table, trains a small policy on the recordings,
// and has it reach discs on tables that it has not seen, beside a hand that does what was done on
// average.
func demoRobot(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"checkpoints", "run", "recordings", "tokenizer"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	episodes := taught(min(1500, 25*steps), 1)
	if err := format.WriteRobot(in("recordings"), 10, [2]int{reachSide, reachSide}, episodes); err != nil {
		return err
	}
	words, err := reachWords(in("tokenizer"))
	if err != nil {
		return err
	}
	model := fmt.Sprintf(robotModel, words, reachHorizon, reachSide)
	if err := os.WriteFile(in("model.yaml"), []byte(model), 0o644); err != nil {
		return err
	}
	frames := 0
	for _, e := range episodes {
		frames += len(e.Frames)
	}
	fmt.Fprintf(os.Stderr, "data    %d recordings of %d frames as a LeRobot data set of version 3 (%v)\n",
		len(episodes),
		frames, time.Since(began).Round(100*time.Millisecond))
	text := fmt.Sprintf(DemoRobotConfig, in("model.yaml"), in("recordings"), in("tokenizer"), reachHorizon,
		steps,
		max(1, steps/20), in("checkpoints"), steps, in("run"))
	cfg, err := configs.Load(configs.Request{File: "demo --robot", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	if err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr}); err != nil {
		return err
	}
	return robotVerdict(cfg, dir, episodes, began, show)
}

// reachWords writes a tokenizer of the words that the policy is told, and returns how many there are.
func reachWords(dir string) (int, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	vocab := map[string]int{}
	for _, w := range []string{"<unk>", "<bos>", "Task", "State", "Action", ":", ",", ";", "-", "reach",
		"the", "disc",
		"red", "blue"} {
		vocab[w] = len(vocab)
	}
	for i := range 256 {
		vocab[fmt.Sprint(i)] = len(vocab)
	}
	tokenizer := map[string]any{"version": "1.0", "added_tokens": []any{map[string]any{"id": 1,
		"content": "<bos>",
		"special": true}}, "pre_tokenizer": map[string]any{"type": "Whitespace"},
		"model": map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}
	settings := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>"}
	for name, v := range map[string]any{"tokenizer.json": tokenizer, "tokenizer_config.json": settings} {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(vocab), nil
}

// attempt is one table, and what the camera saw of it.
type attempt struct {
	*reach
	shots   []string // pictures, as base64
	steps   int
	reached bool
}

// attempts are tables that no recording has.
func attempts(n int) (all []*attempt) {
	r := rand.New(rand.NewPCG(99, 100))
	for range n {
		all = append(all, &attempt{reach: newReach(r)})
	}
	return all
}

// shoot keeps what the camera sees, larger than the policy does.
func (a *attempt) shoot() {
	img := a.draw(48)
	p := media.NewImage(48, 48)
	for i := range 48 * 48 {
		copy(p.Pix[3*i:], img.Pix[4*i:4*i+3])
	}
	a.shots = append(a.shots, base64.StdEncoding.EncodeToString(p.PNG()))
}

// play has all attempts go on until they are done or out of steps; act gives the next actions of those
// that are left.
func play(all []*attempt, act func(left []*attempt) ([][][]float64, error)) error {
	for step := 0; step < reachMost; step += reachUsed {
		var left []*attempt
		for _, a := range all {
			if !a.reached {
				left = append(left, a)
			}
		}
		if len(left) == 0 {
			break
		}
		actions, err := act(left)
		if err != nil {
			return err
		}
		for i, a := range left {
			for k := 0; k < reachUsed && !a.reached && a.steps < reachMost; k++ {
				a.shoot()
				a.move(actions[i][k])
				a.steps++
				a.reached = a.done()
			}
			if a.reached {
				a.shoot()
			}
		}
	}
	return nil
}

// rate is the share of attempts that reached their disc.
func rate(all []*attempt) float64 {
	n := 0
	for _, a := range all {
		if a.reached {
			n++
		}
	}
	return float64(n) / float64(len(all))
}

// acts has a policy play, with what its camera sees or without.
func acts(actor *trained.Actor, all []*attempt, see bool) error {
	seed := uint64(0)
	return play(all, func(left []*attempt) ([][][]float64, error) {
		var seen []trained.Seen
		for _, a := range left {
			s := trained.Seen{Task: a.task(), State: a.state(), Seed: seed}
			seed++
			if see {
				view, err := media.Decode(a.see(), media.Options{})
				if err != nil {
					return nil, err
				}
				s.Views = []*media.Image{view}
			}
			seen = append(seen, s)
		}
		return actor.Act(seen)
	})
}

// robotVerdict has the policy and a hand without one try tables that are new to them.
func robotVerdict(cfg *configs.Config, dir string, episodes []format.RobotEpisode, began time.Time,
	show *shown) error {
	m, err := trained.Open(cfg.Run.Checkpoint.Dir, "")
	if err != nil {
		return err
	}
	defer m.Close()
	actor, err := m.NewActor()
	if err != nil {
		return err
	}
	defer actor.Close()
	all, covered, blind := attempts(100), attempts(100), attempts(100)
	for _, c := range []struct {
		list []*attempt
		see  bool
	}{{all, true}, {covered, false}} {
		if err := acts(actor, c.list, c.see); err != nil {
			return err
		}
	}
	usual := averageAction(episodes)
	if err := play(blind, func(left []*attempt) ([][][]float64, error) {
		out := make([][][]float64, len(left))
		for i := range out {
			for range reachUsed {
				out[i] = append(out[i], usual)
			}
		}
		return out, nil
	}); err != nil {
		return err
	}
	page := filepath.Join(dir, "attempts.html")
	if err := writeAttempts(page, all, blind); err != nil {
		return err
	}
	left := files(dir)
	left["attempts"], left["recordings"] = page, filepath.Join(dir, "recordings")
	fmt.Fprintf(show.out, "%d tables that no recording has: the disc is reached on %.0f %% · with the camera covered on "+
		"%.0f %% · doing what was done on average on %.0f %%\n", len(all), 100*rate(all), 100*rate(covered),
		100*rate(blind))
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "reached": rate(all),
		"reached_covered": rate(covered), "reached_without": rate(blind),
		"seconds": time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(show.out, "attempts %s · metrics %s · export %s, for lerobot\n", page, left["metrics"],
		left["export"])
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	if cfg.Run.Train.Steps < robotSteps {
		fmt.Fprintf(show.out, "%d steps show less than %d do\n", cfg.Run.Train.Steps, robotSteps)
		return nil
	}
	if rate(all) < 0.8 || rate(blind) > 0.2 {
		return fmt.Errorf("four in five discs should be reached, and one in five at most without a policy")
	}
	return nil
}

// averageAction is what was done on average in recordings.
func averageAction(episodes []format.RobotEpisode) []float64 {
	sum, n := make([]float64, 2), 0.0
	for _, e := range episodes {
		for _, f := range e.Frames {
			for i, v := range f.Action {
				sum[i] += float64(v)
			}
			n++
		}
	}
	return []float64{sum[0] / n, sum[1] / n}
}

// writeAttempts writes a page that needs nothing else: every attempt frame by frame.
func writeAttempts(name string, all, blind []*attempt) error {
	return machine.Create(name, func(w *bufio.Writer) {
		fmt.Fprint(w, "<!doctype html><meta charset=\"utf-8\"><title>lfactor demo --robot</title><style>"+
			"body{font-family:sans-serif;margin:2em}img{width:48px;margin:1px;image-rendering:pixelated}"+
			"p{margin:.2em 0}.no{color:#b00}</style>\n")
		fmt.Fprintf(w, "<h1>Reaching discs on unseen tables</h1><p>Reached: %.0f %%; without a policy: %.0f %%.</p>\n",
			100*rate(all), 100*rate(blind))
		for i, list := range [][]*attempt{all[:20], blind[:5]} {
			fmt.Fprintf(w, "<h2>%s</h2>\n", []string{"The policy", "What was done on average"}[i])
			for _, a := range list {
				class, said := "", "reached"
				if !a.reached {
					class, said = " class=\"no\"", "not reached"
				}
				fmt.Fprintf(w, "<p%s>%s: %s after %d steps</p>", class, html.EscapeString(a.task()), said, a.steps)
				for _, s := range a.shots {
					fmt.Fprintf(w, "<img src=\"data:image/png;base64,%s\" alt=\"\">", s)
				}
				fmt.Fprintln(w)
			}
		}
	})
}
