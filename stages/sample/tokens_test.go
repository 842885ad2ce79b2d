package sample

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var long = flag.Bool("long", false, "compare 100,000 tokens in place of 1,000")

// TestTokens: tokens that are drawn in batches of 1 to 64 answers, over pages, some of which prompts share, have the
// log-probabilities that training gives them, without a difference in any bit: dense, with windows, with experts and
// with linear attention, in float32 and bfloat16.
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
		for _, name := range []string{"dense", "sliding", "hybrid", "experts"} {
			g := drawn(t, models[name], d, b)
			for n, batch := 0, 1; n < most/8; batch = batch%64 + 9 {
				e, err := NewEngine(g, EngineOptions{Pages: 512, Running: batch, Rows: 64 + batch})
				require.NoError(t, err)
				rs := requests(2*batch + 3)
				for i, r := range rs {
					r.Params = Params{Max: 1 + i%60, Seed: uint64(n), Temperature: 1}
				}
				as := asked(t, e, rs, batch)
				for i, want := range logProbsOf(t, g, rs, as) {
					require.Equal(t, want, as[i].lp, "%s %v: answer %d of batches of %d", name, d, i, batch)
					n, all = n+len(want), all+len(want)
				}
			}
			g.Close()
		}
	}
	require.GreaterOrEqual(t, all, most)
	t.Logf("%d tokens", all)
}
