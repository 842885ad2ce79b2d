package noise

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// weightGoldens is testdata/weights.json, which bench/golden/noise_weights.py makes with diffusers and NumPy.
type weightGoldens struct {
	Cases []struct {
		Config       json.RawMessage
		Kind, Target string
		Gamma        float64
		At           []int
		Weights      []float64
	}
	Shares []float64
	Draws  []struct {
		Times     Times
		Quantiles []float64
	}
}

func readWeights(t *testing.T) (g weightGoldens) {
	t.Helper()
	text, err := os.ReadFile("testdata/weights.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &g))
	return g
}

// Every weight of the loss by noise level is that of diffusers' trainers and of the papers, at both ends of the tables
// and between. Levels are float32: where one is near 0, its last bit is 1e-4 of the weight.
func TestWeights(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range readWeights(t).Cases {
		s, err := Read("scheduler_config.json", c.Config)
		require.NoError(t, err)
		levels, err := s.Levels()
		require.NoError(t, err)
		of, err := (Weighting{Kind: c.Kind, Gamma: c.Gamma}).For(c.Target, levels)
		require.NoError(t, err, "%s of %s", c.Kind, c.Target)
		table := levels.Table()
		for i, at := range c.At {
			got, want := float64(of(table[at])), c.Weights[i]
			if d := math.Abs(got-want) / max(math.Abs(want), 1e-9); d > 1e-4 {
				t.Errorf("%s of %s by %s, level %d: %g, want %g", c.Kind, c.Target, c.Config, at, got, want)
			}
		}
		seen[c.Kind] = true
	}
	for _, name := range Weights() {
		require.True(t, seen[name], "no golden weight of %s", name)
	}
	_, err := (Weighting{Kind: "min_snr"}).For("flow", nil)
	require.ErrorContains(t, err, "the target is flow")
}

// Each draw of levels has the quantiles of diffusers' and of the policies', whatever its parameters: 40,000 draws here
// and 200,000 there leave an error of 0.008 at the middle.
func TestDrawnQuantiles(t *testing.T) {
	t.Parallel()
	g, seen := readWeights(t), map[string]bool{}
	for _, d := range g.Draws {
		seen[d.Times.Kind] = true
		u := make([]float64, 40000)
		for i := range u {
			var err error
			u[i], err = d.Times.At(Key{Sample: uint64(i)})
			require.NoError(t, err)
		}
		slices.Sort(u)
		for i, share := range g.Shares {
			if got := u[int(share*float64(len(u)))]; math.Abs(got-d.Quantiles[i]) > 0.01 {
				t.Errorf("%+v: the quantile of %g is %g, want %g", d.Times, share, got, d.Quantiles[i])
			}
		}
	}
	for _, name := range Draws() {
		require.True(t, seen[name], "no golden quantiles of %s", name)
	}
}
