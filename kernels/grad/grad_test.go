package grad_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// mini is a decoder small enough to compare every gradient under every policy.
type mini struct {
	layers, hidden, heads, kv, d, ffn, vocab, tokens int
	one                                              bool // one sequence, not two
}

var small = mini{layers: 2, hidden: 16, heads: 4, kv: 2, d: 4, ffn: 24, vocab: 32, tokens: 12}

func (c mini) decoder(t *grad.Tape, l int, x, cos, sin, cu *grad.Value) *grad.Value {
	p := func(n string, axis, unit int, shape ...int) *grad.Value {
		return t.Param(fmt.Sprintf("%d.%s", l, n), shape, axis, unit, len(shape) > 1)
	}
	h := t.RMSNorm(x, p("ln1", -1, 1, c.hidden), 1e-6)
	q := t.Heads(t.Linear(h, p("wq", 0, c.d, c.heads*c.d, c.hidden), p("bq", 0, c.d, c.heads*c.d)), c.d)
	k := t.Heads(t.Linear(h, p("wk", 0, c.d, c.kv*c.d, c.hidden), nil), c.d)
	v := t.Heads(t.Linear(h, p("wv", 0, c.d, c.kv*c.d, c.hidden), nil), c.d)
	q = t.RMSNorm(q, p("qn", -1, 1, c.d), 1e-6)
	q, k = t.Rope(q, cos, sin, false), t.Rope(k, cos, sin, false)
	k, v = t.Carry(fmt.Sprintf("%d.k", l), k), t.Carry(fmt.Sprintf("%d.v", l), v)
	cuK := cu
	if t.Chunks > 1 {
		cuK = t.Data("cu_k", tensor.I32, 2)
	}
	a := t.Attention(q, k, v, cu, cuK, grad.AttentionConfig{Scale: 0.5, Causal: true})
	x = t.Place("residual", t.Add(x, t.Linear(t.Flat(a), p("wo", 1, c.d, c.hidden, c.heads*c.d), p("bo", -1, 1, c.hidden))))
	h = t.RMSNorm(x, p("ln2", -1, 1, c.hidden), 1e-6)
	g := t.SwiGLU(t.Linear(h, p("wg", 0, 1, c.ffn, c.hidden), nil), t.Linear(h, p("wu", 0, 1, c.ffn, c.hidden), nil))
	return t.Place("residual", t.Add(x, t.Linear(g, p("wd", 1, 1, c.hidden, c.ffn), nil)))
}

// stage records layers [from, to), with a tied embedding and head at the ends.
func (c mini) stage(o grad.Options, from, to int) *grad.Trace {
	t := grad.NewTape(o)
	rows := c.tokens / max(1, o.Chunks)
	cos, sin := t.RopeTable(t.Data("pos", tensor.I32, rows), t.Data("inv", tensor.F32, c.d/2), 1)
	cu := t.Data("cu", tensor.I32, map[bool]int{true: 3, false: 2}[t.Chunks == 1 && !c.one])
	emb := func() *grad.Value { return t.Param("emb", []int{c.vocab, c.hidden}, 0, 1, true) }
	var x *grad.Value
	if from == 0 {
		t.Part(0, func() { x = t.Place("residual", t.Embed(t.Data("ids", tensor.I32, rows), emb())) })
	} else {
		x = t.Input("x", t.DType, rows, c.hidden)
	}
	for l := from; l < to; l++ {
		t.Block(l+1, func() { x = c.decoder(t, l, x, cos, sin, cu) })
	}
	if to < c.layers {
		t.Output("x", x)
		return t.Finish()
	}
	t.Part(c.layers+1, func() {
		h := t.RMSNorm(x, t.Param("lnf", []int{c.hidden}, -1, 1, false), 1e-6)
		t.Loss(t.LinearCrossEntropy(h, emb(), t.Data("target", tensor.I32, rows), t.Data("weight", tensor.F32, rows)))
	})
	return t.Finish()
}

