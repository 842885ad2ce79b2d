package profile

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// written is a recorder of two lanes with known events, in milliseconds.
func written() *Recorder {
	ms := func(a, b int64) span { return span{a * 1e6, b * 1e6} }
	r := New(2)
	l0, l1 := r.Lane("rank 0", 1), r.Lane("rank 1", 1)
	r.marks = []int64{5e6, 10e6, 60e6, 110e6}
	r.Stop()
	k := key{op: kernels.Linear, n: 4, first: 2, dims: [dimsMax]int32{2, 3, 5, 3}}
	l0.kinds, l0.keys = []key{k, {op: kernels.Sum}}, map[key]int32{}
	l0.jobs[Forward] = spans{ms(0, 5), ms(15, 35)} // the first lies before the window
	l0.jobs[Backward] = spans{ms(45, 65)}          // 35 to 45: nobody works but the loader, from 40
	l0.jobs[Optimizer] = spans{ms(95, 105)}        // 65 to 95: rank 1 works until 90
	// the first beside rank 1's work, with a copy; of the other 105 to 108 are in nobody's way
	l0.jobs[Save] = spans{ms(70, 74), ms(100, 108)}
	l0.calls = []call{{ms(0, 5), 0, 9, 9}, {ms(16, 34), 0, 1e9, 1e6}, {ms(45, 55), 0, 1e9, 1e6},
		{ms(71, 73), 1, 0, 2e6}, {ms(95, 104), 1, 0, 9e6}}
	l1.jobs[Forward] = spans{ms(65, 90)}
	r.loading = spans{ms(40, 50), ms(70, 80)}
	return r
}

// TestReport holds every number of a report to events that were written down.
func TestReport(t *testing.T) {
	p, ok := written().Report(Peaks{Flops: 1e12, Memory: 2e9})
	require.True(t, ok)
	a, b := p.Lanes[0], p.Lanes[1]
	near := func(want, got float64, of string) { t.Helper(); require.InDelta(t, want, got, 1e-12, of) }
	require.Equal(t, 2, p.Steps)
	near(.1, p.Wall, "wall")
	for i, want := range []PhaseSum{{"forward", .020, .018}, {"backward", .020, .010},
		{"optimizer", .010, .009}} {
		require.Equal(t, want.Name, a.Phases[i].Name)
		near(want.Seconds, a.Phases[i].Seconds, want.Name)
		near(want.Kernels, a.Phases[i].Kernels, "kernels of "+want.Name)
	}
	near(.023, a.Waiting, "waiting for rank 1, without the copy")
	near(.005, a.Loader, "loader")
	near(.003+.002, a.Saving, "saving")
	near(.002, a.Copying, "of it the copy")
	near(.005+.005+.005+.002, a.Messages, "messages: 10-15, 35-40, 90-95, 108-110")
	near(.039, a.Kernels, "kernels")
	near(.075-.025, b.Waiting, "rank 1 waits while rank 0 works")
	near(a.Wall-a.Waiting-a.Kernels+b.Wall-b.Waiting-b.Kernels, p.Outside, "outside")
	near(p.Outside/.2, p.Share, "its share")
	require.Len(t, p.Table, 2)
	lin, sum := p.Table[0], p.Table[1]
	require.Equal(t, []any{"linear 2×3, 5×3", "f32", 2, "sum", "", 2}, []any{lin.Name, lin.DType, lin.Calls,
		sum.Name, sum.DType, sum.Calls})
	near(.028, lin.Seconds, "linear")
	near(.14, lin.Share, "share of linear")
	near(2e9/.028/1e12, lin.OfPeak, "linear of the peak")
	near(11e6/.011/2e9, sum.OfPeak, "sum of memory")
}

// TestSum: whatever the events, a lane's parts sum to its wall time.
func TestSum(t *testing.T) {
	p, _ := written().Report(Peaks{})
	for _, l := range p.Lanes {
		sum := l.Waiting + l.Loader + l.Saving + l.Messages
		for _, ph := range l.Phases {
			sum += ph.Seconds
		}
		require.InDelta(t, l.Wall, sum, 1e-12, l.Name)
	}
}

func TestLastStep(t *testing.T) {
	events, length := written().LastStep()
	require.InDelta(t, .05, length, 1e-12)
	names := map[string]int{}
	for _, e := range events {
		names[e.Name]++
		require.True(t, e.Start >= 0 && e.End <= length && e.Start < e.End, "%+v", e)
	}
	require.Equal(t, map[string]int{"backward": 1, "optimizer": 1, "save": 2, "forward": 1, "sum": 2,
		"loader": 1}, names)
}

