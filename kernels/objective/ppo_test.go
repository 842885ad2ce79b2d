package objective

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPPOGolden: advantages, returns, both losses and their gradients are verl's (bench/golden/ppo.py).
func TestPPOGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/ppo.json")
	require.NoError(t, err)
	var g struct {
		Lengths                        []int
		Rewards                        []float64
		LogPs, Old, Ref, Values, Worth [][]float32
		ClipLow                        float64 `json:"clip_low"`
		ClipHigh                       float64 `json:"clip_high"`
		Cases                          []struct {
			KL, Discount, Lambda, Loss float64
			ClipValue                  float64 `json:"clip_value"`
			Advantages, Returns        [][]float64
			Gradient                   [][]float64
			ValueLoss                  float64     `json:"value_loss"`
			ValueGradient              [][]float64 `json:"value_gradient"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &g))
	require.Len(t, g.Cases, 2)
	l := Lookup("ppo")
	for _, c := range g.Cases {
		p := Params{ClipLow: g.ClipLow, ClipHigh: g.ClipHigh, KL: c.KL, Discount: c.Discount,
			Lambda: c.Lambda,
			Value:  1, ClipValue: c.ClipValue}
		var all []Drawn
		tokens := 0
		for s, n := range g.Lengths {
			all = append(all, Drawn{g.Rewards[s], g.Old[s][:n], g.Ref[s][:n], g.Worth[s][:n]})
			tokens += n
		}
		advantages, returns := l.Policy.Tokens(&p, all)
		rows, values := &Rows{}, &Rows{}
		var want, wantValue []float64
		for s, n := range g.Lengths {
			require.InDeltaSlice(t, c.Advantages[s][:n], advantages[s], 1e-5)
			require.InDeltaSlice(t, c.Returns[s][:n], returns[s], 1e-5)
			for i := range n {
				rows.LogP, values.LogP = append(rows.LogP, g.LogPs[s][i]), append(values.LogP, g.Values[s][i])
				rows.Seq = append(rows.Seq, int32(s))
				rows.Weight = append(rows.Weight, float32(l.Policy.Share(n, 0, float64(tokens), 0)))
				rows.More = append(rows.More, g.Ref[s][i], 0, 0, g.Old[s][i], float32(advantages[s][i]),
					float32(returns[s][i]), g.Worth[s][i], 0)
				want, wantValue = append(want, c.Gradient[s][i]), append(wantValue, c.ValueGradient[s][i])
			}
		}
		values.Seq, values.Weight, values.More = rows.Seq, rows.Weight, rows.More
		grad, by := make([]float64, tokens), make([]float64, tokens)
		require.InDelta(t, c.Loss, l.Of(&p, rows, grad), 1e-5)
		require.InDelta(t, c.ValueLoss, Lookup(l.Policy.Value).Of(&p, values, by), 1e-5)
		require.InDeltaSlice(t, want, grad, 1e-5)
		require.InDeltaSlice(t, wantValue, by, 1e-5)
	}
}
