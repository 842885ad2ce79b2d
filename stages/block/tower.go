package block

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Tower is a vision transformer over packed patches: sequences of different images lie one after the
// other, attention does not cross them. The names of its data begin with "vis.".
type Tower struct {
	Layers, Hidden, Inter, Heads int
	PatchDim                     int  // numbers of a patch: channels · time · height · width
	PatchBias                    bool // the projection of patches has one
	Join                         int  // patches that become one feature
	RMS                          bool // RMS norms instead of layer norms
	Eps                          float64
	Gated                        bool // MLPs are gated: SwiGLU where Act is SiLU
	Act                          int  // of kernels: the activation of an MLP that is not gated
	QKVBias                      bool
	// RMS norm of queries and keys over the whole width, as in InternViT-6B
	QKNorm    bool
	Theta     float64 // base of the two-axis rotary embedding, 0 for none
	Windowed  func(layer int) bool
	Ordered   bool // patches are put in window order first and features back in place last
	Taps      int  // rows of the position table that a patch blends, 0 for no table
	Positions int  // rows of the position table
	// frames that a clip may have, 0 for no clips: attention sees all frames of a clip, sinusoids tell those
	// of more than one apart, and features are means over them (MoonViT-3D)
	Times int
	// two frames of a video become one row of features; an image stands for both
	Paired bool
	Pairs  bool // neighbouring numbers of a head turn together, by column and by row in turns
	Class  bool // every frame begins with a learned class token
	Turned bool // class tokens turn by a learned angle, as patches do by their place
	// patches lie row after row, and are put in the order in which they join after the last layer
	Shuffled          bool
	Scale             bool // a learned vector scales each branch (LayerScale)
	PreNorm, PostNorm bool // a norm before the first layer, after the last
}

// HeadDim is the width of a head.
func (v *Tower) HeadDim() int { return v.Hidden / v.Heads }

// Rows is the length of the packed sequences.
func (v *Tower) Rows(s Shape) int {
	if v.Class {
		return s.Dim(Patches) + s.Dim(Frames)
	}
	return s.Dim(Patches)
}

// norm is the tower's kind of norm called name over width d.
func (v *Tower) norm(r *Rec, name string, x *grad.Value, d int) *grad.Value {
	if v.RMS {
		return r.Norm(name, x, d, v.Eps)
	}
	return r.LayerNorm(name, x, d, v.Eps)
}

// LayerNorm is the layer norm called name, with a bias, over the last axis of x, of width d.
func (r *Rec) LayerNorm(name string, x *grad.Value, d int, eps float64) *grad.Value {
	w := r.T.Param(name+".weight", []int{d}, -1, 1, false)
	return r.T.LayerNorm(x, w, r.T.Param(name+".bias", []int{d}, -1, 1, false), eps)
}

// Embed makes rows of the patches: a projection, the order of windows, positions and class tokens. Data:
// vis.pixels [p k] float32, and as the tower has them vis.order [p], vis.tap.i [p] with vis.blend.i [p]
// float32, vis.rows [p+f], vis.class [p+f].
func (v *Tower) Embed(r *Rec, name string) *grad.Value {
	t, p := r.T, r.Shape.Dim(Patches)
	x := r.Linear(name+".patch_embed.proj", t.Cast(t.Data("vis.pixels", tensor.F32, p, v.PatchDim)),
		v.Hidden, v.PatchDim, LinearOpts{Bias: v.PatchBias, Rep: true})
	if v.Ordered {
		x = t.Take(x, t.Data("vis.order", tensor.I32, p))
	}
	if v.Class {
		cls := t.Param(name+".cls_token", []int{1, v.Hidden}, -1, 1, false)
		x = t.Take(t.Concat(0, cls, x), t.Data("vis.rows", tensor.I32, v.Rows(r.Shape)))
	}
	if v.Taps > 0 {
		x = t.Add(x, v.positions(r, name))
	}
	if v.Times > 0 {
		x = t.Add(x, t.Take(t.ConstOf("vis.times", v.times(), v.Times, v.Hidden), t.Data("vis.frame", tensor.I32, p)))
	}
	if v.PreNorm {
		x = v.norm(r, name+".pre_norm", x, v.Hidden)
	}
	return t.Place("residual", x)
}

// times are the sinusoids of a clip's frames, sines before cosines.
func (v *Tower) times() []float32 {
	out, half := make([]float32, v.Times*v.Hidden), v.Hidden/2
	for f := range v.Times {
		for i := range half {
			angle := float32(f) / float32(math.Pow(10000, float64(2*i)/float64(v.Hidden)))
			out[f*v.Hidden+i] = float32(math.Sin(float64(angle)))
			out[f*v.Hidden+half+i] = float32(math.Cos(float64(angle)))
		}
	}
	return out
}

