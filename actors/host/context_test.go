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
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// contextPlan is one way to share out the tokens of a microbatch, with the rest of its plan.
type contextPlan struct {
	pp, dp, tp, cp, u, zero int // u of cp ranks exchange heads
	ring, zigzag, sp        bool
	packed                  bool
	chunks                  int
	rc                      grad.Recompute
	schedule                string
}

func (v contextPlan) String() string {
	return fmt.Sprintf(
		"pp%d dp%d tp%d cp%d u%d zero%d ring=%v zigzag=%v sp=%v packed=%v chunks%d recompute%d %s",
		v.pp,
		v.dp,
		v.tp,
		v.cp,
		v.u,
		v.zero,
		v.ring,
		v.zigzag,
		v.sp,
		v.packed,
		v.chunks,
		v.rc,
		v.schedule,
	)
}

// contextRows is the length of a microbatch that is not padded; contextMicro is their number in a step.
const contextRows, contextMicro = 48, 4

func (v contextPlan) mesh() topology.Mesh {
	return layout.MeshOf(&configs.Plan{PP: v.pp, DP: v.dp, TP: v.tp, CP: v.cp, Ulysses: v.u, EP: 1, ETP: 1})
}

func (v contextPlan) train(t *testing.T, m *family.Model, rows int, steps int64) (losses, norms []float64) {
	parts := 2 * v.cp * v.tp
	l, err := layout.New(
		&layout.Design{
			Model:       m,
			Mesh:        v.mesh(),
			Zero:        v.zero,
			SeqParallel: v.sp,
			Ring:        v.ring,
			Zigzag:      v.zigzag,
			Schedule:    v.schedule,
			Chunks:      v.chunks,
			Recompute:   v.rc,
			Micro:       contextMicro / v.dp,
			Rows:        (rows + parts - 1) / parts * parts,
			Optim: optim.Config{
				Name:  "adamw",
				Beta1: 0.9,
				Beta2: 0.95,
				Eps:   1e-8,
				Decay: 0.1,
				Clip:  1,
			},
		},
	)
	require.NoError(t, err)
	require.NoError(
		t,
		Run(
			l,
			RunOptions{
				Coord: core.RunLayout{
					First:     1,
					Last:      steps,
					LossScale: core.LossScale{Scale: 1},
					LR:        func(int64) float64 { return 0.01 },
				},
				Backend: refBackend,
				Batches: contextBatches(v.dp, rows, v.packed),
				Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
					if kind == "param" {
						m.Init(7, p, g, dst)
					}
					return kind == "param", nil
				},
				Observe: func(m actors.Message) {
					if m.Text == core.TopicStep {
						losses, norms = append(
							losses,
							core.SummaryOf(m.Values).Loss,
						), append(
							norms,
							core.SummaryOf(m.Values).Norm,
						)
					}
				},
			},
		),
	)
	return
}

// contextBatches deals microbatches of one sequence, or packed ones of several lengths of which some are
// longer than a rank's part.
func contextBatches(dp, rows int, packed bool) BatchFunc {
	return func(step int64, d int) (out []family.Microbatch, err error) {
		for i := d * contextMicro / dp; i < (d+1)*contextMicro/dp; i++ {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			mb := family.Microbatch{Cu: []int32{0, int32(rows)}}
			if packed {
				mb.Cu = []int32{0, 1, 9, int32(20 + r.IntN(10)), int32(rows - 3), int32(rows)}
			}
			for s := range len(mb.Cu) - 1 {
				for k := range mb.Cu[s+1] - mb.Cu[s] {
					mb.IDs, mb.Targets = append(
						mb.IDs,
						int32(r.IntN(32)),
					), append(
						mb.Targets,
						int32(r.IntN(32)),
					)
					mb.Positions, mb.Weights = append(
						mb.Positions,
						k,
					), append(
						mb.Weights,
						1/float32(contextMicro*rows),
					)
				}
			}
			out = append(out, mb)
		}
		return out, nil
	}
}

