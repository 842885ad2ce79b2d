package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// rlSteps are enough for the demo to show what it claims.
const rlSteps = 150

// rlNumbers are those that are added, from 0 up, and rlHeld the sums that are kept out of training.
const rlNumbers, rlHeld = 20, 80

// rlModel is a small decoder whose tokens are characters.
const rlModel = `model_type: llama
hidden_size: 128
num_hidden_layers: 3
num_attention_heads: 4
num_key_value_heads: 4
head_dim: 32
intermediate_size: 384
max_position_embeddings: 64
initializer_range: 0.05
eos_token_id: 0
`

// The two run files, each like any other: first texts of sums, stopped long before the model can add, and
// then answers that the model draws itself.
const (
	rlTexts = `
model: {file: %q}
data: {paths: [%q], tokenizer: %q, seq_len: 64, split: [1, 0, 0]}
train: {steps: %d, global_batch: 8, micro_batch: 8, log_interval: 20, seed: 3}
optimizer: {lr: 1.0e-3, min_lr: 1.0e-3, beta2: 0.98}
schedule: {kind: constant, warmup_steps: 5}
checkpoint: {dir: %q, interval: 100000, keep: 1, save_hf: true}
log: {dir: %q}
`
	rlAnswers = `
model: {path: %q}
data: {paths: [%q], seq_len: 11, split: [1, 0, 0]}
objective: {kind: dapo}
rollout: {group: 8, max_tokens: 4}
reward: {kind: exact}
train: {steps: %d, global_batch: 256, micro_batch: 128, log_interval: %d, seed: 4}
optimizer: {lr: 3.0e-4, min_lr: 3.0e-4, beta2: 0.95, weight_decay: 0}
schedule: {kind: constant, warmup_steps: 10}
plan: {dp: 2, threads: 1}
checkpoint: {dir: %q, interval: 100000, keep: 1, save_hf: true}
log: {dir: %q}
`
)

// rlTextSteps are the steps of the first run.
const rlTextSteps = 90

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

// demoRL teaches a small model a little addition by texts, and the rest by rewards of answers that it draws.
func demoRL(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"texts-run", "texts-checkpoints", "run", "checkpoints", "tokenizer"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	if err := rlData(in); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "data    sums of two numbers below %d: %d in training, %d held out\n", rlNumbers,
		rlNumbers*rlNumbers-rlHeld, rlHeld)
	if err := rlTrain(ctx, fmt.Sprintf(rlTexts, in("model.yaml"), in("texts.jsonl"), in("tokenizer"),
		rlTextSteps,
		in("texts-checkpoints"), in("texts-run"))); err != nil {
		return err
	}
	model := filepath.Join(in("texts-checkpoints"), "release_hf_weights")
	before, err := rlAsk(model)
	if err != nil {
		return err
	}
	fmt.Fprintf(show.out, "after texts: %.0f %% of the held-out sums are right\n", 100*before.right())
	if err := rlTrain(ctx, fmt.Sprintf(rlAnswers, model, in("prompts.jsonl"), steps, max(1, steps/6),
		in("checkpoints"), in("run"))); err != nil {
		return err
	}
	after, err := rlAsk(filepath.Join(in("checkpoints"), "release_hf_weights"))
	if err != nil {
		return err
	}
	rewards, err := rlRewards(filepath.Join(in("run"), run.RolloutsName))
	if err != nil {
		return err
	}
	page := in("rl.html")
	if err := rlPage(page, before, after, rewards); err != nil {
		return err
	}
	show.result = map[string]any{"steps": steps, "accuracy_before": before.right(),
		"accuracy_after": after.right(),
		"reward_first":   rewards[0].Y, "reward_last": rewards[len(rewards)-1].Y,
		"seconds": time.Since(began).Seconds(), "page": page}
	fmt.Fprintf(show.out, "after rewards: %.0f %%; curve and answers: %s\ndone in %v\n", 100*after.right(),
		page,
		time.Since(began).Round(time.Second))
	if after.right() > before.right() {
		return nil
	}
	if steps < rlSteps {
		fmt.Fprintf(show.out, "%d steps are too few to show it; %d are enough\n", steps, rlSteps)
		return nil
	}
	return fmt.Errorf("the share of right answers did not rise")
}

// rlTrain carries out a run file.
func rlTrain(ctx context.Context, text string) error {
	cfg, err := configs.Load(configs.Request{File: "demo --rl", Text: []byte(text)})
	if err != nil {
		return err
	}
	cfg.Notices = nil
	return run.Train(ctx, cfg, run.Options{Progress: os.Stderr})
}