// pooled is the mean over the frames of each clip. Data: vis.pool.f [p], the patch of frame f for each row,
// -1 for none, and vis.share [p] float32, one over the number of frames.
func (v *Tower) pooled(r *Rec, x *grad.Value) *grad.Value {
	t, p := r.T, r.Shape.Dim(Patches)
	var sum *grad.Value
	for f := range v.Times {
		one := t.Take(x, t.Data(fmt.Sprintf("vis.pool.%d", f), tensor.I32, p))
		if sum == nil {
			sum = one
		} else {
			sum = t.Add(sum, one)
		}
	}
	return t.ScaleRows(sum, t.Data("vis.share", tensor.F32, p))
}

// positions blends rows of the position table: one row taken as it is, or several with weights. Towers with
// clips have a table of a square's rows, which a checkpoint keeps with an axis for its columns.
func (v *Tower) positions(r *Rec, name string) *grad.Value {
	t, n := r.T, v.Rows(r.Shape)
	table := t.Param(name+".pos_embed.weight", v.tableShape(), -1, 1, false)
	if v.Times > 0 {
		table = t.View(table, v.Positions, v.Hidden)
	}
	var sum *grad.Value
	for i := range v.Taps {
		e := t.Embed(t.Data(fmt.Sprintf("vis.tap.%d", i), tensor.I32, n), table)
		if v.Taps > 1 {
			e = t.ScaleRows(e, t.Data(fmt.Sprintf("vis.blend.%d", i), tensor.F32, n))
		}
		if sum == nil {
			sum = e
		} else {
			sum = t.Add(sum, e)
		}
	}
	return sum
}

// tableShape is the shape of the table of positions. Towers with clips keep it as rows of a square,
// since it is interpolated in two directions.
func (v *Tower) tableShape() []int {
	if v.Times == 0 {
		return []int{v.Positions, v.Hidden}
	}
	side := int(math.Round(math.Sqrt(float64(v.Positions))))
	return []int{side, v.Positions / side * v.Hidden}
}

// Layer is layer i: x + attention(norm(x)), then + mlp(norm(·)); x [rows hidden].
func (v *Tower) Layer(r *Rec, name string, i int, x *grad.Value) *grad.Value {
	name = fmt.Sprintf("%s.blocks.%d", name, i)
	a := v.attention(r, name+".attn", v.norm(r, name+".norm1", x, v.Hidden), v.Windowed != nil && v.Windowed(i))
	x = r.T.Place("residual", r.T.Add(x, v.scaled(r, name+".scale1", a)))
	h := v.mlp(r, name+".mlp", v.norm(r, name+".norm2", x, v.Hidden))
	return r.T.Place("residual", r.T.Add(x, v.scaled(r, name+".scale2", h)))
}

// scaled multiplies a branch by a learned vector, in towers that have one (LayerScale, arXiv:2103.17239).
func (v *Tower) scaled(r *Rec, name string, x *grad.Value) *grad.Value {
	if !v.Scale {
		return x
	}
	return r.T.MulCols(r.T.Place("", x), r.T.Param(name, []int{v.Hidden}, -1, 1, false))
}

// attention records attention among the patches of an image, or among those of a window of it. It
// is not causal: all patches see each other.
func (v *Tower) attention(r *Rec, name string, h *grad.Value, window bool) *grad.Value {
	t, d := r.T, v.HeadDim()
	proj := func(p string, norm string) *grad.Value {
		x := r.Linear(name+p, h, v.Hidden, v.Hidden, LinearOpts{Bias: v.QKVBias, Unit: d})
		if v.QKNorm && norm != "" {
			x = r.Norm(name+norm, x, v.Hidden, v.Eps)
			x = t.Place("", x)
		}
		return t.Heads(x, d)
	}
	q, k, val := proj(".q_proj", ".q_norm"), proj(".k_proj", ".k_norm"), proj(".v_proj", "")
	if v.Theta > 0 {
		cos, sin := v.angles(r)
		q, k = t.Rope(q, cos, sin, v.Pairs), t.Rope(k, cos, sin, v.Pairs)
	}
	if v.Turned { // their place is 0, 0, which turned nothing
		angle, mark := t.Param(v.angleName(name), []int{d / 2}, -1, 1, false),
			t.Data("vis.class", tensor.I32, v.Rows(r.Shape))
		q, k = t.Turn(q, angle, mark), t.Turn(k, angle, mark)
	}
	cu := t.Data("vis.cu", tensor.I32, 2)
	if window {
		cu = t.Data("vis.cu_window", tensor.I32, 2)
	}
	o := t.Attention(q, k, val, cu, cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(d))})
	return r.Linear(name+".proj", t.Flat(o), v.Hidden, v.Hidden, LinearOpts{Bias: true, Row: true, Unit: d})
}

