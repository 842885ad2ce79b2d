package host

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/grad"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
)

// steered is a model of 8 experts, 3 a token, of which numbers of their own choose: those that favours names
// get all tokens.
func steered(p expertPlan) *layout.Design {
	s := family.Spec{Layers: 4, Hidden: 32, Inter: 88, Heads: 4, KV: 2, HeadDim: 8, Vocab: 64, Eps: 1e-6,
		Rope:    block.Rope{Dim: 8, Theta: 1e4},
		InitStd: 0.1, MLPs: []string{"experts", "experts", "experts", "experts"},
		Experts: block.Experts{Inter: 40, Experts: 8, Each: 3,
			Router: routers.Router{Score: routers.Sigmoid, Normalize: true}, Bias: "gate.bias"}}
	j := p.job(family.Decoder("toy", s))
	j.Rows, j.Optim = 64, optim.Config{Name: "adamw", Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
	return j
}

// seeded fills a model from a seed.
func seeded(j *layout.Design, seed uint64) family.FillFunc {
	return func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		if kind == "param" {
			j.Model.Init(seed, p, g, dst)
		}
		return kind == "param", nil
	}
}

// favours fills a model so that experts [from, to) get all tokens.
func favours(j *layout.Design, from, to int) family.FillFunc {
	plain := seeded(j, 7)
	return func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		if ok, err := plain(kind, p, g, dst); !ok {
			return false, err
		}
		if strings.HasSuffix(p.Name, "gate.bias") {
			for e := from; e < to; e++ {
				dst[e] = 100
			}
		}
		return true, nil
	}
}

// TestRoutingMemory: where all tokens go to one rank's experts its peak is the worst that was planned for,
// at most and within 9 %: the plan counts every message that may wait while a rank computes, of 8 KB each and up to 6
// % of so small a model, and how many do is up to the scheduler of the machine. Ranks whose experts get nothing go on;
// under even routing peaks are those planned, within 15 %, since random routing is not quite even.
func TestRoutingMemory(t *testing.T) {
	for _, p := range []expertPlan{{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, ""},
		{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, some, ""}, {1, 4, 1, 4, 1, 0, 0, "1f1b", 1, full, ""}} {
		t.Run(fmt.Sprintf("%+v", p), func(t *testing.T) {
			j := steered(p)
			own := 8 / p.ep
			l, real := peaksFrom(t, j, favours(j, 0, own))
			for r := range real {
				if m := l.Memory(r); l.Ranks[r].Sides[0].Pos[len(l.Ranks[r].Sides[0].Pos)-2] == 0 { // on ep
					require.LessOrEqual(t, real[r], m.WorstTotal(), "rank %d: evenly %d", r, m.Total())
					require.GreaterOrEqual(t, float64(real[r]), 0.91*float64(m.WorstTotal()),
						"rank %d: evenly %d", r,
						m.Total())
				} else {
					require.Less(t, real[r], m.WorstTotal(), "rank %d", r)
				}
			}
			if p.ep > 2 {
				return // 64 tokens are too few to be even over more
			}
			even, planned := peaksOf(t, steered(p))
			for r := range even {
				require.InEpsilon(t, planned[r], even[r], 0.15, "rank %d", r)
			}
		})
	}
}

// TestRoutingBound: a plan whose worst case is beyond the budget does not begin, and says what bound would
// fit. With a bound it begins; steps in which more rows come than that change nothing on any rank, and the
// third in a row ends the run.
func TestRoutingBound(t *testing.T) {
	p := expertPlan{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, ""}
	j := steered(p)
	l, err := layout.New(j)
	require.NoError(t, err)
	m := l.Memory(0)
	require.Greater(t, m.WorstTotal(), m.Total())
	require.EqualValues(t, 2, l.WorstShare())
	l.Design.Memory = (m.Total() + m.WorstTotal()) / 2
	err = l.Fits(func() string { return "" })
	require.ErrorContains(t, err, "set train.routing_bound to 1.")
	require.Equal(t, exit.Fit, err.(interface{ ExitCode() int }).ExitCode())
	j.RoutingBound = 1.3
	l, err = layout.New(j)
	require.NoError(t, err)
	require.NoError(t, l.Fits(func() string { return "" }))
	given := 0
	err = Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: 9, LossScale: core.LossScale{Scale: 1},
		LR: func(int64) float64 { return 0.01 }},
		Backend: refBackend, Batches: memoryBatches(j.Micro, j.Rows), Fill: favours(j, 0, 4),
		Observe: func(m actors.Message) {
			switch m.Text {
			case core.TopicVoid:
				given++
			case core.TopicStep:
				require.True(t, core.SummaryOf(m.Values).Overflow)
			}
		}})
	require.Equal(t, 3, given)
	var void *core.VoidError
	require.ErrorAs(t, err, &void)
	require.True(t, void.Over)
	require.ErrorContains(t, err,
		"384 rows of tokens came to the experts of block 1, 2.00 times as many as under even routing (192)")
	require.ErrorContains(t, err, "rank 0")
}

