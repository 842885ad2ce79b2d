package rates

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStepOfModel: a model of a directory is timed, whole and in chunks, which give the same loss within
// what attention to parts leaves, and have the same floor; chunks that do not divide are refused.
func TestStepOfModel(t *testing.T) {
	var floors []float64
	step := func(chunk int) ([]float64, error) {
		s := Step{Model: "../../../../stages/family/testdata/gpt-oss", Precision: "fp32", Recompute: "full",
			Threads: 1, Steps: 1, Seq: 48, Batch: 1, Pp: 1, Chunk: chunk}
		res, _, err := s.Measure()
		floors = append(floors, res.Floor.Products, res.Floor.Attention)
		return res.Losses, err
	}
	whole, err := step(0)
	require.NoError(t, err)
	require.Len(t, whole, 2)
	parts, err := step(16)
	require.NoError(t, err)
	require.InEpsilonSlice(t, whole, parts, 1e-5)
	require.Equal(t, floors[:2], floors[2:])
	_, err = step(20)
	require.ErrorContains(t, err, "--chunk 20: want a part of a microbatch's 48 tokens")
}

// TestStepOffloads: activations and the optimizer's state that wait in files leave the losses' bits alone and
// take less memory.
func TestStepOffloads(t *testing.T) {
	step := func(activations, state bool) StepResult {
		s := Step{Shape: "llama58m", Precision: "fp32", Recompute: "none", Threads: 1, Steps: 2, Layers: 2,
			Hidden: 128, Inter: 256, Vocab: 500, Seq: 256, Batch: 1, Pp: 1, Offload: activations,
			OffloadOptimizer: state}
		require.NoError(t, s.check())
		m, err := s.model()
		require.NoError(t, err)
		l, err := s.layout(m)
		require.NoError(t, err)
		var res StepResult
		_, err = s.train(m, l, &res)
		require.NoError(t, err)
		return res
	}
	kept := step(false, false)
	for _, moved := range []StepResult{step(true, false), step(false, true)} {
		require.Equal(t, kept.Losses, moved.Losses)
		require.Less(t, moved.PeakBytes, kept.PeakBytes)
	}
}
