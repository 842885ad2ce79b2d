package configs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Policy says how a policy of a robot is trained on recordings. It has no meaning for other models.
type Policy struct {
	Action    string   `key:"action_key" default:"action" class:"fixed" doc:"Column of a recording that has the actions."`
	State     string   `key:"state_key" default:"observation.state" class:"fixed" doc:"Column that has the state of the robot."`
	FPS       float64  `key:"fps" default:"10" min:"0.01" max:"1000" class:"fixed" unit:"1/s" doc:"Frames a second that recordings of messages (bags of ROS 2) are brought to: each frame has the last message of every topic at or before its time. Other recordings have frames of their own."`
	Cameras   []string `key:"cameras" class:"fixed" doc:"Cameras that the policy sees, in order; by default all, in order of their names; of recordings of messages those that can be decoded. One that a recording lacks is left out of what the policy reads."`
	Normalize string   `key:"normalize" default:"quantiles" oneof:"quantiles|min_max|mean_std|identity" class:"fixed" doc:"What brings actions and states to numbers about 1, by the statistics of the data: the 1st and the 99th hundredth at -1 and 1, least and most at -1 and 1, or mean 0 and deviation 1; or nothing, so that they stay as they are."`
	Robots    []int    `key:"embodiments" class:"fixed" doc:"Which of the robots that the model has weights for each data set of data.paths is of, counted from 0; by default 0, 1, 2 and so on."`
	Padding   bool     `key:"learn_padding" default:"true" class:"fixed" doc:"Actions behind the end of an episode are learnt too: the last one, held, as lerobot trains Pi0.5; false leaves them out of the loss."`

	Actions   string   `key:"actions" default:"absolute" oneof:"absolute|relative|delta" class:"fixed" doc:"What the numbers of actions are to the policy: those of the recordings; relative to the state of the step that is observed, number by number; or the first relative to that state and each further one to the action before. Statistics are then those of what is learnt, of all frames."`
	Absolute  []int    `key:"absolute" class:"fixed" doc:"Numbers of an action, counted from 0, that stay as recordings have them where policy.actions are relative or delta: a gripper's, say."`
	Rotations []string `key:"rotations" class:"fixed" doc:"Rotations among the numbers of actions and states: action or state, the place of the first number, counted from 0, the form in the recordings and the form to learn, as 'action 3 euler 6d'. Forms are euler (angles in radians about the fixed axes x, y and z in that order), axis_angle (radians), quaternion (x, y, z, w), 6d (the first two columns of the matrix) and matrix (by rows)."`

	Tokens   string `key:"tokens" default:"none" oneof:"none|bins|fast" class:"fixed" doc:"What a vision-language model writes actions as, whichever it is: bins, where each number is one of 255 steps from -1 to 1 and a token, as in RT-2 and OpenVLA; or fast, where the chunk's cosine transform is a text of few tokens, as in Pi0-FAST. none is for policies that give numbers."`
	Horizon  int    `key:"horizon" default:"8" min:"1" max:"4096" class:"fixed" unit:"steps" doc:"Actions of a chunk that is written as tokens, or given by policy.expert, which gives 255 at most."`
	Fast     string `key:"fast" class:"fixed" doc:"Folder with the tokenizer of policy.tokens: fast, in the form of physical-intelligence/fast; lfactor data fast writes one of your own recordings."`
	TokenEnd int    `key:"token_end" default:"0" min:"0" max:"10000000" class:"fixed" doc:"Tokens that stand for actions are those before this one, counted backwards; 0 is the end of the model's vocabulary. OpenVLA's is 32000, Pi0-FAST's the vocabulary less 128."`
	Question string `key:"question" default:"What action should the robot take to {task}?" class:"fixed" doc:"What a model that writes actions, or has policy.expert, is asked, behind the views: {task} is the task, {state} the state, each number as one of 256 steps."`
	Answer   string `key:"answer" class:"fixed" doc:"What a model that writes actions answers: {actions} are their tokens, once, and by default all. What is around them is learnt too, and stands around them when it acts; for Pi0-FAST it is 'Action: {actions}|'."`
	ViewSize int    `key:"view_size" default:"224" min:"8" max:"4096" class:"fixed" unit:"pixels" doc:"Height and width that views are brought to before the processor of a model that writes actions, or has policy.expert, sees them, with black around them."`

	Expert        string `key:"expert" default:"none" oneof:"none|flow|l1|diffusion" class:"fixed" doc:"What gives actions as numbers behind a vision-language model, whichever it is: a diffusion transformer that attends to what the model makes of views and words, and draws the actions out of noise (flow, or in 20 levels of DDPM: diffusion) or gives them at once (l1)."`
	ExpertWidth   int    `key:"expert_width" default:"1024" min:"2" max:"65536" class:"fixed" doc:"Width of policy.expert, a multiple of 2 and of expert_heads."`
	ExpertLayers  int    `key:"expert_layers" default:"16" min:"1" max:"1024" class:"fixed" doc:"Its layers: every other one attends to what is seen and told, and the others to its own rows."`
	ExpertHeads   int    `key:"expert_heads" default:"16" min:"1" max:"1024" class:"fixed" doc:"Its heads."`
	ExpertActions int    `key:"expert_actions" default:"32" min:"1" max:"65536" class:"fixed" doc:"Numbers of an action that policy.expert has room for."`
	ExpertState   int    `key:"expert_state" default:"64" min:"1" max:"65536" class:"fixed" doc:"Numbers of a state that policy.expert has room for."`
	ExpertReads   int    `key:"expert_readouts" default:"0" min:"0" max:"255" class:"fixed" unit:"tokens" doc:"Readout tokens behind a question (arXiv:2405.12213), learned rows that read views and words and are read by none of these: policy.expert attends to them alone. 0 has it attend to what the model makes of views and words."`
	ExpertRobots  int    `key:"expert_robots" default:"1" min:"1" max:"65536" class:"fixed" doc:"Robots that policy.expert has weights of their own for."`

	Crop       float64 `key:"crop" default:"1" min:"0.1" max:"1" class:"fixed" doc:"Share of a view's height and width that a sample is trained on, from a place of its own, brought to the whole size again; 1 is the view as it is. A policy acts on whole views."`
	Brightness float64 `key:"brightness" default:"0" min:"0" max:"1" class:"fixed" doc:"What a sample's views are made brighter or darker by at most."`
	Contrast   float64 `key:"contrast" default:"0" min:"0" max:"1" class:"fixed" doc:"What the contrast of a sample's views is changed by at most."`
	Saturation float64 `key:"saturation" default:"0" min:"0" max:"1" class:"fixed" doc:"What the colours of a sample's views are made stronger or weaker by at most."`
	Stateless  float64 `key:"state_dropout" default:"0" min:"0" max:"1" class:"fixed" doc:"Share of the samples that are trained without the robot's state: the middle of its range stands for it, or nothing where it is told in words."`
}

