package grad_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// cpAxis and uAxis are axes of context parallelism: whose members gather or form a ring, and that exchange
// tokens for heads.
func cpAxis(n int, ring, zigzag bool) grad.MeshAxis {
	return grad.MeshAxis{
		Name:    "cp",
		Size:    n,
		Rows:    true,
		Context: true,
		Zero:    true,
		Ring:    ring,
		Zigzag:  zigzag,
	}
}

func uAxis(n int) grad.MeshAxis {
	return grad.MeshAxis{Name: "ulysses", Size: n, Rows: true, Context: true, Zero: true, Exchange: true}
}

// contextMeshes are the ways to share out tokens, alone and beside other axes. Heads fewer than the members
// of an exchange are picked.
func contextMeshes() (out [][]grad.MeshAxis) {
	tp := grad.MeshAxis{Name: "tp", Size: 2}
	sp := grad.MeshAxis{Name: "tp", Size: 2, Rows: true}
	dp := grad.MeshAxis{Name: "dp", Size: 2, Data: true, Zero: true}
	for _, ring := range []bool{false, true} {
		for _, zigzag := range []bool{false, true} {
			for _, n := range []int{2, 3} {
				out = append(out, []grad.MeshAxis{cpAxis(n, ring, zigzag)})
			}
			a := cpAxis(2, ring, zigzag)
			out = append(
				out,
				[]grad.MeshAxis{a, uAxis(2)},
				[]grad.MeshAxis{a, sp},
				[]grad.MeshAxis{a, {Name: "tp", Size: 4}},
				[]grad.MeshAxis{dp, a, uAxis(2), sp},
			)
		}
	}
	return append(
		out,
		[]grad.MeshAxis{uAxis(2)},
		[]grad.MeshAxis{uAxis(4)},
		[]grad.MeshAxis{uAxis(2), sp},
		[]grad.MeshAxis{uAxis(2), tp},
		[]grad.MeshAxis{dp, uAxis(2)},
	)
}

