package host

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// biasedMixture is a model whose experts have biases.
func biasedMixture(t *testing.T) *family.Model {
	m := mixture(t, "softmax")
	s := m.Spec
	s.Experts.Biases = true
	return family.Decoder("toy", s)
}

// movedRun trains a job and gives losses and gradient norms of its steps in turn, and the blocks whose
// experts have moved.
func movedRun(t *testing.T, j *layout.Design, steps int64, o RunOptions) (curve []float64, moved []int) {
	j.Rows, j.Optim = 8, optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}
	l, err := layout.New(j)
	require.NoError(t, err)
	if o.Coord.First == 0 {
		o.Coord.First = 1
	}
	o.Coord.Last, o.Coord.LossScale = steps, core.LossScale{Scale: 1}
	o.Coord.LR = func(int64) float64 { return 0.01 }
	o.Backend, o.Batches = refBackend, toyBatches(j.Mesh.Replicas())
	if o.Fill == nil {
		o.Fill = seeded(j, 7)
	}
	o.Observe = func(m actors.Message) {
		switch m.Text {
		case core.TopicStep:
			curve = append(curve, core.SummaryOf(m.Values).Loss, core.SummaryOf(m.Values).Norm)
		case core.TopicMoved:
			for _, p := range core.Placements(m.Values) {
				moved = append(moved, p.Block)
			}
		}
	}
	require.NoError(t, Run(l, o))
	return
}

// movedPlans share experts out over ranks of data, of tensor parallelism and of both, at every level of ZeRO.
var movedPlans = []expertPlan{
	{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, ""}, {1, 4, 1, 4, 1, 1, 0, "gpipe", 1, some, "overlap"},
	{1, 4, 1, 2, 1, 0, 0, "1f1b", 1, full, ""}, {1, 4, 1, 2, 1, 1, 0, "1f1b", 1, some, ""},
	{1, 4, 1, 2, 1, 2, 0, "1f1b", 1, some, ""}, {1, 4, 1, 2, 1, 3, 0, "1f1b", 1, full, ""},
	{1, 4, 1, 2, 1, 3, 2, "1f1b", 1, some, ""}, {1, 1, 2, 2, 1, 0, 0, "1f1b", 1, some, "sp"},
	{1, 2, 2, 2, 2, 1, 0, "1f1b", 1, none, ""}, {2, 2, 2, 2, 2, 0, 0, "zb-h1", 1, some, "sp"},
	{2, 2, 1, 2, 1, 1, 0, "interleaved", 2, none, ""}, {2, 4, 1, 2, 1, 2, 0, "1f1b", 1, some, "overlap"},
}

// TestMovedExperts: moving experts behind every second step changes no bit of losses and norms.
func TestMovedExperts(t *testing.T) {
	t.Parallel()
	for i, p := range movedPlans {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			job := func(every int) *layout.Design {
				m := mixture(t, "groups")
				if i%2 == 1 {
					m = biasedMixture(t)
				}
				j := p.job(m)
				j.MoveEvery = every
				return j
			}
			want, none := movedRun(t, job(0), 6, RunOptions{})
			require.Empty(t, none)
			got, moved := movedRun(t, job(2), 6, RunOptions{})
			require.Equal(t, want, got)
			require.Contains(t, moved, 1)
			require.Greater(t, len(moved), 2, "experts hardly moved")
			t.Log(moved)
		})
	}
}

// TestMovedElsewhere: a stage that has no experts commits steps behind which those of others move,
// with and without ZeRO.
func TestMovedElsewhere(t *testing.T) {
	t.Parallel()
	for _, zero := range []int{0, 1, 3} {
		job := func(every int) *layout.Design {
			j := expertPlan{2, 2, 1, 2, 1, zero, 0, "1f1b", 1, none, ""}.job(mixture(t, "groups"))
			j.MoveEvery, j.Cuts = every, []int{0, len(j.Model.Blocks) - 1, len(j.Model.Blocks)}
			return j
		}
		want, _ := movedRun(t, job(0), 4, RunOptions{})
		got, moved := movedRun(t, job(1), 4, RunOptions{})
		require.Equal(t, want, got)
		require.NotEmpty(t, moved)
	}
}

// gathered is a Saver that puts the ranks' parts together to logical tensors, by kind and name.
type gathered struct {
	mu  *sync.Mutex
	all map[string][]float32
	t   *testing.T
}

