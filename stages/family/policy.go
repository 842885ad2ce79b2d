package family

import (
	"github.com/lfactor/lfactor/stages/noise"
)

// Policy is what a denoiser of a robot's actions has of its own: what it sees and is told, how many actions it gives, and
// keys of its files. Its zero value is that of a model that draws.
type Policy struct {
	// what it sees, nil for a model that draws; and how many numbers of a token count in the loss, 0 for all
	Sight *Sight
	Real  int
	Chunk int // actions that a policy gives at once
	// what a policy is told of a task, and how many tokens of it; nil for what Pi0.5 is told, with its state
	Prompt     func(task string) string
	PromptMost int
	PromptBare bool // prompts begin with no token of their own
	Words      Words
	Ahead      int // rows that stand before a sample's actions in what LearntCu borders
	// a policy's padded actions are never learnt; it gives its actions at once and not from noise; and what
	// it is trained by where a run does not say otherwise, nil for flow matching as Pi's policies have it
	Masked, Once bool
	Learns       func(p *Process)
	// of a policy whose actions are drawn out of noise by a scheduler of diffusers; nil for steps of Euler.
	// Steps is how many there are, 0 for the usual number. Executed is how many of a chunk's actions it
	// gives, from the present step on, 0 for all
	Scheduler       noise.Scheduler
	Steps, Executed int
	// robots that a policy has weights of their own for, 0 for a policy of one kind
	Robots int
	// a policy that says what the actions are, and not where they lie: each step begins again from the noise that the
	// first one began with. Squash are numbers of an action that are read as 0 and given by a logistic function
	Restart bool
	Squash  []int
	// a clip that a policy denoises beside its actions; nil for none. Its views are the clip's first frame,
	// and its captions states of an encoder
	Clip *ClipStream
	// keys of lerobot's files that name, "" where there is none: the pipeline of diffusers with both
	// encoders, the cameras in their order, and which of a model's numbers of an action a robot has
	EncodersKey, CamerasKey, NumbersKey string
	// the pipeline that files mean which name none, "" for Wan 2.2's of 5B
	EncodersHub string
	// and the folder of the encoder of images, where it may lie elsewhere than in that pipeline
	ImageKey string
	// parts of a policy's chunk, one behind the other, that have levels of noise of their own each; 0 is one
	// for all. Rows without noise have the level behind all of these
	Parts int
	// Quiet leaves numbers of an action that do not count without noise
	Quiet bool
	// Broad has room for more numbers of actions and of states than a robot has: zeros stand in it, and the
	// loss of an action is a mean over all of its numbers, also those that do not count. Numbers beyond their
	// quantiles are cut to these
	Broad bool
	// levels of a policy's steps of Euler are shifted towards noise, 0 for equal steps
	Shift float64
	// Draws are numbers of standard Gumbel noise that a sample has (Denoiser.Gumbel), by which it draws out of logits
	Draws int
	// Unmasked has padded actions learnt always, where Masked has them learnt never
	Unmasked bool
	Readouts int  // rows behind a prompt in which that language model gathers what its samples are told
	Hosted   bool // a language model reads what its samples see and are told (Model.Act)
	Early    bool // and its states are those before its final norm
}
