package host

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	routers "github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// mixtures are ways to route, each with losses of its own.
var mixtures = map[string]struct {
	experts block.Experts
	losses  block.Balance
}{
	"softmax": {block.Experts{Router: routers.Router{Normalize: true}},
		block.Balance{Kind: block.PooledBalance, Scale: 0.5 / 8}},
	"shared": {block.Experts{Shared: block.Gated{Inter: 10, Act: kernels.SiLU}, SharedName: "shared_expert",
		SharedGate: "shared_expert_gate"},
		block.Balance{Kind: block.LayerBalance, Scale: 0.5 / 8, Z: 0.01 / 8}},
	"batch": {block.Experts{Router: routers.Router{Normalize: true}},
		block.Balance{Kind: block.BatchBalance, Scale: 0.5 / 8}},
	"groups": {block.Experts{Router: routers.Router{Score: routers.Sigmoid, Normalize: true, Eps: 1e-20,
		Scale: 2.5, Groups: 4, Kept: 2, Best: 2},
		Bias: "gate.e_score_correction_bias", Step: 0.01, Shared: block.Gated{Inter: 6, Act: kernels.SiLU},
		SharedName: "shared_experts"},
		block.Balance{Kind: block.SequenceBalance, Scale: 0.5 / 8}},
}

// mixture is a model of four layers, of which the second has no experts.
func mixture(t *testing.T, name string) *family.Model {
	x := mixtures[name]
	x.experts.Inter, x.experts.Experts, x.experts.Each = 6, 8, 3
	s := family.Spec{Layers: 4, Hidden: 16, Inter: 24, Heads: 4, KV: 2, HeadDim: 4, Vocab: 32, Eps: 1e-5,
		QKNorm: true,
		Rope:   block.Rope{Dim: 4, Theta: 10000, Max: 64, Original: 64, Length: 8}, InitStd: 0.3,
		MLPs: []string{"experts", "gated", "experts", "experts"}, Experts: x.experts}
	require.NoError(t, s.Check())
	m := family.Decoder("toy", s)
	m.Balance(x.losses)
	return m
}

// expertPlan is a plan of the grid.
type expertPlan struct {
	pp, dp, tp, ep, etp, zero, zeroRanks int
	schedule                             string
	loops                                int
	rc                                   grad.Recompute
	more                                 string // sp, overlap, offload, pairs
}

func (p expertPlan) job(m *family.Model) *layout.Design {
	c := &configs.Plan{PP: p.pp, DP: p.dp, TP: p.tp, EP: p.ep, ETP: p.etp, ZeroRanks: p.zeroRanks}
	j := &layout.Design{Model: m, Mesh: layout.MeshOf(c), Zero: p.zero, Schedule: p.schedule, Loops: p.loops,
		Micro: 8 / p.dp, Recompute: p.rc,
		SeqParallel: p.more == "sp", Overlap: p.more == "overlap", Pairs: p.more == "pairs"}
	if p.more == "offload" {
		j.Offload = 64
	}
	return j
}

const none, some, full = grad.RecomputeNone, grad.RecomputeSelective, grad.RecomputeFull

