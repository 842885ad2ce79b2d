// Package block holds the layers from which families are built, forward only and written for one device: the tape brings
// parallelism and gradients. Parameter names are Hugging Face's for Llama-like models.
package block

import (
	"math"
	"path"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Shape is the shape of a microbatch: Rows tokens in sequences cut by cu_seqlens.
type Shape struct {
	Rows    int // tokens of the microbatch, or of one chunk
	Patches int // rows of pictures, 0 for a microbatch without any
	Frames  int // pictures or frames of videos, where a tower adds a row to each
}

// Lora describes the adapters of a run.
type Lora struct {
	Targets []string // patterns on the name of a linear, as *.q_proj
	Rank    int
	Alpha   float64
	Dropout float64
}

// Match reports whether the linear called name gets an adapter: a pattern matches the whole name or its last parts.
func (l *Lora) Match(name string) bool {
	if l == nil {
		return false
	}
	for _, p := range l.Targets {
		if Match(p, name) {
			return true
		}
	}
	return false
}

// Match reports whether a pattern with * (any run of characters) matches name, or its last component when the pattern has
// no dot.
func Match(pattern, name string) bool {
	if glob(pattern, name) {
		return true
	}
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return glob(pattern, name[i+1:])
		}
	}
	return false
}

// glob is path.Match with * crossing dots; names hold no slash, so path.Match's own limits do not show.
func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Rec records the blocks of one stage.
type Rec struct {
	T      *grad.Tape
	Shape  Shape
	Lora   *Lora
	Rope   *Rope
	cos    *grad.Value
	sin    *grad.Value
	visCos *grad.Value
	visSin *grad.Value
	draws  int // dropout calls of the current block
	Index  int // of the block being recorded
	// Logits asks for the logits of every row instead of the loss.
	Logits bool
	// Cached makes the keys and values of Past earlier tokens data of the record, and all of them outputs of it.
	Cached bool
	Past   int
}

// Start begins block i.
func (r *Rec) Start(i int) { r.Index, r.draws = i, 0 }

// LinearOpts says how a linear is sharded: output features (column parallel) or input features (row parallel), in units.
type LinearOpts struct {
	Bias bool
	Row  bool // shard the input features
	Unit int  // features that stay together, as a head's width; 0 is 1
	Rep  bool // replicate
}

// Linear is the projection called name, with its adapter if it has one. x [t in] -> [t out].
func (r *Rec) Linear(name string, x *grad.Value, out, in int, o LinearOpts) *grad.Value {
	axis, biasAxis, unit := 0, 0, max(1, o.Unit)
	if o.Row {
		axis, biasAxis = 1, -1
	}
	if o.Rep {
		axis, biasAxis = -1, -1
	}
	w := r.T.Param(name+".weight", []int{out, in}, axis, unit, true)
	var bias *grad.Value
	if o.Bias {
		bias = r.T.Param(name+".bias", []int{out}, biasAxis, unit, false)
	}
	y := r.T.Linear(x, w, bias)
	if !r.Lora.Match(name) {
		return y
	}
	l, drop := r.Lora, r.Lora.Dropout
	if r.T.NoGrad {
		drop = 0 // evaluation
	}
	d := r.T.Dropout(x, r.keys(drop), drop, r.draw())
	a := r.T.Param(name+".lora_A.weight", []int{l.Rank, in}, map[bool]int{true: 1, false: -1}[o.Row], unit, true)
	b := r.T.Param(name+".lora_B.weight", []int{out, l.Rank}, map[bool]int{true: -1, false: axis}[o.Row], unit, true)
	down := r.T.Linear(d, a, nil)
	return r.T.Add(y, r.T.Scale(r.T.Linear(down, b, nil), l.Alpha/float64(l.Rank)))
}

// keys identify the rows for dropout; a run without dropout does not carry them.
func (r *Rec) keys(p float64) *grad.Value {
	if p == 0 {
		return nil
	}
	return r.T.Data("keys", tensor.I64, r.Shape.Rows)
}

// draw numbers the dropout calls of the model: 64 a block.
func (r *Rec) draw() int { r.draws++; return r.Index*64 + r.draws }

// Norm is the RMS norm called name over the last axis of x, of width d.
func (r *Rec) Norm(name string, x *grad.Value, d int, eps float64) *grad.Value {
	return r.T.RMSNorm(x, r.T.Param(name+".weight", []int{d}, -1, 1, false), eps)
}