// TestIdleExpert: a run in which most experts, and all of one rank, get no token goes on for many steps.
func TestIdleExpert(t *testing.T) {
	t.Parallel()
	j := steered(expertPlan{1, 2, 1, 2, 1, 1, 0, "1f1b", 1, some, ""})
	j.Rows = 8
	l, err := layout.New(j)
	require.NoError(t, err)
	steps := 0
	require.NoError(t, Run(l,
		RunOptions{Coord: core.RunLayout{First: 1, Last: 100, LossScale: core.LossScale{Scale: 1},
			LR: func(int64) float64 { return 0.01 }},
			Backend: refBackend, Batches: memoryBatches(j.Micro, j.Rows), Fill: favours(j, 0, 3),
			Observe: func(m actors.Message) {
				if m.Text == core.TopicStep {
					steps++
				}
			}}))
	require.Equal(t, 100, steps)
}

// TestExpertAdapters trains adapters of every expert, sharded out as their experts, and nothing else, to the
// losses of one device.
func TestExpertAdapters(t *testing.T) {
	job := func(p expertPlan) *layout.Design {
		j := p.job(mixture(t, "shared"))
		j.Lora = &block.Lora{Targets: []string{"*.gate_proj", "*.down_proj", "*.q_proj", "*.gate"}, Rank: 2,
			Alpha: 4}
		j.Frozen = func(name string) bool { return !strings.Contains(name, ".lora_") }
		return j
	}
	want := toyRun(t, job(expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}), toyBatches(1), 4)
	for _, p := range []expertPlan{{1, 2, 1, 2, 1, 1, 0, "1f1b", 1, some, ""},
		{2, 2, 2, 4, 1, 0, 0, "1f1b", 1, full, "sp"}, {1, 4, 1, 2, 1, 3, 0, "1f1b", 1, none, ""}} {
		got := toyRun(t, job(p), toyBatches(p.dp), 4)
		require.Len(t, got, len(want))
		for i := range want {
			require.InEpsilon(t, want[i], got[i], 1e-5, "%+v step %d", p, i+1)
		}
	}
	names := map[string]bool{}
	for _, p := range mixture(t, "shared").Adapters(job(expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none,
		""}).Lora) {
		names[p.Name] = true
	}
	require.True(t, names["model.layers.0.mlp.experts.down_proj.lora_B.weight"])
	require.False(t, names["model.layers.0.mlp.gate.lora_A.weight"], "a router has no adapter")
}

// TestWildLogits: a step in which a token's logits are not finite names token, block and expert and changes
// nothing on any rank: the steps behind it have the bits that they would have had without it. Where all
// steps are so, the third ends the run.
func TestWildLogits(t *testing.T) {
	t.Parallel()
	run := func(poisoned func(step int64) bool, steps int64) (losses []float64, said []string, err error) {
		j := steered(expertPlan{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, some, ""})
		l, err := layout.New(j)
		require.NoError(t, err)
		plain := memoryBatches(j.Micro, j.Rows)
		err = Run(l, RunOptions{Coord: core.RunLayout{First: 1, Last: steps,
			LossScale: core.LossScale{Scale: 1},
			LR:        func(int64) float64 { return 0.01 }}, Backend: refBackend,
			Batches: func(step int64, replica int) ([]family.Microbatch, error) {
				mbs, err := plain(step, replica)
				for _, mb := range mbs {
					mb.IDs[63] = 1 // the last token of the vocabulary is poison
				}
				if poisoned(step) && replica == 1 {
					mbs[1].IDs[17] = 63
				}
				return mbs, err
			},
			Fill: func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
				if kind == "param" {
					j.Model.Init(7, p, g, dst)
				}
				if rows := g.Intervals(p)[0]; kind == "param" && p.Name == "model.embed_tokens.weight" &&
					rows[1] == 64 {
					dst[(63-rows[0])*32] = float32(math.NaN())
				}
				return kind == "param", nil
			},
			Observe: func(m actors.Message) {
				switch m.Text {
				case core.TopicVoid:
					said = append(said, m.Err.Error())
				case core.TopicStep:
					losses = append(losses, core.SummaryOf(m.Values).Loss)
				}
			}})
		return losses, said, err
	}
	want, said, err := run(func(int64) bool { return false }, 3)
	require.NoError(t, err)
	require.Empty(t, said)
	got, said, err := run(func(step int64) bool { return step == 2 }, 4)
	require.NoError(t, err)
	require.Len(t, said, 1)
	require.Contains(t, said[0],
		"step 2: rank 1 (pp 0 dp 1 tp 0): 0F1: the router of block 1 gives expert 0 a logit of NaN for "+
			"token 17 of the microbatch")
	require.Equal(t, want, []float64{got[0], got[2], got[3]})
	_, said, err = run(func(int64) bool { return true }, 9)
	require.ErrorContains(t, err, "no update was made in 3 steps in a row")
	require.Len(t, said, 3)
}
