package sample

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var long = flag.Bool("long", false, "compare 100,000 tokens in place of 1,000")

// TestTokens: tokens that are drawn in batches of 1 to 64 answers, over pages, some of which prompts share, have the
// log-probabilities that training gives them, without a difference in any bit: dense, with windows, with experts and
// with linear attention, in float32 and bfloat16, in one rank's order of sums and in that of two.
func TestTokens(t *testing.T) {
	most := 1000
	if *long {
		most = 100_000
	} else {
		t.Log("1,000 tokens: -long has 100,000")
	}
	b := cpu.New(2)
	defer b.Close()
	all := 0
	models := exact()
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		for i, name := range slices.Repeat([]string{"dense", "sliding", "hybrid", "experts"}, 2) {
			g := drawn(t, models[name], d, b)
			g.SumAs(map[string]int{grad.TP: 1 + i/4}, nil)
			for n, batch := 0, 1; n < most/16; batch = batch%64 + 9 {
				e, err := NewEngine(g, EngineOptions{Pages: 512, Running: batch, Rows: 64 + batch})
				require.NoError(t, err)
				rs := requests(2*batch + 3)
				for i, r := range rs {
					r.Params = Params{Max: 1 + i%60, Seed: uint64(n), Temperature: 1}
				}
				as := asked(t, e, rs, batch)
				for k, want := range logProbsOf(t, g, rs, as) {
					require.Equal(t, want, as[k].lp, "%s %v: answer %d of batches of %d", name, d, k, batch)
					n, all = n+len(want), all+len(want)
				}
			}
			g.Close()
		}
	}
	require.GreaterOrEqual(t, all, most)
	t.Logf("%d tokens", all)
}

// TestSumAs: another number of ranks gives other bits, so that an order that is not the trainer's is seen.
func TestSumAs(t *testing.T) {
	b := cpu.New(1)
	defer b.Close()
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(i*i+3) % 70
	}
	for name, spec := range exact() {
		of := func(ranks int) []float32 {
			g := drawn(t, spec, tensor.BF16, b)
			defer g.Close()
			g.SumAs(map[string]int{grad.TP: ranks}, nil)
			z, err := g.Logits(ids)
			require.NoError(t, err)
			return z
		}
		require.Equal(t, of(0), of(1), name)
		require.NotEqual(t, of(1), of(2), name)
		require.InDeltaSlice(t, of(1), of(2), 1, "%s: rounding alone", name)
	}
}