func randT(r *rand.Rand, scale float64, shape ...int) *tensor.Tensor {
	t := tensor.Make(tensor.F32, shape...)
	for i := range t.F32() {
		t.F32()[i] = float32(r.NormFloat64() * scale)
	}
	return t
}

// world runs one stage on every rank of a tp × dp grid; the dp ranks hold shards of one microbatch's gradients.
type world struct {
	t      *testing.T
	c      mini
	tp, dp int
	full   map[string]*tensor.Tensor
	ranks  []*grad.Runner
	split  bool // I then W instead of B
}

func (c mini) params() map[string]*tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	full := map[string]*tensor.Tensor{}
	for _, p := range c.stage(grad.Options{}, 0, c.layers).Params {
		full[p.Name] = randT(r, 0.3, p.Shape...)
	}
	return full
}

func sectionOf(x *tensor.Tensor, p grad.Place, pos, n int) *tensor.Tensor {
	if p[0].Kind != grad.Sharded {
		return x
	}
	axis := int(p[0].Axis)
	outer, w := tensor.Len(x.Shape[:axis]), tensor.Len(x.Shape[axis:])/n
	shape := append([]int(nil), x.Shape...)
	shape[axis] /= n
	o := tensor.Make(x.DType, shape...)
	for k := range outer {
		copy(o.F32()[k*w:(k+1)*w], x.F32()[k*w*n+pos*w:])
	}
	return o
}

