package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/family"
)

// moeSteps are those of each of the two models.
const moeSteps = 250

// moeConfig is the run file of both models: they differ in name, what an MLP is, and where they run.
const moeConfig = `
model:
  name: %s
  init: random
  overrides: {hidden_size: 128, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,
	head_dim: 32, vocab_size: %d, max_position_embeddings: 512, initializer_range: 0.03,
	tie_word_embeddings: false, %s}
data: {kind: text, paths: [%q], valid: [%q], tokenizer: %q, seq_len: 128}
train: {steps: %d, global_batch: 8, micro_batch: 2, eval_interval: %d, eval_steps: 16, log_interval: %d,
	seed: 7%s}
optimizer: {lr: 3.0e-3, min_lr: 1.0e-4, beta2: 0.98, weight_decay: 0.05}
schedule: {kind: cosine, warmup_steps: 30}
plan: {pp: 2, dp: 2, threads: 1%s}
checkpoint: {dir: %q, interval: 0, keep: 1}
log: {dir: %q%s}
`

// demoMoE trains a small mixture of experts, two of eight a token, and a dense model of as many parameters a
// token, on the same tokens, and shows which kinds of tokens the experts have taken.
func demoMoE(ctx context.Context, dir string, steps int, show *shown) error {
	began := time.Now()
	in, err := prepare(dir, began)
	if err != nil {
		return err
	}
	config := func(name, mlp, train, plan, at, log string) (*configs.Config, error) {
		text := fmt.Sprintf(moeConfig, name, demoVocab, mlp, in("text"), in("valid"), in("tokenizer"),
			steps, steps, max(1, steps/5), train, plan,
			filepath.Join(in("checkpoints"), at), in(at), log)
		return configs.Load(configs.Request{File: "demo", Text: []byte(text)})
	}
	mixture, err := config("qwen/3-30b-a3b",
		"intermediate_size: 256, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 128",
		", routing: record, router: {loss: layer, loss_coef: 0.001}", ", ep: 2", "run",
		fmt.Sprintf(", experts: %d", max(1, steps/5)))
	if err != nil {
		return err
	}
	dense, err := config("qwen/3-8b", "intermediate_size: 256", "", "", "dense", "")
	if err != nil {
		return err
	}
	losses := map[*configs.Config]float64{}
	for _, cfg := range []*configs.Config{mixture, dense} {
		cfg.Notices = nil
		err := run.Train(ctx, cfg, run.Options{Progress: os.Stderr, Report: func(m actors.Message) {
			if m.Text == core.TopicEval {
				losses[cfg] = core.EvalLoss(m.Values)
			}
		}})
		if err != nil {
			return err
		}
	}
	return moeVerdict(mixture, [2]float64{losses[mixture], losses[dense]}, began, in, show)
}

// moeVerdict prints both losses, the map of experts by kind of token, and what recorded routing makes of a
// simulated step.
func moeVerdict(cfg *configs.Config, losses [2]float64, began time.Time, in func(string) string,
	show *shown) error {
	r, err := run.Open(cfg)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Rewind(); err != nil {
		return err
	}
	l, err := rehearsal.New(cfg, rehearsal.Options{})
	if err != nil {
		return err
	}
	even := l.Summary(l.Run(sim.Options{})).Step
	routed, err := l.Replay(cfg, r.RoutingDir())
	if err != nil {
		return err
	}
	step := l.Summary(l.Run(sim.Options{})).Step
	rows, clearest, err := kindsOf(r, l.Layout, cfg)
	if err != nil {
		return err
	}
	path := filepath.Join(in("run"), "kinds.svg")
	if err := os.WriteFile(path, []byte(record.HeatMap(rows,
		"experts by kind of token, last steps of training")), 0o600); err != nil {
		return err
	}
	m := l.Layout.Design.Model
	show.result = map[string]any{"steps": cfg.Run.Train.Steps, "loss": losses[0], "dense_loss": losses[1],
		"parameters": m.Count(), "active_parameters": m.Active(),
		"seconds": time.Since(began).Seconds(), "files": map[string]string{"kinds": path,
			"experts": filepath.Join(in("run"), "experts.svg"), "routing": r.RoutingDir()},
		"routing": routed, "step_s": step, "even_step_s": even}
	fmt.Fprintf(show.out,
		"held-out loss: %.3f nats a token with experts, %s parameters of which a token passes %s; %.3f "+
			"for a dense model of as many a token, on the same tokens\n",
		losses[0], unit.Count(float64(m.Count())), unit.Count(float64(m.Active())), losses[1])
	fmt.Fprintf(show.out, "%s\n", clearest)
	fmt.Fprintf(show.out,
		"in the simulator, a step takes %s by even routing and %s by the recorded one\n%s\n",
		unit.Seconds(even), unit.Seconds(step), routed)
	fmt.Fprintf(show.out, "experts by kind of token %s · by layer %s · recorded routing %s\n", path,
		filepath.Join(in("run"), "experts.svg"), r.RoutingDir())
	fmt.Fprintf(show.out, "done in %v\n", time.Since(began).Round(time.Second))
	return nil
}

