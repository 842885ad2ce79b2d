package denoisers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// features is the width of a level's sinusoids.
const features = 256

// mmdit is a model of two streams of rows, latents and captions, each with weights of its own, which attend
// to both (arXiv:2403.03206).
type mmdit struct {
	c        configs.Model
	k        Keys
	axes     [3]int // numbers of a head that turn with each axis
	d        *family.Denoiser
	x, text  string // the linear layers that make rows of latents and of captions
	textNorm string // of what the latter reads, "" for none
	names    func(i int) [2]stream
	last     bool  // nothing reads captions behind the last block
	short    bool  // and it has nothing for them behind its attention
	added    bool  // places are added to latents, and turn nothing
	dual     []int // blocks in which latents attend to themselves as well
	time     func(r *block.Rec, q *mmdit, env map[string]*grad.Value) *grad.Value
	more     func(m *family.Model) // adds blocks behind those of two streams; nil for none
}

func (q mmdit) model() *family.Model {
	m := NewModel(q.c, q.d)
	hidden := q.c.Hidden
	m.Ports["text"] = family.Port{Width: hidden, Rows: family.Captions, Whole: true}
	m.Ports["temb"] = family.Port{Width: hidden, Rows: family.Levels, Whole: true}
	m.Initial = func(name string) family.Start {
		return Zeroed(name, "proj_out", "_mod.1", "norm_out.linear", ".norm.linear", "norm1.linear",
			"norm1_context.linear")
	}
	m.Add(family.Block{Name: q.x, Gives: []string{"x", "temb", "text"}, Weight: 0.1, Record: q.embed})
	for i := range q.c.Layers {
		m.Add(family.Block{Name: fmt.Sprintf("transformer_blocks.%d", i), Takes: []string{"x", "temb", "text"},
			Gives: []string{"x", "text"}, Recompute: true, Weight: 1, Pairs: pairs(q.c),
			Record: func(r *block.Rec, env map[string]*grad.Value) { q.block(r, i, env) }})
	}
	if q.more != nil {
		q.more(m)
	}
	m.Add(family.Block{Name: "proj_out", Takes: []string{"x", "temb"}, Weight: 0.1, Record: q.head})
	return m
}

func (q mmdit) embed(r *block.Rec, env map[string]*grad.Value) {
	t, d, whole := r.T, q.c.Hidden, block.LinearOpts{Bias: true, Rep: true}
	env["x"] = t.Place("residual", r.Linear(q.x, q.d.Noisy(r), d, q.d.Width(), whole))
	h := q.d.Captions(r, env)
	if q.textNorm != "" {
		h = r.Norm(q.textNorm, h, q.k.Text, 1e-6)
	}
	env["text"], env["temb"] = r.Linear(q.text, h, d, q.k.Text, whole), q.time(r, &q, env)
}

// stream is what one of both streams reads and writes.
type stream struct {
	mod, q, k, v, normQ, normK, out, mlp string // names of its parameters
	x, at                                *grad.Value
	// [levels 6·D]: shift, scale and gate of attention and of the MLP; behind them those of a second attention, or
	// nothing but a scale and a shift
	mods *grad.Value
}

// streams are both of block i, latents first.
func (q mmdit) streams(r *block.Rec, i int, env map[string]*grad.Value) [2]*stream {
	names := q.names(i)
	s := [2]*stream{&names[0], &names[1]}
	s[0].x, s[0].at, s[1].x, s[1].at = env["x"], q.d.Level(r), env["text"], q.d.TextLevel(r)
	e, parts := r.T.Act(env["temb"], kernels.SiLU), [2]int{6, 6}
	if slices.Contains(q.dual, i) {
		parts[0] = 9
	}
	if q.short && i == q.c.Layers-1 {
		parts[1] = 2
	}
	for j, s := range s {
		s.mods = r.Linear(s.mod, e, parts[j]*q.c.Hidden, q.c.Hidden, block.LinearOpts{Bias: true, Rep: true})
	}
	return s
}

// part is one of the six of a stream's modulations.
func (s *stream) part(t *grad.Tape, k, d int) *grad.Value { return t.Columns(s.mods, k*d, d) }

