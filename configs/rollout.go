package configs

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Rollout says how a run draws the answers that it learns from.
type Rollout struct {
	Group       int      `key:"group" default:"8" min:"2" class:"fixed" unit:"answers" doc:"Answers that are drawn to each prompt and compared with each other; train.global_batch is the answers of a step."`
	Max         int      `key:"max_tokens" default:"256" min:"1" class:"fixed" unit:"tokens" doc:"Tokens of an answer at most."`
	Staleness   int      `key:"staleness" default:"0" min:"0" max:"16" class:"fixed" doc:"How many batches of prompts are drawn ahead of training: answers are drawn while earlier ones are trained on, by weights that lie so many batches behind those that are trained, never more. 0 draws and trains in turn."`
	Updates     int      `key:"updates" default:"1" min:"1" max:"16" class:"fixed" unit:"steps" doc:"Steps that are trained on each batch of answers, against the log-probabilities with which they were drawn."`
	Span        int      `key:"span" default:"0" min:"0" class:"fixed" unit:"tokens" doc:"With staleness: tokens of an answer that one version of the weights draws before the next one goes on with it, which computes keys and values anew; 0 lets the version that begins an answer end it."`
	Samplers    int      `key:"samplers" default:"0" min:"0" max:"64" class:"free" unit:"processes" doc:"Processes of their own that draw answers, on this host, or on the hosts of the cluster that the run is given to; 0 draws in the process that trains. Answers do not depend on it."`
	Silence     float64  `key:"silence" default:"120" class:"free" unit:"seconds" doc:"After so long a sampler process that has answers to draw and says nothing is ended, and another takes its place."`
	Pages       int      `key:"pages" default:"0" min:"0" class:"free" unit:"pages" doc:"Pages of keys and values of 16 tokens each, for all answers together; 0 takes what the answers of a step need, 4096 at most."`
	Environment []string `key:"environment" class:"fixed" names:"program" doc:"Program that answers what the model says, turn by turn, in a line of JSON each (docs/post-training.md); its words. Or the address of a server of OpenEnv's protocol, http://HOST:PORT. Without it an answer is one turn."`
	Action      string   `key:"action" default:"message" class:"fixed" doc:"Of an environment of OpenEnv's protocol: key of an action that has what the model says."`
	Observation []string `key:"observation" class:"fixed" doc:"Of an environment of OpenEnv's protocol: keys of an observation that are said to the model, one a line; dots lead into objects. Without it the whole observation is said, as JSON."`
	Turns       int      `key:"turns" default:"4" min:"1" max:"1024" class:"fixed" doc:"Turns of an environment in an answer at most."`
	Role        string   `key:"role" default:"user" class:"fixed" doc:"Role under which the chat template writes what an environment says: user or tool."`
	Processes   int      `key:"processes" default:"4" min:"1" max:"256" class:"free" doc:"Processes of an environment at once, of each sampler; of a server of OpenEnv's protocol, sessions, of which it has to take as many for each sampler."`
	Wait        float64  `key:"wait" default:"30" class:"free" unit:"seconds" doc:"Time of each answer of an environment; one that takes longer is ended, and another process asked once more."`
	Ahead       int      `key:"ahead" default:"0" min:"0" max:"16" class:"free" unit:"tokens" doc:"Tokens that the layer for further tokens of model.path proposes at once while answers are drawn, as it is there: it does not learn. Answers do not depend on it. 0 proposes none."`
}

// Check implements section.
func (r *Rollout) Check(at faults) {
	if !(r.Silence > 0) {
		at.fault("rollout.silence", fmt.Sprintf("%g seconds leave no time", r.Silence), "try 120")
	}
	if !(r.Wait > 0) {
		at.fault("rollout.wait", fmt.Sprintf("%g seconds leave no time", r.Wait), "try 30")
	}
	if r.Served() {
		if u, err := url.Parse(r.Environment[0]); err != nil || u.Host == "" {
			at.fault("rollout.environment", fmt.Sprintf("%q names no server", r.Environment[0]),
				"give http://HOST:PORT")
		}
	}
	if r.Role == "" {
		at.fault("rollout.role", "is not given", "try user")
	}
	if r.Span > 0 && r.Staleness == 0 {
		at.fault("rollout.span", "without rollout.staleness one version draws all of an answer",
			"remove it, or set rollout.staleness")
	}
	if r.Staleness*r.Updates > 16 {
		at.fault("rollout.staleness", fmt.Sprintf("%d batches of %d steps each are %d steps ahead, and 16 are allowed", r.Staleness, r.Updates, r.Staleness*r.Updates), "lower it or rollout.updates")
	}
}

// Served reports whether the environment is the address of a server and no program.
func (r *Rollout) Served() bool {
	if len(r.Environment) != 1 {
		return false
	}
	scheme, _, ok := strings.Cut(r.Environment[0], "://")
	return ok && slices.Contains([]string{"http", "https", "ws", "wss"}, scheme)
}

// Reward says what drawn answers are worth.
type Reward struct {
	Kind     string   `key:"kind" default:"none" oneof:"none|@rewards" class:"fixed" doc:"What an answer's reward is; docs/post-training.md has the kinds. none is for runs that draw no answers."`
	Column   string   `key:"column" default:"answer" class:"fixed" doc:"exact, math: column of the data that has the right answer, or a key in one as reward_model.ground_truth, which is taken too where there is no answer; code: the tests that are run behind the answer; schema: a JSON Schema, without reward.schema."`
	Pattern  string   `key:"pattern" default:"" class:"fixed" doc:"regex: pattern in Go's syntax."`
	Command  []string `key:"command" class:"fixed" names:"program" doc:"command: the program and its arguments; code: the interpreter that reads the answer and its tests, and whose exit status counts; Python without it."`
	Sandbox  bool     `key:"sandbox" default:"false" class:"fixed" doc:"command: run it without a network, with all files read-only but an empty /tmp, without privileges, devices and Unix sockets, and within reward.memory; code always is. It needs Linux 5.12 on amd64 or arm64 and namespaces of users."`
	Memory   float64  `key:"memory" default:"1" min:"0" class:"fixed" unit:"GiB" doc:"command in a sandbox, code: memory of a program; without a sandbox it is refused."`
	Schema   string   `key:"schema" default:"" class:"fixed" doc:"schema: a JSON Schema as text; without it reward.column has one for each answer."`
	Model    string   `key:"model" default:"" class:"fixed" doc:"model: checkpoints of a run with objective.kind=reward, or a directory of such a model, which gives scores, in the process that trains or in reward.judges of their own."`
	Judges   int      `key:"judges" default:"0" min:"0" max:"64" class:"free" unit:"processes" doc:"model: processes of their own that judge, on this host, or on the hosts of the cluster that the run is given to; 0 judges in the process that trains. Rewards do not depend on it."`
	URL      string   `key:"url" default:"" class:"fixed" doc:"http: address of the service."`
	Timeout  float64  `key:"timeout" default:"10" class:"free" unit:"seconds" doc:"Time that a reward may take; an answer without one is set aside."`
	Parallel int      `key:"parallel" default:"4" min:"1" max:"256" class:"free" doc:"Rewards that are found at once."`
}

// Check implements section.
func (r *Reward) Check(at faults) {
	if !(r.Timeout > 0) {
		at.fault("reward.timeout", fmt.Sprintf("%g seconds leave no time", r.Timeout), "try 10")
	}
}
