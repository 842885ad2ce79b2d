package run

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// rollouts draws the answers that a run learns from. Which weights draw which is a schedule's matter, and who draws
// them a desk's (actors/rounds): a step's weights are published when the step before has applied its update, samplers
// draw with them, the reward judges what they drew, groups become advantages, and rounds the microbatches of steps.
// Ranks wait for their data, so that nobody changes weights while they are copied.
type rollouts struct {
	d      *data
	plan   rounds.Schedule
	loss   *objective.Loss
	reward reward.Func
	bench  *bench             // of judges in processes of their own, nil for none
	ref    *trained.Reference // nil where the loss compares with none
	stops  []int32
	ctx    context.Context // ends when the run is over
	cancel context.CancelFunc
	left   context.Context // ends when nobody waits any more

	mu    sync.Mutex
	done  int64         // the last step whose update is applied
	moved chan struct{} // closed when done moves on
	ranks []*host.Rank

	table    sync.Mutex // of what follows
	desk     *rounds.Desk
	round    map[int64]*round
	kept     map[int64]*weights // publications
	samplers map[int]sampler
	staff    *staff // sampler processes and judges, nil for none
	next     int    // number of the next sampler
	judged   int64  // rounds that are judged
	judging  bool
	failed   error
	changed  chan struct{} // closed when judged, failed or what is drawn changes
	log      *os.File
}

// rollout is an answer that was drawn.
type rollout struct {
	Step     int64     `json:"step"`
	Sample   int64     `json:"sample"`  // the prompt's place in the global order
	Index    int       `json:"index"`   // of the answer among those of its group
	Version  int64     `json:"version"` // updates behind the weights that drew it, or its first tokens
	Seed     uint64    `json:"seed"`
	Prompt   []int32   `json:"prompt"`
	Answer   []int32   `json:"answer"`
	LogProbs []float32 `json:"log_probs"`
	Values   []float32 `json:"values,omitempty"`
	// Versions are those of an answer that several drew: the first token that each drew, and the updates
	// behind it. Every version computes keys and values of the tokens before its own anew.
	Versions  [][2]int64 `json:"versions,omitempty"`
	End       sample.End `json:"end"`
	Text      string     `json:"text"`
	Reward    *float64   `json:"reward"` // null where there is none
	Fault     string     `json:"fault,omitempty"`
	Suspect   bool       `json:"suspect,omitempty"` // it seems to have meant to deceive its judge
	Advantage float64    `json:"advantage"`
	// Heard are the turns of an environment. Its tokens are among the answer's, with log-probabilities of
	// 0, and are not trained on.
	Heard []heard `json:"heard,omitempty"`
	// HeardFault is why the environment failed: such an answer is not judged, and Fault says the same then.
	HeardFault string `json:"heard_fault,omitempty"`
	// Advantages and Returns are those of tokens, of losses that have some.
	Advantages []float32 `json:"advantages,omitempty"`
	Returns    []float32 `json:"returns,omitempty"`
	// Record is the prompt's record of the data, and Asked its text: what the reward saw beside Text.
	Record map[string]json.RawMessage `json:"record"`
	Asked  string                     `json:"asked"`
	script *rollout                   // in whose turns the environment answers, nil where it is asked
}

// RolloutsName is the file of log.dir with the answers that a run drew, one a line.
const RolloutsName = "rollouts.jsonl"

// newRollouts readies what judges answers.
func (d *data) newRollouts(l *objective.Loss) (r *rollouts, err error) {
	c := d.r.cfg
	r = &rollouts{d: d, loss: l, moved: make(chan struct{}), done: d.r.start.first - 1,
		plan: rounds.Schedule{Staleness: int64(c.Run.Rollout.Staleness), Updates: int64(c.Run.Rollout.Updates),
			Span: int64(c.Run.Rollout.Span)}, round: map[int64]*round{}, kept: map[int64]*weights{},
		samplers: map[int]sampler{}, changed: make(chan struct{})}
	if !l.Policy.Unjudged {
		if r.reward, err = reward.Of(&c.Run.Reward); err != nil {
			return nil, c.Fault("reward.kind", err.Error(), "")
		}
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	left, leave := context.WithCancel(r.ctx)
	r.left = left
	go func() { // whoever waits for answers lets go when the run does
		select {
		case <-d.left:
		case <-r.ctx.Done():
		}
		leave()
	}()
	return r, nil
}

// openRollouts readies the drawing of answers.
func (d *data) openRollouts(l *objective.Loss) error {
	r, err := d.newRollouts(l)
	if err != nil {
		return err
	}
	if !l.Policy.Unjudged {
		if err := reward.Try(r.left, d.r.cfg); err != nil {
			r.cancel()
			return err
		}
	}
	if fit.Compares(d.r.cfg) {
		if r.ref, err = d.r.reference(); err != nil {
			return err
		}
	}
	if r.stops, err = d.r.stops(); err != nil {
		return err
	}
	if err := r.begin(); err != nil {
		return err
	}
	d.rollouts = r
	return nil
}

// stops are the tokens that end an answer.
func (r *Run) stops() (out []int32, err error) {
	for _, id := range r.cfg.Model.EOS {
		out = append(out, int32(id))
	}
	if id, ok := r.tok.TokenID(r.conf.EOS); ok {
		out = append(out, id)
	}
	if len(out) == 0 {
		err = r.cfg.Fault("data.tokenizer", "neither the tokenizer nor the model says which token ends an answer",
			"give model.overrides.eos_token_id")
	}
	return out, err
}

// promptEncoder is the encoder of prompts.
func (d *data) promptEncoder() (dataset.SampleEncoder, error) {
	c := &d.r.cfg.Run
	e := &format.PromptEncoder{Text: d.r.encoder(), Most: c.Data.SeqLen - c.Rollout.Max}
	if d.r.conf.ChatTemplate == "" && c.Data.Template == "" {
		return e, nil
	}
	t, err := setup.Template(d.r.cfg, d.r.tok, d.r.conf)
	if err != nil {
		return nil, err
	}
	e.Print = token.NewChat(d.r.tok, t, token.ChatOptions{}).Fingerprint()
	e.Write = t.Prompt
	return e, nil
}

// sees takes the ranks whose parameters answers are drawn with.
func (d *data) sees(ranks []*host.Rank) {
	if x := d.shown; x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.ranks = ranks
	}
	if r := d.rollouts; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ranks = ranks
	}
}

// trained says that a step's update is applied on all ranks.
func (r *rollouts) trained(step int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step > r.done {
		r.done = step
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// await waits until the update before a step is applied.
func (r *rollouts) await(step int64) error {
	for {
		r.mu.Lock()
		done, moved := r.done, r.moved
		r.mu.Unlock()
		if done >= step-1 {
			return nil
		}
		select {
		case <-moved:
		case <-r.left.Done():
			return errLeft
		}
	}
}

// close ends the samplers.
func (r *rollouts) close() {
	r.cancel()
	r.bench.close() // which judging may wait for, that takes the table
	r.table.Lock()
	defer r.table.Unlock()
	for _, s := range r.samplers {
		s.close()
	}
	r.staff.close()
	if r.ref != nil {
		r.ref.Close()
	}
	if r.log != nil {
		_ = r.log.Close() // each step was synced by its write
	}
}
