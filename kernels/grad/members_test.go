package grad

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// team runs one rule on all ranks of a mesh, in step.
type team struct {
	t     *testing.T
	tr    *Trace
	ranks []*Runner
}

// seats lists the coordinates of all ranks, the last axis varying fastest.
func seats(mesh []MeshAxis) [][]int {
	out := [][]int{{}}
	for _, a := range mesh {
		var next [][]int
		for _, pos := range out {
			for i := range a.Size {
				next = append(next, append(slices.Clone(pos), i))
			}
		}
		out = next
	}
	return out
}

// section is where what the rank at pos holds along an axis begins, and how long it is.
func (w *team) section(p Place, axis, size int, pos []int) (from, n int) {
	n = size
	for _, m := range p.Cuts(axis) {
		n /= w.tr.Mesh[m].Size
		from += pos[m] * n
	}
	return from, n
}

// cut is what the rank at pos holds of x placed p.
func (w *team) cut(x *tensor.Tensor, p Place, pos []int) *tensor.Tensor {
	for axis := range x.Shape {
		from, n := w.section(p, axis, x.Shape[axis], pos)
		shape := slices.Clone(x.Shape)
		shape[axis] = n
		y := tensor.Make(x.DType, shape...)
		do(kernels.Slice, kernels.Attr{I: [4]int{axis, from}}, x, y)
		x = y
	}
	return x
}

func do(op kernels.Op, at kernels.Attr, x, y *tensor.Tensor) {
	ref.New().Run(&kernels.Call{Op: op, Attr: at, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y}})
}

// whole puts together what all ranks hold of a tensor placed p: parts side by side, sums added up, and copies once.
func (w *team) whole(parts []*tensor.Tensor, shape []int, p Place) []float32 {
	sum := tensor.Make(tensor.F32, shape...)
	for r, pos := range seats(w.tr.Mesh) {
		copied := false
		for m := range w.tr.Mesh {
			copied = copied || p[m].Kind == Replicated && pos[m] > 0
		}
		if copied {
			continue
		}
		x := parts[r]
		for axis := range shape {
			from, n := w.section(p, axis, shape[axis], pos)
			wide := slices.Clone(x.Shape)
			wide[axis] = shape[axis]
			y := tensor.Make(tensor.F32, wide...)
			inner := tensor.Len(x.Shape[axis+1:])
			for i, v := range x.F32() {
				outer, j, k := i/(inner*n), i/inner%n, i%inner
				y.F32()[(outer*shape[axis]+from+j)*inner+k] = v
			}
			x = y
		}
		for i, v := range x.F32() {
			sum.F32()[i] += v
		}
	}
	return sum.F32()
}

// group is the ranks that a communication joins with rank r, and its place among them.
func (w *team) group(r int, n *Node) (members []int, self int) {
	all := seats(w.tr.Mesh)
	for k, pos := range all {
		same := true
		for m := range pos {
			same = same && (pos[m] == all[r][m] || slices.Contains(n.Axes, m))
		}
		if same {
			members = append(members, k)
		}
	}
	return members, slices.Index(members, r)
}

// phase runs a phase of all ranks' frames.
func (w *team) phase(fs []*Frame, p Phase) {
	segs := w.tr.Segments(p)
	boxes := make([]map[Issued][]Bundle, len(w.ranks))
	for r := range boxes {
		boxes[r] = map[Issued][]Bundle{}
	}
	for pc := range segs {
		for r, run := range w.ranks {
			var arrived [][]Bundle
			for _, at := range segs[pc].Await {
				arrived = append(arrived, boxes[r][at])
			}
			parts, err := run.Step(fs[r], p, pc, arrived)
			require.NoError(w.t, err)
			for i, ps := range parts {
				n := segs[pc].Comm[i]
				members, self := w.group(r, n)
				key := Issued{Segment: pc, Comm: i}
				for d, m := range members {
					if by := n.Shift(); by != 0 && d != ((self+by)%len(members)+len(members))%len(members) {
						continue
					}
					if boxes[m][key] == nil {
						count := len(members)
						if n.Shift() != 0 {
							count = 1
						}
						boxes[m][key] = make([]Bundle, count)
					}
					boxes[m][key][min(self, len(boxes[m][key])-1)] = ps[d]
				}
			}
		}
	}
}

// on runs a rule on a mesh, with parameters sharded along an axis: its result and all gradients, whole.
func (x rule) on(t *testing.T, o Options, axis int, values map[string]*tensor.Tensor) map[string][]float32 {
	o.DType = tensor.F32
	tape := NewTape(o)
	v := map[string]*Value{}
	names := slices.Sorted(maps.Keys(x.shapes))
	tape.Block(0, func() {
		for _, name := range names {
			if s := x.shapes[name]; name[0] == 'w' {
				if axis >= len(s) { // the bias of a sum over members
					axis = -1
				}
				v[name] = tape.Param(name, s, axis, 1, true)
			} else {
				v[name] = tape.Input(name, tensor.F32, s...)
			}
		}
		tape.Output("y", x.build(tape, v))
	})
	w := &team{t: t, tr: tape.Finish()}
	place := map[string]Place{"y": w.tr.Out[0].Value.Place}
	for _, p := range w.tr.In {
		place[p.Name] = p.Value.Place
	}
	var fs []*Frame
	for _, pos := range seats(w.tr.Mesh) {
		run := &Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0).Poison(),
			Host: tensor.NewPool("host", 0),
			Pos:  pos, Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
		in := map[string]*tensor.Tensor{}
		for _, p := range w.tr.Params {
			run.Params[p.Name] = w.cut(values[p.Name], p.Place, pos)
		}
		for _, p := range w.tr.In {
			in[p.Name] = w.cut(values[p.Name], place[p.Name], pos)
		}
		w.ranks = append(w.ranks, run)
		fs = append(fs, run.NewFrame(w.tr, given(), in, nil))
	}
	return w.results(fs, place, values)
}