func (s gathered) Snapshot(_ int64, r *Rank, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(r, s.all)
	// a copy in memory knows where experts lie, and so does the rank that is given it
	kept, err := r.keep()
	require.NoError(s.t, err)
	own, again := map[string][]float32{}, map[string][]float32{}
	s.add(r, own)
	require.NoError(s.t, r.Load(func(string, *grad.Param, family.Region, []float32) (bool, error) {
		return true, nil
	}))
	require.True(s.t, r.copies() || len(r.experts.at) == 0)
	p := kept.Out[0].Payload.(*links.Pack)
	for rank, c := 0, r.c.Stand(0); ; rank++ { // and so does whoever stands in for it
		if c = r.c.Stand(rank); c.Name == r.c.Name {
			x, err := stood(c, p)
			require.NoError(s.t, err)
			stood := map[string][]float32{}
			s.add(x, stood)
			x.Free()
			require.Equal(s.t, own, stood)
			break
		}
	}
	require.NoError(s.t, r.take(p))
	p.Release()
	s.add(r, again)
	require.Equal(s.t, own, again)
	return nil
}

func (s gathered) Write(int64) (string, error) { return "", nil }

// add copies the rows of every part to their places.
func (s gathered) add(r *Rank, to map[string][]float32) {
	for _, p := range r.Parts() {
		name, shape := p.Kind+" "+p.Param.Name, p.Param.Shape
		if to[name] == nil {
			to[name] = make([]float32, tensor.Len(shape))
		}
		iv := p.Region.Intervals(p.Param)
		n := 1
		for _, x := range iv {
			n *= x[1] - x[0]
		}
		from := p.Tensor.F32()[p.Row*tensor.Len(p.Tensor.Shape[1:]):]
		for i := range n { // element by element, from the last axis on
			at, left, stride := 0, i, 1
			for a := len(shape) - 1; a >= 0; a-- {
				w := iv[a][1] - iv[a][0]
				at, left, stride = at+(iv[a][0]+left%w)*stride, left/w, stride*shape[a]
			}
			to[name][at] = from[i]
		}
	}
}

// TestMovedState: what ranks put into a checkpoint does not depend on where experts lie, bit for bit, with
// every level of ZeRO; and it is what a run on another plan goes on from.
func TestMovedState(t *testing.T) {
	t.Parallel()
	for _, p := range []expertPlan{{1, 4, 1, 2, 1, 0, 0, "1f1b", 1, some, ""},
		{1, 4, 1, 2, 1, 1, 0, "1f1b", 1, some, ""}, {1, 4, 1, 2, 1, 3, 0, "1f1b", 1, full, ""},
		{1, 2, 2, 2, 2, 2, 0, "1f1b", 1, none, ""}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			state := func(every int) map[string][]float32 {
				j := p.job(mixture(t, "groups"))
				j.MoveEvery = every
				s := gathered{&sync.Mutex{}, map[string][]float32{}, t}
				_, moved := movedRun(t, j, 4, RunOptions{Coord: core.RunLayout{SaveAtEnd: true},
					Save: func(int) Saver { return s }})
				require.Equal(t, every > 0, len(moved) > 0)
				return s.all
			}
			want, got := state(0), state(3)
			require.Equal(t, want, got)
			j := expertPlan{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, none, ""}.job(mixture(t, "groups"))
			j.MoveEvery = 1
			on, _ := movedRun(t, j, 6, RunOptions{Coord: core.RunLayout{First: 5, OptimSteps: 4},
				Fill: filledFrom(got)})
			whole, _ := movedRun(t, p.job(mixture(t, "groups")), 6, RunOptions{})
			require.InEpsilonSlice(t, whole[8:], on, 1e-5)
		})
	}
}

// within reports whether an element of a tensor is in a region.
func within(shape []int, iv [][2]int, i int) bool {
	for a := len(shape) - 1; a >= 0; a-- {
		if x := i % shape[a]; x < iv[a][0] || x >= iv[a][1] {
			return false
		}
		i /= shape[a]
	}
	return true
}

// TestMovedAdapters: experts that are not trained move with their adapters, in bf16 with their master copies too.
func TestMovedAdapters(t *testing.T) {
	for _, p := range []expertPlan{{1, 4, 1, 2, 1, 1, 0, "1f1b", 1, some, ""},
		{1, 4, 1, 2, 1, 3, 0, "1f1b", 1, full, ""}} {
		for _, adapted := range []bool{true, false} {
			job := func(every int) *layout.Design {
				j := p.job(mixture(t, "shared"))
				j.MoveEvery, j.DType = every, tensor.BF16
				if adapted {
					j.Lora = &block.Lora{Targets: []string{"*.gate_proj", "*.down_proj"}, Rank: 2, Alpha: 4}
					j.Frozen = func(name string) bool { return !strings.Contains(name, ".lora_") }
				}
				return j
			}
			want, _ := movedRun(t, job(0), 5, RunOptions{})
			got, moved := movedRun(t, job(2), 5, RunOptions{})
			require.Equal(t, want, got)
			require.NotEmpty(t, moved)
		}
	}
}
