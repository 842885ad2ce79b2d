package run

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
)

func init() { configs.Hold(configs.Rule{Name: "eval_prompts", Check: checkShown}) }

// checkShown is the rule for train.eval_prompts: something is evaluated, in the process that trains.
func checkShown(cfg *configs.Config, at configs.At) {
	c := &cfg.Run
	if len(c.Train.EvalPrompts) == 0 {
		if !cfg.Usual("train.eval_tokens") {
			at("train.eval_tokens", "there are no train.eval_prompts", "remove it")
		}
		return
	}
	for _, x := range []struct {
		why, try string
		bad      bool
	}{
		{"train.eval_interval = 0 makes no evaluation", "set an interval", c.Train.EvalInterval == 0 || c.Train.EvalSteps == 0},
		{"answers are drawn in the process that trains", "set plan.procs to 1, or ask checkpoints by `lfactor sample`",
			c.Plan.Procs > 1},
		{"answers are drawn on the processor", "set device to cpu, or ask checkpoints by `lfactor sample`", c.Device != "cpu"},
		{"an empty prompt asks nothing", "remove it", slices.Contains(c.Train.EvalPrompts, "")},
	} {
		if x.bad {
			at("train.eval_prompts", x.why, x.try)
		}
	}
}

// Shown is an answer to one of train.eval_prompts.
type Shown struct {
	Prompt string `json:"prompt"`
	Answer string `json:"answer"`
}

// evalPrompts are the answers to train.eval_prompts, of each evaluation anew: the likeliest token each time, by the
// weights that the evaluation is of. Ranks wait for its first batch meanwhile, so that weights stay.
type evalPrompts struct {
	prompts []string
	ids     [][]int32
	stops   []int32

	mu      sync.Mutex
	ranks   []*host.Rank
	answers []Shown // of the evaluation under way, nil before its first batch is read
}

// openShown readies train.eval_prompts: written by the chat template where the run learns answers and there is one, as
// a text's beginning else.
func (d *data) openShown() error {
	c := d.r.cfg
	asked := c.Run.Train.EvalPrompts
	if len(asked) == 0 {
		return nil
	}
	fault := func(why, try string) error { return c.Fault("train.eval_prompts", why, try) }
	switch {
	case !d.r.job.Model.Task().Writes || d.r.job.Model.Scores() || d.r.job.Model.Embeds():
		return fault("what is trained writes no text", "remove it, and ask checkpoints by `lfactor sample`")
	case d.r.tok == nil:
		return fault("there is no tokenizer", "give data.tokenizer")
	}
	x := &evalPrompts{prompts: asked}
	var err error
	if x.stops, err = d.r.stops(); err != nil {
		return err
	}
	chat := c.Run.Train.Phase == "sft" || c.Run.Objective.Kind != "none"
	if chat = chat && (d.r.conf.ChatTemplate != "" || c.Run.Data.Template != ""); chat {
		t, err := setup.Template(c, d.r.tok, d.r.conf)
		if err != nil {
			return err
		}
		asked = slices.Clone(asked)
		for i, text := range asked {
			if asked[i], err = t.Prompt([]token.Message{{Role: "user", Content: text}}, nil, nil); err != nil {
				return fault(err.Error(), "")
			}
		}
	}
	for i, text := range asked {
		ids, err := dataset.Encode(d.r.encoder(), text, !chat)
		for n := len(ids) - 1; !chat && n > 0 && slices.Contains(x.stops, ids[n]); n-- {
			ids = ids[:n] // what the tokenizer puts behind a text ends it
		}
		if most := c.Run.Data.SeqLen - c.Run.Train.EvalTokens; err == nil && (len(ids) == 0 || len(ids) > most) {
			err = fmt.Errorf("it is %d tokens, and data.seq_len leaves %d beside train.eval_tokens", len(ids), most)
		}
		if err != nil {
			return fault(fmt.Sprintf("%q: %v", x.prompts[i], err), "shorten it")
		}
		x.ids = append(x.ids, ids)
	}
	d.shown = x
	return nil
}

// draw draws the answers with the weights that the ranks have.
func (x *evalPrompts) draw(r *Run) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answers != nil { // every replica reads the batch
		return nil
	}
	cfg := *r.cfg // an engine for these prompts, whatever answers the run itself draws
	cfg.Run.Rollout.Ahead, cfg.Run.Rollout.Pages, cfg.Run.Rollout.Environment = 0, 0, nil
	cfg.Run.Train.GlobalBatch = min(8, len(x.ids))
	d, err := rollout.NewDrawer(&cfg, x.stops)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Load(rollout.Take(x.ranks)); err != nil {
		return err
	}
	got, bad := make([][]int32, len(x.ids)), false
	for i, ids := range x.ids {
		q := &sample.Request{Prompt: ids, Params: sample.Params{Max: r.cfg.Run.Train.EvalTokens, Stop: x.stops}}
		q.Emit = func(t sample.Token) bool {
			if !slices.Contains(x.stops, t.ID) {
				got[i] = append(got[i], t.ID)
			}
			return true
		}
		q.Done = func(why sample.End) { bad = bad || why == sample.EndNumber }
		err = errors.Join(err, d.Engine.Submit(q))
	}
	for err == nil && d.Engine.Busy() {
		err = d.Engine.Step()
	}
	for i := range got {
		x.answers = append(x.answers, Shown{x.prompts[i], r.tok.Decode(got[i], true)})
		if bad { // the step says itself that its weights are no numbers
			x.answers[i].Answer = "(a logit is no number)"
		}
	}
	return err
}

// takeShown gives the answers of the evaluation that has ended.
func (d *data) takeShown() (out []Shown) {
	if x := d.shown; x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		out, x.answers = x.answers, nil
	}
	return out
}
