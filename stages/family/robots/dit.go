package robots

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// dit is GR00T's head of actions (arXiv:2503.14734): a diffusion transformer of the state, learned rows and
// actions, every other layer of which attends to what is seen and told, behind a norm and a transformer of
// that. What reads states and reads and gives actions has weights for each robot. A policy that gives its
// actions at once (Denoiser.Once) reads no noisy ones: rows of actions are their places alone.
type dit struct {
	d                    *family.Denoiser
	robots               *ofRobots
	name                 string // beginning of its parameters' names
	port                 string // what is seen and told, [rows of captions told]
	told                 int
	width, heads, layers int
	out                  int // width of what the transformer gives, and of the hidden layers of each robot
	mixHeads, mixLayers  int // of the transformer of what is seen and told
	future, places       int
	// of so many layers that attend to what is told one reads words, and the others views; 0 reads both
	every int
}

// ditPort are the rows of the transformer, and ditTime what its layers are told of the time of the noise.
const (
	ditPort = "rows"
	ditTime = "time"
)

// ports are those between its blocks.
func (p *dit) ports() map[string]family.Port {
	return map[string]family.Port{ditPort: {Width: p.width, Whole: true,
		Rows: func(s block.Shape) int { return family.Levels(s) * p.rows() }},
		ditTime: {Width: p.width, Rows: family.Levels, Whole: true}}
}

// blocks are those behind what begins, which gives the rows of the port behind the first norm.
func (p *dit) blocks() (out []family.Block) {
	for i := range p.mixLayers {
		name := fmt.Sprintf("%svl_self_attention.transformer_blocks.%d", p.name, i)
		out = append(out, family.Block{Name: name, Takes: []string{p.port}, Gives: []string{p.port},
			Recompute: true, Weight: 0.7, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env[p.port] = p.mixes(r, name, env[p.port])
			}})
	}
	out = append(out, family.Block{Name: p.name + "embed", Gives: []string{ditPort, ditTime}, Weight: 0.1,
		Record: p.begins})
	for i := range p.layers {
		b := family.Block{Name: fmt.Sprintf("%smodel.transformer_blocks.%d", p.name, i),
			Takes: []string{ditPort, ditTime}, Gives: []string{ditPort}, Recompute: true, Weight: 0.5,
			Record: func(r *block.Rec, env map[string]*grad.Value) { p.step(r, i, env) }}
		if i%2 == 0 {
			b.Takes = append(b.Takes, p.port)
		}
		out = append(out, b)
	}
	return append(out, family.Block{Name: p.name + "action_decoder", Takes: []string{ditPort, ditTime},
		Weight: 0.1, Record: p.ends})
}

// rows is how many rows of the transformer a sample has: the state, those of the future, and actions.
func (p *dit) rows() int { return 1 + p.future + p.d.Chunk }

// first is the norm of what is seen and told.
func (p *dit) first(r *block.Rec, x *grad.Value) *grad.Value {
	return r.LayerNorm(p.name+"vlln", x, p.told, actEps)
}

