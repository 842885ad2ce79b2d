//go:build cuda

package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// longBatch is one microbatch of 8 sequences of 2048 tokens.
func longBatch(vocab int) BatchFunc {
	const sequences, each = 8, 2048
	return func(step int64, d int) ([]family.Microbatch, error) {
		mb := family.Microbatch{Cu: []int32{0}}
		for s := range sequences {
			for k := range each {
				mb.IDs, mb.Targets = append(mb.IDs, int32((s+k)%vocab)), append(mb.Targets,
					int32((s+k+1)%vocab))
				mb.Positions, mb.Weights = append(mb.Positions, int32(k)), append(mb.Weights, 1)
			}
			mb.Cu = append(mb.Cu, int32((s+1)*each))
		}
		return []family.Microbatch{mb}, nil
	}
}

// dry opens an emulated device whose kernels are counted and not run.
func dry(t *testing.T) (*emulate.Driver, func(int) kernels.Backend) {
	e := emulate.New(t).Copy(t)
	e.Set(t, "dry", 1, 0)
	e.Set(t, "memory", 30<<30, 1<<30)
	t.Setenv(cuda.LibraryVariable, e.Path)
	t.Setenv(cuda.ProductsVariable, "none")
	t.Setenv(cuda.AttentionVariable, "none")
	of, closeAll, err := OpenBackends("cuda", Ranks(1), kernels.Options{Threads: 1, Strict: true})
	require.NoError(t, err)
	t.Cleanup(closeAll)
	return e, of
}

// dryRun trains a model for some steps of 8 sequences of 2048 tokens in bfloat16, and calls after behind each.
func dryRun(t *testing.T, c configs.Model, steps int64, of func(int) kernels.Backend, after func()) {
	c.MaxPositions, c.RopeTheta, c.NormEps, c.InitRange, c.Act = 2048, 10000, 1e-6, 0.2, "silu"
	m, err := family.Build(c, 2048)
	require.NoError(t, err)
	l, o := variant{pp: 1, dp: 1, tp: 1, schedule: "1f1b"}.run(t, m, steps, of, nil)
	j := *l.Design
	j.DType, j.Micro, j.Rows = tensor.BF16, 1, 8*2048
	l, err = layout.New(&j)
	require.NoError(t, err)
	o.Batches = longBatch(c.Vocab)
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicStep {
			after()
		}
	}
	require.NoError(t, Run(l, o))
}

// dryStep is the calls of a model's second step: those that a run of two steps has beyond one of a single step.
func dryStep(t *testing.T, c configs.Model, wide map[int]int) []noted {
	_, of := dry(t)
	var runs [2][]noted
	for i := range runs {
		dryRun(t, c, int64(i+1), func(rank int) kernels.Backend {
			return &recorder{Device: of(rank).(kernels.Device), calls: &runs[i], wide: wide}
		}, func() {})
	}
	return runs[1][len(runs[0]):]
}

// TestStepCounts: a step of a model with the layers, heads and vocabulary of Llama-3.2-1B, of 8 sequences of 2048
// tokens, takes at most 1500 launches, two reads that the host waits for, and no memory after the first step.
// What a launch computes does not matter to its number, so widths are small and the kernels are not run.
func TestStepCounts(t *testing.T) {
	e, of := dry(t)
	c := configs.Model{ModelType: "llama", Layers: 16, Hidden: 32, Heads: 32, KVHeads: 8, HeadDim: 2,
		Vocab:        128256,
		Intermediate: 64, TieEmbeddings: true}
	var launches, reads, allocations []int
	dryRun(t, c, 4, of, func() {
		a, b, c := e.Counts()
		launches, reads, allocations = append(launches, a), append(reads, b), append(allocations, c)
	})
	require.Len(t, launches, 4)
	t.Logf("launches %v, reads %v, allocations %v", launches, reads, allocations)
	// A step's report is heard while the next one is under way: what falls between two reports is no step's
	// own number, and all of them are.
	require.LessOrEqual(t, launches[3], 4*1500, "launches of four steps")
	for i := 2; i < 4; i++ {
		require.LessOrEqual(t, reads[i]-reads[i-1], 2, "reads of step %d", i+1)
		require.Equal(t, allocations[i-1], allocations[i], "memory that step %d took", i+1)
	}
}