// expertPlans have every axis, level of ZeRO, schedule and policy with experts shared out, and experts on
// the ranks of data, of tensor parallelism and of both.
var expertPlans = []expertPlan{
	{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, ""}, {1, 2, 1, 2, 1, 0, 0, "1f1b", 1, some, ""},
	{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, full, ""},
	{1, 4, 1, 4, 1, 1, 0, "gpipe", 1, none, "overlap"}, {1, 8, 1, 8, 1, 0, 0, "1f1b", 1, some, ""},
	{1, 4, 1, 2, 1, 2, 0, "1f1b", 1, some, ""},
	{1, 4, 1, 2, 1, 3, 0, "1f1b", 1, full, "overlap"}, {1, 4, 1, 2, 1, 3, 2, "1f1b", 1, some, ""},
	{1, 4, 1, 1, 2, 1, 2, "1f1b", 1, none, ""},
	{1, 1, 2, 1, 1, 0, 0, "1f1b", 1, none, ""}, {1, 1, 2, 2, 1, 0, 0, "1f1b", 1, some, "sp"},
	{1, 1, 2, 1, 2, 0, 0, "1f1b", 1, full, "sp"},
	{1, 1, 2, 2, 1, 0, 0, "1f1b", 1, none, "overlap"}, {1, 2, 2, 4, 1, 0, 0, "1f1b", 1, some, ""},
	{1, 2, 2, 2, 2, 1, 0, "1f1b", 1, none, ""},
	{1, 2, 2, 2, 1, 2, 0, "1f1b", 1, none, "sp"}, {1, 2, 2, 1, 2, 3, 0, "1f1b", 1, full, ""},
	{1, 2, 2, 1, 1, 1, 0, "1f1b", 1, some, ""},
	{2, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}, {2, 2, 1, 2, 1, 0, 0, "gpipe", 1, some, ""},
	{2, 2, 1, 2, 1, 1, 0, "interleaved", 2, none, ""},
	{2, 2, 1, 2, 1, 0, 0, "zb-h1", 1, none, ""}, {2, 2, 1, 2, 1, 0, 0, "zb-h1", 1, full, "overlap"},
	{2, 2, 1, 2, 1, 0, 0, "zb-v", 2, some, ""},
	{2, 4, 1, 2, 1, 2, 0, "1f1b", 1, some, "overlap"}, {2, 4, 1, 4, 1, 3, 0, "1f1b", 1, full, ""},
	{2, 1, 2, 2, 1, 0, 0, "1f1b", 1, some, "sp"},
	{2, 2, 2, 2, 2, 1, 0, "1f1b", 1, full, ""}, {2, 2, 2, 4, 1, 0, 0, "zb-h1", 1, some, "sp"},
	{3, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, ""},
	{4, 1, 2, 1, 2, 0, 0, "interleaved", 1, none, ""}, {2, 2, 1, 2, 1, 1, 0, "dualpipev", 2, some, ""},
	{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, some, "pairs"}, {2, 2, 1, 2, 1, 1, 0, "1f1b", 1, none, "pairs"},
	{2, 2, 1, 2, 1, 1, 0, "interleaved", 2, full, "pairs"},
	{2, 1, 2, 2, 1, 0, 0, "interleaved", 2, some, "pairs"}, {1, 2, 2, 2, 2, 3, 0, "1f1b", 1, full, "pairs"},
	{2, 2, 1, 2, 1, 0, 0, "dualpipev", 2, some, "pairs"},
	{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, none, "offload"},
	{2, 2, 1, 1, 2, 0, 0, "1f1b", 1, full, "offload"}, {2, 2, 1, 2, 1, 0, 0, "1f1b", 1, some, "offload"},
}

// TestExpertPlans trains mixtures under plans that share experts out, to the losses of one device: within
// 1e-5, which the order of sums over tokens bounds.
func TestExpertPlans(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"softmax", "shared", "groups"} {
		want := toyRun(t, expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}.job(mixture(t, name)),
			toyBatches(1), 3)
		for k, p := range expertPlans {
			if k%3 != i && !*long {
				continue
			}
			t.Run(fmt.Sprintf("%s %+v", name, p), func(t *testing.T) {
				got := toyRun(t, p.job(mixture(t, name)), toyBatches(p.dp), 3)
				require.Len(t, got, len(want))
				for i := range want {
					require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 1e-5, "step %d: %v, want %v",
						i+1, got, want)
				}
			})
		}
	}
}

