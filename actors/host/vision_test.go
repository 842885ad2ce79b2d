package host

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// visionModel is one of the golden composed models, with weights drawn from a seed.
func visionModel(t *testing.T, name string) *family.Model {
	c, err := configs.ReadModel(filepath.Join(goldenDir, name))
	require.NoError(t, err)
	m, err := family.Build(c, 24)
	require.NoError(t, err)
	m.Spec.InitStd = 0.2
	return m
}

const visionRows = 32

// visionBatches deals 8 microbatches a step; pattern says by microbatch whether it has images, nil for a
// mixture of none, one, two, and a video.
func visionBatches(m *family.Model, dp int, pattern func(step int64, micro int) bool) BatchFunc {
	const total = 8
	return func(step int64, d int) ([]family.Microbatch, error) {
		var out []family.Microbatch
		for i := d * total / dp; i < (d+1)*total/dp; i++ {
			r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
			kind := (i + int(step)) % 4
			if pattern != nil {
				kind = 0
				if pattern(step, i) {
					kind = 1 + r.IntN(3)
				}
			}
			out = append(out, visionBatch(m, r, kind, total))
		}
		return out, nil
	}
}

func visionBatch(m *family.Model, r *rand.Rand, kind, total int) family.Microbatch {
	mb := family.Microbatch{Cu: []int32{0, 20, visionRows}}
	for k := range int32(visionRows) {
		mb.IDs, mb.Targets = append(mb.IDs, int32(r.IntN(110))), append(mb.Targets, int32(r.IntN(110)))
		mb.Positions, mb.Weights = append(mb.Positions, k-20*min(1, k/20)),
			append(mb.Weights, 1/float32(total*visionRows))
	}
	image := func(at int32, t, h, w int, video bool) {
		n := int32(t * h * w / m.Vision.Tower.Join)
		for i := at; i < at+n; i++ {
			mb.IDs[i], mb.Targets[i] = -1, -100
		}
		mb.Images.Grids = append(mb.Images.Grids, family.Grid{T: t, H: h, W: w,
			Spans: [][2]int32{{at, at + n}}, Video: video})
		for range t * h * w * m.Vision.Tower.PatchDim {
			mb.Images.Values = append(mb.Images.Values, float32(r.NormFloat64()))
		}
	}
	switch kind {
	case 1:
		image(2, 1, 4, 6, false)
	case 2:
		image(1, 1, 2, 4, false)
		image(22, 1, 4, 4, false)
	case 3:
		image(3, 2, 4, 6, true)
	}
	return mb
}

// visionPlan is one way to lay a composed model out.
type visionPlan struct {
	pp, dp, tp, zero int
	sp               bool
	schedule         string
	e                *layout.PartPlan
	loops            int
	frozen           string // components that do not learn
}

func (v visionPlan) String() string {
	s := fmt.Sprintf("pp%d dp%d tp%d zero%d sp=%v %s %s", v.pp, v.dp, v.tp, v.zero, v.sp, v.schedule,
		v.frozen)
	if v.e != nil {
		s += fmt.Sprintf(" encoder %s tp%d own%d fill=%v", v.e.Over, v.e.TP, v.e.Ranks, v.e.Fill)
	}
	return s
}

func (v visionPlan) freezes(param string) bool {
	return strings.Contains(v.frozen, "encoder") && strings.HasPrefix(param, "visual.") ||
		strings.Contains(v.frozen, "projector") && strings.HasPrefix(param, "projector.") ||
		strings.Contains(v.frozen, "decoder") && !strings.HasPrefix(param, "visual.") &&
			!strings.HasPrefix(param, "projector.")
}

func (v visionPlan) job(m *family.Model) *layout.Design {
	return &layout.Design{Model: m, Mesh: topology.Grid(v.pp, v.dp, v.tp), Parts: layout.TowerParts(m, v.e),
		Zero: v.zero, SeqParallel: v.sp, Schedule: v.schedule, Loops: v.loops, Frozen: v.freezes,
		Micro: 8 / v.dp, Rows: visionRows, Dims: map[string]int{block.Patches: 48, block.Frames: 2},
		Optim: optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Clip: 1}}
}

func (v visionPlan) train(t *testing.T, j *layout.Design, steps int64, pattern func(int64,
	int) bool) []float64 {
	losses, _ := v.learn(t, j, steps, pattern)
	return losses
}

