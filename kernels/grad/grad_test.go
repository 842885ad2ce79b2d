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
	window                                           int  // keys that a query sees, 0 for all
	mask                                             bool // visible tiles of four rows
	sinks                                            bool // a further logit for each head
	linear                                           bool // linear attention in place of full
}

var small = mini{layers: 2, hidden: 16, heads: 4, kv: 2, d: 4, ffn: 24, vocab: 32, tokens: 12}

func (c mini) decoder(t *grad.Tape, l int, x, cos, sin, cu *grad.Value) *grad.Value {
	p := func(n string, axis, unit int, shape ...int) *grad.Value {
		return t.Param(fmt.Sprintf("%d.%s", l, n), shape, axis, unit, len(shape) > 1)
	}
	h := t.RMSNorm(x, p("ln1", -1, 1, c.hidden), 1e-6)
	mixer := c.attention
	if c.linear {
		mixer = c.delta
	}
	a := mixer(t, l, h, cos, sin, cu, p)
	x = t.Place("residual", t.Add(x, t.Linear(t.Flat(a), p("wo", 1, c.d, c.hidden, c.heads*c.d),
		p("bo", -1, 1, c.hidden))))
	h = t.RMSNorm(x, p("ln2", -1, 1, c.hidden), 1e-6)
	g := t.SwiGLU(t.Linear(h, p("wg", 0, 1, c.ffn, c.hidden), nil),
		t.Linear(h, p("wu", 0, 1, c.ffn, c.hidden), nil))
	return t.Place("residual", t.Add(x, t.Linear(g, p("wd", 1, 1, c.hidden, c.ffn), nil)))
}

// param declares a parameter of a layer.
type param func(name string, axis, unit int, shape ...int) *grad.Value

func (c mini) attention(t *grad.Tape, l int, h, cos, sin, cu *grad.Value, p param) *grad.Value {
	q := t.Heads(t.Linear(h, p("wq", 0, c.d, c.heads*c.d, c.hidden), p("bq", 0, c.d, c.heads*c.d)), c.d)
	k := t.Heads(t.Linear(h, p("wk", 0, c.d, c.kv*c.d, c.hidden), nil), c.d)
	v := t.Heads(t.Linear(h, p("wv", 0, c.d, c.kv*c.d, c.hidden), nil), c.d)
	q = t.RMSNorm(q, p("qn", -1, 1, c.d), 1e-6)
	q, k = t.Rope(q, cos, sin, false), t.Rope(k, cos, sin, false)
	cuK, rows := cu, c.tokens/t.Chunks
	if t.Chunks > 1 {
		cuK = t.Data("cu_k", tensor.I32, cu.Shape...)
	}
	var blocks *grad.Value
	tile := 0
	if c.mask {
		tile, blocks = 4, t.Data("blocks", tensor.I32, rows/4, 1)
	}
	var sink *grad.Value
	if c.sinks {
		sink = p("sinks", 1, 1, 1, c.heads)
	}
	return t.Attention(q, k, v, cu, cuK, grad.AttentionConfig{Scale: 0.5, Causal: true, Window: c.window,
		Tokens: true, Blocks: blocks, Tile: tile, Sink: sink, Carry: fmt.Sprint(l)})
}

// stage records layers [from, to), with a tied embedding and head at the ends.
func (c mini) stage(o grad.Options, from, to int) *grad.Trace {
	t := grad.NewTape(o)
	rows := c.tokens / max(1, o.Chunks)
	cos, sin := t.RopeTable(t.Data("pos", tensor.I32, rows), t.Data("inv", tensor.F32, c.d/2), 1)
	cu := t.Data("cu", tensor.I32, map[bool]int{true: 3, false: 2}[!c.one])
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
		t.Loss(t.LinearCrossEntropy(h, emb(), t.Data("target", tensor.I32, rows),
			t.Data("weight", tensor.F32, rows), 0))
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

// world runs one stage on every rank of a mesh; the members of a data axis share the tokens out: each counts
// the loss of some.
type world struct {
	t     *testing.T
	c     mini
	o     grad.Options
	full  map[string]*tensor.Tensor
	ranks []*grad.Runner
	split bool // I then W instead of B
	// members are the places of ranks whose meshes are folded, nil where there is one mesh.
	members [][]int
}

func (c mini) params() map[string]*tensor.Tensor {
	r := rand.New(rand.NewPCG(1, 2))
	full := map[string]*tensor.Tensor{}
	for _, p := range c.stage(grad.Options{}, 0, c.layers).Params {
		full[p.Name] = randT(r, 0.3, p.Shape...)
	}
	return full
}

// at is the first index and the number of elements along a tensor axis of what a rank holds.
func at(o *grad.Options, p grad.Place, axis, size int, pos []int) (from, n int) {
	n = size
	for _, m := range p.Cuts(axis) {
		n /= o.Mesh[m].Size
		from += pos[m] * n
	}
	return
}

// sectionOf is what the rank at pos holds of a logical tensor placed p.
func sectionOf(o *grad.Options, x *tensor.Tensor, p grad.Place, pos []int) *tensor.Tensor {
	for axis := range x.Shape {
		from, n := at(o, p, axis, x.Shape[axis], pos)
		shape := append([]int(nil), x.Shape...)
		shape[axis] = n
		y := tensor.Make(x.DType, shape...)
		ref.New().Run(&kernels.Call{Op: kernels.Slice, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y},
			Attr: kernels.Attr{I: [4]int{axis, from}}})
		x = y
	}
	return x
}

