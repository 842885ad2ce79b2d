package grad_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// ragged is a model of two layers of four groups each; the microbatch says which rows belong to which group.
const (
	raggedRows, raggedWidth, raggedGroups, raggedVocab = 10, 6, 4, 12
)

func raggedStage(o grad.Options) *grad.Trace {
	t := grad.NewTape(o)
	emb := func() *grad.Value { return t.Table("emb", raggedVocab, raggedWidth) }
	var x *grad.Value
	t.Part(0, func() { x = t.Embed(t.Data("ids", tensor.I32, raggedRows), emb()) })
	for l := range 2 {
		t.Block(l+1, func() {
			data := func(name string, n int) *grad.Value {
				v := t.Data(fmt.Sprintf("%s%d", name, l), tensor.I32, n)
				t.Keep(v)
				return v
			}
			p := func(n string, cut int, shape ...int) *grad.Value {
				return t.ParamOn(fmt.Sprintf("%d.%s", l, n), shape, true,
					grad.Cut{Mesh: "ep", Axis: 0, Unit: 1}, grad.Cut{Mesh: "etp", Axis: cut, Unit: 1})
			}
			h := t.RMSNorm(x, t.Param(fmt.Sprintf("%d.norm", l), []int{raggedWidth}, -1, 1, false), 1e-6)
			y, d := t.Dispatch(t.Take(h, data("order", raggedRows)), data("counts", raggedGroups),
				raggedGroups, "ep", "etp")
			g := t.GroupedLinear(y, p("gate", 1, raggedGroups, 8, raggedWidth), d.Off)
			g = t.GroupBias(g, p("gate_bias", 1, raggedGroups, 8), d.Off)
			u := t.GroupedLinear(y, p("up", 1, raggedGroups, 8, raggedWidth), d.Off)
			a := t.GroupedLinear(t.BoundedGLU(g, u, 0.5, 1.702), p("down", 2, raggedGroups, raggedWidth, 8),
				d.Off)
			z := t.Combine(t.GroupBias(a, p("down_bias", -1, raggedGroups, raggedWidth), d.Off), d)
			x = t.Add(x, t.Take(z, data("back", raggedRows)))
		})
	}
	t.Part(3, func() {
		t.Loss(t.LinearCrossEntropy(x, emb(), t.Data("target", tensor.I32, raggedRows),
			t.Data("weight", tensor.F32, raggedRows), 0))
	})
	return t.Finish()
}

// raggedData is the microbatch of replica dp: group picks the group of a row.
func raggedData(dp int, group func(r *rand.Rand, dp int) int) map[string]*tensor.Tensor {
	r := rand.New(rand.NewPCG(7, uint64(dp)))
	ints := func(n int) []int32 {
		v := make([]int32, raggedRows)
		for i := range v {
			v[i] = int32(r.IntN(n))
		}
		return v
	}
	i32 := func(v []int32) *tensor.Tensor { return tensor.Of(tensor.I32, v, len(v)) }
	out := map[string]*tensor.Tensor{"ids": i32(ints(raggedVocab)), "target": i32(ints(raggedVocab)),
		"weight": tensor.Of(tensor.F32, slices.Repeat([]float32{0.05}, raggedRows), raggedRows)}
	for l := range 2 {
		groups, counts := make([]int, raggedRows), make([]int32, raggedGroups)
		order, back := make([]int32, raggedRows), make([]int32, raggedRows)
		for i := range groups {
			groups[i], order[i] = group(r, dp), int32(i)
			counts[groups[i]]++
		}
		slices.SortStableFunc(order, func(a, b int32) int { return groups[a] - groups[b] })
		for i, row := range order {
			back[row] = int32(i)
		}
		out[fmt.Sprint("order", l)], out[fmt.Sprint("counts", l)], out[fmt.Sprint("back", l)] = i32(order),
			i32(counts), i32(back)
	}
	return out
}

