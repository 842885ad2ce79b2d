package host

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// copied is a job whose layers have copies of experts, which move behind every second step.
func copied(p expertPlan, m *family.Model, copies int) *layout.Design {
	s := m.Spec
	s.Experts.Limit.Copies = copies
	j := p.job(family.Decoder("toy", s))
	if copies > 0 {
		j.MoveEvery = 2
	}
	return j
}

// alike is a Saver that holds all copies of an expert, on whatever rank, to the same bits, of weights and of
// the optimizer's state, and counts them.
type alike struct {
	mu   *sync.Mutex
	rows map[string][]byte // by parameter, kind, slice and expert
	seen map[string]int
	t    *testing.T
}

func (s alike) Snapshot(_ int64, r *Rank, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range r.c.Held {
		if h.Copies == 0 {
			continue
		}
		s.add(r, "param", h, h.Region, r.run.Params[h.Name])
		for i, x := range r.state[h.Name] {
			if x != nil {
				s.add(r, kinds(r.plans()[h.Name])[i], h, r.plans()[h.Name].Own, x)
			}
		}
	}
	return nil
}

func (s alike) Write(int64) (string, error) { return "", nil }

func (s alike) add(r *Rank, kind string, h layout.Held, g family.Region, x *tensor.Tensor) {
	iv := g.Intervals(h.Param)
	for i, e := range r.expertsOf(h.Block, iv[0][0], iv[0][1]-iv[0][0]) {
		key := fmt.Sprint(kind, h.Name, iv[1:], e)
		row := x.RowSlice(i, i+1)
		if s.rows[key] == nil {
			s.rows[key] = slices.Clone(row.Bytes())
		}
		assert.Equal(s.t, s.rows[key], row.Bytes(), "%s of a copy of expert %d on %s", kind, e, r.c.Name)
		row.Release()
		s.seen[key]++
	}
}

// TestCopies: where busy experts lie at several places, the forward has the bits of one place each, losses and norms
// agree within what sums of gradients in another order make of them, and copies stay alike to the bit.
func TestCopies(t *testing.T) {
	t.Parallel()
	for i, p := range movedPlans {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			job := func(copies int) *layout.Design {
				m := mixture(t, "groups")
				if i%2 == 1 && p.etp == 1 {
					m = biasedMixture(t)
				}
				return copied(p, m, copies)
			}
			want, _ := movedRun(t, job(0), 6, RunOptions{})
			s := alike{&sync.Mutex{}, map[string][]byte{}, map[string]int{}, t}
			got, moved := movedRun(t, job(p.ep), 6, RunOptions{Coord: core.RunLayout{SaveAtEnd: true},
				Save: func(int) Saver { return s }})
			require.Equal(t, want[0], got[0], "the loss before any update")
			require.InEpsilonSlice(t, want, got, 1e-5)
			require.NotEmpty(t, moved)
			require.Greater(t, slices.Max(slices.Collect(maps.Values(s.seen))), 1)
		})
	}
}

// TestCopiesState: a checkpoint has each expert once, and a run without copies goes on from it; one with
// copies goes on from that of a run without.
func TestCopiesState(t *testing.T) {
	p := expertPlan{1, 4, 1, 2, 1, 1, 0, "1f1b", 1, some, ""}
	state := func(copies int) map[string][]float32 {
		s := gathered{&sync.Mutex{}, map[string][]float32{}, t}
		_, _ = movedRun(t, copied(p, mixture(t, "groups"), copies), 4,
			RunOptions{Coord: core.RunLayout{SaveAtEnd: true}, Save: func(int) Saver { return s }})
		return s.all
	}
	plain, twice := state(0), state(2)
	require.Equal(t, slices.Sorted(maps.Keys(plain)), slices.Sorted(maps.Keys(twice)))
	worst := 0.0
	for name, v := range plain {
		require.Len(t, twice[name], len(v), name)
		for i, x := range v {
			worst = max(worst, math.Abs(float64(x-twice[name][i])))
		}
	}
	require.Less(t, worst, 1e-4, "four updates of 0.01 each; Adam divides by gradients that may be tiny")
	whole, _ := movedRun(t, copied(p, mixture(t, "groups"), 0), 6, RunOptions{})
	for copies, from := range map[int]map[string][]float32{0: twice, 2: plain} {
		q := expertPlan{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, none, ""}
		on, _ := movedRun(t, copied(q, mixture(t, "groups"), copies), 6, RunOptions{
			Coord: core.RunLayout{First: 5, OptimSteps: 4}, Fill: filledFrom(from)})
		require.InEpsilonSlice(t, whole[8:], on, 1e-4)
	}
}

// filledFrom fills parameters and state from what gathered has put together.
func filledFrom(from map[string][]float32) family.FillFunc {
	return func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		v, known := from[kind+" "+p.Name]
		if !known {
			return false, nil
		}
		for i, n := 0, 0; i < len(v) && n < len(dst); i++ {
			if within(p.Shape, g.Intervals(p), i) {
				dst[n] = v[i]
				n++
			}
		}
		return true, nil
	}
}