// block is block i: both streams attend to both, each with queries, keys and values of its own.
func (q mmdit) block(r *block.Rec, i int, env map[string]*grad.Value) {
	t, d, final := r.T, q.c.Hidden, q.last && i == q.c.Layers-1
	both := q.streams(r, i, env)
	var qs, ks, vs [2]*grad.Value
	for j, s := range both {
		shift, scale := 0, 1
		if q.short && final && j == 1 {
			shift, scale = 1, 0
		}
		h := t.Modulate(s.x, s.part(t, scale, d), s.part(t, shift, d), s.at, PlainNorm(1e-6))
		qs[j], ks[j], vs[j] = q.heads(r, s, h, j == 1)
	}
	k, v, cuK := q.d.Together(r, ks[1], ks[0]), q.d.Together(r, vs[1], vs[0]), q.d.JointCu(r)
	how := grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(q.c.HeadDim))}
	out := func(name string, o *grad.Value) *grad.Value {
		return r.Linear(name, t.Flat(o), d, d, block.LinearOpts{Bias: true, Row: true, Unit: q.c.HeadDim})
	}
	for j, s := range both {
		cu, place := r.Cu(), "residual"
		how.Tokens = j == 0
		if j == 1 {
			cu, place = q.d.TextCu(r), ""
			if final {
				q.unread(r, s)
				continue
			}
		}
		x := s.x
		s.x = t.Gate(x, t.Place(place, out(s.out, t.Attention(qs[j], k, v, cu, cuK, how))), s.part(t, 2, d), s.at)
		if j == 0 && slices.Contains(q.dual, i) {
			own := s.second()
			q, k, v := q.heads(r, own, t.Modulate(x, s.part(t, 7, d), s.part(t, 6, d), s.at, PlainNorm(1e-6)), false)
			s.x = t.Gate(s.x, t.Place(place, out(own.out, t.Attention(q, k, v, cu, cu, how))), s.part(t, 8, d), s.at)
		}
		h := t.Modulate(s.x, s.part(t, 4, d), s.part(t, 3, d), s.at, PlainNorm(1e-6))
		h = t.Act(r.Linear(s.mlp+".net.0.proj", h, 4*d, d, block.LinearOpts{Bias: true}), kernels.GELUTanh)
		h = r.Linear(s.mlp+".net.2", h, d, 4*d, block.LinearOpts{Bias: true, Row: true})
		s.x = t.Gate(s.x, t.Place(place, h), s.part(t, 5, d), s.at)
	}
	env["x"], env["text"] = both[0].x, both[1].x
}

// second has the names of a stream's second attention.
func (s *stream) second() *stream {
	own := *s
	for _, name := range []*string{&own.q, &own.k, &own.v, &own.normQ, &own.normK, &own.out} {
		*name = strings.Replace(*name, ".attn.", ".attn2.", 1)
	}
	return &own
}

// unread declares what the last block's captions would pass: nothing reads them behind it, so that these
// parameters neither learn nor decay.
func (q mmdit) unread(r *block.Rec, s *stream) {
	if q.short {
		return
	}
	defer r.T.Still()()
	d := q.c.Hidden
	for _, p := range []struct {
		name    string
		out, in int
	}{{s.out, d, d}, {s.mlp + ".net.0.proj", 4 * d, d}, {s.mlp + ".net.2", d, 4 * d}} {
		r.T.Param(p.name+".weight", []int{p.out, p.in}, -1, 1, true)
		r.T.Param(p.name+".bias", []int{p.out}, -1, 1, false)
	}
}

// heads are the queries, keys and values of a stream, normed by head and turned by their places.
func (q mmdit) heads(r *block.Rec, s *stream, h *grad.Value, text bool) (qv, k, v *grad.Value) {
	t, d, n := r.T, q.c.Hidden, q.c.HeadDim
	proj := func(name, norm string) *grad.Value {
		x := t.Heads(r.Linear(name, h, d, d, block.LinearOpts{Bias: true, Unit: n}), n)
		if norm == "" {
			return x
		}
		if x = r.Norm(norm, x, n, 1e-6); q.added {
			return x
		}
		data, rows := "dif.pos", r.Shape.Rows
		if text {
			data, rows = "dif.text.pos", family.Captions(r.Shape)
		}
		cos, sin := q.d.Turned(r, data, rows, 10000, q.axes)
		return t.Rope(x, cos, sin, true)
	}
	return proj(s.q, s.normQ), proj(s.k, s.normK), proj(s.v, "")
}

// head is the last norm, scaled and shifted by the level, and the numbers of each token.
func (q mmdit) head(r *block.Rec, env map[string]*grad.Value) {
	t, d := r.T, q.c.Hidden
	mod := r.Linear("norm_out.linear", t.Act(env["temb"], kernels.SiLU), 2*d, d, block.LinearOpts{Bias: true,
		Rep: true})
	h := t.Modulate(env["x"], t.Columns(mod, 0, d), t.Columns(mod, d, d), q.d.Level(r), PlainNorm(1e-6))
	q.d.Predicted(r, env, r.Linear("proj_out", h, q.d.Width(), d, block.LinearOpts{Bias: true, Rep: true}))
}
