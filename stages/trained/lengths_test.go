package trained

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestPositionsFollowTheSequence: models with dynamic and longrope positions have transformers' logits
// (bench/golden/rope_lengths.py) of sequences below and above the length at which these change, whatever length a run
// trained with, at once, and token by token across it; phi3 then computes its keys anew.
func TestPositionsFollowTheSequence(t *testing.T) {
	text, err := os.ReadFile("testdata/rope_lengths.json")
	require.NoError(t, err)
	var cases []struct {
		Model         string
		Tokens, Begin int
		Logits        []float32
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 10)
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	require.NoError(t, err)
	for _, c := range cases {
		for _, trained := range []int{0, 8, 64} {
			dir := filepath.Join("../family/testdata", c.Model)
			src, err := checkpoint.OpenDir(dir)
			require.NoError(t, err)
			m, err := OpenSource(dir, src)
			require.NoError(t, err)
			m.Model.Spec.Rope.Length = trained
			g, err := m.Generator(b, tensor.F32)
			require.NoError(t, err)
			ids, positions := make([]int32, c.Tokens), make([]int32, c.Tokens)
			for i := range ids {
				ids[i], positions[i] = int32((i*7919+11)%256), int32(i)
			}
			var got []float32
			if c.Begin == c.Tokens {
				got, err = g.AllLogits(ids, positions, []int32{0, int32(c.Tokens)})
				require.NoError(t, err)
				near(t, c.Logits, got[len(got)-len(c.Logits):], c.Model, c.Tokens, trained)
			}
			g.Reset()
			for from, to := 0, c.Begin; from < c.Tokens; from, to = to, to+1 {
				got, err = g.Logits(ids[from:to])
				require.NoError(t, err)
				require.Len(t, got, (to-from)*len(c.Logits))
			}
			near(t, c.Logits, got[len(got)-len(c.Logits):], c.Model, c.Tokens, trained)
			require.Equal(t, trained, m.Model.Spec.Rope.Length)
			g.Close()
			m.Close()
		}
	}
}

func near(t *testing.T, want, got []float32, about ...any) {
	t.Helper()
	for i, x := range want {
		require.InDelta(t, x, got[i], 2e-5, about)
	}
}