// coordinates lists the places of all ranks of a mesh, the last axis varying fastest.
func coordinates(mesh []grad.MeshAxis) (out [][]int) {
	out = [][]int{{}}
	for _, a := range mesh {
		var next [][]int
		for _, pos := range out {
			for i := range a.Size {
				next = append(next, append(append([]int{}, pos...), i))
			}
		}
		out = next
	}
	return
}

func newWorld(t *testing.T, c mini, tr *grad.Trace) *world {
	w := &world{t: t, c: c, o: tr.Options, full: c.params()}
	for r, pos := range coordinates(tr.Mesh) {
		pool := tensor.NewPool(fmt.Sprint("rank", r), 0).Poison()
		run := &grad.Runner{Backend: ref.New(), Pool: pool, Host: tensor.NewPool("host", 0).Poison(),
			Pos:    pos,
			Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
		for _, p := range tr.Params {
			v := sectionOf(&w.o, w.full[p.Name], p.Place, pos)
			if axes := w.o.ZeroAxes(p.Fold); tr.ShardParams {
				v = v.RowSlice(grad.ShardRows(v.Shape[0], w.o.Member(pos, axes), w.o.Members(axes)))
			}
			run.Params[p.Name] = v
		}
		w.ranks = append(w.ranks, run)
	}
	return w
}

// share is whether the rank at pos counts a token's loss: each member of the data axes counts its part of them.
func (w *world) share(pos []int, token int) bool {
	var axes []int
	for m, a := range w.o.Mesh {
		if a.Data {
			axes = append(axes, m)
		}
	}
	return token%w.o.Members(axes) == w.o.Member(pos, axes)
}

// data is the microbatch: two packed sequences, or one sequence in chunks.
func (w *world) data(pos []int, chunk, chunks int) map[string]*tensor.Tensor {
	c, r := w.c, rand.New(rand.NewPCG(3, 4))
	ids, tgt, place := make([]int32, c.tokens), make([]int32, c.tokens), make([]int32, c.tokens)
	wt := make([]float32, c.tokens)
	for i := range ids {
		ids[i], tgt[i], place[i] = int32(r.IntN(c.vocab)), int32(r.IntN(c.vocab)), int32(i)
		if w.share(pos, i) {
			wt[i] = 1 / float32(c.tokens)
		}
	}
	tgt[3] = -100
	rows := c.tokens / chunks
	lo, hi := chunk*rows, (chunk+1)*rows
	d := map[string]*tensor.Tensor{
		"ids": tensor.Of(tensor.I32, deal(w, ids[lo:hi]), rows), "target": tensor.Of(tensor.I32, deal(w,
			tgt[lo:hi]), rows),
		"weight": tensor.Of(tensor.F32, deal(w, wt[lo:hi]), rows), "pos": tensor.Of(tensor.I32, deal(w,
			place[lo:hi]), rows), "inv": tensor.Of(tensor.F32, []float32{1, 0.1}, 2),
		"cu":   tensor.Of(tensor.I32, []int32{0, int32(rows)}, 2),
		"cu_k": tensor.Of(tensor.I32, []int32{0, int32(hi)}, 2)}
	if !c.one { // a border within the first chunk
		q, k := []int32{0, 5, int32(c.tokens)}, []int32{0, 5, int32(c.tokens)}
		for i := range q {
			q[i], k[i] = min(max(q[i]-int32(lo), 0), int32(rows)), min(k[i], int32(hi))
		}
		d["cu"], d["cu_k"] = tensor.Of(tensor.I32, q, 3), tensor.Of(tensor.I32, k, 3)
	}
	if c.mask { // of 6 by 6 tiles, each row of them sees itself and some before
		bits := []int32{1, 3, 5, 12, 26, 49}[lo/4 : hi/4]
		d["blocks"] = tensor.Of(tensor.I32, bits, len(bits), 1)
	}
	return d
}

// deal puts rows into the order in which members of a zigzag axis have them.
func deal[T any](w *world, v []T) (out []T) {
	for _, a := range w.o.Mesh {
		if a.Zigzag {
			n := len(v) / (2 * a.Size)
			for r := range a.Size {
				out = append(append(out, v[r*n:(r+1)*n]...), v[len(v)-(r+1)*n:len(v)-r*n]...)
			}
			return out
		}
	}
	return v
}

func (w *world) group(r int, n *grad.Node) (members []int, self int) {
	all := w.members
	if all == nil {
		all = coordinates(w.o.Mesh)
	}
	fold := w.o.Mesh[n.Axes[0]].Fold
	for k, pos := range all {
		same := true
		for m := range pos {
			same = same && (pos[m] == all[r][m] || slices.Contains(n.Axes, m) || w.members != nil &&
				w.o.Mesh[m].Fold != fold)
		}
		if same {
			members = append(members, k)
		}
	}
	return members, slices.Index(members, r)
}

// phase runs one phase of all ranks' frames in lock step.
func (w *world) phase(fs []*grad.Frame, p grad.Phase) {
	segs := fs[0].Trace.Segments(p)
	boxes := make([]map[grad.Issued][]grad.Bundle, len(w.ranks)) // parts that have come, by rank
	for pc := range max(1, len(segs)) {
		for r, run := range w.ranks {
			var arrived [][]grad.Bundle
			for k := 0; pc > 0 && k < len(segs[pc].Await); k++ {
				arrived = append(arrived, boxes[r][segs[pc].Await[k]])
				delete(boxes[r], segs[pc].Await[k])
			}
			parts, err := run.Step(fs[r], p, pc, arrived)
			require.NoError(w.t, err)
			for i, ps := range parts {
				members, self := w.group(r, segs[pc].Comm[i])
				if by := segs[pc].Comm[i].Shift(); by != 0 { // one part, to one member
					n := len(members)
					to := ((self+by)%n + n) % n
					members, ps, self = members[to:to+1], ps[to:to+1], 0
				}
				for d, m := range members {
					key := grad.Issued{Segment: pc, Comm: i}
					if boxes[m] == nil {
						boxes[m] = map[grad.Issued][]grad.Bundle{}
					}
					if boxes[m][key] == nil {
						boxes[m][key] = make([]grad.Bundle, len(members))
					}
					boxes[m][key][self] = ps[d]
				}
			}
		}
	}
	for _, left := range boxes {
		require.Empty(w.t, left, "parts that nobody awaits")
	}
}

// losses takes the loss out of all ranks' frames, and gives the first ones' sum.
func (w *world) losses(fs []*grad.Frame) (loss float64) {
	for r := range fs {
		if l := fs[r].Loss(); w.first(w.ranks[r].Pos) {
			loss += l
		}
	}
	return loss
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
				all := w.data(run.Pos, ch, chunks)
				need := map[string]*tensor.Tensor{}
				for _, k := range []string{"pos", "inv", "cu", "cu_k", "blocks", "ids", "target", "weight"} {
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
				loss += w.losses(fs)
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
				loss += w.losses(fs)
				w.phase(fs, grad.W)
			} else {
				w.phase(fs, grad.B)
				loss += w.losses(fs)
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

// first reports whether a rank is the first on every axis but those of data.
func (w *world) first(pos []int) bool {
	for m, a := range w.o.Mesh {
		if pos[m] > 0 && !a.Data {
			return false
		}
	}
	return true
}

// gradients assembles the logical gradients from all ranks.
func (w *world) gradients(cuts []int, o grad.Options) map[string][]float64 {
	out := map[string][]float64{}
	for s := range len(cuts) - 1 {
		for _, p := range w.c.stage(o, cuts[s], cuts[s+1]).Params {
			if out[p.Name] != nil || p.Frozen {
				continue
			}
			g := make([]float64, tensor.Len(p.Shape))
			for _, run := range w.ranks {
				require.NotNil(w.t, run.Grads[p.Name], p.Name)
				w.add(g, p, run.Grads[p.Name], run.Pos)
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

// add puts a rank's share of the gradient of p into g. Copies on axes over which it is replicated count once.
func (w *world) add(g []float64, p *grad.Param, got *tensor.Tensor, pos []int) {
	zero := w.o.ZeroAxes(p.Fold)
	for m := range pos {
		if pos[m] > 0 && p.Grad.On(m).Kind == grad.Replicated &&
			!(w.o.ShardGrads && slices.Contains(zero, m)) {
			return
		}
	}
	lo := 0
	if w.o.ShardGrads {
		lo, _ = grad.ShardRows(p.Local[0], w.o.Member(pos, zero), w.o.Members(zero))
	}
	row, _ := at(&w.o, p.Place, 0, p.Shape[0], pos)
	cols, col, width := 1, 0, 1
	if len(p.Shape) > 1 {
		col, cols = at(&w.o, p.Place, 1, p.Shape[1], pos)
		width = p.Shape[1]
	}
	for i, x := range got.F32() {
		g[(row+lo+i/cols)*width+col+i%cols] += float64(x)
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

// TestPolicies holds every placement and policy to one device: the tape's collectives, recompute, offload,
// split backward, stages, sharded parameters and gradients must not change the gradient.
func TestPolicies(t *testing.T) {
	base := newWorld(t, small, small.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	for name, v := range policies() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, small, small.stage(v.o, 0, 2))
			w.split = v.split
			got, g := w.step(v.cuts, v.o)
			require.InDelta(t, loss, got, 2e-6)
			compare(t, name, g, want)
		})
	}
}

// TestChunks holds a sequence cut into chunks, whose keys and values are carried, to the whole sequence.
func TestChunks(t *testing.T) {
	c := small
	c.one = true
	base := newWorld(t, c, c.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	for _, chunks := range []int{2, 3, 4} {
		for _, tp := range []int{1, 2} {
			for _, rc := range []grad.Recompute{grad.RecomputeNone, grad.RecomputeFull} {
				o := grad.Options{Chunks: chunks, Recompute: rc,
					Mesh: []grad.MeshAxis{{Name: "tp", Size: tp, Rows: c.tokens/chunks%tp == 0}}}
				w := newWorld(t, c, c.stage(o, 0, 2))
				w.split = chunks == 3
				got, g := w.step([]int{0, 1, 2}, o)
				require.InDelta(t, loss, got, 2e-6)
				compare(t, fmt.Sprintf("chunks=%d tp=%d %v", chunks, tp, rc), g, want)
			}
		}
	}
}

type policyCase struct {
	cuts  []int
	split bool
	o     grad.Options
}

func policies() map[string]policyCase {
	out := map[string]policyCase{}
	add := func(name string, dp, tp int, rows bool, cuts []int, o grad.Options) {
		o.Mesh = []grad.MeshAxis{{Name: "dp", Size: dp, Data: true, Zero: true},
			{Name: "tp", Size: tp, Rows: rows}}
		for _, split := range []bool{false, true} {
			out[fmt.Sprintf("%s split=%v", name, split)] = policyCase{cuts, split, o}
		}
	}
	whole, two := []int{0, 2}, []int{0, 1, 2}
	off := func(v *grad.Value) bool { return len(v.Shape) == 2 }
	add("one device", 1, 1, false, whole, grad.Options{})
	add("two stages", 1, 1, false, two, grad.Options{})
	for _, rc := range []grad.Recompute{grad.RecomputeSelective, grad.RecomputeFull} {
		add(fmt.Sprint("recompute ", rc), 1, 1, false, two, grad.Options{Recompute: rc})
		add(fmt.Sprint("twice ", rc), 1, 1, false, two, grad.Options{Recompute: rc, RecomputePerPhase: true})
	}
	add("offload", 1, 1, false, two, grad.Options{Offload: off})
	for _, tp := range []int{2, 4} {
		for _, sp := range []bool{false, true} {
			n := fmt.Sprintf("tp=%d sp=%v", tp, sp)
			add(n, 1, tp, sp, two, grad.Options{})
			add(n+" recompute", 1, tp, sp, two, grad.Options{Recompute: grad.RecomputeFull})
			add(n+" selective offload", 1, tp, sp, whole,
				grad.Options{Recompute: grad.RecomputeSelective, Offload: off})
		}
	}
	add("zero 2", 2, 1, false, two, grad.Options{ShardGrads: true})
	add("zero 3", 3, 1, false, two, grad.Options{ShardGrads: true, ShardParams: true})
	add("zero 3 recompute", 2, 2, true, whole, grad.Options{ShardGrads: true, ShardParams: true,
		Recompute: grad.RecomputeFull})
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

// TestClonedOnce: a forward operation with two results that the backward needs in different places is
// computed again once, unless the gradients of inputs and weights run apart.
func TestClonedOnce(t *testing.T) {
	for _, twice := range []bool{false, true} {
		tape := grad.NewTape(grad.Options{Recompute: grad.RecomputeSelective, RecomputePerPhase: twice})
		tape.Block(0, func() {
			x := tape.Input("x", tensor.F32, 4, 8)
			y := tape.Linear(tape.RMSNorm(x, tape.Param("norm", []int{8}, -1, 0, false), 1e-5),
				tape.Param("w", []int{6, 8}, 0, 1, true), nil)
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
