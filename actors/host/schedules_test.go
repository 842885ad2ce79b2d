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
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// scheduled is one run of the small model by a schedule.
type scheduled struct {
	name                      string
	pp, dp, tp, loops, chunks int
	rows, micro               int
	rc                        grad.Recompute
	keep                      int // chunks that are not recomputed
}

func (s scheduled) layout(t *testing.T, m *family.Model) *layout.Layout {
	l, err := layout.New(&layout.Design{Model: m, Mesh: topology.Grid(s.pp, s.dp, s.tp), Schedule: s.name,
		Loops: s.loops, Chunks: s.chunks, KeepChunks: s.keep,
		Micro: s.micro / s.dp, Rows: s.rows, Recompute: s.rc, Optim: optim.Config{Name: "adamw", Beta1: 0.9,
			Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}})
	require.NoError(t, err)
	return l
}

func (s scheduled) train(t *testing.T, m *family.Model, steps int64) (losses, peaks []float64) {
	l := s.layout(t, m)
	o := RunOptions{Coord: core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
		LR: func(int64) float64 { return 0.01 }},
		Backend: refBackend, Batches: s.batches,
		Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
			if kind == "param" {
				m.Init(7, p, g, dst)
			}
			return kind == "param", nil
		},
		Observe: func(m actors.Message) {
			if m.Text == core.TopicStep {
				losses, peaks = append(losses, core.SummaryOf(m.Values).Loss),
					append(peaks, core.SummaryOf(m.Values).Peak)
			}
		}}
	require.NoError(t, Run(l, o))
	return
}

// batches deals whole sequences, one a microbatch, so that chunks of them make sense.
func (s scheduled) batches(step int64, d int) (out []family.Microbatch, err error) {
	for i := d * s.micro / s.dp; i < (d+1)*s.micro/s.dp; i++ {
		r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
		mb := family.Microbatch{Cu: []int32{0, int32(s.rows)}}
		for k := range s.rows {
			mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(32))), append(mb.Targets, int32(r.IntN(32)))
			mb.Positions, mb.Weights = append(mb.Positions, int32(k)),
				append(mb.Weights, 1/float32(s.micro*s.rows))
		}
		out = append(out, mb)
	}
	return
}

// TestSchedules trains one model by every schedule that the runtime can execute to the losses of 1F1B: bit
// for bit where each parameter's sums keep the order of the microbatches, else within 1e-5 relative (sums of
// 8 float32 terms in another order over 4 steps).
func TestSchedules(t *testing.T) {
	m := tiny(false)
	base := scheduled{name: "1f1b", pp: 1, dp: 1, tp: 1, rows: 16, micro: 8}
	want, _ := base.train(t, m, 4)
	for i, name := range schedule.Names() {
		s, err := schedule.Get(name)
		require.NoError(t, err)
		if !s.Runs {
			continue
		}
		meshes := append([][3]int{{2, 1, 1}}, sampled(t, [][3]int{{2, 2, 1}, {2, 1, 2}}, 2, i)...)
		for _, mesh := range meshes {
			v := base
			v.name, v.pp, v.dp, v.tp, v.loops = name, mesh[0], mesh[1], mesh[2], max(1, s.Loops)
			if s.Loops == 0 {
				v.loops = 2
			}
			chunks := []int{1}
			if s.Fits != nil && s.Loops == 1 {
				chunks = []int{1, 2, 4}
			}
			for _, c := range chunks {
				v := v
				v.chunks = c
				t.Run(fmt.Sprintf("%s pp%d dp%d tp%d chunks%d", name, v.pp, v.dp, v.tp, c),
					func(t *testing.T) {
						t.Parallel()
						got, _ := v.train(t, m, 4)
						require.Len(t, got, 4)
						for i := range want {
							if v.dp == 1 && v.tp == 1 && c == 1 {
								require.Equal(t, want[i], got[i], "step %d: same sums in the same order",
									i+1)
							}
							require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5,
								"step %d: %v, want %v", i+1, got, want)
						}
					})
			}
		}
	}
}

// TestChunkMemory measures that 8 chunks of a long sequence need less than the sequence at once, whose
// widest layer is then never there as a whole, and that the peak does not grow with the number of sequences.
func TestChunkMemory(t *testing.T) {
	t.Parallel()
	m := tiny(false)
	whole := scheduled{name: "1f1b", pp: 1, dp: 1, tp: 1, rows: 512, micro: 2, rc: grad.RecomputeFull}
	cut := whole
	cut.name, cut.chunks = "chunkpipe", 8
	l0, before := whole.train(t, m, 1)
	l1, after := cut.train(t, m, 1)
	require.InEpsilon(t, l0[0], l1[0], 1e-5)
	require.Less(t, after[0], 0.85*before[0], "peak bytes with 8 chunks, and without")
	cut.micro = 4
	_, more := cut.train(t, m, 1)
	require.Equal(t, after[0], more[0], "peak bytes of 2 and of 4 sequences")
}

// TestKeptLogits: the loss keeps what saves it a product where one microbatch at a time is between forward and
// backward, and waits for the backward where that is one piece or there are many; all to the same bits.
func TestKeptLogits(t *testing.T) {
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		s := tiny(false).Spec
		s.Vocab = 5000 // three blocks
		m := family.Decoder("llama", s)
		var all [][]float64
		for _, c := range []struct {
			schedule    string
			split, keep bool
		}{{"1f1b", false, true}, {"gpipe", false, false}, {"zb-h1", true, true}, {"zb-1p", true, false}} {
			var losses []float64
			l, o := variant{pp: 1, dp: 1, tp: 1, schedule: c.schedule}.run(t, m, 4,
				func(int) kernels.Backend {
					b := cpu.New(1)
					t.Cleanup(func() { _ = b.Close() })
					return b
				}, &losses)
			j := *l.Design
			j.DType = d
			l, err := layout.New(&j)
			require.NoError(t, err)
			require.NoError(t, Run(l, o))
			require.Equal(t, []bool{c.split, c.keep}, []bool{l.Main(0).Split, l.Main(0).KeepLogits},
				c.schedule)
			all = append(all, losses)
		}
		for _, losses := range all[1:] {
			require.Equal(t, all[0], losses)
		}
	}
}
