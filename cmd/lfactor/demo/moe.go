package demo

import (
	"cmp"
	"fmt"
	"os"
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

// moe trains a small mixture of experts, two of eight a token, and a dense model of as many parameters a token, on the
// same tokens, and shows which kinds of tokens the experts have taken.
func (s *session) moe() error {
	if err := s.prepare(); err != nil {
		return err
	}
	var losses [2]float64
	var mixture *configs.Config
	for i, v := range []values{
		{"name": "qwen/3-30b-a3b", "at": "run", "plan": ", ep: 2", "log": fmt.Sprint(", experts: ", max(1, s.steps/5)),
			"mlp":   "intermediate_size: 256, num_experts: 8, num_experts_per_tok: 2, moe_intermediate_size: 128",
			"train": ", routing: record, router: {loss: layer, loss_coef: 0.001}"},
		{"name": "qwen/3-8b", "at": "dense", "plan": "", "log": "", "mlp": "intermediate_size: 256", "train": ""}} {
		cfg, err := s.train("moe.yaml", v, run.Options{Report: func(m actors.Message) {
			if m.Text == core.TopicEval {
				losses[i] = core.EvalLoss(m.Values)
			}
		}})
		if err != nil {
			return err
		}
		if i == 0 {
			mixture = cfg
		}
	}
	return s.moeVerdict(mixture, losses)
}

// moeVerdict prints both losses, the map of experts by kind of token, and what recorded routing makes of
// a simulated step.
func (s *session) moeVerdict(cfg *configs.Config, losses [2]float64) error {
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
	left := map[string]string{"kinds": s.in("run", "kinds.svg"), "experts": s.in("run", "experts.svg"),
		"routing": r.RoutingDir()}
	if err := os.WriteFile(left["kinds"], []byte(record.HeatMap(rows,
		"experts by kind of token, last steps of training")), 0o600); err != nil {
		return err
	}
	m := l.Layout.Design.Model
	s.end(map[string]any{"loss": losses[0], "dense_loss": losses[1], "parameters": m.Count(),
		"active_parameters": m.Active(), "files": left, "routing": routed, "step_s": step, "even_step_s": even})
	s.say("held-out loss: %.3f nats a token with experts, %s parameters of which a token passes %s; %.3f for a dense "+
		"model of as many a token, on the same tokens\n%s\n", losses[0], unit.Count(float64(m.Count())),
		unit.Count(float64(m.Active())), losses[1], clearest)
	s.say("in the simulator, a step takes %s by even routing and %s by the recorded one\n%s\n", unit.Seconds(even),
		unit.Seconds(step), routed)
	s.say("experts by kind of token %s · by layer %s · recorded routing %s\ndone in %v\n", left["kinds"],
		left["experts"], left["routing"], s.so(time.Second))
	return nil
}

// tokenKind is a kind of tokens of a program's text, with what tells it.
type tokenKind struct {
	name string
	is   func(text string) bool
}

// kinds are tried in this order.
var kinds = []tokenKind{
	{"indentation", func(s string) bool { return strings.TrimSpace(s) == "" }},
	{"digits", func(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }},
	{"capital letter", func(s string) bool { return strings.IndexFunc(strings.TrimSpace(s), unicode.IsUpper) == 0 }},
	{"word", func(s string) bool {
		return strings.IndexFunc(s, unicode.IsSpace) == 0 && strings.ContainsFunc(s, unicode.IsLetter)
	}},
	{"part of a word", func(s string) bool { return strings.ContainsFunc(s, unicode.IsLetter) }},
	{"punctuation", func(string) bool { return true }},
}

// kindSteps are the last steps whose tokens are looked at.
const kindSteps = 20

// kindsOf counts, by layer and kind of token, which experts tokens went to, and says which expert has most of one kind.
func kindsOf(r *run.Run, l *layout.Layout, cfg *configs.Config) (rows []record.HeatRow, clearest string, err error) {
	counts, mixture := map[[2]int][]float64{}, family.Mixture.Of(cfg.Model) // by block and kind
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
			mbs, last := tokens[[2]int64{p.Step, int64(part.Coord.DP)}]
			if !last {
				continue
			}
			chosen, _, err := trace.Read(p)
			if err != nil {
				return nil, "", err
			}
			for i, e := range chosen {
				text := r.Tokenizer().Decode([]int32{mbs[p.Micro].IDs[i/mixture.ExpertsEach]}, false)
				k := [2]int{int(p.Block), slices.IndexFunc(kinds, func(k tokenKind) bool { return k.is(text) })}
				if counts[k] == nil {
					counts[k] = make([]float64, mixture.Experts)
				}
				counts[k][e]++
			}
		}
	}
	keys := make([][2]int, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]int) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	best := 0.0
	for _, k := range keys {
		name, sum := kinds[k[1]].name, 0.0
		rows = append(rows, record.HeatRow{Name: fmt.Sprintf("block %d: %s", k[0], name), Rows: counts[k]})
		for _, n := range counts[k] {
			sum += n
		}
		for e, n := range counts[k] {
			if share := n * float64(mixture.Experts) / sum; share > best && sum > 200 {
				best, clearest = share, fmt.Sprintf("expert %d of block %d takes %s %.1f times as often as by even "+
					"routing", e, k[0], name, share)
			}
		}
	}
	return rows, clearest, nil
}

// lastTokens are the microbatches of the last steps, by step and replica; data is read from its beginning.
func lastTokens(r *run.Run, cfg *configs.Config) (map[[2]int64][]family.Microbatch, error) {
	out := map[[2]int64][]family.Microbatch{}
	for step := range int64(cfg.Run.Train.Steps) {
		for dp := range cfg.Run.Plan.DP {
			mbs, err := r.Batches(step+1, dp)
			if err != nil {
				return nil, err
			}
			if step+1 > int64(cfg.Run.Train.Steps)-kindSteps {
				out[[2]int64{step + 1, int64(dp)}] = mbs
			}
		}
	}
	return out, nil
}
