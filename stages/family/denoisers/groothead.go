package denoisers

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// attends is diffusers' attention of rows h to rows told, in heads of one width.
func (p *groot) attends(r *block.Rec, name string, h, told, cuQ, cuK *grad.Value, n, heads int) *grad.Value {
	t, head := r.T, n/heads
	proj := func(part string, x *grad.Value) *grad.Value {
		return t.Heads(r.Linear(name+".attn1."+part, x, n, x.Shape[1], block.LinearOpts{Bias: true,
			Unit: head}), head)
	}
	o := t.Attention(proj("to_q", h), proj("to_k", told), proj("to_v", told), cuQ, cuK,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	return t.Place("", r.Linear(name+".attn1.to_out.0", t.Flat(o), n, n, block.LinearOpts{Bias: true,
		Row:  true,
		Unit: head}))
}

// fedForward is diffusers' MLP, four times as wide.
func (p *groot) fedForward(r *block.Rec, name string, h *grad.Value, n int) *grad.Value {
	h = r.T.Act(r.Linear(name+".ff.net.0.proj", h, 4*n, n, block.LinearOpts{Bias: true}), kernels.GELUTanh)
	return r.T.Place("", r.Linear(name+".ff.net.2", h, n, 4*n, block.LinearOpts{Bias: true, Row: true}))
}

// mixes is a layer of the transformer of what is seen and told.
func (p *groot) mixes(r *block.Rec, name string, x *grad.Value) *grad.Value {
	t, n, cu := r.T, p.c.Hidden, p.d.CanvasCu(r)
	h := r.LayerNorm(name+".norm1", x, n, actEps)
	x = t.Add(x, p.attends(r, name, h, h, cu, cu, n, p.k.MixHeads))
	return t.Add(x, p.fedForward(r, name, r.LayerNorm(name+".norm3", x, n, actEps), n))
}

// begins makes the transformer's rows, and of the time of the noise what its layers are told.
func (p *groot) begins(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, chunk := r.T, p.k.Width, family.Levels(r.Shape), p.d.Chunk
	features := t.Cast(t.Data("dif.feature", tensor.F32, levels, p.d.FeatureWidth))
	env["time"] = timed(r, grootHead+"model.timestep_encoder.timestep_embedder", t.Columns(features, 0,
		grootWaves), n,
		grootWaves)
	of := func(name string, x *grad.Value, rows, out, in int) *grad.Value {
		return p.robots.linear(r, grootHead+name, x, rows, out, in)
	}
	state := t.Cast(p.d.State(r))
	state = of("state_encoder.layer2", t.Act(of("state_encoder.layer1", state, 1, p.k.Out, p.d.Sight.State),
		kernels.ReLU),
		1, n, p.k.Out)
	waves := t.Take(t.Columns(features, grootWaves, n), t.ConstI32("groot.level", levelsOf(levels, chunk)))
	a := of("action_encoder.W1", p.d.Noisy(r), chunk, n, p.d.Width())
	a = t.Act(of("action_encoder.W2", t.Concat(1, a, waves), chunk, n, 2*n), kernels.SiLU)
	a = of("action_encoder.W3", a, chunk, n, n)
	places := t.Param(grootHead+"position_embedding.weight", []int{p.k.Places, n}, -1, 1, true)
	a = t.Add(a, t.Take(places, t.ConstI32("groot.places", each(levels, part32{n: chunk, shared: true}))))
	future := t.Param(grootHead+"future_tokens.weight", []int{p.k.Future, n}, -1, 1, true)
	env["x"] = t.Take(t.Concat(0, state, future, a), t.ConstI32("groot.rows", each(levels, part32{n: 1},
		part32{n: p.k.Future, shared: true}, part32{n: chunk})))
}

// step is layer i of the transformer of actions.
func (p *groot) step(r *block.Rec, i int, env map[string]*grad.Value) {
	t, n, name := r.T, p.k.Width, fmt.Sprintf("%smodel.transformer_blocks.%d", grootHead, i)
	level := t.ConstI32("groot.row.level", levelsOf(family.Levels(r.Shape), p.rows()))
	m := r.Linear(name+".norm1.linear", t.Act(env["time"], kernels.SiLU), 2*n, n,
		block.LinearOpts{Bias: true, Rep: true})
	h := t.Modulate(env["x"], t.Columns(m, 0, n), t.Columns(m, n, n), level, plain(actEps))
	own := borders(r, "groot.row.cu", p.rows())
	told, cu := h, own
	if i%2 == 0 {
		told, cu = env["text"], p.d.CanvasCu(r)
	}
	x := t.Add(env["x"], p.attends(r, name, h, told, own, cu, n, p.k.Heads))
	env["x"] = t.Add(x, p.fedForward(r, name, bare(t, x, actEps), n))
}

// bare is a layer norm without parameters, which nothing modulates.
func bare(t *grad.Tape, x *grad.Value, eps float64) *grad.Value {
	n := x.Shape[1]
	zero := t.Cast(t.ConstOf("groot.zero", make([]float32, n), 1, n))
	return t.Modulate(x, zero, zero, t.ConstI32("groot.one", make([]int32, x.Shape[0])), plain(eps))
}

// ends gives the actions' directions. The model's time runs from the noise to the actions, so that they point the
// other way here.
func (p *groot) ends(r *block.Rec, env map[string]*grad.Value) {
	t, n, levels, chunk := r.T, p.k.Width, family.Levels(r.Shape), p.d.Chunk
	whole := block.LinearOpts{Bias: true, Rep: true}
	m := r.Linear(grootHead+"model.proj_out_1", t.Act(env["time"], kernels.SiLU), 2*n, n, whole)
	level := t.ConstI32("groot.row.level", levelsOf(levels, p.rows()))
	h := t.Modulate(env["x"], t.Columns(m, n, n), t.Columns(m, 0, n), level, plain(1e-6))
	var at []int32
	for s := range levels {
		for k := range chunk {
			at = append(at, int32((s+1)*p.rows()-chunk+k))
		}
	}
	h = r.Linear(grootHead+"model.proj_out_2", t.Take(h, t.ConstI32("groot.actions", at)), p.k.Out, n, whole)
	h = t.Act(p.robots.linear(r, grootHead+"action_decoder.layer1", h, chunk, p.k.Out, p.k.Out),
		kernels.ReLU)
	y := p.robots.linear(r, grootHead+"action_decoder.layer2", h, chunk, p.d.Width(), p.k.Out)
	p.d.Predicted(r, env, t.Scale(y, -1))
}

// grootSizes makes sizes of what lerobot's file has.
func grootSizes(raw hf.Raw) {
	viewed(raw)
	for _, key := range []string{"state_size", "view_height", "view_width",
		"in_channels"} { // there is room for more
		delete(raw, key)
	}
	var size []int
	if json.Unmarshal(raw["image_size"], &size) == nil && len(size) == 2 && size[0] == size[1] &&
		raw["view_size"] == nil {
		raw["view_size"] = json.RawMessage(fmt.Sprint(size[0]))
	}
	chunk := 0
	if json.Unmarshal(raw["chunk_size"], &chunk) == nil && chunk > 16 && raw["dit_width"] == nil {
		raw["chunk_size"] = json.RawMessage("16") // lerobot cuts it to the published model's
	}
}

// writeGroot is the inverse of grootSizes: sizes that are not the published ones are keys of this program's own.
func writeGroot(m hf.Values, out map[string]any) {
	for _, key := range []string{"_class_name", "_diffusers_version", "in_channels", "state_size"} {
		delete(out, key)
	}
	out["type"] = "groot"
	for from, to := range grootFile().Alias {
		out[from] = m[to]
	}
	usual := map[string]int{"hidden_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 16,
		"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 6144, "vocab_size": 151680,
		"view_patch":       14,
		"view_hidden_size": 1152, "view_intermediate_size": 4304, "view_heads": 16, "view_layers": 27,
		"embodiments": 32,
		"image_token": 151669, "future_tokens": 32, "dit_width": 1536, "dit_heads": 32, "dit_layers": 16,
		"dit_output":  1024,
		"mixer_heads": 32, "mixer_layers": 4, "action_positions": 1024, "chunk_size": 16}
	same := m["rms_norm_eps"] == 1e-6 && m["rope_theta"] == 1e6
	for key, n := range usual {
		same = same && m.Int(key) == n
		out[key] = m[key]
	}
	out["n_action_steps"], out["rms_norm_eps"], out["rope_theta"] = m["chunk_size"], m["rms_norm_eps"],
		m["rope_theta"]
	if !same {
		return
	}
	delete(usual, "chunk_size")
	for key := range usual {
		delete(out, key)
	}
	for _, key := range []string{"rms_norm_eps", "rope_theta", "views", "view_size"} {
		delete(out, key)
	}
	side := m.Int("view_size")
	out["image_size"] = []int{side, side}
}
