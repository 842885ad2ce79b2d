package layout

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology"
)

// TestStepFlops counts a step's work by hand: two operations a weight and token forwards, four backwards or,
// where the weight is frozen, two; attention by the pairs that see each other within a sequence, so that 16
// sequences of 32 tokens are not one of 512.
func TestStepFlops(t *testing.T) {
	const hidden, inter, heads, headDim, vocab, layers = 64, 160, 4, 16, 512, 2
	m := family.Decoder("llama", family.Spec{Layers: layers, Hidden: hidden, Inter: inter, Heads: heads,
		KV: heads, HeadDim: headDim, Vocab: vocab, Eps: 1e-6, Rope: block.Rope{Dim: headDim, Theta: 1e4}})
	weights := float64(layers*(4*hidden*hidden+3*hidden*inter) + vocab*hidden)
	pairs := func(n int) float64 { return float64(n) * float64(n+1) / 2 }
	attention := func(p float64) float64 { return layers * heads * headDim * p * (4 + 10) }
	for _, c := range []struct {
		name         string
		rows, seqLen int
		tp, chunks   int
		frozen       bool
		want         float64
	}{
		{"one sequence", 512, 512, 1, 1, false, 6*weights*512 + attention(pairs(512))},
		{"many sequences", 512, 32, 1, 1, false, 6*weights*512 + attention(16*pairs(32))},
		{"two ranks share each layer", 512, 32, 2, 1, false, 6*weights*512 + attention(16*pairs(32))},
		{"chunks", 512, 512, 1, 4, false, 6*weights*512 + attention(pairs(512))},
		{"frozen", 512, 32, 1, 1, true, 4*weights*512 + attention(16*pairs(32))},
	} {
		j := &Design{Model: m, Mesh: topology.Grid(1, 1, c.tp), Schedule: "1f1b", Micro: 1, Rows: c.rows,
			SeqLen: c.seqLen, Chunks: c.chunks, Optim: optim.Config{Name: "adamw"}}
		if c.frozen { // but for what lies before everything, so that every gradient of an input is wanted
			j.Frozen = func(p string) bool { return !strings.HasPrefix(p, "model.embed_tokens") }
		}
		if c.chunks > 1 {
			j.Schedule = "seq1f1b"
		}
		l, err := New(j)
		require.NoError(t, err, c.name)
		// Norms, rotations and activations cost no product and add some percent in a model this small.
		require.InEpsilon(t, c.want, l.StepFlops(), 0.04, c.name)
		require.GreaterOrEqual(t, l.StepFlops(), c.want*0.999, c.name)
	}
	l, err := New(&Design{Model: m, Mesh: topology.Grid(1, 1, 1), Schedule: "1f1b", Micro: 1, Rows: 512,
		SeqLen: 512, Optim: optim.Config{Name: "adamw"}})
	require.NoError(t, err)
	packed := l.MicroFlops(0, []int32{0, 100, 512})
	require.InEpsilon(t, attention(pairs(512)-pairs(100)-pairs(412)), l.StepFlops()-packed, 1e-6,
		"packed rows count their own sequences")
}