// attends is diffusers' attention of rows h to rows told, in heads of one width.
//
//lfvet:params the operands of one operation, by the names of its contract
func (p *dit) attends(r *block.Rec, name string, h, told, cuQ, cuK *grad.Value, n, heads int) *grad.Value {
	t, head := r.T, n/heads
	proj := func(part string, x *grad.Value) *grad.Value {
		return t.Heads(r.Linear(name+".attn1."+part, x, n, x.Shape[1], block.LinearOpts{Bias: true, Unit: head}), head)
	}
	o := t.Attention(proj("to_q", h), proj("to_k", told), proj("to_v", told), cuQ, cuK,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	return t.Place("",
		r.Linear(name+".attn1.to_out.0", t.Flat(o), n, n, block.LinearOpts{Bias: true, Row: true, Unit: head}))
}

// fedForward is diffusers' MLP, four times as wide.
func (p *dit) fedForward(r *block.Rec, name string, h *grad.Value, n int) *grad.Value {
	h = r.T.Act(r.Linear(name+".ff.net.0.proj", h, 4*n, n, block.LinearOpts{Bias: true}), kernels.GELUTanh)
	return r.T.Place("", r.Linear(name+".ff.net.2", h, n, 4*n, block.LinearOpts{Bias: true, Row: true}))
}

// mixes is a layer of the transformer of what is seen and told.
func (p *dit) mixes(r *block.Rec, name string, x *grad.Value) *grad.Value {
	t, n, cu := r.T, p.told, p.d.CanvasCu(r)
	h := r.LayerNorm(name+".norm1", x, n, actEps)
	x = t.Add(x, p.attends(r, name, h, h, cu, cu, n, p.mixHeads))
	return t.Add(x, p.fedForward(r, name, r.LayerNorm(name+".norm3", x, n, actEps), n))
}

// begins makes the transformer's rows, and of the time of the noise what its layers are told.
func (p *dit) begins(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, chunk := r.T, p.width, family.Levels(r.Shape), p.d.Chunk
	features := t.Cast(t.Data("dif.feature", tensor.F32, levels, p.d.FeatureWidth))
	env[ditTime] = denoisers.TimeMLP(r, p.name+"model.timestep_encoder.timestep_embedder",
		t.Columns(features, 0, grootWaves), n, grootWaves)
	of := func(name string, x *grad.Value, rows, out, in int) *grad.Value {
		return p.robots.linear(r, p.name+name, x, rows, out, in)
	}
	state := t.Cast(p.d.State(r))
	state = of("state_encoder.layer2",
		t.Act(of("state_encoder.layer1", state, 1, p.out, p.d.Sight.State), kernels.ReLU), 1, n, p.out)
	places := t.Param(p.name+"position_embedding.weight", []int{p.places, n}, -1, 1, true)
	a := t.Take(places, t.ConstI32("dit.places", each(levels, part32{n: chunk, shared: true})))
	if !p.d.Once {
		waves := t.Take(t.Columns(features, grootWaves, n), levelsOf(t, "dit.level", levels, chunk))
		y := of("action_encoder.W1", p.d.Noisy(r), chunk, n, p.d.Width())
		y = t.Act(of("action_encoder.W2", t.Concat(1, y, waves), chunk, n, 2*n), kernels.SiLU)
		a = t.Add(of("action_encoder.W3", y, chunk, n, n), a)
	}
	all, parts := []*grad.Value{state, a}, []part32{{n: 1}, {n: chunk}}
	if p.future > 0 {
		future := t.Param(p.name+"future_tokens.weight", []int{p.future, n}, -1, 1, true)
		all, parts = []*grad.Value{state, future, a}, []part32{{n: 1}, {n: p.future, shared: true}, {n: chunk}}
	}
	env[ditPort] = t.Take(t.Concat(0, all...), t.ConstI32("dit.rows", each(levels, parts...)))
}

// step is layer i of the transformer of actions.
func (p *dit) step(r *block.Rec, i int, env map[string]*grad.Value) {
	t, n, name := r.T, p.width, fmt.Sprintf("%smodel.transformer_blocks.%d", p.name, i)
	level := levelsOf(t, "dit.row.level", family.Levels(r.Shape), p.rows())
	m := r.Linear(name+".norm1.linear", t.Act(env[ditTime], kernels.SiLU), 2*n, n,
		block.LinearOpts{Bias: true, Rep: true})
	h := t.Modulate(env[ditPort], t.Columns(m, 0, n), t.Columns(m, n, n), level, denoisers.PlainNorm(actEps))
	own := borders(r, "dit.row.cu", p.rows())
	told, cu := h, own
	if i%2 == 0 {
		told, cu = env[p.port], p.d.CanvasCu(r)
		if p.every > 0 {
			told, cu = p.d.Apart(r, told, i%(2*p.every) != 0)
		}
	}
	x := t.Add(env[ditPort], p.attends(r, name, h, told, own, cu, n, p.heads))
	env[ditPort] = t.Add(x, p.fedForward(r, name, bare(t, x, actEps), n))
}

// bare is a layer norm without parameters, which nothing modulates.
func bare(t *grad.Tape, x *grad.Value, eps float64) *grad.Value {
	n := x.Shape[1]
	zero := t.Cast(t.ConstOf("dit.zero", make([]float32, n), 1, n))
	return t.Modulate(x, zero, zero, t.ConstI32("dit.one", make([]int32, x.Shape[0])), denoisers.PlainNorm(eps))
}

// ends gives the actions' directions. The model's time runs from the noise to the actions, so that they point the
// other way here.
func (p *dit) ends(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, chunk := r.T, p.width, family.Levels(r.Shape), p.d.Chunk
	whole := block.LinearOpts{Bias: true, Rep: true}
	m := r.Linear(p.name+"model.proj_out_1", t.Act(env[ditTime], kernels.SiLU), 2*n, n, whole)
	level := levelsOf(t, "dit.row.level", levels, p.rows())
	h := t.Modulate(env[ditPort], t.Columns(m, n, n), t.Columns(m, 0, n), level, denoisers.PlainNorm(1e-6))
	at := ofSamples(r, "dit.actions", chunk, func(s, k int) int { return (s+1)*p.rows() - chunk + k })
	h = r.Linear(p.name+"model.proj_out_2", t.Take(h, at), p.out, n, whole)
	h = t.Act(p.robots.linear(r, p.name+"action_decoder.layer1", h, chunk, p.out, p.out), kernels.ReLU)
	y := p.robots.linear(r, p.name+"action_decoder.layer2", h, chunk, p.d.Width(), p.out)
	if !p.d.Once {
		y = t.Scale(y, -1)
	}
	p.d.Predicted(r, env, y)
}