// contextPlans are at least 48 plans: every way of communication with and without balance, beside pipelines,
// tensor and data parallelism, ZeRO, packing and recompute, and chunks. The first few are the ordinary tier's.
func contextPlans() (out []contextPlan) {
	ways := []contextPlan{
		{cp: 2, u: 1, ring: true, zigzag: true}, {cp: 4, u: 2, ring: true, zigzag: true},
		{cp: 2, u: 1, zigzag: true}, {cp: 2, u: 2}, {cp: 3, u: 1, ring: true, zigzag: true},
		{cp: 2, u: 1, ring: true}, {cp: 4, u: 2, zigzag: true}, {cp: 2, u: 1},
	}
	rests := []contextPlan{
		{pp: 1, dp: 1, tp: 1, packed: true},
		{pp: 2, dp: 1, tp: 1, rc: grad.RecomputeFull},
		{pp: 1, dp: 2, tp: 1, zero: 1, packed: true},
		{pp: 1, dp: 1, tp: 2, sp: true},
		{pp: 1, dp: 1, tp: 1, zero: 3, rc: grad.RecomputeSelective},
		{pp: 2, dp: 2, tp: 1, zero: 2, packed: true, schedule: "gpipe"},
		{pp: 2, dp: 1, tp: 2, packed: true, schedule: "zb-1p"},
	}
	for i := range rests {
		for j, w := range ways {
			v := rests[(i+j)%len(rests)] // so that the first plans differ in all
			v.cp, v.u, v.ring, v.zigzag = w.cp, w.u, w.ring, w.zigzag
			if v.schedule == "" {
				v.schedule = "1f1b"
			}
			out = append(out, v)
		}
	}
	for _, w := range ways {
		w.schedule, w.tp = "chunkpipe", 1
		w.pp, w.dp, w.chunks = 2, 1, 3
		out = append(out, w)
		w.pp, w.dp, w.chunks, w.zero, w.rc, w.packed = 1, 2, 2, 1, grad.RecomputeFull, true
		out = append(out, w)
	}
	return out
}

// TestContextPlans trains models of full attention and of windows under plans that share out tokens to the
// losses of one device within 1e-5 relative, gradient norms within 1e-4: sums of float32 in another order.
// A length that the ranks do not divide is padded.
func TestContextPlans(t *testing.T) {
	t.Parallel()
	plans := contextPlans()
	require.GreaterOrEqual(t, len(plans), 48)
	if !*long {
		t.Logf("%d of %d plans; -long runs all", 12, len(plans))
		plans = append(plans[:8:8], plans[len(plans)-4:]...)
	}
	for name, m := range map[string]*family.Model{"full": tiny(false), "windows": unlike(true)} {
		for _, rows := range []int{contextRows, contextRows - 5} {
			want, norms := map[bool][]float64{}, map[bool][]float64{}
			for _, packed := range []bool{false, true} {
				want[packed], norms[packed] = contextPlan{
					pp:       1,
					dp:       1,
					tp:       1,
					cp:       1,
					packed:   packed,
					schedule: "1f1b",
				}.train(
					t,
					m,
					rows,
					3,
				)
			}
			for _, v := range plans {
				if v.chunks > 1 && rows != contextRows || v.tp*v.u > 2 && name == "windows" {
					continue
				}
				t.Run(fmt.Sprintf("%s rows%d %v", name, rows, v), func(t *testing.T) {
					t.Parallel()
					got, gn := v.train(t, m, rows, 3)
					for i := range want[v.packed] {
						require.LessOrEqual(
							t,
							math.Abs(got[i]-want[v.packed][i])/want[v.packed][i],
							1e-5,
							"step %d: %v, want %v",
							i+1,
							got,
							want[v.packed],
						)
						require.LessOrEqual(
							t,
							math.Abs(gn[i]-norms[v.packed][i])/norms[v.packed][i],
							1e-4,
							"gradient norm of step %d",
							i+1,
						)
					}
				})
			}
		}
	}
}

// TestContextImages: models with images, and with positions of three axes, train under shared tokens as
// on one device. A span of features lies across the border of two ranks' tokens.
func TestContextImages(t *testing.T) {
	for _, name := range []string{"qwen2.5-vl", "qwen3-vl"} {
		m := visionModel(t, name)
		base := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
		want, norms := base.learn(t, base.job(m), 2, nil)
		for _, v := range []contextPlan{{pp: 1, dp: 1, tp: 1, cp: 2, u: 1, ring: true, zigzag: true},
			{pp: 2, dp: 1, tp: 1, cp: 4, u: 2, zigzag: true}, {pp: 1, dp: 2, tp: 1, cp: 2, u: 1,
				zigzag: true, zero: 2},
			{pp: 1, dp: 1, tp: 1, cp: 2, u: 2, rc: grad.RecomputeFull}} {
			t.Run(fmt.Sprint(name, v), func(t *testing.T) {
				p := visionPlan{pp: v.pp, dp: v.dp, tp: v.tp, zero: v.zero, schedule: "1f1b"}
				j := p.job(m)
				j.Mesh, j.Ring, j.Zigzag, j.Recompute = v.mesh(), v.ring, v.zigzag, v.rc
				got, gn := p.learn(t, j, 2, nil)
				for i := range want {
					require.LessOrEqual(
						t,
						math.Abs(got[i]-want[i])/want[i],
						1e-5,
						"step %d: %v, want %v",
						i+1,
						got,
						want,
					)
					require.LessOrEqual(
						t,
						math.Abs(gn[i]-norms[i])/norms[i],
						2e-4,
						"gradient norm of step %d",
						i+1,
					)
				}
			})
		}
	}
}
