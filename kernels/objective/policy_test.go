package objective

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPolicyGolden: losses of policies, their gradients by log-probabilities, and advantages
// are TRL's (bench/golden/policy.py).
func TestPolicyGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/policy.json")
	require.NoError(t, err)
	var g struct {
		Most, Group     int
		Rewards         []float64
		Lengths         []int
		LogPs, Old, Ref [][]float32
		Cases           []struct {
			Kind       string
			Params     map[string]float64
			Advantages []float64
			Loss       float64
			Gradient   [][]float64
		}
	}
	require.NoError(t, json.Unmarshal(text, &g))
	require.Len(t, g.Cases, 11)
	var groups [][]float64
	for i := 0; i < len(g.Rewards); i += g.Group {
		groups = append(groups, g.Rewards[i:i+g.Group])
	}
	tokens := 0
	for _, n := range g.Lengths {
		tokens += n
	}
	for _, c := range g.Cases {
		l := Lookup(c.Kind)
		var advantages []float64
		for _, a := range l.Policy.Advantages(groups) {
			advantages = append(advantages, a...)
		}
		require.InDeltaSlice(t, c.Advantages, advantages, 1e-5, c.Kind)
		r := &Rows{}
		var want []float64
		for s, n := range g.Lengths {
			for i := range n {
				r.LogP, r.Seq = append(r.LogP, g.LogPs[s][i]), append(r.Seq, int32(s))
				r.Weight = append(r.Weight, float32(l.Policy.Share(n, float64(len(g.Lengths)),
					float64(tokens),
					float64(g.Most))))
				r.More = append(r.More, g.Ref[s][i], 0, 0, g.Old[s][i], float32(advantages[s]), 0, 0, 0)
				want = append(want, c.Gradient[s][i])
			}
		}
		p := Params{ClipLow: c.Params["clip_low"], ClipHigh: c.Params["clip_high"], KL: c.Params["kl"]}
		grad := make([]float64, len(want))
		require.InDelta(t, c.Loss, l.Of(&p, r, grad), 1e-5, "%s %v", c.Kind, c.Params)
		require.InDeltaSlice(t, want, grad, 1e-5, "%s %v", c.Kind, c.Params)
	}
}

// TestAdvantages: equal rewards are worth nothing, a group of one is compared with nobody, and whitened
// advantages have the scale of the step.
func TestAdvantages(t *testing.T) {
	for _, f := range []func([][]float64) [][]float64{normed, centred, leftOut, whitened} {
		require.Equal(t, [][]float64{{0, 0, 0}, {0}}, f([][]float64{{2, 2, 2}, {5}}))
	}
	got := whitened([][]float64{{1, 0}, {10, 10}})
	require.InDelta(t, 0.5/(0.408248+1e-4), got[0][0], 1e-5)
}

// TestMasked: a ratio weighs the gradient inside its bounds and is 0 outside, of tokens and of answers, as the formulas
// of TRL 1.16's token_mask and sequence_mask have it.
func TestMasked(t *testing.T) {
	old, now := [2][]float64{{-1, -2}, {-3, -0.5}}, [2][]float64{{-1.5, -0.25}, {-2.9, -0.6}}
	r := &Rows{}
	var ratios []float64
	for s := range old {
		for i := range old[s] {
			r.LogP, r.Seq, r.Weight = append(r.LogP, float32(now[s][i])), append(r.Seq, int32(s)),
				append(r.Weight, 0.25)
			r.More = append(r.More, 0, 0, 0, float32(old[s][i]), float32(1-2*s), 0, 0, 0)
			ratios = append(ratios, math.Exp(now[s][i]-old[s][i]))
		}
	}
	grad := make([]float64, 4)
	p := Params{ClipLow: 0.5, ClipHigh: 4}
	loss := Lookup("icepop").Of(&p, r, grad)
	require.InDeltaSlice(t, []float64{-ratios[0] / 4, 0, ratios[2] / 4, ratios[3] / 4}, grad, 1e-6,
		"e^1.75 is above 5")
	require.InDelta(t, 0.25*(ratios[0]*1.5-ratios[2]*2.9-ratios[3]*0.6), loss, 1e-6)
	clear(grad)
	p = Params{ClipLow: 1, ClipHigh: 2}
	Lookup("mis").Of(&p, r, grad)
	require.InDeltaSlice(t, []float64{0, 0, 0.25, 0.25}, grad, 1e-6,
		"e^1.25 is above 3, and the other answer's is 1")
}