func newWorld(t *testing.T, c mini, tp, dp int, tr *grad.Trace) *world {
	w := &world{t: t, c: c, tp: tp, dp: dp, full: c.params()}
	for r := range tp * dp {
		pool := tensor.NewPool(fmt.Sprint("rank", r), 0).Poison()
		run := &grad.Runner{Backend: ref.New(), Pool: pool, Host: tensor.NewPool("host", 0).Poison(), Pos: []int{r % tp}, DPRank: r / tp,
			Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
		for _, p := range tr.Params {
			v := sectionOf(w.full[p.Name], p.Place, r%tp, tp)
			if tr.ShardParams {
				v = v.RowSlice(grad.ShardRows(v.Shape[0], r/tp, dp))
			}
			run.Params[p.Name] = v
		}
		w.ranks = append(w.ranks, run)
	}
	return w
}

// data is the microbatch: two packed sequences, or one sequence in chunks.
func (w *world) data(chunk, chunks int) map[string]*tensor.Tensor {
	c, r := w.c, rand.New(rand.NewPCG(3, 4))
	ids, tgt, pos := make([]int32, c.tokens), make([]int32, c.tokens), make([]int32, c.tokens)
	wt := make([]float32, c.tokens)
	for i := range ids {
		ids[i], tgt[i], wt[i], pos[i] = int32(r.IntN(c.vocab)), int32(r.IntN(c.vocab)), 1/float32(c.tokens), int32(i)
	}
	tgt[3] = -100
	rows := c.tokens / chunks
	lo, hi := chunk*rows, (chunk+1)*rows
	d := map[string]*tensor.Tensor{
		"ids": tensor.Of(tensor.I32, ids[lo:hi], rows), "target": tensor.Of(tensor.I32, tgt[lo:hi], rows), "weight": tensor.Of(tensor.F32, wt[lo:hi], rows),
		"pos": tensor.Of(tensor.I32, pos[lo:hi], rows), "inv": tensor.Of(tensor.F32, []float32{1, 0.1}, 2), "cu": tensor.Of(tensor.I32, []int32{0, int32(rows)}, 2),
		"cu_k": tensor.Of(tensor.I32, []int32{0, int32(hi)}, 2)}
	if chunks == 1 && !c.one {
		d["cu"] = tensor.Of(tensor.I32, []int32{0, 5, int32(rows)}, 3)
	}
	return d
}

func (w *world) group(r int, n *grad.Node) (members []int, self int) {
	if n.Op.Name == "convert" {
		for i := range w.tp {
			members = append(members, r/w.tp*w.tp+i)
		}
		return members, r % w.tp
	}
	for i := range w.dp {
		members = append(members, i*w.tp+r%w.tp)
	}
	return members, r / w.tp
}

// phase runs one phase of all ranks' frames in lock step.
func (w *world) phase(fs []*grad.Frame, p grad.Phase) {
	segs := fs[0].Trace.Segments(p)
	arrived := make([][][]*tensor.Tensor, len(w.ranks))
	for pc := 0; pc <= len(segs); pc++ {
		next := make([][][]*tensor.Tensor, len(w.ranks))
		for r, run := range w.ranks {
			parts, err := run.Step(fs[r], p, pc, arrived[r])
			require.NoError(w.t, err)
			for i, ps := range parts {
				members, self := w.group(r, segs[pc].Comm[i])
				for d, m := range members {
					for len(next[m]) <= i {
						next[m] = append(next[m], make([]*tensor.Tensor, len(members)))
					}
					next[m][i][self] = ps[d]
				}
			}
		}
		arrived = next
	}
}

// step runs a whole microbatch over the stages and returns loss and full gradients.
func (w *world) step(cuts []int, o grad.Options) (float64, map[string][]float64) {
	chunks := max(1, o.Chunks)
	loss := 0.0
	frames := map[[2]int][]*grad.Frame{}
	for ch := range chunks {
		in := make([]map[string]*tensor.Tensor, len(w.ranks))
		for s := range len(cuts) - 1 {
			oc := o
			oc.Chunk = ch
			tr := w.c.stage(oc, cuts[s], cuts[s+1])
			fs := make([]*grad.Frame, len(w.ranks))
			for r, run := range w.ranks {
				var prev []*grad.Frame
				for k := range ch {
					prev = append(prev, frames[[2]int{s, k}][r])
				}
				all := w.data(ch, chunks)
				need := map[string]*tensor.Tensor{}
				for _, k := range []string{"pos", "inv", "cu", "cu_k", "ids", "target", "weight"} {
					need[k] = all[k]
				}
				fs[r] = run.NewFrame(tr, need, in[r], prev)
			}
			frames[[2]int{s, ch}] = fs
			w.phase(fs, grad.F)
			for r := range w.ranks {
				in[r] = fs[r].Outputs()
			}
			if s == len(cuts)-2 {
				for r := range fs {
					l := fs[r].Loss()
					if r == 0 {
						loss += l
					}
				}
			}
		}
	}
	for ch := chunks - 1; ch >= 0; ch-- {
		var dout []map[string]*tensor.Tensor
		for s := len(cuts) - 2; s >= 0; s-- {
			fs := frames[[2]int{s, ch}]
			for r := range fs {
				if dout != nil {
					fs[r].Gradients(dout[r])
				}
				require.Zero(w.t, fs[r].Pending)
			}
			if w.split {
				w.phase(fs, grad.I)
				w.phase(fs, grad.W)
			} else {
				w.phase(fs, grad.B)
			}
			dout = nil
			for r := range fs {
				dout = append(dout, fs[r].InputGradients())
				fs[r].Close()
			}
		}
	}
	return loss, w.gradients(cuts, o)
}

// gradients assembles the logical gradients from all ranks.
func (w *world) gradients(cuts []int, o grad.Options) map[string][]float64 {
	out := map[string][]float64{}
	seen := map[string]bool{}
	for s := range len(cuts) - 1 {
		for _, p := range w.c.stage(o, cuts[s], cuts[s+1]).Params {
			if seen[p.Name] || p.Frozen {
				continue
			}
			seen[p.Name] = true
			g := make([]float64, tensor.Len(p.Shape))
			for r, run := range w.ranks {
				got := run.Grads[p.Name]
				require.NotNil(w.t, got, p.Name)
				if !o.ShardGrads && r >= w.tp {
					continue // dp ranks hold the same microbatch here
				}
				w.add(g, p, got, r, o)
			}
			out[p.Name] = g
		}
	}
	for _, run := range w.ranks {
		for _, g := range run.Grads {
			g.Release()
		}
		require.Zero(w.t, run.Pool.Live(), "live bytes at the end")
		require.Zero(w.t, run.Host.Live(), "live host bytes at the end")
	}
	return out
}

// add puts rank r's share of the gradient of p into g.
func (w *world) add(g []float64, p *grad.Param, got *tensor.Tensor, r int, o grad.Options) {
	pos, lo := r%w.tp, 0
	if o.ShardGrads {
		lo, _ = grad.ShardRows(p.Local[0], r/w.tp, w.dp)
	}
	if p.Grad[0].Kind == grad.Replicated && pos > 0 {
		return
	}
	scale := 1.0
	if o.ShardGrads {
		scale = 1 / float64(w.dp) // every dp rank ran the same microbatch
	}
	cols := tensor.Len(p.Local[1:])
	for i, x := range got.F32() {
		row, col := lo+i/cols, i%cols
		at := row*cols + col
		if p.Place[0].Kind == grad.Sharded {
			if p.Place[0].Axis == 0 {
				at = (pos*p.Local[0]+row)*cols + col
			} else {
				at = row*p.Shape[1] + pos*cols + col
			}
		}
		g[at] += float64(x) * scale
	}
}

func compare(t *testing.T, name string, got, want map[string][]float64) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for k, w := range want {
		var d, n float64
		for i := range w {
			d += (w[i] - got[k][i]) * (w[i] - got[k][i])
			n += w[i] * w[i]
		}
		// Float32 activations through two layers: products of about 24 terms, other orders of sums.
		if e := math.Sqrt(d / n); !(e < 2e-6) {
			t.Errorf("%s: gradient of %s differs by %.2g relative", name, k, e)
		}
	}
}