func (v visionPlan) learn(t *testing.T, j *layout.Design, steps int64,
	pattern func(int64, int) bool) (losses, norms []float64) {
	l, err := layout.New(j)
	require.NoError(t, err)
	backends := make([]*cpu.Backend, l.World())
	for i := range backends {
		backends[i] = cpu.New(1)
		defer backends[i].Close()
	}
	require.NoError(t, Run(l,
		RunOptions{Coord: core.RunLayout{First: 1, Last: steps, LossScale: core.LossScale{Scale: 1},
			LR: func(int64) float64 { return 0.01 }},
			Backend: func(rank int) kernels.Backend { return backends[rank] },
			Batches: visionBatches(j.Model, v.dp, pattern),
			Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
				if kind == "param" {
					j.Model.Init(7, p, g, dst)
				}
				return kind == "param", nil
			},
			Observe: func(m actors.Message) {
				if m.Text == core.TopicStep {
					losses, norms = append(losses, core.SummaryOf(m.Values).Loss),
						append(norms, core.SummaryOf(m.Values).Norm)
				}
			}}))
	return
}

func visionPlans() []visionPlan {
	first := func(tp int, fill bool) *layout.PartPlan {
		return &layout.PartPlan{TP: tp, Over: layout.OverFirst, Fill: fill}
	}
	all := func(tp int, fill bool) *layout.PartPlan {
		return &layout.PartPlan{TP: tp, Over: layout.OverAll, Fill: fill}
	}
	own := func(ranks, tp int, fill bool) *layout.PartPlan {
		return &layout.PartPlan{TP: tp, Over: layout.OverOwn, Ranks: ranks, Fill: fill}
	}
	return []visionPlan{
		{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, // the tower is cut like any other block
		{pp: 1, dp: 2, tp: 2, zero: 1, sp: true, schedule: "1f1b"},
		{pp: 1, dp: 2, tp: 1, zero: 2, schedule: "1f1b"}, // replicas with images beside replicas without
		{pp: 2, dp: 2, tp: 1, zero: 3, schedule: "1f1b"},
		{pp: 1, dp: 1, tp: 1, schedule: "1f1b", e: first(1, false)},         // colocated
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b", e: first(2, false)},         // colocated, one mesh
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b", e: first(2, true)},          // decoupled
		{pp: 2, dp: 1, tp: 2, schedule: "gpipe", e: first(1, false)},        // hetero-DP
		{pp: 2, dp: 2, tp: 2, zero: 1, schedule: "1f1b", e: first(1, true)}, // hetero-DP, decoupled
		// encoder tp below the decoder's
		{pp: 1, dp: 1, tp: 4, sp: true, schedule: "1f1b", e: first(2, false)},
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b", e: all(1, true)}, // full hetero-DP
		// full hetero-DP over a pipeline
		{pp: 4, dp: 1, tp: 1, schedule: "1f1b", e: all(1, true)},
		// replicas of two ranks each
		{pp: 2, dp: 2, tp: 2, zero: 1, sp: true, schedule: "gpipe", e: all(2, true)},
		{pp: 2, dp: 1, tp: 2, schedule: "zb-h1", e: all(1, true)},   // I and W apart
		{pp: 2, dp: 1, tp: 1, schedule: "1f1b", e: own(1, 1, true)}, // disaggregated
		{pp: 1, dp: 1, tp: 2, schedule: "1f1b", e: own(2, 2, true)},
		{pp: 1, dp: 2, tp: 1, zero: 1, schedule: "1f1b", e: own(2, 1, true)},
		{pp: 1, dp: 2, tp: 1, zero: 2, schedule: "1f1b", e: own(1, 1, true)}, // one encoder a replica
		{pp: 2, dp: 2, tp: 1, zero: 3, schedule: "1f1b", e: own(1, 1, true)},
		{pp: 2, dp: 2, tp: 1, zero: 3, schedule: "1f1b", e: first(1, true)},
		{pp: 2, dp: 1, tp: 1, schedule: "gpipe", e: own(2, 2, false)}, // encoder tp above the decoder's
		{pp: 3, dp: 1, tp: 2, schedule: "1f1b", e: all(1, false)},
		{pp: 2, dp: 1, tp: 1, schedule: "dualpipev", loops: 2, e: first(1, true)},
		{pp: 2, dp: 1, tp: 1, schedule: "interleaved", loops: 2, e: all(1, true)},
	}
}

// TestVisionLayouts trains composed models under every kind of layout of encoder and decoder to the losses of one rank,
// on microbatches with no, one and two images and a video. Other orders of float32 sums differ by about 1e-6;
// AdamW's first steps move by the sign of a gradient where it is next to nothing, which makes some 1e-5 of it.
func TestVisionLayouts(t *testing.T) {
	for i, name := range []string{"qwen2.5-vl-tied", "qwen3-vl"} {
		m := visionModel(t, name)
		one := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}
		want := one.train(t, one.job(m), 6, nil)
		require.Len(t, want, 6)
		for _, v := range sampled(t, visionPlans(), 2, i) {
			t.Run(name+" "+v.String(), func(t *testing.T) {
				t.Parallel()
				got := v.train(t, v.job(m), 6, nil)
				require.Len(t, got, 6)
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-4, "step %d: %v, want %v",
						i+1, got, want)
				}
			})
		}
	}
}

