package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

func init() { configs.Hold(configs.Rule{Name: "eval_prompts", Check: checkShown}) }

// checkShown is the rule for train.eval_prompts: something is evaluated, in the process that trains.
func checkShown(cfg *configs.Config, at configs.At) {
	c := &cfg.Run
	images := len(c.Train.EvalImages)
	if len(c.Train.EvalPrompts) == 0 {
		if !cfg.Usual("train.eval_tokens") {
			at("train.eval_tokens", "there are no train.eval_prompts", "remove it")
		}
		if images > 0 {
			at("train.eval_images", "there are no train.eval_prompts", "say what is asked about each")
		}
		return
	}
	if n := len(c.Train.EvalPrompts); images > 1 && images != n {
		at("train.eval_images", fmt.Sprintf("%d pictures, and %d prompts", images, n), "name one for each, or one for all")
	}
	for _, x := range []struct {
		why, try string
		bad      bool
	}{
		{"train.eval_interval = 0 makes no evaluation", "set an interval", !c.Train.Evaluates()},
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

// ShownDir is the folder of log.dir that has pictures, clips and curves of train.eval_prompts.
const ShownDir = "shown"

// evalPrompts are the answers to train.eval_prompts, of each evaluation anew: the likeliest token each time, by the
// weights that the evaluation is of. Ranks wait for its first batch meanwhile, so that weights stay.
type evalPrompts struct {
	asked trained.Showing
	show  func() ([]trained.Shown, error) // of what is no text
	ids   [][]int32
	sees  []*family.Images // by prompt; nil where there are no pictures
	stops []int32

	mu    sync.Mutex
	ranks []*host.Rank
	of    map[string][]region // of the weights by parameter, while show is under way
	read  []int               // replicas that have read the first batch of the newest evaluation
	drawn [][]trained.Shown   // of evaluations that were not reported yet, the oldest first
}

// region is a part of a parameter.
type region struct {
	box [][2]int
	v   []float32
}

// pictureMost is the bytes of a file of train.eval_images.
const pictureMost = 64 << 20

// picture reads a file that is a regular one of no more than pictureMost.
func picture(path string) ([]byte, error) {
	f, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !f.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", path)
	case f.Size() > pictureMost:
		return nil, fmt.Errorf("%s has %d bytes, and a picture at most %d", path, f.Size(), pictureMost)
	}
	return os.ReadFile(path)
}

// openShown readies train.eval_prompts, as the model's task shows it.
func (d *data) openShown() (err error) {
	c := d.r.cfg
	t := &c.Run.Train
	if len(t.EvalPrompts) == 0 {
		return nil
	}
	fault := func(why, try string) error { return c.Fault("train.eval_prompts", why, try) }
	x := &evalPrompts{asked: trained.Showing{Prompts: t.EvalPrompts, Steps: t.EvalDrawSteps, Guidance: t.EvalGuidance}}
	for i := range t.EvalPrompts {
		if len(t.EvalImages) > 0 {
			b, err := picture(t.EvalImages[min(i, len(t.EvalImages)-1)])
			if err != nil {
				return c.Fault("train.eval_images", err.Error(), "")
			}
			x.asked.Images = append(x.asked.Images, b)
		}
	}
	m := &trained.Trained{Cfg: c, Lora: fit.Lora(c), Tokenizer: d.r.tok, TokenizerConfig: d.r.conf, Fill: x.fill}
	if m.Model, err = fit.Build(c); err != nil {
		return err
	}
	if x.show, err = m.Shows(&x.asked); err != nil {
		return fault(err.Error(), "")
	}
	switch d.shown = x; {
	case x.show != nil:
		return nil
	case !m.Model.Task().Writes || m.Model.Scores() || m.Model.Embeds():
		return fault("what is trained writes no text", "remove it, and ask checkpoints by `lfactor sample`")
	case d.r.tok == nil:
		return fault("there is no tokenizer", "give data.tokenizer")
	case x.asked.Images != nil && m.Model.Vision == nil:
		return c.Fault("train.eval_images", "the model sees nothing", "remove it")
	}
	return x.write(d.r, m, fault)
}

// write has prompts written by the chat template where the run learns answers and there is one, as a text's beginning
// else.
func (x *evalPrompts) write(r *Run, m *trained.Trained, fault func(why, try string) error) (err error) {
	c := r.cfg
	if x.stops, err = r.stops(); err != nil {
		return err
	}
	asked := slices.Clone(x.asked.Prompts)
	chat := c.Run.Train.Phase == "sft" || c.Run.Objective.Kind != "none" || x.asked.Images != nil
	if chat = chat && (r.conf.ChatTemplate != "" || c.Run.Data.Template != ""); chat {
		t, err := setup.Template(c, r.tok, r.conf)
		if err != nil {
			return err
		}
		for i, text := range asked {
			turn := token.Message{Role: "user", Content: text}
			if x.asked.Images != nil {
				turn = trained.Asked(text, true)
			}
			if asked[i], err = t.Prompt([]token.Message{turn}, nil, nil); err != nil {
				return fault(err.Error(), "")
			}
		}
	}
	var see *trained.ImageProcessor
	if x.asked.Images != nil {
		if see, err = m.ImageProcessor(""); err != nil {
			return c.Fault("train.eval_images", err.Error(), "")
		}
	}
	for i, text := range asked {
		ids, err := dataset.Encode(r.encoder(), text, !chat)
		for n := len(ids) - 1; !chat && n > 0 && slices.Contains(x.stops, ids[n]); n-- {
			ids = ids[:n] // what the tokenizer puts behind a text ends it
		}
		if see != nil && err == nil {
			var pics *family.Images
			ids, pics, err = see.Read(context.Background(), ids, x.asked.Images[i:i+1])
			x.sees = append(x.sees, pics)
		}
		if most := c.Run.Data.SeqLen - c.Run.Train.EvalTokens; err == nil && (len(ids) == 0 || len(ids) > most) {
			err = fmt.Errorf("it is %d tokens, and data.seq_len leaves %d beside train.eval_tokens", len(ids), most)
		}
		if err != nil {
			return fault(fmt.Sprintf("%q: %v", x.asked.Prompts[i], err), "shorten it")
		}
		x.ids = append(x.ids, ids)
	}
	return nil
}

// fill gives parameters as the ranks have them.
func (x *evalPrompts) fill(p *grad.Param, _ family.Region, dst []float32) error {
	for _, part := range x.of[p.Name] {
		sample.Scatter(p.Shape, part.box, part.v, func(at int, row []float32) { copy(dst[at:], row) })
	}
	if x.of[p.Name] == nil {
		return fmt.Errorf("no rank has %s", p.Name)
	}
	return nil
}

// draw draws the answers with the weights that the ranks have, for the first of the replicas that read an evaluation's
// first batch.
func (x *evalPrompts) draw(r *Run, replica int) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.read, replica) && len(x.read) > 0 {
		x.read = append(x.read, replica)
		return nil
	}
	x.read = []int{replica}
	if x.show != nil {
		x.of = map[string][]region{}
		var answers []trained.Shown
		err := rollout.Take(x.ranks).Each(func(name string, box [][2]int, v []float32) error {
			x.of[name] = append(x.of[name], region{box, v})
			return nil
		})
		if err == nil {
			answers, err = x.show()
		}
		if err != nil { // it does not end the run
			answers = append(answers, trained.Shown{Prompt: "train.eval_prompts", Answer: "(" + err.Error() + ")"})
		}
		x.drawn, x.of = append(x.drawn, answers), nil
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
		if x.sees != nil {
			q.Images = x.sees[i]
		}
		q.Done = func(why sample.End) { bad = bad || why == sample.EndNumber }
		err = errors.Join(err, d.Engine.Submit(q))
	}
	for err == nil && d.Engine.Busy() {
		err = d.Engine.Step()
	}
	answers := make([]trained.Shown, len(got))
	for i := range got {
		answers[i] = trained.Shown{Prompt: x.asked.Prompts[i], Answer: r.tok.Decode(got[i], true)}
		if bad { // the step says itself that its weights are no numbers
			answers[i].Answer = "(a logit is no number)"
		}
	}
	x.drawn = append(x.drawn, answers)
	return err
}

// takeShown gives the answers of the evaluation of a step, the oldest that was not told, and writes their files.
func (d *data) takeShown(step int64) (out []trained.Shown, err error) {
	x := d.shown
	if x == nil {
		return nil, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.drawn) > 0 {
		out, x.drawn = x.drawn[0], x.drawn[1:]
	}
	dir := filepath.Join(d.r.cfg.Run.Log.Dir, ShownDir)
	for i := range out {
		if a := &out[i]; a.Bytes != nil {
			a.File = fmt.Sprintf("%08d-%d%s", step, i, a.File)
			err = errors.Join(err, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, a.File), a.Bytes, 0o644))
		}
	}
	return out, err
}