// kinds of tokens of a program's text, each with what tells it.
var kinds = []struct {
	name string
	is   func(text string) bool
}{
	{"indentation", func(s string) bool { return strings.TrimSpace(s) == "" }},
	{"digits", func(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }},
	{"capital letter", func(s string) bool {
		return strings.IndexFunc(strings.TrimSpace(s),
			unicode.IsUpper) == 0
	}},
	{"word", func(s string) bool {
		return strings.IndexFunc(s, unicode.IsSpace) == 0 && strings.ContainsFunc(s, unicode.IsLetter)
	}},
	{"part of a word", func(s string) bool { return strings.ContainsFunc(s, unicode.IsLetter) }},
	{"punctuation", func(string) bool { return true }},
}

// kindSteps are the last steps whose tokens are looked at.
const kindSteps = 20

// kindsOf counts, by layer and kind of token, which experts tokens went to, and says which expert has most
// of one kind.
func kindsOf(r *run.Run, l *layout.Layout, cfg *configs.Config) (rows []record.HeatRow, clearest string,
	err error) {
	type key struct {
		block int32
		kind  int
	}
	counts, experts := map[key][]float64{}, family.Mixture.Of(cfg.Model).Experts
	tokens, err := lastTokens(r, cfg)
	if err != nil {
		return nil, "", err
	}
	header := l.Design.RoutingHeader(cfg.Model.Identity())
	for rank, part := range l.Ranks {
		header.Rank = rank
		trace, err := layout.OpenRouting("train.routing", r.RoutingDir(), header)
		if err != nil {
			return nil, "", err
		}
		for _, p := range trace.Places {
			if p.Step <= int64(cfg.Run.Train.Steps)-kindSteps {
				continue
			}
			mb := tokens[[2]int64{p.Step, int64(part.Coord.DP)}][p.Micro]
			chosen, _, err := trace.Read(p)
			if err != nil {
				return nil, "", err
			}
			for i, e := range chosen {
				k := key{p.Block, kindOf(r, mb.IDs[i/family.Mixture.Of(cfg.Model).ExpertsEach])}
				if counts[k] == nil {
					counts[k] = make([]float64, experts)
				}
				counts[k][e]++
			}
		}
	}
	keys := make([]key, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(a.block, b.block),
			cmp.Compare(a.kind, b.kind))
	})
	best := 0.0
	for _, k := range keys {
		rows = append(rows, record.HeatRow{Name: fmt.Sprintf("block %d: %s", k.block, kinds[k.kind].name),
			Rows: counts[k]})
		sum := 0.0
		for _, n := range counts[k] {
			sum += n
		}
		for e, n := range counts[k] {
			if share := n * float64(experts) / sum; share > best && sum > 200 {
				best = share
				clearest = fmt.Sprintf("expert %d of block %d takes %s %.1f times as often as by even "+
					"routing", e, k.block, kinds[k.kind].name, share)
			}
		}
	}
	return rows, clearest, nil
}

// lastTokens are the microbatches of the last steps, by step and replica; data is read from its beginning.
func lastTokens(r *run.Run, cfg *configs.Config) (map[[2]int64][]family.Microbatch, error) {
	out := map[[2]int64][]family.Microbatch{}
	for step := int64(1); step <= int64(cfg.Run.Train.Steps); step++ {
		for dp := range cfg.Run.Plan.DP {
			mbs, err := r.Batches(step, dp)
			if err != nil {
				return nil, err
			}
			if step > int64(cfg.Run.Train.Steps)-kindSteps {
				out[[2]int64{step, int64(dp)}] = mbs
			}
		}
	}
	return out, nil
}

// kindOf is the kind of a token.
func kindOf(r *run.Run, id int32) int {
	text := r.Tokenizer().Decode([]int32{id}, false)
	return slices.IndexFunc(kinds, func(k struct {
		name string
		is   func(text string) bool
	}) bool {
		return k.is(text)
	})
}