// Cu is the data that cuts the microbatch into sequences.
func (r *Rec) Cu() *grad.Value { return r.T.Data("cu_seqlens", tensor.I32, 2) }

// angles records the rotary table once a stage.
func (r *Rec) angles() (cos, sin *grad.Value) {
	if r.cos == nil {
		inv, scale := r.Rope.Inverse()
		if len(r.Rope.Sections) > 0 {
			pos := r.T.Data("positions3", tensor.I32, r.Shape.Rows, 3)
			r.cos, r.sin = r.T.RopeAxes(pos, r.T.Const("inv_freq", inv), r.T.ConstI32("rope_axis", r.Rope.Axes()), scale)
			return r.cos, r.sin
		}
		r.cos, r.sin = r.T.RopeTable(r.T.Data("positions", tensor.I32, r.Shape.Rows), r.T.Const("inv_freq", inv), scale)
	}
	return r.cos, r.sin
}

// Attn is grouped-query attention with rotary embedding.
type Attn struct {
	Heads, KV, HeadDim int
	QKVBias, OBias     bool
	QKNorm             bool // RMS norm of each head's query and key, as in Qwen3
	Window             int  // keys a query sees, 0 for all
}

// MLP is the gated feed-forward.
type MLP struct {
	Inter int
	Bias  bool
}

// Decoder is a pre-norm transformer layer.
type Decoder struct {
	Hidden int
	Attn   Attn
	MLP    MLP
	Eps    float64
}

// Forward is x + attention(norm(x)), then + mlp(norm(·)); x [t hidden].
func (d Decoder) Forward(r *Rec, name string, x *grad.Value) *grad.Value {
	h := r.Norm(name+".input_layernorm", x, d.Hidden, d.Eps)
	x = r.T.Place("residual", r.T.Add(x, d.attention(r, name+".self_attn", h)))
	h = r.Norm(name+".post_attention_layernorm", x, d.Hidden, d.Eps)
	return r.T.Place("residual", r.T.Add(x, d.mlp(r, name+".mlp", h)))
}

func (d Decoder) attention(r *Rec, name string, h *grad.Value) *grad.Value {
	a, t := d.Attn, r.T
	proj := func(p string, heads int) *grad.Value {
		return t.Heads(r.Linear(name+p, h, heads*a.HeadDim, d.Hidden, LinearOpts{Bias: a.QKVBias, Unit: a.HeadDim}), a.HeadDim)
	}
	q, k, v := proj(".q_proj", a.Heads), proj(".k_proj", a.KV), proj(".v_proj", a.KV)
	if a.QKNorm {
		q, k = r.Norm(name+".q_norm", q, a.HeadDim, d.Eps), r.Norm(name+".k_norm", k, a.HeadDim, d.Eps)
	}
	cos, sin := r.angles()
	q, k = t.Rope(q, cos, sin, false), t.Rope(k, cos, sin, false)
	k, v = t.Carry(name+".k", k), t.Carry(name+".v", v)
	k, v = r.cache(name+".k", k), r.cache(name+".v", v)
	cuK := r.Cu()
	if t.Chunks > 1 || r.Cached {
		cuK = t.Data("cu_seqlens_k", tensor.I32, 2)
	}
	o := t.Attention(q, k, v, r.Cu(), cuK, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(a.HeadDim)), Causal: true, Window: a.Window})
	return r.Linear(name+".o_proj", t.Flat(o), d.Hidden, a.Heads*a.HeadDim, LinearOpts{Bias: a.OBias, Row: true, Unit: a.HeadDim})
}

// cache puts the cached rows in front of v and gives the whole as an output.
func (r *Rec) cache(name string, v *grad.Value) *grad.Value {
	if !r.Cached {
		return v
	}
	if r.Past > 0 {
		shape := append([]int{r.Past}, v.Shape[1:]...)
		v = r.T.Concat(0, r.T.Data("past."+name, r.T.DType, shape...), v)
	}
	r.T.Output(name, v)
	return v
}

func (d Decoder) mlp(r *Rec, name string, h *grad.Value) *grad.Value {
	in := LinearOpts{Bias: d.MLP.Bias}
	g := r.Linear(name+".gate_proj", h, d.MLP.Inter, d.Hidden, in)
	u := r.Linear(name+".up_proj", h, d.MLP.Inter, d.Hidden, in)
	return r.Linear(name+".down_proj", r.T.SwiGLU(g, u), d.Hidden, d.MLP.Inter, LinearOpts{Bias: d.MLP.Bias, Row: true})
}