// rlData writes texts, prompts, the model and a tokenizer of characters.
func rlData(in func(string) string) error {
	var texts, prompts strings.Builder
	for _, s := range rlSums()[rlHeld:] {
		fmt.Fprintf(&texts, "{\"text\": %q}\n", s.prompt()+s.answer())
		fmt.Fprintf(&prompts, "{\"prompt\": %q, \"answer\": %q}\n", s.prompt(), s.answer())
	}
	vocab := map[string]int{"<|endoftext|>": 0}
	for i, c := range "0123456789+=" {
		vocab[string(c)] = i + 1
	}
	tokenizer, err := json.Marshal(map[string]any{"version": "1.0",
		"added_tokens": []any{addedToken(0, "<|endoftext|>")}, "decoder": map[string]any{"type": "Fuse"},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []any{}}})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(in("tokenizer"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{"texts.jsonl": texts.String(),
		"prompts.jsonl": prompts.String(),
		"model.yaml":    rlModel, "tokenizer/tokenizer.json": string(tokenizer),
		"tokenizer/tokenizer_config.json": `{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}`} {
		if err := os.WriteFile(in(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// rlAnswered is what a model says to the held-out sums.
type rlAnswered []struct {
	Prompt, Said, Want string
	Right              bool
}

// right is the share of right answers.
func (l rlAnswered) right() float64 {
	n := 0
	for _, x := range l {
		if x.Right {
			n++
		}
	}
	return float64(n) / float64(len(l))
}

// rlAsk puts the held-out sums to a model, all at once, which takes the likeliest token always.
func rlAsk(dir string) (rlAnswered, error) {
	m, err := trained.Open(dir, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	e, done, err := m.Engine(tensor.F32, sample.EngineOptions{Pages: 2 * rlHeld, Running: rlHeld}, nil)
	if err != nil {
		return nil, err
	}
	defer done()
	out := make(rlAnswered, rlHeld)
	said := make([][]int32, rlHeld)
	for i, s := range rlSums()[:rlHeld] {
		out[i].Prompt, out[i].Want = s.prompt(), s.answer()
		err := e.Submit(&sample.Request{Prompt: m.Tokenizer.Encode(s.prompt(), false),
			Params: sample.Params{Max: 5, Stop: m.Stops()}, Done: func(sample.End) {},
			Emit: func(t sample.Token) bool {
				if !t.Stop {
					said[i] = append(said[i], t.ID)
				}
				return true
			}})
		if err != nil {
			return nil, err
		}
	}
	for e.Busy() {
		if err := e.Step(); err != nil {
			return nil, err
		}
	}
	for i := range out {
		out[i].Said = m.Tokenizer.Decode(said[i], true)
		out[i].Right = out[i].Said == out[i].Want
	}
	return out, nil
}

// rlRewards is the mean reward of each step.
func rlRewards(path string) (curve []record.Point, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	n := 0.0
	for lines := bufio.NewReader(f); ; {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return curve, nil
		}
		if err != nil {
			return nil, err
		}
		var a struct {
			Step   int64
			Reward float64
		}
		if err := json.Unmarshal(line, &a); err != nil {
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

var rlTemplate = template.Must(template.New("rl").Parse(`<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Addition learnt from rewards</title>
<style>body{font:16px sans-serif;margin:2em auto;max-width:60em}td,th{padding:.1em .8em;text-align:left}
.no{color:#b00}.yes{color:#070}</style>
<h1>Addition learnt from rewards</h1>
<p>Right answers to sums that were not in training: {{.Before}} after texts, {{.After}} after rewards.</p>
{{.Curve}}
<table><tr><th>sum</th><th>after texts</th><th>after rewards</th></tr>
{{range .Rows}}<tr><td>{{.Prompt}}</td><td class="{{if .WasRight}}yes{{else}}no{{end}}">{{.Was}}</td>
<td class="{{if .Right}}yes{{else}}no{{end}}">{{.Said}}</td></tr>
{{end}}</table></html>
`))

// rlPage writes one page with the curve of rewards and the answers before and after; it loads nothing.
func rlPage(path string, before, after rlAnswered, rewards []record.Point) error {
	type row struct {
		Prompt, Was, Said string
		WasRight, Right   bool
	}
	var rows []row
	for i, x := range after {
		rows = append(rows, row{x.Prompt, before[i].Said, x.Said, before[i].Right, x.Right})
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = rlTemplate.Execute(f, map[string]any{"Rows": rows,
		"Before": fmt.Sprintf("%.0f %%", 100*before.right()),
		"After":  fmt.Sprintf("%.0f %%", 100*after.right()),
		"Curve":  template.HTML(record.Curve("reward", "mean reward of a step", rewards, nil))})
	if end := f.Close(); err == nil {
		err = end
	}
	return err
}
