package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// tiny is a model small enough for the reference backend: grouped queries, QK norm, biases, tied or not.
func tiny(tie bool) *family.Model {
	return family.Decoder("llama", family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4,
		Vocab: 32, QKNorm: true, QKVBias: true,
		Tie: tie, Eps: 1e-6, Rope: block.Rope{Dim: 4, Theta: 10000}, InitStd: 0.2})
}

// unlike is as far from Llama as a decoder of attention and MLPs goes: norms with a constant before and
// after, windows, soft caps, half of each head turns in pairs, one layer's not at all, another MLP in each
// other layer, and every scale.
func unlike(tie bool) *family.Model {
	return family.Decoder("unlike", family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2,
		HeadDim: 4, Vocab: 32, OBias: true, MLPBias: true, Tie: tie, Eps: 1e-6,
		Norm: block.Norm{Plus: 1}, Norms: family.Norms{BeforeMixer: "a", AfterMixer: "b", BeforeMLP: "c",
			AfterMLP: "d"}, QKNorm: false, Rope: block.Rope{Dim: 2, Theta: 10000},
		Attending: family.Attending{QKWhole: true, LocalRope: block.Rope{Dim: 2, Theta: 100},
			RopePairs: true, NoRope: func(i int) bool { return i == 3 }, AttnScale: 0.7, AttnCap: 1.5},
		Mixers: []string{"sliding_attention", "full_attention", "sliding_attention", "full_attention"},
		MLPs:   []string{"gated", "plain", "gated", "plain"}, Window: 2, Act: "gelu_pytorch_tanh",
		Ends:     family.Ends{LogitCap: 2.5, EmbedScale: 3, LogitScale: 0.6},
		Residual: 0.8, InitStd: 0.2})
}

// TestGridLayers: kinds of layers that Llama does not have train to the same losses however they are cut.
func TestGridLayers(t *testing.T) {
	m := unlike(true)
	want, norms := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.train(t, m, 6, refBackend)
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1, schedule: "1f1b"},
		{pp: 1, dp: 1, tp: 2, schedule: "gpipe", rc: grad.RecomputeFull},
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b", sp: true},
		{pp: 1, dp: 2, tp: 2, zero: 3, schedule: "1f1b"}, {pp: 1, dp: 1, tp: 4, schedule: "1f1b"}} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Parallel()
			got, gn := v.train(t, m, 6, refBackend)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v", i+1,
					got, want)
				require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 2e-4,
					"gradient norm of step %d", i+1)
			}
		})
	}
}

// testBatches deals 4 microbatches of 8 tokens a step to dp ranks in contiguous runs, from one global order.
func testBatches(dp, rows int) BatchFunc {
	return func(step int64, d int) ([]family.Microbatch, error) {
		var out []family.Microbatch
		const total = 4
		for i := d * total / dp; i < (d+1)*total/dp; i++ {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			mb := family.Microbatch{Cu: []int32{0, 3, int32(rows)}}
			for k := range rows {
				mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(32))), append(mb.Targets, int32(r.IntN(32)))
				pos := int32(k)
				if k >= 3 {
					pos -= 3
				}
				mb.Positions, mb.Weights = append(mb.Positions, pos),
					append(mb.Weights, 1/float32(total*rows))
			}
			out = append(out, mb)
		}
		return out, nil
	}
}

type variant struct {
	pp, dp, tp, zero int
	sp               bool
	rc               grad.Recompute
	schedule         string
	overlap          bool
	replicas, cp     int    // data parallelism around dp, and context parallelism; 0 is 1
	optim            string // adamw if empty
}

func (v variant) String() string {
	return fmt.Sprintf("pp%d dp%d tp%d zero%d sp=%v recompute%d %s overlap=%v replicas%d cp%d", v.pp, v.dp,
		v.tp, v.zero, v.sp, v.rc, v.schedule, v.overlap, v.replicas, v.cp)
}

func (v variant) mesh() topology.Mesh {
	return topology.New(topology.Dim{Name: topology.PP, Size: v.pp}, topology.Dim{Name: topology.DPReplicate,
		Size: max(1, v.replicas)}, topology.Dim{Name: topology.DP, Size: v.dp},
		topology.Dim{Name: topology.CP, Size: max(1, v.cp)}, topology.Dim{Name: topology.TP, Size: v.tp})
}

func (v variant) layout(t *testing.T, m *family.Model) *layout.Layout {
	name := v.optim
	if name == "" {
		name = "adamw"
	}
	l, err := layout.New(&layout.Design{Model: m, Mesh: v.mesh(), Zero: v.zero, SeqParallel: v.sp,
		Schedule: v.schedule, Overlap: v.overlap,
		Micro: 4 / v.mesh().Replicas(), Rows: 8, Recompute: v.rc, Optim: optim.Config{Name: name,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1,
			Adafactor: optim.Adafactor{Power: 0.8, Above: 1, Floor: 1e-3},
			Muon:      optim.Muon{Momentum: 0.95, Steps: 5, Scale: optim.MatchRMS}}})
	require.NoError(t, err)
	return l
}

