package grad

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// places lists every placement of a matrix on n mesh axes.
func places(n int, partial bool) []Place {
	out := []Place{{}}
	kinds := []Part{{}, {Sharded, 0}, {Sharded, 1}}
	if partial {
		kinds = append(kinds, Part{Kind: Partial})
	}
	for m := range n {
		var next []Place
		for _, p := range out {
			for _, k := range kinds {
				p[m] = k
				next = append(next, p)
			}
		}
		out = next
	}
	return out
}

// member is one rank of the test's mesh.
type member struct {
	pos []int
	run *Runner
}

// part is what a rank holds of the logical matrix [rows cols], whose element (i, j) is i·cols+j, placed p.
// The terms of a partial value are random and sum to it.
func part(o *Options, p Place, rows, cols int, pos []int, terms map[string][]float32) *tensor.Tensor {
	r0, rn, c0, cn := 0, rows, 0, cols
	for m, a := range o.Mesh {
		switch p[m] {
		case Part{Sharded, 0}:
			rn /= a.Size
			r0 += pos[m] * rn
		case Part{Sharded, 1}:
			cn /= a.Size
			c0 += pos[m] * cn
		}
	}
	key := ""
	for m := range o.Mesh {
		if p[m].Kind == Partial {
			key += fmt.Sprint(pos[m])
		}
	}
	t := tensor.Make(tensor.F32, rn, cn)
	for i := range t.F32() {
		at := (r0+i/cn)*cols + c0 + i%cn
		t.F32()[i] = float32(at)
		if key != "" {
			t.F32()[i] = terms[key][at]
		}
	}
	return t
}

// TestConversions brings a matrix from every placement to every other on two and three mesh axes: each rank
// ends with exactly the elements that the placement says. Two axes may shard one tensor axis on either side.
func TestConversions(t *testing.T) {
	for _, sizes := range [][]int{{2, 2}, {2, 3}, {2, 2, 2}, {3, 2, 2}} {
		o := Options{}
		for m, n := range sizes {
			o.Mesh = append(o.Mesh, MeshAxis{Name: fmt.Sprint("axis", m), Size: n})
		}
		for _, from := range places(len(sizes), true) {
			for _, to := range places(len(sizes), false) {
				convertOne(t, o, from, to)
			}
		}
	}
}

func convertOne(t *testing.T, o Options, from, to Place) {
	const rows, cols = 24, 24
	tape := NewTape(o)
	x := tape.one(opData, kernels.Attr{}, tensor.F32, []int{rows, cols}, from)
	x.Node.Attr.Name = "x"
	y := tape.to(x, to)
	tape.outs = append(tape.outs, &Port{Name: "y", Value: y})
	tape.NoGrad = true
	tr := tape.Finish()
	var all []*member
	n := o.Members([]int{0, 1, 2}[:len(o.Mesh)])
	for r := range n {
		pos := make([]int, len(o.Mesh))
		for m, left := len(pos)-1, r; m >= 0; m-- {
			pos[m], left = left%o.Mesh[m].Size, left/o.Mesh[m].Size
		}
		all = append(all, &member{pos: pos, run: &Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0),
			Pos: pos}})
	}
	terms := partialTerms(&o, from, rows*cols)
	var fs []*Frame
	for _, m := range all {
		fs = append(fs, m.run.NewFrame(tr,
			map[string]*tensor.Tensor{"x": part(&o, from, rows, cols, m.pos, terms)}, nil, nil))
	}
	exchange(t, tr, all, fs)
	for r, m := range all {
		got := fs[r].Outputs()["y"]
		want := part(&o, to, rows, cols, m.pos, nil)
		require.Equal(t, want.Shape, got.Shape, "%v from %v to %v", o.Mesh, from, to)
		require.Equal(t, want.F32(), got.F32(), "rank %v of %v from %v to %v", m.pos, o.Mesh, from, to)
	}
}

// partialTerms are small integers, so that their sums are exact in any order.
func partialTerms(o *Options, p Place, n int) map[string][]float32 {
	keys := []string{""}
	for m, a := range o.Mesh {
		if p[m].Kind == Partial {
			var next []string
			for _, k := range keys {
				for i := range a.Size {
					next = append(next, k+fmt.Sprint(i))
				}
			}
			keys = next
		}
	}
	rnd, out := rand.New(rand.NewPCG(1, 2)), map[string][]float32{}
	left := make([]float32, n)
	for i := range left {
		left[i] = float32(i)
	}
	for i, k := range keys {
		v := make([]float32, n)
		for j := range v {
			v[j] = float32(rnd.IntN(100))
			if i == len(keys)-1 {
				v[j] = left[j]
			}
			left[j] -= v[j]
		}
		out[k] = v
	}
	return out
}

// exchange runs the forward of all ranks in lock step.
func exchange(t *testing.T, tr *Trace, all []*member, fs []*Frame) {
	arrived := make([][][]Bundle, len(all))
	for pc := range tr.F {
		next := make([][][]Bundle, len(all))
		for i, n := range tr.F[pc].Comm {
			for r := range all {
				next[r] = append(next[r], make([]Bundle, tr.Mesh[n.Axes[0]].Size))
				require.Contains(t, tr.F[pc+1].Await, Issued{pc, i})
			}
		}
		for r, m := range all {
			parts, err := m.run.Step(fs[r], F, pc, arrived[r])
			require.NoError(t, err)
			for i, ps := range parts {
				axis, stride := tr.F[pc].Comm[i].Axes[0], 1
				for k := len(tr.Mesh) - 1; k > axis; k-- {
					stride *= tr.Mesh[k].Size
				}
				for d, p := range ps {
					next[r+(d-m.pos[axis])*stride][i][m.pos[axis]] = p
				}
			}
		}
		arrived = next
	}
}

// TestOuterAxisWaits: an axis may not change how a tensor axis is cut while one within it shards the same.
func TestOuterAxisWaits(t *testing.T) {
	tape := NewTape(Options{Mesh: []MeshAxis{{Name: "cp", Size: 2}, {Name: "tp", Size: 2}}})
	both := Place{{Sharded, 0}, {Sharded, 0}}
	x := tape.one(opData, kernels.Attr{}, tensor.F32, []int{8, 4}, both)
	require.Panics(t, func() { tape.toAxis(x, 0, Part{}) })
	y := tape.to(x, Place{})
	require.Equal(t, []int{0}, y.Node.Axes, "the outer axis gathers last")
	require.Equal(t, []int{1}, y.Node.In[0].Node.Axes)
}

// TestEveryWayEnds: from every placement to every other one that has no terms to sum the changes end, at what was
// wanted, also where an axis that exchanges rows for heads lies within one that cuts heads though it comes before it.
func TestEveryWayEnds(t *testing.T) {
	for _, mesh := range [][]MeshAxis{{{Name: "ulysses", Size: 2, Context: true, Exchange: true}, {Name: "tp", Size: 2}},
		{{Name: "dp", Size: 2}, {Name: "cp", Size: 2, Context: true}, {Name: "tp", Size: 2}}} {
		o := &Options{Mesh: mesh}
		for _, from := range places(len(mesh), true) {
			for _, to := range places(len(mesh), false) {
				v, changes := from, 0
				for {
					m, part, more := o.next(v, to)
					if !more {
						break
					}
					require.GreaterOrEqual(t, -1, o.inner(v, m, part), "%v to %v: %v on %s", from, to, v, mesh[m].Name)
					v[m] = part
					if changes++; changes > 3*len(mesh) {
						require.Failf(t, "no end", "%v to %v", from, to)
					}
				}
				require.Equal(t, to, v)
			}
		}
	}
}
