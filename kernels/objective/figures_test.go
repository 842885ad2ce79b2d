package objective

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGap: the largest difference is that of fresh rows alone, whatever their weight and whichever is larger,
// and one that is no number does not go unseen.
func TestGap(t *testing.T) {
	r := &Rows{LogP: []float32{-1, -2, -3, -4}, Seq: []int32{0, 0, 1, -1}, Weight: []float32{0, 1, 1, 0},
		More: make([]float32, 4*Columns)}
	for i, old := range []float32{-1.25, -1.5, -9, 0} {
		r.More[i*Columns+Old] = old
	}
	of := func() float64 { return Lookup("grpo").Look(&Params{}, r)[0] }
	require.Zero(t, of(), "nothing is compared")
	r.More[Fresh] = 1
	require.Equal(t, 0.25, of())
	r.More[Columns+Fresh] = 1
	require.Equal(t, 0.5, of())
	r.LogP[0] = float32(math.NaN())
	require.True(t, math.IsNaN(of()))
}

// TestLook: figures of two drawn answers are those that are reckoned by hand, a token's ratio for grpo and an answer's for
// gspo, none of ratios that have other bounds; and what is seen moves no loss.
func TestLook(t *testing.T) {
	r := &Rows{LogP: []float32{-1, -2, -0.5, -3, -7}, Seq: []int32{0, 0, 1, 1, -1}, Weight: []float32{.25, .25, .25, .25, 0},
		More: make([]float32, 5*Columns)}
	for i := range 4 { // ratios e^0.5, e^-1; e^-0.1, e^-0.2
		r.More[i*Columns+Old] = r.LogP[i] - []float32{.5, -1, -.1, -.2}[i]
		r.More[i*Columns+Reference] = r.LogP[i] + 0.5
		r.More[i*Columns+Advantage] = []float32{1, 1, -1, -1}[i]
	}
	p := Params{ClipLow: 0.15, ClipHigh: 0.2, KL: 0.1}
	mean := func(kind, figure string) float64 {
		f := slices.Index(Figures, figure)
		v := Lookup(kind).Look(&p, r)
		return v[1+2*f] / v[2+2*f]
	}
	require.InDelta(t, 6.5/4, mean("grpo", "entropy"), 1e-7)
	require.InDelta(t, math.Exp(.5)-1.5, mean("grpo", "kl"), 1e-7)
	require.Equal(t, []float64{.25, .25, .5}, []float64{mean("grpo", "clip_ratio/low_mean"), mean("grpo", "clip_ratio/high_mean"), mean("grpo", "clip_ratio/region_mean")})
	require.Zero(t, mean("gspo", "clip_ratio/low_mean"), "e^-0.15 is above 0.85")
	require.True(t, math.IsNaN(mean("cispo", "clip_ratio/high_mean")))
	require.InDelta(t, 6.5/4, mean("ppo", "entropy"), 1e-7)
	before := Lookup("grpo").Of(&p, r, make([]float64, 5))
	require.Equal(t, before, Lookup("grpo").Of(&p, r, make([]float64, 5)))
}

// TestMeanLogits: means of logits are over the scored tokens of both answers of whole pairs, and of single answers by what they
// are said to be, without those of other prompts behind them.
func TestMeanLogits(t *testing.T) {
	r := &Rows{LogP: make([]float32, 8), Seq: []int32{0, 0, 1, 2, 3, 3, 4, -1}, Weight: []float32{0, 1, 1, 1, 1, 1, 1, 0},
		More: make([]float32, 8*Columns), Logit: []float32{100, 1, 2, 5, 3, 7, 50, 90}}
	for i := range 3 { // of sequences 0 and 1
		r.More[i*Columns+Margin] = -1
	}
	of := func(kind string) []float64 {
		v, f := Lookup(kind).Look(&Params{Beta: 1}, r), slices.Index(Figures, "logits/chosen")
		return v[1+2*f : 5+2*f]
	}
	require.Equal(t, []float64{6, 2, 12, 3}, of("dpo"), "sequence 4 has no partner")
	require.Equal(t, []float64{5, 1, 1, 1}, of("kto"))
	r.Logit = nil
	require.Zero(t, of("dpo")[1])
}
