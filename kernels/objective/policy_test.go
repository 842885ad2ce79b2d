package objective

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPolicyGolden: losses of policies, their gradients by log-probabilities, and advantages are TRL's
// (bench/golden/policy.py).
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
				r.More = append(r.More, g.Ref[s][i], 0, 0, g.Old[s][i], float32(advantages[s]), 0, 0)
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