// TestLive: real calls on a wrapped backend lie within their jobs; the first step and those after the last
// of interest do not count.
func TestLive(t *testing.T) {
	for _, most := range []int{0, 2} {
		r := New(most)
		l := r.Lane("rank 0", 1)
		b := l.Wrap(ref.Backend{})
		x, w, y := tensor.Make(tensor.F32, 64, 32), tensor.Make(tensor.F32, 16, 32),
			tensor.Make(tensor.F32, 64, 16)
		call := &kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w, nil}, Out: []*tensor.Tensor{y}}
		b.Run(call)
		for step := range int64(5) {
			l.Job(Forward, step+1, func() { b.Run(call); b.Run(call) })
			l.Job(Backward, step+1, func() { b.Run(call) })
			l.Job(Forward, -1, func() {}) // an evaluation
		}
		r.Load(time.Microsecond)
		steps := 4
		if most > 0 {
			steps = most
		}
		p, ok := r.Report(Peaks{})
		require.True(t, ok)
		require.Equal(t, steps, p.Steps)
		require.Len(t, p.Table, 1)
		require.Equal(t, 3*steps, p.Table[0].Calls)
		require.Equal(t, float64(3*steps)*2*64*32*16, p.Table[0].Flops)
		require.Equal(t, float64(3*steps)*4*(64*32+16*32+64*16), p.Table[0].Bytes)
		for _, ph := range p.Lanes[0].Phases[:2] {
			require.Greater(t, ph.Kernels, 0.)
			require.GreaterOrEqual(t, ph.Seconds, ph.Kernels, ph.Name)
		}
	}
}

// TestEpilogues: a product with an epilogue is a row of its own, and what passes between them counts once.
func TestEpilogues(t *testing.T) {
	r := New(0)
	l := r.Lane("rank 0", 1)
	f := func(shape ...int) *tensor.Tensor { return tensor.Make(tensor.F32, shape...) }
	x, w, y, z, s := f(8, 4), f(6, 4), f(8, 6), f(8, 6), f(8, 6)
	alone := kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w, nil}, Out: []*tensor.Tensor{y}}
	both := alone
	both.Then = []*kernels.Call{{Op: kernels.Sum, In: []*tensor.Tensor{y, z}, Out: []*tensor.Tensor{s}}}
	for step := range int64(2) {
		l.Job(Forward, step+1, func() {
			b := l.Wrap(ref.Backend{})
			b.Run(&alone)
			b.Run(&both)
		})
	}
	p, ok := r.Report(Peaks{})
	require.True(t, ok)
	bytes := map[string]float64{}
	for _, k := range p.Table {
		bytes[k.Name] = k.Bytes
	}
	product := 4. * (8*4 + 6*4 + 8*6)
	require.Equal(t, map[string]float64{"linear 8×4, 6×4": product, "linear 8×4, 6×4 + sum": product +
		4*2*8*6}, bytes)
}

// TestBound: a full recorder stops, and only steps that had ended are reported.
func TestBound(t *testing.T) {
	r := New(0)
	l := r.Lane("rank 0", 1)
	for step := range int64(4) {
		if step == 3 {
			r.events.Store(eventsMax)
		}
		l.Job(Forward, step+1, func() {})
	}
	l.Job(Forward, 5, func() {})
	p, ok := r.Report(Peaks{})
	require.True(t, ok)
	require.Equal(t, 2, p.Steps, "steps 2 and 3; step 4 lacks its job")
	require.Len(t, l.jobs[Forward], 3)
	_, ok = New(0).Report(Peaks{})
	require.False(t, ok)
}

// TestAttentionFlops counts pairs as the contract of attention defines them, by trying every pair.
func TestAttentionFlops(t *testing.T) {
	const h, d, e = 2, 3, 5
	for _, causal := range []int{0, 1} {
		for _, window := range []int{0, 1, 3} {
			cq, ck := []int32{0, 4, 4, 9}, []int32{0, 4, 6, 9}
			n := 0
			for i := range 3 {
				lq, lk := int(cq[i+1]-cq[i]), int(ck[i+1]-ck[i])
				for a := range lq {
					for b := range lk {
						if causal == 0 || b <= a+lk-lq && (window == 0 || b > a+lk-lq-window) {
							n++
						}
					}
				}
			}
			f := func(s ...int) *tensor.Tensor { return tensor.Make(tensor.F32, s...) }
			q, k, v, o := f(9, h, d), f(9, 1, d), f(9, 1, e), f(9, h, e)
			cu := []*tensor.Tensor{tensor.Of(tensor.I32, cq, 4), tensor.Of(tensor.I32, ck, 4)}
			at := kernels.Attr{I: [4]int{causal, window}}
			if causal == 0 && window > 0 {
				continue
			}
			require.Equal(t, float64(2*n*h*(d+e)),
				Flops(&kernels.Call{Op: kernels.Attention, In: append([]*tensor.Tensor{q, k, v}, cu...),
					Attr: at}), "%d %d", causal, window)
			require.Equal(t, float64(2*n*h*(3*d+2*e)),
				Flops(&kernels.Call{Op: kernels.AttentionBwd,
					In: append([]*tensor.Tensor{o, q, k, v, o, f(9, h)}, cu...), Attr: at}))
		}
	}
}