// TestPolicies holds every placement and policy to one device: the tape's collectives, recompute, offload, split backward,
// stages, sharded parameters and gradients must not change the gradient.
func TestPolicies(t *testing.T) {
	base := newWorld(t, small, 1, 1, small.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	for name, v := range policies() {
		t.Run(name, func(t *testing.T) {
			v.o.Mesh = []grad.MeshAxis{{Name: "tp", Size: v.tp}}
			v.o.DP = v.dp
			w := newWorld(t, small, v.tp, max(1, v.dp), small.stage(v.o, 0, 2))
			w.split = v.split
			got, g := w.step(v.cuts, v.o)
			require.InDelta(t, loss*v.lossOf, got, 2e-6)
			compare(t, name, g, want)
		})
	}
}

// TestChunks holds a sequence cut into chunks, whose keys and values are carried, to the whole sequence.
func TestChunks(t *testing.T) {
	c := small
	c.one = true
	base := newWorld(t, c, 1, 1, c.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	for _, chunks := range []int{2, 3, 4} {
		for _, tp := range []int{1, 2} {
			for _, rc := range []grad.Recompute{grad.RecomputeNone, grad.RecomputeFull} {
				o := grad.Options{Chunks: chunks, Recompute: rc, Mesh: []grad.MeshAxis{{Name: "tp", Size: tp}}, SeqParallel: tp > 1 && c.tokens/chunks%tp == 0}
				w := newWorld(t, c, tp, 1, c.stage(o, 0, 2))
				w.split = chunks == 3
				got, g := w.step([]int{0, 1, 2}, o)
				require.InDelta(t, loss, got, 2e-6)
				compare(t, fmt.Sprintf("chunks=%d tp=%d %v", chunks, tp, rc), g, want)
			}
		}
	}
}

type policyCase struct {
	tp, dp int
	cuts   []int
	split  bool
	lossOf float64
	o      grad.Options
}

func policies() map[string]policyCase {
	out := map[string]policyCase{}
	add := func(name string, tp, dp int, cuts []int, o grad.Options) {
		for _, split := range []bool{false, true} {
			out[fmt.Sprintf("%s split=%v", name, split)] = policyCase{tp, dp, cuts, split, 1, o}
		}
	}
	whole, two := []int{0, 2}, []int{0, 1, 2}
	off := func(v *grad.Value) bool { return len(v.Shape) == 2 }
	add("one device", 1, 1, whole, grad.Options{})
	add("two stages", 1, 1, two, grad.Options{})
	for _, rc := range []grad.Recompute{grad.RecomputeSelective, grad.RecomputeFull} {
		add(fmt.Sprint("recompute ", rc), 1, 1, two, grad.Options{Recompute: rc})
		add(fmt.Sprint("twice ", rc), 1, 1, two, grad.Options{Recompute: rc, Twice: true})
	}
	add("offload", 1, 1, two, grad.Options{Offload: off})
	for _, tp := range []int{2, 4} {
		for _, sp := range []bool{false, true} {
			n := fmt.Sprintf("tp=%d sp=%v", tp, sp)
			add(n, tp, 1, two, grad.Options{SeqParallel: sp})
			add(n+" recompute", tp, 1, two, grad.Options{SeqParallel: sp, Recompute: grad.RecomputeFull})
			add(n+" selective offload", tp, 1, whole, grad.Options{SeqParallel: sp, Recompute: grad.RecomputeSelective, Offload: off})
		}
	}
	add("zero 2", 1, 2, two, grad.Options{ShardGrads: true})
	add("zero 3", 1, 3, two, grad.Options{ShardGrads: true, ShardParams: true})
	add("zero 3 recompute", 2, 2, whole, grad.Options{ShardGrads: true, ShardParams: true, SeqParallel: true, Recompute: grad.RecomputeFull})
	return out
}

// TestFrozen checks that a frozen trunk leaves no weight-gradient work and no gradients behind it.
func TestFrozen(t *testing.T) {
	tr := small.stage(grad.Options{Frozen: func(p string) bool { return p != "lnf" }}, 0, 2)
	require.Len(t, tr.W, 1)
	require.Len(t, tr.W[0].Ops, 1)
	require.Equal(t, "rmsnorm_dw", tr.W[0].Ops[0].Op.Name)
}

// TestCollectives counts Megatron's collectives for L layers: none is redundant.
func TestCollectives(t *testing.T) {
	count := func(segs []grad.Segment) (n int) {
		for _, s := range segs {
			n += len(s.Comm)
		}
		return
	}
	c := small
	c.kv = 4
	L := c.layers
	tr := c.stage(grad.Options{Mesh: []grad.MeshAxis{{Name: "tp", Size: 2}}}, 0, L)
	require.Equal(t, 2*L+3, count(tr.F), "two all-reduces a layer, embedding, and two for the loss")
	require.Equal(t, 2*L+1, count(tr.I))
	require.Equal(t, 0, count(tr.W))
}

// TestHash: the same record gives the same hash, another policy another one.
func TestHash(t *testing.T) {
	a := small.stage(grad.Options{}, 0, 2).Hash()
	require.Equal(t, a, small.stage(grad.Options{}, 0, 2).Hash())
	require.NotEqual(t, a, small.stage(grad.Options{Recompute: grad.RecomputeFull}, 0, 2).Hash())
}

// TestClonedOnce: a forward operation with two results that the backward needs in different places is computed again once, unless the
// gradients of inputs and weights run apart.
func TestClonedOnce(t *testing.T) {
	for _, twice := range []bool{false, true} {
		tape := grad.NewTape(grad.Options{Recompute: grad.RecomputeSelective, Twice: twice})
		tape.Block(0, func() {
			x := tape.Input("x", tensor.F32, 4, 8)
			y := tape.Linear(tape.RMSNorm(x, tape.Param("norm", []int{8}, -1, 0, false), 1e-5), tape.Param("w", []int{6, 8}, 0, 1, true), nil)
			tape.Output("y", y)
		})
		tr := tape.Finish()
		segs, want := tr.B, 1
		if twice {
			segs, want = slices.Concat(tr.I, tr.W), 2
		}
		clones := 0
		for _, s := range segs {
			for _, n := range s.Ops {
				if n.Clone && n.Op.Kernel == kernels.RMSNorm {
					clones++
				}
			}
		}
		require.Equal(t, want, clones)
	}
}