// TestBatchBalance: a loss that counts experts over replicas and the step's microbatches so far is the same
// however layers, experts and passes are shared out, but for what other sums bound; and where only experts
// and passes are, it has the same bits.
func TestBatchBalance(t *testing.T) {
	run := func(p expertPlan) []float64 {
		return toyTrain(t, p.job(mixture(t, "batch")), toyBatches(p.dp), 3, func(int) kernels.Backend {
			return cpu.New(1)
		})
	}
	plain := expertPlan{1, 2, 1, 1, 1, 0, 0, "1f1b", 1, none, ""}
	want := run(plain)
	for _, p := range []expertPlan{{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, full, ""},
		{1, 2, 2, 2, 1, 3, 0, "1f1b", 1, some, "sp"}, {2, 2, 1, 1, 1, 0, 0, "zb-h1", 1, full, ""},
		{2, 2, 1, 2, 1, 1, 0, "interleaved", 2, none, "pairs"}, {1, 2, 1, 2, 1, 0, 0, "gpipe", 1, none,
			""}} {
		got := run(p)
		require.InEpsilonSlice(t, want, got, 1e-5, "%+v", p)
		require.Equal(t, p.tp == 1, want[0] == got[0], "%+v: the first forward", p)
	}
	one := run(expertPlan{1, 1, 1, 1, 1, 0, 0, "1f1b", 1, none, ""})
	require.Greater(t, math.Abs(one[0]-want[0])/want[0], 1e-3,
		"a replica more is twice the samples in a count")
	require.Equal(t, want, toyWrapped(t, plain.job(mixture(t, "batch")), toyBatches(plain.dp), 3,
		func(int) kernels.Backend { return cpu.New(1) }, func(_ int, d Device) Device {
			return &forgetful{Rank: d.(*Rank)}
		}), "a step counts from its own beginning")
	again := &Rank{runs: []*grad.Runner{{}}, counted: 7}
	again.forget()
	require.Zero(t, again.counted, "what a step counts begins anew, also in that step")
}

// forgetful is a rank that forgets what it has counted before each step.
type forgetful struct {
	*Rank
	step int64
}

// Run implements Device.
func (f *forgetful) Run(j actors.Job) (Result, error) {
	if j.Kind == actors.RunSegment && j.Step != f.step {
		f.step = j.Step
		f.forget()
	}
	return f.Rank.Run(j)
}

// TestPairedBits: forwards that run in turns with backwards of other microbatches give the losses, bit for
// bit, of passes that run one after another.
func TestPairedBits(t *testing.T) {
	for _, p := range []expertPlan{{1, 2, 1, 2, 1, 0, 0, "1f1b", 1, some, ""},
		{2, 2, 1, 2, 1, 1, 0, "1f1b", 1, full, ""}, {2, 1, 2, 2, 1, 0, 0, "interleaved", 2, none, ""},
		{1, 2, 1, 2, 1, 3, 0, "1f1b", 1, some, ""}} {
		for _, name := range []string{"softmax", "groups"} {
			run := func() []float64 {
				return toyTrain(t, p.job(mixture(t, name)), toyBatches(p.dp), 3, func(int) kernels.Backend {
					return cpu.New(1)
				})
			}
			p.more = ""
			want := run()
			p.more = "pairs"
			require.Equal(t, want, run(), "%s %+v", name, p)
		}
	}
}

// TestExpertBits: how many ranks share the experts out changes no bit of the forward.
func TestExpertBits(t *testing.T) {
	for _, name := range []string{"softmax", "shared", "groups"} {
		for _, dp := range []int{2, 8} {
			var want []float64
			for _, ep := range []int{1, 2, dp} {
				p := expertPlan{1, dp, 1, ep, 1, 0, 0, "1f1b", 1, some, ""}
				got := toyTrain(t, p.job(mixture(t, name)), toyBatches(dp), 1, func(int) kernels.Backend {
					return cpu.New(1)
				})
				if want == nil {
					want = got
				}
				require.Equal(t, want, got, "%s dp=%d ep=%d", name, dp, ep)
			}
		}
	}
}