// angleName is the parameter that all layers of the tower that attention block name is part of share.
func (v *Tower) angleName(name string) string {
	tower, _, _ := strings.Cut(name, ".blocks.")
	return tower + ".cls_angle"
}

// angles records the table of the two-axis rotary embedding once a stage: a quarter of a head's width turns
// with the row of a patch, a quarter with its column. Data: vis.pos [rows 2].
func (v *Tower) angles(r *Rec) (cos, sin *grad.Value) {
	if r.visCos == nil {
		n := v.HeadDim() / 4
		inv, axis := make([]float32, 2*n), make([]int32, 2*n)
		for i := range n {
			f := 1 / float32(math.Pow(v.Theta, float64(float32(2*i)/float32(2*n))))
			if v.Pairs {
				inv[2*i], inv[2*i+1], axis[2*i] = f, f, 1
				continue
			}
			inv[i], inv[n+i], axis[n+i] = f, f, 1
		}
		r.visCos, r.visSin = r.T.RopeAxes(r.T.Data("vis.pos", tensor.I32, v.Rows(r.Shape), 2),
			r.T.Const("vis.inv_freq", inv), r.T.ConstI32("vis.axis", axis), 1)
	}
	return r.visCos, r.visSin
}

// mlp records the MLP of a layer, gated or plain.
func (v *Tower) mlp(r *Rec, name string, h *grad.Value) *grad.Value {
	in, out := LinearOpts{Bias: true}, LinearOpts{Bias: true, Row: true}
	if v.Gated {
		g, u := r.Linear(name+".gate_proj", h, v.Inter, v.Hidden, in),
			r.Linear(name+".up_proj", h, v.Inter, v.Hidden, in)
		y := r.T.SwiGLU
		if v.Act != kernels.SiLU {
			y = func(g, u *grad.Value) *grad.Value { return r.T.Mul(r.T.Act(g, v.Act), u) }
		}
		return r.Linear(name+".down_proj", y(g, u), v.Hidden, v.Inter, out)
	}
	return r.Linear(name+".fc2", r.T.Act(r.Linear(name+".fc1", h, v.Inter, v.Hidden, in), v.Act), v.Hidden,
		v.Inter, out)
}

// Last is what follows the layers: the norm of towers that have one, and patches alone, without class tokens, in the
// order in which neighbours join. Data: vis.patches [p] for towers with class tokens or of patches row after row.
func (v *Tower) Last(r *Rec, name string, x *grad.Value) *grad.Value {
	if v.PostNorm {
		x = v.norm(r, name+".post_norm", x, v.Hidden)
	}
	if v.Class || v.Shuffled {
		x = r.T.Take(x, r.T.Data("vis.patches", tensor.I32, r.Shape.Dim(Patches)))
	}
	if v.Times > 0 {
		x = v.pooled(r, x)
	}
	return r.T.Place("residual", x)
}

// Merger joins neighbouring patches to one feature of the decoder's width: a norm, two linear layers and an
// activation between them.
type Merger struct {
	Tower *Tower
	Out   int
	Inner int  // width between the linear layers, 0 for that of the joined patches
	After bool // the norm sees joined patches instead of single ones
	RMS   bool // kind of norm
	None  bool // no norm
	Eps   float64
	Act   int
}

// Forward gives features [p/join out] of rows x [p hidden], put in order of images where the tower worked
// in window order. Data: vis.restore [p/join].
func (m *Merger) Forward(r *Rec, name string, x *grad.Value) *grad.Value {
	d, wide := m.Tower.Hidden, m.Tower.Hidden*m.Tower.Join
	if m.After {
		x, d = r.T.Join(x, m.Tower.Join), wide
	}
	switch {
	case m.None:
	case m.RMS:
		x = r.Norm(name+".norm", x, d, m.Eps)
	default:
		x = r.LayerNorm(name+".norm", x, d, m.Eps)
	}
	if !m.After {
		x = r.T.Join(x, m.Tower.Join)
	}
	inner := m.Inner
	if inner == 0 {
		inner = wide
	}
	h := r.T.Act(r.Linear(name+".fc1", x, inner, wide, LinearOpts{Bias: true}), m.Act)
	y := r.Linear(name+".fc2", h, m.Out, inner, LinearOpts{Bias: true, Row: true})
	y = r.T.Place("", y)
	if m.Tower.Ordered {
		y = r.T.Take(y, r.T.Data("vis.restore", tensor.I32, r.Shape.Dim(Patches)/m.Tower.Join))
	}
	return y
}
