package host

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// watched is a run whose products are watched.
type watched struct {
	spec      family.Spec
	precision string
	watch     kernels.Watch
	history   int // of delayed scales
	peaks     block.Peaks
	travel    bool    // rows go to experts in eight bits
	gather    bool    // weights are gathered in eight bits
	rate      float64 // 0 is 1e-3
	steps     int64
	backend   func(rank int) kernels.Backend                     // nil is a thread of the processor
	before    func(step int64, params map[string]*tensor.Tensor) // a step, on every rank; nil for nothing
	losses    []float64
	looks     int      // that were reported
	changes   []string // by step, choice and steps
	mu        sync.Mutex
	choices   map[string][]float32 // at the beginning of the last step
}

// meddler lets a test see and change parameters before the first job of a step.
type meddler struct {
	*Rank
	of *watched
	at int64
}

func (m *meddler) Run(j actors.Job) (Result, error) {
	if j.Step > m.at {
		m.at = j.Step
		if m.of.before != nil {
			m.of.before(j.Step, m.run.Params)
		}
		if j.Step == m.of.steps {
			m.of.keep(m.run.Params)
		}
	}
	return m.Rank.Run(j)
}

func (w *watched) keep(params map[string]*tensor.Tensor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, p := range params {
		if (strings.HasSuffix(name, grad.ChoiceSuffix) || strings.HasSuffix(name, grad.ScalesSuffix)) &&
			p.Len() > 0 && p.OnHost() {
			w.choices[name] = append([]float32{}, p.F32()...)
		}
	}
}

func (w *watched) run(t *testing.T, v variant, mesh topology.Mesh) *watched {
	m := family.Decoder("llama", w.spec)
	p, err := kernels.PrecisionOf(w.precision)
	require.NoError(t, err)
	m.Low, m.Watch, m.History, m.Peaks = func(string) int { return p }, w.watch, w.history, w.peaks
	m.LowGather = w.gather
	if w.travel {
		m.Travel = p
	}
	l, err := layout.New(&layout.Design{Model: m, Mesh: mesh, Zero: v.zero, SeqParallel: v.sp,
		Schedule: v.schedule,
		Micro:    4 / mesh.Replicas(), Rows: 64, Recompute: v.rc, DType: tensor.F32, Overlap: v.overlap,
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: 1}})
	require.NoError(t, err)
	w.choices = map[string][]float32{}
	if w.backend == nil {
		w.backend = func(int) kernels.Backend { return cpu.New(1) }
	}
	require.NoError(t, Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: w.steps,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return cmp.Or(w.rate, 1e-3) }},
		Backend:    w.backend,
		Batches:    testBatches(mesh.Replicas(), 64),
		Fill:       seeded(l.Design, 7),
		WrapDevice: func(_ int, d Device) Device { return &meddler{Rank: d.(*Rank), of: w} },
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				w.losses = append(w.losses, core.SummaryOf(m.Values).Loss)
			}
			if m.Text == core.TopicFindings {
				for _, f := range core.Findings(m.Values) {
					if w.looks++; f.Changed {
						w.changes = append(w.changes, fmt.Sprint(m.Step, " ", l.Order[f.Param], " ", f.Stay))
					}
				}
			}
		}}))
	return w
}

// TestFallsBack: a weight whose input has numbers too far apart for one scale goes back to the model's own
// type behind the step that shows it, and to few bits so many steps behind the last look that does; others
// stay where they were. The numbers of the steps before are those of a run that looks at nothing.
func TestFallsBack(t *testing.T) {
	const norm, of = "model.layers.0.input_layernorm.weight", "model.layers.0.self_attn.q_proj.weight.low"
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	plain := (&watched{spec: lowSpec(), precision: "tensor", steps: 12}).run(t, one, one.mesh())
	require.Empty(t, plain.choices)
	var stays []float32
	w := watched{spec: lowSpec(), precision: "tensor", watch: kernels.Watch{Lost: 0.1, Every: 1, Stay: 3},
		steps: 12}
	w.before = func(step int64, params map[string]*tensor.Tensor) {
		switch step {
		case 4:
			params[norm].F32()[5] *= 1e5
		case 7:
			params[norm].F32()[5] /= 1e5
		}
		stays = append(stays, params[of].F32()[kernels.ChoiceStay])
	}
	w.run(t, one, one.mesh())
	require.Equal(t, []float32{0, 0, 0, 0, 3, 3, 3, 2, 1, 0, 0, 0}, stays)
	require.Equal(t, plain.losses[:3], w.losses[:3])
	require.NotEqual(t, plain.losses[5], w.losses[5])
	falls := []string{of, "model.layers.0.self_attn.k_proj.weight.low", "model.layers.0.self_attn.v_proj.weight.low"}
	var want []string // all that read the planted rows
	for _, at := range []string{"4 %s 3", "9 %s 0"} {
		for _, name := range falls {
			want = append(want, fmt.Sprintf(at, name))
		}
	}
	require.Equal(t, want, w.changes)
	require.Equal(t, 12*14, w.looks)
	require.Len(t, w.choices, 14)
	for name, c := range w.choices {
		require.Equal(t, slices.Contains(falls, name), c[kernels.ChoiceFalls] == 1, name)
		require.InDelta(t, 0.06, c[kernels.ChoiceError], 0.02, "%s: gradients of two bits", name)
	}
}

