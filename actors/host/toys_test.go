package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// rowsOf is a modality of the toys: some rows of numbers whose features take the places of the microbatch's
// last tokens, or of its first.
type rowsOf struct {
	name  string
	width int
	last  bool
}

func (m rowsOf) Classes() int32 { return 9 }

func (m rowsOf) rows(in *family.Inputs) []float32 { return toyKeys[m.name].Of(in.More) }

// toyKeys are where microbatches have the rows of each modality, and groupsKey the groups of their tokens.
var (
	toyKeys   = map[string]family.Key[[]float32]{"sound": family.NewKey[[]float32]("sound"), "state": family.NewKey[[]float32]("state")}
	groupsKey = family.NewKey[[]int]("groups")
)

func (m rowsOf) Class(in *family.Inputs) int32 { return int32(len(m.rows(in)) / m.width) }

func (m rowsOf) Dims(_ int, class int32) map[string]int { return map[string]int{m.name: int(class)} }

func (m rowsOf) Planned(_ int, dims map[string]int) int32 { return int32(max(1, dims[m.name])) }

func (m rowsOf) Tensors(in *family.Inputs, s block.Shape) map[string]*tensor.Tensor {
	n := s.Dim(m.name)
	if n == 0 {
		return nil
	}
	x, places := tensor.Make(tensor.F32, n, m.width), tensor.Make(tensor.I32, in.Rows)
	copy(x.F32(), m.rows(in))
	for i := range places.I32() {
		places.I32()[i] = -1
	}
	for i := range len(m.rows(in)) / m.width {
		at := i
		if m.last {
			at = in.Rows - 1 - i
		}
		places.I32()[at] = int32(i)
	}
	return map[string]*tensor.Tensor{m.name + ".x": x, m.name + ".places": places}
}

// threeComponents is two encoders of different kinds, a decoder that takes the features of both, and a head
// of its own beside the language model's.
func threeComponents() *family.Model {
	m := tiny(false)
	hidden := m.Spec.Hidden
	sound, state := rowsOf{"sound", 6, false}, rowsOf{"state", 3, true}
	m.Modalities = []family.Modality{sound, state}
	port := func(of string) family.Port {
		return family.Port{Width: hidden, Rows: func(s block.Shape) int { return s.Dim(of) }, Of: of,
			Whole: true}
	}
	m.Ports["s"], m.Ports["u"] = port("sound"), port("state")
	linear := func(r *block.Rec, name string, x *grad.Value, in int) *grad.Value {
		return r.T.Place("whole", r.Linear(name, x, hidden, in, block.LinearOpts{Bias: true}))
	}
	blocks := []family.Block{
		{Name: "sound.0", Component: "sound", Of: "sound", Gives: []string{"s"}, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["s"] = r.T.Act(linear(r, "sound.0",
					r.T.Data("sound.x", tensor.F32, r.Shape.Dim("sound"), 6),
					6), kernels.GELU)
			}},
		{Name: "sound.1", Component: "sound", Of: "sound", Takes: []string{"s"}, Gives: []string{"s"},
			Recompute: true, Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["s"] = linear(r, "sound.1", env["s"], hidden)
			}},
		{Name: "state.0", Component: "state", Of: "state", Gives: []string{"u"}, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["u"] = linear(r, "state.0", r.T.Data("state.x", tensor.F32, r.Shape.Dim("state"), 3), 3)
			}},
	}
	place := func(r *block.Rec, env map[string]*grad.Value, name, port string) {
		if r.Shape.Dim(name) > 0 {
			at := r.T.Data(name+".places", tensor.I32, r.Shape.Rows)
			env["x"] = r.T.Place("residual",
				r.T.Add(env["x"], r.T.Place("residual", r.T.Take(env[port], at))))
		}
	}
	embed := m.Blocks[0]
	inner := embed.Record
	embed.Takes = append(slices.Clone(embed.Takes), "s", "u")
	embed.Record = func(r *block.Rec, env map[string]*grad.Value) {
		inner(r, env)
		place(r, env, "sound", "s")
		place(r, env, "state", "u")
	}
	head := m.Blocks[len(m.Blocks)-1]
	both := head.Record
	head.Record = func(r *block.Rec, env map[string]*grad.Value) {
		x := env["x"]
		both(r, env)
		w := r.T.Param("policy.weight", []int{m.Spec.Vocab, hidden}, 0, 1, true)
		r.T.Loss(r.T.Scale(r.T.LinearCrossEntropy(x, w, r.T.Data("ids", tensor.I32, r.Shape.Rows),
			r.T.Data("weights", tensor.F32, r.Shape.Rows), 0), 0.5))
	}
	m.Blocks = append(blocks, slices.Concat([]family.Block{embed}, m.Blocks[1:len(m.Blocks)-1],
		[]family.Block{head})...)
	return m
}

