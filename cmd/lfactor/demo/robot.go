package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/world"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// robotSteps are enough for the demo to show what it claims.
const robotSteps = 1500

// robotShown are recordings that leave something to be corrected.
const robotShown = 160

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
model: {%s}
data: {paths: [%s], tokenizer: %q, seq_len: %d, split: [1, 0, 0]}
train: {steps: %d, global_batch: 64, micro_batch: 32, log_interval: %d, seed: 5}
optimizer: {lr: %g, min_lr: 1.0e-4, beta2: 0.99, weight_decay: 0.01}
schedule: {kind: cosine, warmup_steps: 50}
plan: {dp: 2, zero: 1, threads: 1}
checkpoint: {dir: %q, interval: %d, keep: 1, save_hf: true}
log: {dir: %q}
`

// demoRobot has one who sees show how to reach discs on a table, trains a small policy on the recordings,
// corrects it where it acts, and has it reach discs on tables that it has not seen, beside a hand that does
// what was done on average.
func demoRobot(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, sub := range []string{"checkpoints", "run", "recordings", "tokenizer", "corrections", "corrected",
		"run-corrected"} {
		if err := os.RemoveAll(in(sub)); err != nil {
			return err
		}
	}
	episodes := taught(min(robotShown, 25*steps), 1)
	if err := format.WriteRobot(in("recordings"), format.RobotTop(10, reachSide), episodes); err != nil {
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
	after := max(1, steps/3) // steps with corrections
	if _, err := robotTrain(ctx, dir, "checkpoints", "file: "+fmt.Sprintf("%q", in("model.yaml")),
		fmt.Sprintf("%q", in("recordings")), max(1, steps-after), 3e-3); err != nil {
		return err
	}
	first, err := try(ctx, in("checkpoints"), true)
	if err != nil {
		return err
	}
	if _, err := correct(ctx, dir, first.corrected, after); err != nil {
		return err
	}
	last, err := try(ctx, in("corrected"), false)
	if err != nil {
		return err
	}
	return robotVerdict(ctx, dir, steps, [2]tried{first, last}, episodes, began, show)
}

// addedToken is a special token of a tokenizer.json, with every field that the tokenizers library asks for.
func addedToken(id int, content string) map[string]any {
	return map[string]any{"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
		"normalized": false, "special": true}
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
	tokenizer := map[string]any{"version": "1.0", "added_tokens": []any{addedToken(1, "<bos>")},
		"pre_tokenizer": map[string]any{"type": "Whitespace"},
		"model":         map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}
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

// Seeds of tables: those that a policy is tried on, and those on which it is corrected.
const (
	robotTried     = 1 << 20
	robotCorrected = 2 << 20
)

// attempts has a policy act on 100 tables.
func attempts(ctx context.Context, p world.Policy, seed uint64, covered bool) (*world.Result, error) {
	return world.Roll(ctx, p, world.Rolling{Episodes: 100, Worlds: 100, Seed: seed, Executed: reachUsed,
		Most: reachMost,
		Keep: true, Make: func(context.Context) (world.World, error) {
			return &reachWorld{covered: covered},
				nil
		}})
}

// usual is a hand that does what was done on average.
type usual []float64

// Abilities implements world.Policy.
func (u usual) Abilities() policies.Abilities {
	return policies.Abilities{Numbers: 2, Width: 2, Cameras: []string{reachCamera}}
}

// Act implements world.Policy.
func (u usual) Act(robots []policies.Seen) ([][][]float64, error) {
	out := make([][][]float64, len(robots))
	for i := range out {
		for range reachUsed {
			out[i] = append(out[i], u)
		}
	}
	return out, nil
}

// acting opens the policy of a run.
func acting(dir string) (*trained.Trained, *policies.Actor, error) {
	m, err := trained.Open(dir, "")
	if err != nil {
		return nil, nil, err
	}
	a, err := policies.NewActor(m)
	if err != nil {
		m.Close()
		return nil, nil, err
	}
	return m, a, nil
}

// tried is how a policy does: with its camera, without, and the tables of its corrections.
type tried struct{ seen, covered, corrected *world.Result }

// try has a run's policy act.
func try(ctx context.Context, dir string, correct bool) (r tried, err error) {
	m, a, err := acting(dir)
	if err != nil {
		return r, err
	}
	defer m.Close()
	defer a.Close()
	if r.seen, err = attempts(ctx, a, robotTried, false); err == nil {
		r.covered, err = attempts(ctx, a, robotTried, true)
	}
	if err == nil && correct {
		r.corrected, err = attempts(ctx, a, robotCorrected, false)
	}
	return r, err
}

// correct records what the one who sees would have done where the policy of the first run acted, and has the
// policy learn of both recordings alike.
func correct(ctx context.Context, dir string, r *world.Result, steps int) (*configs.Config, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	set := format.RobotTop(10, reachSide)
	set.Like = in("recordings")
	episodes, _, err := world.Corrected((&reachWorld{}).Spec(), r.Episodes)
	if err != nil {
		return nil, err
	}
	if err := format.WriteRobot(in("corrections"), set, episodes); err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "data    %d corrected rollouts on other tables, of which the policy reached the disc on %.0f %%\n",
		len(episodes), 100*r.Rate)
	return robotTrain(ctx, dir, "corrected", "path: "+fmt.Sprintf("%q",
		in("checkpoints/release_hf_weights")),
		fmt.Sprintf("%q, %q", in("recordings"), in("corrections")), steps, 1e-3)
}

// robotTrain trains a policy of a model on data sets.
func robotTrain(ctx context.Context, dir, name, model, paths string, steps int,
	rate float64) (*configs.Config, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	logs := "run"
	if name != "checkpoints" {
		logs = "run-" + name
	}
	text := fmt.Sprintf(DemoRobotConfig, model, paths, in("tokenizer"), reachHorizon, steps, max(1,
		steps/20), rate,
		in(name), steps, in(logs))
	cfg, err := configs.Load(configs.Request{File: "demo --robot", Text: []byte(text)})
	if err != nil {
		return nil, err
	}
	cfg.Notices = nil
	return cfg, run.Train(ctx, cfg, run.Options{Progress: os.Stderr})
}

// robotVerdict says how the policy did before and after it was corrected, beside a hand without one.
func robotVerdict(ctx context.Context, dir string, steps int, tries [2]tried, episodes []format.RobotEpisode,
	began time.Time, show *shown) error {
	first, last := tries[0], tries[1]
	blind, err := attempts(ctx, usual(averageAction(episodes)), robotTried, false)
	if err != nil {
		return err
	}
	page := filepath.Join(dir, "attempts.html")
	said := fmt.Sprintf("Reached: %.0f %%; before 100 corrected rollouts: %.0f %%; without a policy: %.0f %%.",
		100*last.seen.Rate, 100*first.seen.Rate, 100*blind.Rate)
	if err := world.Page(page, "Reaching discs on unseen tables", said, []world.Part{
		{Title: "The policy", Episodes: last.seen.Episodes[:20]},
		{Title: "The policy before it was corrected", Episodes: first.seen.Episodes[:20]},
		{Title: "What was done on average", Episodes: blind.Episodes[:5]}}); err != nil {
		return err
	}
	left := files(dir)
	left["attempts"], left["recordings"] = page, filepath.Join(dir, "recordings")
	left["corrections"], left["export"] = filepath.Join(dir, "corrections"), filepath.Join(dir, "corrected",
		"release_hf_weights")
	fmt.Fprintf(show.out, "100 tables that no recording has: the disc is reached on %.0f %% (95 %%: %.0f to %.0f) · with the "+
		"camera covered on %.0f %% · doing what was done on average on %.0f %%\n", 100*last.seen.Rate,
		100*last.seen.Interval.Low, 100*last.seen.Interval.High, 100*last.covered.Rate, 100*blind.Rate)
	fmt.Fprintf(show.out, "before 100 corrected rollouts the same tables: %.0f %%\n", 100*first.seen.Rate)
	show.result = map[string]any{"steps": steps, "reached": last.seen.Rate,
		"reached_before":  first.seen.Rate,
		"reached_covered": last.covered.Rate, "reached_without": blind.Rate,
		"seconds": time.Since(began).Seconds(), "files": left}
	fmt.Fprintf(show.out, "attempts %s · metrics %s · export %s, for lerobot\n", page, left["metrics"],
		left["export"])
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	if steps < robotSteps {
		fmt.Fprintf(show.out, "%d steps show less than %d do\n", steps, robotSteps)
		return nil
	}
	if last.seen.Rate < 0.8 || blind.Rate > 0.2 {
		return fmt.Errorf("four in five discs should be reached, and one in five at most without a policy")
	}
	if last.seen.Rate <= first.seen.Rate {
		return fmt.Errorf("corrections should raise what is reached: %.0f %% before them, and %.0f %% after",
			100*first.seen.Rate, 100*last.seen.Rate)
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