// Changes reports whether samples are changed when they are learnt.
func (p *Policy) Changes() bool {
	return p.Crop < 1 || max(p.Brightness, p.Contrast, p.Saturation, p.Stateless) > 0
}

// Check implements section.
func (p *Policy) Check(at faults) {
	seen := map[string]bool{}
	for _, c := range p.Cameras {
		if seen[c] {
			at.fault("policy.cameras", c+" is named twice", "name each once")
		}
		seen[c] = true
	}
	for _, n := range p.Robots {
		if n < 0 {
			at.fault("policy.embodiments", fmt.Sprintf("%d, and robots are counted from 0", n), "")
		}
	}
	p.checkActions(at)
	p.checkTokens(at)
	p.checkExpert(at)
}

// viewsMost bounds the cameras of a vision-language model that is a policy.
const viewsMost = 64

// ViewsMax bounds the cameras of a vision-language model that is a policy.
func (p *Policy) ViewsMax() int { return viewsMost }

// Guides reports whether an expert gives actions behind a vision-language model, and the section is sound.
func (p *Policy) Guides() bool {
	return slices.Contains([]string{"flow", "l1", "diffusion"}, p.Expert) && p.Horizon <= expertMost && p.ExpertHeads > 0 &&
		p.ExpertWidth > 0 && p.ExpertWidth%2 == 0 && p.ExpertWidth%p.ExpertHeads == 0 &&
		p.ExpertLayers > 0 &&
		min(p.ExpertActions, p.ExpertState, p.ExpertRobots) > 0 && p.ExpertReads >= 0 && p.ExpertReads <= 255
}

// expertMost is how many actions policy.expert gives at most.
const expertMost = 255