// runRagged gives loss and logical gradients summed over the replicas of a mesh, whose ranks carry on in lock step.
func runRagged(t *testing.T, o grad.Options, replicas int, full map[string]*tensor.Tensor,
	group func(*rand.Rand, int) int) (float64, map[string][]float64) {
	tr := raggedStage(o)
	w := &world{t: t, o: tr.Options}
	var fs []*grad.Frame
	loss, frames := 0.0, coordinatesOf(o.Mesh)
	for r, pos := range frames {
		run := &grad.Runner{Backend: ref.New(), Pool: tensor.NewPool(fmt.Sprint("rank", r), 0).Poison(),
			Host: tensor.NewPool("host", 0), Pos: pos,
			Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
		for _, p := range tr.Params {
			v := sectionOf(&tr.Options, full[p.Name], p.Place, pos)
			if axes := tr.ZeroAxes(p.Fold); tr.ShardParams && len(axes) > 0 {
				v = v.RowSlice(grad.ShardRows(v.Shape[0], tr.Member(pos, axes), tr.Members(axes)))
			}
			run.Params[p.Name] = v
		}
		w.ranks = append(w.ranks, run)
	}
	w.members = frames
	grads := map[string][]float64{}
	// one device runs the replicas' microbatches in turn
	for first := 0; first < replicas; first += len(frames) {
		fs = fs[:0]
		for r, run := range w.ranks {
			all, need := raggedData(first+r, group), map[string]*tensor.Tensor{}
			for _, k := range tr.Data {
				need[k] = all[k]
			}
			fs = append(fs, run.NewFrame(tr, need, nil, nil))
		}
		w.phase(fs, grad.F)
		for _, f := range fs {
			loss += f.Loss()
		}
		w.phase(fs, grad.B)
		for _, f := range fs {
			loss += f.Loss()
			f.Close()
		}
	}
	for _, p := range tr.Params {
		g := make([]float64, tensor.Len(p.Shape))
		for _, run := range w.ranks {
			w.addRows(g, p, run.Grads[p.Name], run.Pos)
		}
		grads[p.Name] = g
	}
	for _, run := range w.ranks {
		for _, g := range run.Grads {
			g.Release()
		}
		require.Zero(t, run.Pool.Live(), "live bytes at the end of %+v", o)
	}
	return loss, grads
}

// coordinatesOf lists the places of ranks whose meshes are folded: one fold's coordinates follow from the
// rank, as the others' do.
func coordinatesOf(mesh []grad.MeshAxis) (out [][]int) {
	folds := map[int][]int{}
	for m, a := range mesh {
		folds[a.Fold] = append(folds[a.Fold], m)
	}
	ranks := 1
	for _, m := range folds[0] {
		ranks *= mesh[m].Size
	}
	for r := range ranks {
		pos := make([]int, len(mesh))
		for _, axes := range folds {
			left := r
			for i := len(axes) - 1; i >= 0; i-- {
				pos[axes[i]] = left % mesh[axes[i]].Size
				left /= mesh[axes[i]].Size
			}
		}
		out = append(out, pos)
	}
	return
}

// addRows adds a rank's gradient to the logical one; copies count once.
func (w *world) addRows(g []float64, p *grad.Param, got *tensor.Tensor, pos []int) {
	if got == nil {
		return
	}
	zero := w.o.ZeroAxes(p.Fold)
	for m, a := range w.o.Mesh {
		if a.Fold == p.Fold && pos[m] > 0 && p.Grad.On(m).Kind == grad.Replicated &&
			!(w.o.ShardGrads && slices.Contains(zero, m)) {
			return
		}
	}
	row, _ := at(&w.o, p.Place, 0, p.Shape[0], pos)
	lo := 0
	if w.o.ShardGrads {
		lo, _ = grad.ShardRows(p.Local[0], w.o.Member(pos, zero), w.o.Members(zero))
	}
	from := make([]int, len(p.Shape))
	for axis := range from {
		from[axis], _ = at(&w.o, p.Place, axis, p.Shape[axis], pos)
	}
	from[0] = row + lo
	for i, x := range got.F32() {
		to, step := 0, 1
		for axis := len(from) - 1; axis >= 0; axis-- {
			to += (from[axis] + i%got.Shape[axis]) * step
			i, step = i/got.Shape[axis], step*p.Shape[axis]
		}
		g[to] += float64(x)
	}
}

// TestDispatch: groups shared out over ranks give the losses and gradients of one device, whatever data
// decides: even shares, groups without rows, all rows to one group; with gradients and parameters sharded,
// full recompute, and communication behind other work.
func TestDispatch(t *testing.T) {
	shares := map[string]func(*rand.Rand, int) int{
		"random":  func(r *rand.Rand, _ int) int { return r.IntN(raggedGroups) },
		"empty":   func(r *rand.Rand, _ int) int { return 3 * r.IntN(2) },
		"one":     func(*rand.Rand, int) int { return 2 },
		"crossed": func(_ *rand.Rand, dp int) int { return raggedGroups - 1 - dp },
	}
	dp := func(n int) grad.MeshAxis { return grad.MeshAxis{Name: "dp", Size: n, Data: true, Zero: true} }
	ep := func(n int) grad.MeshAxis { return grad.MeshAxis{Name: "ep", Size: n, Fold: 1} }
	etp := func(n int) grad.MeshAxis { return grad.MeshAxis{Name: "etp", Size: n, Fold: 1} }
	edp := func(n int) grad.MeshAxis {
		return grad.MeshAxis{Name: "edp", Size: n, Data: true, Zero: true,
			Fold: 1}
	}
	full := map[string]*tensor.Tensor{}
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range raggedStage(grad.Options{}).Params {
		full[p.Name] = randT(r, 0.4, p.Shape...)
	}
	for _, name := range slices.Sorted(maps.Keys(shares)) {
		loss, want := runRagged(t, grad.Options{}, 4, full, shares[name])
		for _, o := range []grad.Options{
			{Mesh: []grad.MeshAxis{dp(4), ep(4)}},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), ep(2)}},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), ep(2)}, Recompute: grad.RecomputeFull},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), ep(2)}, Overlap: true, Recompute: grad.RecomputeSelective},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), ep(2)}, ShardGrads: true},
			{Mesh: []grad.MeshAxis{dp(4), ep(2), etp(2)}},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), etp(2)}, Recompute: grad.RecomputeSelective},
			{Mesh: []grad.MeshAxis{dp(4), edp(2), ep(2)}, ShardGrads: true, ShardParams: true,
				Overlap: true},
		} {
			got, g := runRagged(t, o, 4, full, shares[name])
			require.InDelta(t, loss, got, 2e-6, "%s %+v", name, o)
			compare(t, fmt.Sprintf("%s %+v", name, o), g, want)
		}
	}
	require.Panics(t, func() {
		raggedStage(grad.Options{Mesh: []grad.MeshAxis{{Name: "tp", Size: 2},
			ep(2)}})
	}, "copies of rows")
	require.Panics(t, func() { raggedStage(grad.Options{Mesh: []grad.MeshAxis{dp(3), ep(3)}}) },
		"three members, four groups")
}