// results runs both phases and puts together what they give.
func (w *team) results(fs []*Frame, place map[string]Place,
	values map[string]*tensor.Tensor) map[string][]float32 {
	parts, got := map[string][]*tensor.Tensor{}, map[string][]float32{}
	w.phase(fs, F)
	shape := w.tr.Out[0].Value.Shape
	dy, r := tensor.Make(tensor.F32, shape...), rand.New(rand.NewPCG(9, 9))
	for i := range dy.F32() {
		dy.F32()[i] = float32(r.NormFloat64())
	}
	for k, f := range fs {
		parts["y"] = append(parts["y"], f.Outputs()["y"])
		f.Gradients(map[string]*tensor.Tensor{"y": w.cut(dy, place["y"], w.ranks[k].Pos)})
	}
	got["y"] = w.whole(parts["y"], shape, place["y"])
	w.phase(fs, B)
	for k, f := range fs {
		for name, g := range f.InputGradients() { //lfvet:order each by itself
			parts[name] = append(parts[name], g)
		}
		for name, g := range w.ranks[k].Grads { //lfvet:order each by itself
			parts[name] = append(parts[name], g)
		}
	}
	for _, p := range w.tr.In {
		got[p.Name] = w.whole(parts[p.Name], values[p.Name].Shape, place[p.Name])
	}
	for _, p := range w.tr.Params {
		got[p.Name] = w.whole(parts[p.Name], p.Shape, p.Grad)
	}
	return got
}

// TestMembers: rules of diffusion models and of convolutions give on members that share samples, channels or
// both what they give on one, results and every gradient.
func TestMembers(t *testing.T) {
	all := diffusionRules()
	maps.Copy(all, imageRules())
	meshes := [][]MeshAxis{{{Name: TP, Size: 2}}, {{Name: "sp", Size: 2, Rows: true}},
		{{Name: TP, Size: 2, Rows: true}}, {{Name: "halo", Size: 2}}, {{Name: "halo", Size: 4}, {Name: TP,
			Size: 2}},
		{{Name: "halo", Size: 2, Rows: true}}, {{Name: "sp", Size: 2, Rows: true}, {Name: TP, Size: 2}},
		{{Name: "cp", Size: 2, Rows: true, Context: true}}, {{Name: "cp", Size: 2, Rows: true,
			Context: true},
			{Name: TP, Size: 2}}}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x, r := all[name], rand.New(rand.NewPCG(3, 4))
		values := map[string]*tensor.Tensor{}
		for _, n := range slices.Sorted(maps.Keys(x.shapes)) {
			values[n] = tensor.Make(tensor.F32, x.shapes[n]...)
			for i := range values[n].F32() {
				values[n].F32()[i] = float32(r.NormFloat64())
			}
		}
		want := x.on(t, Options{}, -1, values)
		for _, mesh := range meshes {
			for _, axis := range []int{-1, 0, 1} {
				for _, again := range []Recompute{RecomputeNone, RecomputeFull} {
					got := x.on(t, Options{Mesh: mesh, Recompute: again}, axis, values)
					at := fmt.Sprintf("%s on %v, weights cut along %d, recompute %v", name, mesh, axis,
						again)
					require.Len(t, got, len(want), at)
					for n, g := range want { //lfvet:order each by itself
						require.InDeltaSlice(t, g, got[n], 2e-5, "%s: %s", at, n)
					}
				}
			}
		}
	}
}

// TestHaloBytes: members that have runs of lines send each neighbour the lines that its windows reach over,
// and nothing else, forward and backward.
func TestHaloBytes(t *testing.T) {
	tape := NewTape(Options{DType: tensor.F32, Mesh: []MeshAxis{{Name: "halo", Size: 4}}})
	x := tape.Runs(tape.Input("x", tensor.F32, 2, 8, 6, 3), 1, "halo")
	w := tape.Param("w", []int{5, 3, 4, 3}, -1, 1, true)
	y := tape.Conv(x, w, nil, step(1, 2, 1), step(1, 1, 1))
	require.Equal(t, []int{0}, y.Place.Cuts(1))
	tape.Output("y", y)
	tr := tape.Finish()
	count := func(p Phase) (bytes []int64) {
		for _, s := range tr.Segments(p) {
			for _, n := range s.Comm {
				if n.Shift() != 0 {
					bytes = append(bytes, tr.CommBytes(n))
				}
			}
		}
		return bytes
	}
	const line = 2 * 6 * 3 * 4
	require.Equal(t, []int64{2 * line, line}, count(F), "two lines to the next, one to the one before")
	require.ElementsMatch(t, []int64{line, 2 * line}, count(B), "and their gradients back")
}