// toyBatches deals 8 microbatches a step; of both modalities, of one, and of neither.
func toyBatches(replicas int) BatchFunc {
	const total = 8
	return func(step int64, d int) (out []family.Microbatch, err error) {
		for i := d * total / replicas; i < (d+1)*total/replicas; i++ {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			mb := family.Microbatch{Cu: []int32{0, 8}}
			for k := range 8 {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(32))), append(mb.Targets, int32(r.IntN(32)))
				mb.Positions, mb.Weights = append(mb.Positions, int32(k)),
					append(mb.Weights, 1/float32(total*8))
			}
			numbers := func(n int) []float32 {
				v := make([]float32, n)
				for i := range v {
					v[i] = float32(r.NormFloat64())
				}
				return v
			}
			if i%4 > 0 {
				mb.More = toyKeys["sound"].With(mb.More, numbers(6*(1+r.IntN(3))))
			}
			if i%4 != 2 {
				mb.More = toyKeys["state"].With(mb.More, numbers(3))
			}
			out = append(out, mb)
		}
		return
	}
}

func toyRun(t *testing.T, j *layout.Design, batches BatchFunc, steps int64) []float64 {
	return toyTrain(t, j, batches, steps, refBackend)
}

// toyTrain trains a job of a toy.
func toyTrain(t *testing.T, j *layout.Design, batches BatchFunc, steps int64,
	backend func(int) kernels.Backend) (losses []float64) {
	return toyWrapped(t, j, batches, steps, backend, nil)
}

// toyWrapped is toyTrain with something between ranks and their devices, nil for nothing.
func toyWrapped(t *testing.T, j *layout.Design, batches BatchFunc, steps int64,
	backend func(int) kernels.Backend,
	wrap func(int, Device) Device) (losses []float64) {
	j.Rows, j.Optim = 8, optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}
	l, err := layout.New(j)
	require.NoError(t, err)
	require.NoError(t, Run(l,
		RunOptions{Coord: core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
			LR: func(int64) float64 { return 0.01 }},
			Backend: backend, Batches: batches, WrapDevice: wrap,
			Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
				if kind == "param" {
					j.Model.Init(7, p, g, dst)
				}
				return kind == "param", nil
			},
			Observe: func(m actors.Message) {
				if m.Text == core.TopicStep {
					losses = append(losses, core.SummaryOf(m.Values).Loss)
				}
			}}))
	return
}

// TestThreeComponents trains the toy under every placement of its encoders: as stages of the decoder's
// pipeline, on the first pipeline rank, on all ranks, on ranks of their own, each encoder elsewhere than the
// other; with every level of ZeRO. Nothing in actors knows of it.
func TestThreeComponents(t *testing.T) {
	dims := map[string]int{"sound": 3, "state": 1}
	want := toyRun(t, &layout.Design{Model: threeComponents(), Mesh: topology.Grid(1, 1, 1),
		Schedule: "1f1b",
		Micro:    8, Dims: dims}, toyBatches(1), 5)
	require.Len(t, want, 5)
	part := func(from, tp int, over string, ranks int, fill bool) *layout.PartPlan {
		return &layout.PartPlan{From: from, TP: tp, Over: over, Ranks: ranks, Fill: fill}
	}
	for _, c := range []struct {
		pp, dp, tp, zero int
		schedule         string
		parts            []*layout.PartPlan
	}{
		{4, 1, 1, 0, "1f1b", nil},
		{2, 1, 2, 0, "gpipe", nil},
		{2, 2, 1, 1, "1f1b", nil},
		{1, 2, 1, 2, "1f1b", nil},
		{2, 2, 1, 3, "1f1b", nil},
		{2, 1, 1, 0, "1f1b", []*layout.PartPlan{part(0, 1, layout.OverFirst, 0, false),
			part(2, 1, layout.OverFirst, 0, false)}},
		{2, 1, 2, 0, "1f1b", []*layout.PartPlan{part(0, 1, layout.OverAll, 0, true),
			part(2, 2, layout.OverFirst, 0, true)}},
		{2, 1, 1, 0, "1f1b", []*layout.PartPlan{part(0, 2, layout.OverOwn, 2, true),
			part(2, 1, layout.OverOwn, 1, true)}},
		{2, 2, 1, 1, "gpipe", []*layout.PartPlan{part(0, 1, layout.OverOwn, 2, true),
			part(2, 1, layout.OverAll, 0, false)}},
		{2, 1, 1, 0, "zb-h1", []*layout.PartPlan{part(0, 1, layout.OverAll, 0, true),
			part(2, 1, layout.OverOwn, 1, true)}},
		// both encoders are one part
		{2, 1, 1, 0, "1f1b", []*layout.PartPlan{part(0, 1, layout.OverOwn, 1, true)}},
	} {
		name := fmt.Sprintf("pp%d dp%d tp%d zero%d %s", c.pp, c.dp, c.tp, c.zero, c.schedule)
		for _, p := range c.parts {
			name += fmt.Sprintf(" %+v", *p)
		}
		t.Run(name, func(t *testing.T) {
			got := toyRun(t, &layout.Design{Model: threeComponents(), Mesh: topology.Grid(c.pp, c.dp, c.tp),
				Zero: c.zero, Parts: c.parts, Schedule: c.schedule, Micro: 8 / c.dp, Dims: dims},
				toyBatches(c.dp), 5)
			require.Len(t, got, 5)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v", i+1,
					got, want)
			}
		})
	}
}