// run makes a layout and the options to train it; losses is nil where nobody looks.
func (v variant) run(t *testing.T, m *family.Model, steps int64, backend func(int) kernels.Backend,
	losses *[]float64) (*layout.Layout, RunOptions) {
	return v.layout(t, m), RunOptions{Coord: core.RunLayout{First: 1, Last: steps,
		LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 { return 0.01 }},
		Backend: backend, Batches: testBatches(v.mesh().Replicas(), 8),
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(7, p, g, dst)
			}
			return kind == "param", nil
		},
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep && losses != nil {
				*losses = append(*losses, core.SummaryOf(m.Values).Loss)
			}
		}}
}

// train runs steps steps and returns loss and gradient norm of each.
func (v variant) train(t *testing.T, m *family.Model, steps int64,
	backend func(int) kernels.Backend) (losses, norms []float64) {
	l, o := v.run(t, m, steps, backend, &losses)
	see := o.Observe
	o.Observe = func(m actors.Message) {
		see(m)
		if m.Text == core.TopicStep {
			norms = append(norms, core.SummaryOf(m.Values).Norm)
		}
	}
	require.NoError(t, Run(l, o))
	return
}

func refBackend(int) kernels.Backend { return ref.New() }

// TestGrid trains one model under every kind of plan to the same losses. Plans that take the same sums in
// the same order agree bit for bit; the others within 1e-5 relative, the bound of float32 sums of 16 terms
// in another order over 10 steps.
func TestGrid(t *testing.T) {
	n := steps(4, 10)
	for i, tie := range []bool{false, true} {
		m := tiny(tie)
		want, norms := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.train(t, m, n, refBackend)
		require.Len(t, want, int(n))
		require.Greater(t, want[0]-want[n-1], -1.0)
		for _, v := range sampled(t, gridVariants(), 2, i) {
			t.Run(fmt.Sprintf("tie=%v %v", tie, v), func(t *testing.T) {
				t.Parallel()
				got, gn := v.train(t, m, n, refBackend)
				require.Len(t, got, int(n))
				if v.mesh().Size() > v.pp && v.schedule == "1f1b" {
					w := v
					w.overlap = true
					late, ln := w.train(t, m, n, refBackend)
					require.Equal(t, got, late, "overlap changes no bit")
					require.Equal(t, gn, ln)
				}
				for i := range want {
					if v.mesh().Size() == v.pp && !(tie && v.pp > 1) {
						require.Equal(t, want[i], got[i], "step %d: same sums in the same order", i+1)
						continue
					}
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v",
						i+1, got, want)
					require.LessOrEqual(t, math.Abs(gn[i]-norms[i])/norms[i], 2e-4,
						"gradient norm of step %d", i+1)
				}
			})
		}
	}
}

// TestSumsInTwo: sums that all of four ranks need have the same bits whether each rank sums everything or a
// part of the rows, also where they are awaited late, in a pipeline, and on devices.
func TestSumsInTwo(t *testing.T) {
	t.Parallel()
	m := tiny(true)
	for _, v := range []variant{{pp: 1, dp: 1, tp: 4, schedule: "1f1b"},
		{pp: 2, dp: 1, tp: 4, schedule: "1f1b", overlap: true},
		{pp: 1, dp: 1, cp: 2, tp: 4, schedule: "1f1b", rc: grad.RecomputeFull}} {
		whole := func(j *layout.Design) { j.SumWhole = 1 << 30 }
		want, l := v.trainChanged(t, m, 5, refBackend, whole)
		for _, backend := range []func(int) kernels.Backend{refBackend, opaques(t)} {
			got, two := v.trainChanged(t, m, 5, backend, func(*layout.Design) {})
			require.Equal(t, want, got, "%v", v)
			sent := func(l *layout.Layout) (n int64) {
				for _, s := range l.Main(0).Segments(grad.F) {
					n += s.Cost.Comm
				}
				return n
			}
			require.Less(t, float64(sent(two)), 0.7*float64(sent(l)), "%v", v)
		}
	}
}

func gridVariants() (out []variant) {
	for z := range 4 { // state shared out inside a host, replicas across hosts
		out = append(out, variant{pp: 1, replicas: 2, dp: 2, tp: 1, zero: z, schedule: "1f1b"},
			variant{pp: 1, replicas: 4, dp: 1, cp: 2, tp: 1, zero: z, schedule: "1f1b"})
	}
	out = append(out, variant{pp: 1, dp: 1, cp: 2, tp: 1, schedule: "1f1b"}, variant{pp: 2, dp: 1, cp: 2,
		tp: 2, sp: true, schedule: "1f1b"},
		variant{pp: 1, dp: 2, cp: 2, tp: 2, zero: 3, schedule: "1f1b"}, variant{pp: 1, replicas: 2, dp: 2,
			cp: 2, tp: 1, zero: 2, rc: grad.RecomputeFull, schedule: "1f1b"})
	for _, s := range []string{"gpipe", "1f1b"} {
		for _, d := range [][3]int{{1, 1, 1}, {2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1},
			{2, 1, 2}, {2, 2, 2}, {1, 1, 4}} {
			v := variant{pp: d[0], dp: d[1], tp: d[2], schedule: s}
			out = append(out, v)
			if v.dp > 1 {
				for z := 1; z <= 3; z++ {
					w := v
					w.zero, w.rc = z, grad.Recompute(z-1)
					out = append(out, w)
				}
			}
			if v.tp > 1 {
				w := v
				w.sp, w.rc = true, grad.RecomputeFull
				out = append(out, w)
			}
		}
	}
	return
}