// checkExpert holds what is said of an expert of actions together.
func (p *Policy) checkExpert(at faults) {
	if p.Expert == "none" {
		return
	}
	if p.Tokens != "none" {
		at.fault("policy.expert", "policy.tokens says that the model writes its actions", "set one of both")
	}
	if p.Horizon > expertMost {
		at.fault("policy.horizon", fmt.Sprintf("%d actions, and an expert gives %d at most", p.Horizon, expertMost), "")
	}
	if p.ExpertWidth%2 != 0 || p.ExpertWidth%max(1, p.ExpertHeads) != 0 {
		at.fault("policy.expert_width", fmt.Sprintf("%d is no multiple of 2 and of expert_heads = %d",
			p.ExpertWidth, p.ExpertHeads), "")
	}
	if p.Stateless > 0 && strings.Contains(p.Question, "{state}") {
		at.fault("policy.state_dropout", "policy.question has {state}, which would tell it all the same",
			"leave {state} out of policy.question")
	}
}

// checkTokens holds what is said of actions that are written together.
func (p *Policy) checkTokens(at faults) {
	if (p.Tokens == "fast") != (p.Fast != "") {
		at.fault("policy.fast", "names a tokenizer where policy.tokens is fast, and only there",
			"set both: lfactor data fast makes one of recordings")
	}
	if p.Tokens == "fast" && !p.Padding {
		at.fault("policy.learn_padding", "false, and the tokens of policy.tokens: fast are of whole chunks",
			"take bins, or leave it out")
	}
	if p.Tokens == "none" {
		return
	}
	if p.Answer != "" && strings.Count(p.Answer, "{actions}") != 1 {
		at.fault("policy.answer", "has {actions} not once, where the tokens of actions stand", "")
	}
	if p.Stateless > 0 {
		at.fault("policy.state_dropout", "a model that writes actions is told the state in policy.question alone",
			"leave {state} out of policy.question")
	}
	if !strings.Contains(p.Question, "{task}") && !strings.Contains(p.Question, "{state}") {
		at.fault("policy.question", "has neither {task} nor {state}: every robot would be asked the same",
			"write {task} where the task is to stand")
	}
}

// checkActions holds what is said of the numbers of actions together.
func (p *Policy) checkActions(at faults) {
	ends := map[string]map[int]bool{"action": {}, "state": {}}
	for _, text := range p.Rotations {
		r, err := ParseRotation(text)
		if err != nil {
			at.fault("policy.rotations", err.Error(), "write it as 'action 3 euler 6d'")
			return
		}
		for i := range rotationForms[r.From] {
			if n := r.At + i; ends[r.Of][n] {
				at.fault("policy.rotations", fmt.Sprintf("number %d of the %s is in two rotations", n, r.Of), "")
				return
			}
			ends[r.Of][r.At+i] = true
		}
	}
	if len(p.Absolute) > 0 && p.Actions == "absolute" {
		at.fault("policy.absolute", "policy.actions is absolute: all numbers are",
			"set policy.actions, or leave it out")
	}
	for _, n := range p.Absolute {
		switch {
		case n < 0:
			at.fault("policy.absolute", fmt.Sprintf("number %d, and numbers are counted from 0", n), "")
		case ends["action"][n]:
			at.fault("policy.absolute", fmt.Sprintf("number %d is one of a rotation, which turns as a whole", n), "")
		}
	}
}

// Rotation is a rotation among the numbers of an action or a state.
type Rotation struct {
	Of       string // action or state
	At       int    // its first number, counted from 0
	From, To string // forms in recordings and to the policy
}

// rotationForms are how many numbers a rotation has in each form.
var rotationForms = map[string]int{"6d": 6, "matrix": 9, "quaternion": 4, "axis_angle": 3, "euler": 3}

// ParseRotation reads an entry of policy.rotations.
func ParseRotation(text string) (r Rotation, err error) {
	words := strings.Fields(text)
	if len(words) != 4 || words[0] != "action" && words[0] != "state" {
		return r, fmt.Errorf("%s names no rotation", source.Quoted(text))
	}
	n, err := strconv.Atoi(words[1])
	if err != nil || n < 0 || n > 1<<16 {
		return r, fmt.Errorf("%s: %s is no place of a number", source.Quoted(text), source.Quoted(words[1]))
	}
	for _, form := range words[2:] {
		if rotationForms[form] == 0 {
			return r, fmt.Errorf("%s: %s is none of the forms %s", source.Quoted(text), source.Quoted(form),
				strings.Join(slices.Sorted(maps.Keys(rotationForms)), ", "))
		}
	}
	return Rotation{words[0], n, words[2], words[3]}, nil
}

// Len is how many numbers a rotation has in a form.
func (Rotation) Len(form string) int { return rotationForms[form] }