// grouping is a modality that says, from the microbatch's tokens alone, which rows belong to which group.
type grouping struct{ groups int }

func (m grouping) Classes() int32                    { return 1 }
func (m grouping) Class(*family.Inputs) int32        { return 0 }
func (m grouping) Dims(int, int32) map[string]int    { return nil }
func (m grouping) Planned(int, map[string]int) int32 { return 0 }
func (m grouping) Tensors(in *family.Inputs, s block.Shape) map[string]*tensor.Tensor {
	group := groupsKey.Of(in.More)
	order, back, counts := tensor.Make(tensor.I32, s.Rows), tensor.Make(tensor.I32, s.Rows),
		tensor.Make(tensor.I32, m.groups)
	for i := range s.Rows {
		order.I32()[i] = int32(i)
		counts.I32()[group[i]]++
	}
	slices.SortStableFunc(order.I32(), func(a, b int32) int { return group[a] - group[b] })
	for i, row := range order.I32() {
		back.I32()[row] = int32(i)
	}
	return map[string]*tensor.Tensor{"order": order, "back": back, "counts": counts}
}

// raggedModel has a layer between the decoder's whose rows are shared out over groups, as data decides.
func raggedModel() *family.Model {
	const groups = 4
	m := tiny(false)
	hidden := m.Spec.Hidden
	m.Modalities = []family.Modality{grouping{groups}}
	ragged := family.Block{Name: "ragged", Component: family.Foundation, Takes: []string{"x"},
		Gives: []string{"x"}, Recompute: true, Weight: 1,
		Record: func(r *block.Rec, env map[string]*grad.Value) {
			t := r.T
			data := func(name string, n int) *grad.Value {
				v :=
					t.Data(name, tensor.I32, n)
				t.Keep(v)
				return v
			}
			w := func(name string, n, k int) *grad.Value {
				return t.ParamOn("ragged."+name, []int{groups, n, k}, true,
					grad.Cut{Mesh: topology.EP, Axis: 0, Unit: 1})
			}
			y, d := t.Dispatch(t.Take(env["x"], data("order", r.Shape.Rows)), data("counts", groups), groups,
				topology.EP, "")
			z := t.GroupedLinear(t.Act(t.GroupedLinear(y, w("up", 12, hidden), d.Off), kernels.SiLU),
				w("down", hidden, 12), d.Off)
			env["x"] = t.Add(env["x"], t.Take(t.Combine(z, d), data("back", r.Shape.Rows)))
		}}
	m.Blocks = slices.Insert(m.Blocks, 3, ragged)
	return m
}

// raggedBatches are the toy's batches with a group for each row; in even steps all rows have the same.
func raggedBatches(replicas int) BatchFunc {
	plain := toyBatches(replicas)
	return func(step int64, d int) ([]family.Microbatch, error) {
		out, err := plain(step, d)
		for i := range out {
			r := rand.New(rand.NewPCG(uint64(step), uint64(d*len(out)+i)))
			groups := make([]int, 8)
			for k := range groups {
				if groups[k] = r.IntN(4); step%2 == 0 {
					groups[k] = 2
				}
			}
			out[i].More = groupsKey.With(out[i].More, groups)
		}
		return out, err
	}
}

// TestRaggedMiddle trains a model in whose middle data decides how many rows a rank has, on a mesh axis of its own
// folded over data parallelism, to the losses of one device; also where one group gets all rows, and one none.
func TestRaggedMiddle(t *testing.T) {
	want := toyRun(t, &layout.Design{Model: raggedModel(), Mesh: topology.Grid(1, 1, 1), Schedule: "1f1b",
		Micro: 8}, raggedBatches(1), 6)
	for _, c := range []struct {
		pp, dp, ep, zero int
		schedule         string
		rc               grad.Recompute
		overlap          bool
	}{
		{1, 2, 2, 0, "1f1b", grad.RecomputeNone, false}, {1, 4, 2, 1, "1f1b", grad.RecomputeFull, false},
		{2, 2, 2, 0, "1f1b", grad.RecomputeSelective, true},
		{1, 4, 4, 0, "gpipe", grad.RecomputeNone, true}, {2, 4, 2, 2, "1f1b", grad.RecomputeNone, false},
		{1, 4, 2, 3, "1f1b", grad.RecomputeFull, true}, {2, 2, 2, 0, "zb-h1", grad.RecomputeNone, false},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			mesh, err := topology.Grid(c.pp, c.dp, 1).Fold(topology.Dim{Name: topology.EDP,
				Size: c.dp / c.ep}, topology.Dim{Name: topology.EP, Size: c.ep})
			require.NoError(t, err)
			got := toyRun(t, &layout.Design{Model: raggedModel(), Mesh: mesh, Zero: c.zero,
				Schedule: c.schedule, Micro: 8 / c.dp, Recompute: c.rc, Overlap: c.overlap},
				raggedBatches(c.dp), 6)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v", i+1,
					got, want)
			}
		})
	}
}
