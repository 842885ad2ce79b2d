package robots

import (
	"fmt"
	"maps"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// Pi0 (arXiv:2410.24164), as lerobot and openpi have it: Pi0.5 whose expert has plain norms, is told the
// time of the noise with the actions, and has a row for the robot's state, which reads what is seen and told
// and is read by the actions.
var _ = family.Register(family.Family{ModelType: "pi0", Paper: "2410.24164", HF: pi0File(),
	Build: func(c configs.Model) *family.Model { return newPi0(c).model() }})

// pi0File is Pi0.5's file with a width of states and shorter prompts.
func pi0File() (f hf.Family) {
	f = piFamily("pi0")
	f.Has = append(f.Has, "state_size")
	f.Alias = map[string]string{"max_action_dim": "in_channels", "max_state_dim": "state_size"}
	f.Only = maps.Clone(f.Only)
	f.Only["tokenizer_max_length"] = "48"
	for _, key := range []string{"use_visual_memory", "use_proprioceptive_memory", "rtc_training_max_delay"} {
		delete(f.Only, key)
	}
	f.Absent = maps.Clone(f.Absent)
	f.Absent["state_size"] = "32"
	return f
}

// pi0 is a model of the family.
type pi0 struct{ *pi }

func newPi0(c configs.Model) *pi0 {
	p := &pi0{newPi(c)}
	p.d.Sight.State, p.d.Sight.Token = policyPart.Of(c).State, true
	p.d.Prompt = func(task string) string { return strings.TrimSuffix(task, "\n") + "\n" }
	p.d.PromptMost = 48
	p.d.Words = family.Words{Step: "pi0_new_line_processor", Tokenizer: paliGemma, Padding: "max_length"}
	return p
}

func (p *pi0) model() *family.Model {
	m := p.seeing()
	m.Initial = func(name string) family.Start {
		if strings.HasPrefix(name, piExpert) && strings.HasSuffix(name, "norm.weight") {
			return denoisers.Zeroed(name, "norm.weight")
		}
		return p.initial(name)
	}
	m.Ports["state"] = family.Port{Width: p.o.Expert, Rows: family.Levels, Whole: true}
	all := []string{"x", "state", "text"}
	m.Add(family.Block{Name: piName + "embed", Takes: []string{"view"}, Gives: all, Weight: 0.05, Record: p.embed})
	for i := range p.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("%slayers.%d", piLanguage, i), Takes: all, Gives: all, Recompute: true,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) { p.layer(r, i, env) }})
	}
	m.Add(family.Block{Name: "model.action_out_proj", Takes: []string{"x"}, Weight: 0.05, Record: p.head})
	return m
}

// embed makes rows of what is seen and told, of states, and of noisy actions with the time of their noise.
func (p *pi0) embed(r *block.Rec, env map[string]*grad.Value) {
	t, w, whole := r.T, p.o.Expert, block.LinearOpts{Bias: true, Rep: true}
	env["text"] = p.prompt(r, env["view"])
	env["state"] = r.Linear("model.state_proj", t.Cast(p.d.State(r)), w, p.d.Sight.State, whole)
	a := r.Linear("model.action_in_proj", p.d.Noisy(r), w, p.d.Width(), whole)
	c := t.Cast(t.Data("dif.feature", tensor.F32, family.Levels(r.Shape), w))
	a = t.Concat(1, a, t.Take(c, p.d.Level(r)))
	a = t.Act(r.Linear("model.action_time_mlp_in", a, w, 2*w, whole), kernels.SiLU)
	env["x"] = t.Place("residual", r.Linear("model.action_time_mlp_out", a, w, w, whole))
}

// layer is layer i of the language model's stream and of the expert's, whose states and actions share weights.
func (p *pi0) layer(r *block.Rec, i int, env map[string]*grad.Value) {
	t, last, levels := r.T, i == p.c.Layers-1, family.Levels(r.Shape)
	expert := piStream{name: fmt.Sprintf("%slayers.%d", piExpert, i), width: p.o.Expert, inter: p.o.ExpertInter}
	text := &piStream{name: fmt.Sprintf("%slayers.%d", piLanguage, i), width: p.c.Hidden,
		inter: p.c.Intermediate, x: env["text"]}
	state, x := expert, expert
	state.x, x.x, x.shared = env["state"], env["x"], true
	heads := func(s *piStream, data string, rows int) (q, k, v *grad.Value) {
		return p.headsAt(r, s, p.norm(r, s, s.name+".input_layernorm", nil), data, rows)
	}
	qt, kt, vt := heads(text, "dif.text.pos", family.Captions(r.Shape))
	qs, ks, vs := heads(&state, "dif.state.pos", levels)
	qx, kx, vx := heads(&x, "dif.pos", r.Shape.Rows)
	attend := func(s *piStream, q, k, v, cuQ, cuK *grad.Value) {
		o := t.Attention(q, k, v, cuQ, cuK, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(p.c.HeadDim)),
			Tokens: s.shared})
		s.x = p.add(r, s, r.Linear(s.name+".self_attn.o_proj", t.Flat(o), s.width, p.c.Heads*p.c.HeadDim,
			block.LinearOpts{Row: true, Unit: p.c.HeadDim}))
		p.fed(r, s, nil)
	}
	if last {
		p.unread(r, text)
	} else {
		attend(text, qt, kt, vt, p.d.TextCu(r), p.d.TextCu(r))
		told, cu := p.d.Told(r, kt, ks)
		values, _ := p.d.Told(r, vt, vs)
		attend(&state, qs, told, values, borders(r, "pi.states", 1), cu)
	}
	attend(&x, qx, p.d.All(r, kt, ks, kx), p.d.All(r, vt, vs, vx), r.Cu(), p.d.JointCu(r))
	env["text"], env["state"], env["x"] = text.x, state.x, x.x
}

// head is the last norm of the expert, and the numbers of each action.
func (p *pi0) head(r *block.Rec, env map[string]*grad.Value) {
	s := &piStream{width: p.o.Expert, x: env["x"], shared: true}
	h := p.norm(r, s, piExpert+"norm", nil)
	p.d.Predicted(r, env, r.Linear("model.action_out_proj", h, p.d.Width(), p.o.Expert,
		block.LinearOpts{Bias: true, Rep: true}))
}