// TestWatchedPlans: every plan finds the same weights at fault as one rank, by errors that differ as far as other rows
// are looked at, and goes on with the same losses; where it changes no row and no sum, with the same bits.
func TestWatchedPlans(t *testing.T) {
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	of := func(v variant) *watched {
		w := watched{spec: lowSpec(), precision: "mxfp8", watch: kernels.Watch{Limit: 1e-3, Every: 2,
			Stay: 1}, steps: 5}
		return w.run(t, v, v.mesh())
	}
	want := of(one)
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1}, {pp: 2, dp: 1, tp: 1, rc: grad.RecomputeFull},
		{pp: 2, dp: 1, tp: 1, schedule: "zb-h1"}, {pp: 1, dp: 2, tp: 1}, {pp: 1, dp: 2, tp: 1, zero: 2},
		{pp: 1, dp: 4, tp: 1, zero: 3}, {pp: 1, dp: 1, tp: 2, sp: true}, {pp: 1, dp: 2, tp: 2, zero: 3},
		{pp: 1, dp: 1, tp: 1, cp: 2}} {
		if v.schedule == "" {
			v.schedule = "1f1b"
		}
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			got := of(v)
			if v.mesh().Size() == v.pp {
				require.Equal(t, want.losses, got.losses)
				require.Equal(t, want.choices, got.choices)
				return
			}
			require.InEpsilonSlice(t, want.losses, got.losses, 5e-3)
			for name, c := range want.choices {
				other := got.choices[name]
				require.Equal(t, c[:2], other[:2], name)
				require.InEpsilon(t, c[kernels.ChoiceError], other[kernels.ChoiceError], 0.2, name)
				require.Equal(t, c[kernels.ChoiceFalls], other[kernels.ChoiceFalls], name)
			}
		})
	}
}

// TestWatchedExperts: products of experts are watched as others are, under pipelines to the same bits, and
// where experts are shared out over replicas with the same weights found at fault.
func TestWatchedExperts(t *testing.T) {
	s := lowSpec()
	s.MLPs = []string{"experts", "experts"}
	s.Experts = block.Experts{Inter: 64, Experts: 4, Each: 2, Router: routers.Router{Normalize: true}}
	of := func(v variant, mesh topology.Mesh) *watched {
		w := watched{spec: s, precision: "block", watch: kernels.Watch{Limit: 1e-3, Every: 2, Stay: 1},
			steps: 5}
		return w.run(t, v, mesh)
	}
	one := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
	want := of(one, one.mesh())
	require.Len(t, want.choices, 14)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b", rc: grad.RecomputeFull}
	got := of(v, v.mesh())
	require.Equal(t, want.losses, got.losses)
	require.Equal(t, want.choices, got.choices)
	got = of(variant{zero: 1, schedule: "1f1b"}, layout.MeshOf(&configs.Plan{PP: 1, DP: 2, TP: 1, CP: 1,
		EP: 2, ETP: 1}))
	require.InEpsilonSlice(t, want.losses, got.losses, 5e-3)
	for name, c := range want.choices {
		require.InEpsilon(t, c[kernels.ChoiceError], got.choices[name][kernels.ChoiceError], 0.3, name)
		require.Equal(t, c[kernels.ChoiceFalls], got.choices[name][kernels.ChoiceFalls], name)
	}
}