// TestVisionFreezing: what does not learn changes neither, and the layouts still agree. A frozen encoder
// sends no gradient, a frozen encoder and projector run no backward at all.
func TestVisionFreezing(t *testing.T) {
	m := visionModel(t, "qwen3-vl")
	for i, frozen := range []string{"encoder", "encoder projector", "decoder", "encoder decoder"} {
		one := visionPlan{pp: 1, dp: 1, tp: 1, schedule: "1f1b", frozen: frozen}
		want := one.train(t, one.job(m), 4, nil)
		for _, v := range sampled(t, visionPlans()[:12], 3, i) {
			v.frozen = frozen
			t.Run(v.String(), func(t *testing.T) {
				t.Parallel()
				j := v.job(m)
				l, err := layout.New(j)
				require.NoError(t, err)
				if v.e != nil {
					back := 0
					for _, row := range l.Program.Rows {
						for _, e := range row {
							if e.Stage == 0 && e.Kind == plan.B {
								back++
							}
						}
					}
					require.Equal(t, frozen == "encoder projector", back == 0,
						"backwards of the encoder: %d", back)
				}
				got := v.train(t, j, 4, nil)
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-4, "step %d: %v, want %v",
						i+1, got, want)
				}
			})
		}
	}
}

// TestVisionPatterns runs every pattern of microbatches with and without images over four ranks: none
// hangs, none starts a forward of the encoder for a microbatch that has nothing to encode.
func TestVisionPatterns(t *testing.T) {
	m := visionModel(t, "qwen2.5-vl-tied")
	for _, v := range []visionPlan{{pp: 2, dp: 2, tp: 1, schedule: "1f1b",
		e: &layout.PartPlan{TP: 1, Over: layout.OverFirst, Fill: true}},
		{pp: 2, dp: 1, tp: 2, schedule: "1f1b",
			e: &layout.PartPlan{TP: 1, Over: layout.OverAll, Fill: true}},
		{pp: 3, dp: 1, tp: 1, schedule: "1f1b", e: &layout.PartPlan{TP: 1, Over: layout.OverOwn, Ranks: 1,
			Fill: true}}, {pp: 4, dp: 1, tp: 1, schedule: "1f1b"}} {
		for bits := range 16 {
			t.Run(fmt.Sprintf("%v %04b", v, bits), func(t *testing.T) {
				t.Parallel()
				pattern := func(_ int64, micro int) bool { return bits>>(micro%4)&1 == 1 }
				require.Len(t, v.train(t, v.job(m), 2, pattern), 2)
			})
		}
	}
}

// TestVisionRefuses: layouts that cannot be are errors that say what to set.
func TestVisionRefuses(t *testing.T) {
	m := visionModel(t, "qwen2.5-vl-tied")
	for want, v := range map[string]visionPlan{
		"does not divide the tower's heads": {pp: 1, dp: 1, tp: 4, schedule: "1f1b",
			e: &layout.PartPlan{TP: 4, Over: layout.OverFirst}},
		"set plan.encoder.tp to a divisor": {pp: 1, dp: 1, tp: 2, schedule: "1f1b",
			e: &layout.PartPlan{TP: 3, Over: layout.OverFirst}},
		"set plan.encoder.ranks": {pp: 1, dp: 1, tp: 1, schedule: "1f1b",
			e: &layout.PartPlan{TP: 1, Over: layout.OverOwn}},
		"set plan.zero=1": {pp: 1, dp: 2, tp: 2, zero: 3, schedule: "1f1b",
			e: &layout.PartPlan{TP: 1, Over: layout.OverFirst}},
	} {
		_, err := layout.New(v.job(m))
		require.ErrorContains(t, err, want)
	}
}