// TestContext holds every way to share out the tokens of packed sequences, with a further logit of each
// head, to one device: loss, every gradient, the same bits with overlap.
func TestContext(t *testing.T) {
	c := small
	c.tokens, c.sinks = 24, true
	base := newWorld(t, c, c.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	for _, mesh := range contextMeshes() {
		for k, o := range []grad.Options{
			{}, {Recompute: grad.RecomputeFull}, {ShardGrads: true},
			{ShardGrads: true, ShardParams: true, Recompute: grad.RecomputeSelective},
		} {
			o.Mesh = mesh
			name := fmt.Sprintf("%+v policy %d", mesh, k)
			w := newWorld(t, c, c.stage(o, 0, 2))
			w.split = k%2 == 1
			got, g := w.step([]int{0, 1, 2}, o)
			require.InDelta(t, loss, got, 2e-6, name)
			compare(t, name, g, want)
			if k == 1 {
				continue
			}
			o.Overlap = true
			w = newWorld(t, c, c.stage(o, 0, 2))
			w.split = k%2 == 1
			late, gl := w.step([]int{0, 1, 2}, o)
			require.Equal(t, got, late, name)
			require.Equal(t, g, gl, "%s: overlap changes no bit", name)
		}
	}
}

// TestCombinations holds every combination of packing, window, mask, sinks, chunks and ways to share out
// tokens to one device.
func TestCombinations(t *testing.T) {
	meshes := [][]grad.MeshAxis{
		nil, {cpAxis(2, false, false)}, {cpAxis(2, false, true)}, {cpAxis(2, true, true)}, {uAxis(2)},
		{cpAxis(2, true, true), uAxis(2)}, {uAxis(2), {Name: "tp", Size: 2, Rows: true}}, {uAxis(4)},
	}
	for i := range 16 {
		c := small
		c.tokens, c.one, c.mask, c.sinks = 24, i&1 == 0, i&4 > 0, i&8 > 0
		if i&2 > 0 {
			c.window = 7
		}
		base := newWorld(t, c, c.stage(grad.Options{}, 0, 2))
		loss, want := base.step([]int{0, 2}, grad.Options{})
		for _, chunks := range []int{1, 2, 3} {
			for k, mesh := range meshes {
				o := grad.Options{Chunks: chunks, Recompute: grad.Recompute((i + k) % 3), Mesh: mesh}
				w := newWorld(t, c, c.stage(o, 0, 2))
				got, g := w.step([]int{0, 1, 2}, o)
				name := fmt.Sprintf(
					"%+v chunks %d one=%v window %d mask=%v sinks=%v",
					mesh,
					chunks,
					c.one,
					c.window,
					c.mask,
					c.sinks,
				)
				require.InDelta(t, loss, got, 2e-6, name)
				compare(t, name, g, want)
			}
		}
	}
}

// TestContextShares: every rank computes its share of each operation, attention among them, and nothing that others do.
// A zigzag is balanced; one run of a causal sequence a rank leaves the last of n ranks 2-1/n times the mean.
func TestContextShares(t *testing.T) {
	c := small
	c.one, c.tokens = true, 48
	work := func(mesh ...grad.MeshAxis) (attention, rest float64) {
		tr := c.stage(grad.Options{Mesh: mesh}, 0, 2)
		for _, p := range []grad.Phase{grad.F, grad.B} {
			for _, s := range tr.Segments(p) {
				for _, n := range s.Ops {
					if _, ok := tr.Attends(n); ok {
						attention += float64(tr.Flops(n))
					} else if n.Op.Kernel != kernels.AttentionMerge && n.Op.Kernel != kernels.Sum &&
						n.Op.Kernel != kernels.CutParts && n.Op.Kernel != kernels.CutSequences {
						rest += float64(tr.Flops(n))
					}
				}
			}
		}
		return
	}
	a, r := work()
	for _, ring := range []bool{false, true} {
		for _, n := range []int{2, 4} {
			for _, zigzag := range []bool{false, true} {
				ga, gr := work(cpAxis(n, ring, zigzag))
				most := 1.0
				if !zigzag {
					most = 2 - 1/float64(n)
				}
				require.InEpsilon(
					t,
					most,
					ga*float64(n)/a,
					0.05,
					"attention of %d ranks, ring %v zigzag %v",
					n,
					ring,
					zigzag,
				)
				require.InEpsilon(t, 1, gr*float64(n)/r, 0.02, "the rest, of %d ranks", n)
			}
		}
	}
	for _, s := range c.stage(grad.Options{Mesh: []grad.MeshAxis{uAxis(2),
		{Name: "tp", Size: 2, Rows: true}}}, 0, 2).Segments(grad.F) {
		// an exchange moves rows to heads, and never gathers query heads that tp shares
		for _, n := range s.Comm {
			in, out := n.In[0].Place.On(1), n.Out[0].Place.On(1)
			heads := len(n.In[0].Shape) == 3 && n.In[0].Shape[1] == c.heads
			require.False(t, heads && in.Kind == grad.Sharded && out.Kind == grad.Replicated, "%v",
				n.In[0].Place)
		}
	}
	ga, gr := work(uAxis(2))
	require.InEpsilon(t, 1, 2*ga/a, 0.05)
	require.InEpsilon(t, 1, 2*gr/r, 0.02)
}

// TestBordersOnce: borders of pieces of sequences are made once, however many layers need them.
func TestBordersOnce(t *testing.T) {
	for _, axis := range []grad.MeshAxis{cpAxis(2, false, false), cpAxis(2, true, false),
		cpAxis(2, true, true)} {
		made := func(layers int) (n int) {
			c := small
			c.layers = layers
			for _, s := range c.stage(grad.Options{Mesh: []grad.MeshAxis{axis}}, 0, layers).F {
				for _, x := range s.Ops {
					if x.Op.Name == "cut_sequences" || x.Op.Name == "cut_parts" {
						n++
					}
				}
			}
			return n
		}
		require.Positive(t, made(1))
		require.Equal(t, made(1), made(3))
	}
}

// TestRingTravels: the rotation of what the next turn needs is issued before a turn's attention and awaited behind it.
func TestRingTravels(t *testing.T) {
	c := small
	c.tokens = 24
	tr := c.stage(grad.Options{Mesh: []grad.MeshAxis{cpAxis(3, true, true)}}, 0, 2)
	for _, p := range []grad.Phase{grad.F, grad.B} {
		segs, turns := tr.Segments(p), 0
		for i, s := range segs {
			for _, n := range s.Comm {
				if n.Shift() != 1 {
					continue
				}
				turns++
				worked := false
				for _, x := range segs[i+1].Ops {
					_, ok := tr.Attends(x)
					worked = worked || ok
				}
				require.True(t, worked, "%v segment %d: nothing to hide behind", p, i)
				for _, at := range segs[i+1].Await {
					require.NotEqual(t, i, at.Segment, "%v segment %d is awaited by the next", p, i)
				}
			}
		}
		require.Equal(t, 2*2*2, turns, "keys and values, two turns, two layers")
	}
}

// TestWindowsDropKeys: of the keys and values of a chunk that lie out of every later query's reach none is
// handed on, and a chunk takes those of the chunks within reach alone.
func TestWindowsDropKeys(t *testing.T) {
	const rows, chunks = 64, 4
	held := func(window, chunk int) (after int64, taken int) {
		c := small
		c.tokens, c.window = rows*chunks, window
		tr := c.stage(grad.Options{Chunks: chunks, Chunk: chunk, Recompute: grad.RecomputeFull}, 0, 2)
		for _, s := range tr.Segments(grad.F) {
			for _, n := range s.Ops {
				if n.Op.Name == "import" {
					taken++
				}
			}
		}
		return tr.Memory(false, 1).After[grad.F], taken
	}
	kept := func(n int) int64 { // keys and values of two layers
		return 2 * 2 * tensor.ClassBytes(int64(n*small.kv*small.d*4))
	}
	all, _ := held(65, 0) // its window reaches all of the chunk before
	for _, x := range []struct{ window, rows, taken int }{{9, 8, 1}, {65, 64, 1}, {66, 64, 2}, {129, 64, 2},
		{130, 64, 3}, {1000, 64, 3}, {1, 0, 0}} {
		after, _ := held(x.window, 0)
		if x.taken < chunks-1 { // else they are gathered in one piece
			require.Equal(t, kept(rows)-kept(x.rows), all-after, "window %d", x.window)
		}
		_, taken := held(x.window, chunks-1)
		require.Equal(t, 2*2*x.taken, taken, "window %d", x.window)
	}
}
