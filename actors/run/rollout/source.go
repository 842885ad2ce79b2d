package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"

	"github.com/lfactor/lfactor/actors/crew"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Of is what a Source has of the run that it feeds.
type Of struct {
	Cfg   *configs.Config
	Tok   *token.Tokenizer
	Conf  *token.Config      // tokenizer_config.json
	First int64              // the first step
	Saved *checkpoint.Reader // what the run goes on from, nil at its beginning
	Left  <-chan struct{}    // closed when nobody waits for data any more
	Fleet Fleet              // where worker processes begin, nil where there are none
	Place string             // the environment that tells them their place
	Away  bool               // they are on other hosts
	// Prompts reads the data of a step. The caller of Batches holds what keeps others from reading.
	Prompts func(step int64) ([]dataset.Batch, error)
	// SetAside enters an answer without a reward among what was bad in the data: an error says that it is too much.
	SetAside  func(dataset.Bad) error
	Reference func() (*trained.Reference, error) // opens the model that a loss compares with
	Draws     func() bool                        // whether training draws numbers by row
	Say       func(format string, args ...any)   // tells the user
}

// Source draws the answers that a run learns from. Which weights draw which is a schedule's matter, and who draws
// them a desk's (actors/rounds): a step's weights are published when the step before has applied its update, samplers
// draw with them, the reward judges what they drew, groups become advantages, and rounds the microbatches of steps.
// Ranks wait for their data, so that nobody changes weights while they are copied.
type Source struct {
	Of
	Plan   rounds.Schedule
	loss   *objective.Loss
	reward reward.Func
	judges *crew.Crew         // in processes of their own, nil for none
	ref    *trained.Reference // nil where the loss compares with none
	stops  []int32
	ctx    context.Context // ends when the run is over
	cancel context.CancelFunc
	left   context.Context // ends when nobody waits any more

	samplers *crew.Crew
	talk     *conversation // of a drawer of this process, nil for none
	launcher *launcher     // sampler processes and judges, nil for none

	table     sync.Mutex // of what follows
	done      int64      // the last step whose update is applied
	ranks     []*host.Rank
	desk      *rounds.Desk
	published int64 // publications that the desk was told of, or is to be
	round     map[int64]*round
	kept      map[int64]*Weights // publications
	judged    int64              // rounds that are judged
	judging   bool
	failed    error
	changed   chan struct{} // closed when done, judged, failed or what is drawn changes
	log       *os.File
}

// Answer is an answer that was drawn.
type Answer struct {
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
	Heard []Heard `json:"heard,omitempty"`
	// HeardFault is why the environment failed: such an answer is not judged, and Fault says the same then.
	HeardFault string `json:"heard_fault,omitempty"`
	// Advantages and Returns are those of tokens, of losses that have some.
	Advantages []float32 `json:"advantages,omitempty"`
	Returns    []float32 `json:"returns,omitempty"`
	// Record is the prompt's record of the data, and Asked its text: what the reward saw beside Text.
	Record map[string]json.RawMessage `json:"record"`
	Asked  string                     `json:"asked"`
	script *Answer                    // in whose turns the environment answers, nil where it is asked
}

// ErrLeft says that nobody waits any more for data that does not come.
var ErrLeft = errors.New("the run ends, and its data has not come")

// FileName is the file of log.dir with the answers that a run drew, one a line.
const FileName = "rollouts.jsonl"

// New readies what judges answers that a loss learns from.
func New(o Of, l *objective.Loss) (r *Source, err error) {
	c := o.Cfg
	r = &Source{Of: o, loss: l, done: o.First - 1,
		Plan: rounds.Schedule{Staleness: int64(c.Run.Rollout.Staleness), Updates: int64(c.Run.Rollout.Updates),
			Span: int64(c.Run.Rollout.Span)}, round: map[int64]*round{}, kept: map[int64]*Weights{},
		changed: make(chan struct{})}
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
		case <-o.Left:
		case <-r.ctx.Done():
		}
		leave()
	}()
	return r, nil
}

// Open readies the drawing of answers.
func Open(o Of, l *objective.Loss) (*Source, error) {
	r, err := New(o, l)
	if err != nil {
		return nil, err
	}
	if !l.Policy.Unjudged {
		if err := reward.Try(r.left, r.Cfg); err != nil {
			r.cancel()
			return nil, err
		}
	}
	if fit.Compares(r.Cfg) {
		if r.ref, err = r.Reference(); err != nil {
			return nil, err
		}
	}
	if r.stops, err = Stops(r.Cfg, r.Tok, r.Conf); err != nil {
		return nil, err
	}
	return r, r.begin()
}

// Stops are the tokens that end an answer.
func Stops(c *configs.Config, tok *token.Tokenizer, conf *token.Config) (out []int32, err error) {
	for _, id := range c.Model.EOS {
		out = append(out, int32(id))
	}
	if id, ok := tok.TokenID(conf.EOS); ok {
		out = append(out, id)
	}
	if len(out) == 0 {
		err = c.Fault("data.tokenizer", "neither the tokenizer nor the model says which token ends an answer",
			"give model.overrides.eos_token_id")
	}
	return out, err
}

// Sees takes the ranks whose parameters answers are drawn with.
func (r *Source) Sees(ranks []*host.Rank) {
	r.table.Lock()
	defer r.table.Unlock()
	r.ranks = ranks
}

// Trained says that a step's update is applied on all ranks.
func (r *Source) Trained(step int64) {
	r.table.Lock()
	defer r.table.Unlock()
	if step > r.done {
		r.done = step
		r.change()
	}
}

// Await waits until the update before a step is applied.
func (r *Source) Await(step int64) error {
	return r.wait(r.left, func() bool { return r.done >= step-1 })
}

// Close ends the samplers.
func (r *Source) Close() {
	r.cancel()
	r.judges.Close() // which judging may wait for, that takes the table
	r.samplers.Close()
	if l := r.launcher; l != nil && l.edges != nil {
		_ = l.edges.Close() // nobody is to come
	}
	if r.Fleet != nil && !r.Away { // else it is the run's
		r.Fleet.Close()
	}
	r.table.Lock()
	defer r.table.Unlock()
	if r.ref != nil {
		r.ref.Close()
	}
	if r.log != nil {
		_ = r.log.Close() // each step was synced by its write
	}
}
