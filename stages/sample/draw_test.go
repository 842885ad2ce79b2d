package sample

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFilters: penalties and filters leave the tokens that transformers leaves, with
// its probabilities (bench/golden/sampling.py).
func TestFilters(t *testing.T) {
	text, err := os.ReadFile("testdata/filters.json")
	require.NoError(t, err)
	var cases []struct {
		Logits  []float32
		History []int32
		Params  map[string]float64
		IDs     []int32
		Probs   []float64
	}
	require.NoError(t, json.Unmarshal(text, &cases))
	require.Len(t, cases, 100)
	var d drawer
	for i, c := range cases {
		p := Params{Temperature: 1, TopK: int(c.Params["top_k"]), TopP: c.Params["top_p"],
			MinP:       c.Params["min_p"],
			Repetition: c.Params["repetition_penalty"]}
		if x := c.Params["temperature"]; x > 0 {
			p.Temperature = x
		}
		var seen counts
		seen.see(c.History, true)
		d.penalised(c.Logits, &p, &seen)
		sum := d.filtered(&p)
		require.Equal(t, c.IDs, d.ids, "case %d: %v", i, c.Params)
		for k, e := range d.prob {
			require.InDelta(t, c.Probs[k], e/sum, 1e-6, "case %d", i)
		}
	}
}

// TestDraws: tokens are drawn as often as their probabilities say, and the numbers that they are drawn by
// are uniform and those of another sample, token or seed.
func TestDraws(t *testing.T) {
	logits := []float32{0, 1, -1, 2}
	var d drawer
	var n [4]float64
	const draws = 20000
	for i := range draws {
		n[d.draw(logits, &Params{Temperature: 1}, &counts{}, Uniform(9, 2, i))]++
	}
	sum := 0.0
	for _, z := range logits {
		sum += math.Exp(float64(z))
	}
	for i, z := range logits {
		p := math.Exp(float64(z)) / sum
		require.InDelta(t, p, n[i]/draws, 5*math.Sqrt(p*(1-p)/draws))
	}
	seen := map[float64]bool{}
	for seed := range uint64(8) {
		for sample := range 8 {
			for token := range 8 {
				seen[Uniform(seed, sample, token)] = true
			}
		}
	}
	require.Len(t, seen, 512)
}

// TestExtremes: where logits are beyond numbers the likeliest allowed token is drawn, and a temperature that takes them
// there is greedy.
func TestExtremes(t *testing.T) {
	var d drawer
	logits := []float32{-1, 3, 2, -2}
	for _, p := range []Params{{Temperature: 1e-320, MinP: 0.1}, {Temperature: 1e-320},
		{Temperature: 1e-7, TopP: 0.5}, {Temperature: 1e-320, TopK: 2, MinP: 0.5},
		{Temperature: 1, MinP: 0.1, Repetition: 1e-320}} {
		var seen counts
		seen.see([]int32{1}, true)
		require.Equal(t, int32(1), d.draw(logits, &p, &seen, 0.99), "%+v", p)
	}
	p := Params{Temperature: 1e-320, Bias: map[int32]float64{2: -100}}
	id, ok := d.guided(logits, &p, &counts{}, only(4), 0.5)
	require.True(t, ok)
	require.Equal(t, int32(2), id)
	p = Params{Temperature: 0.5, Repetition: 1e308} // all are divided out of their range
	var seen counts
	seen.see([]int32{0, 3}, true)
	id, ok = d.guided([]float32{-1, 3, 2, -1.5}, &p, &seen, only(8), 0.5)
	require.True(t, ok)
	require.Equal(t, int32(3), id)
	p.Stop = []int32{3} // what may end the text cannot be drawn either
	seen.see([]int32{2}, true)
	_, ok = d.guided([]float32{-1e9, 3, -1e9, -1e9}, &p, &seen, evens{2}, 0.5)
	require.False(t, ok)
}

// TestPenalties: those of frequency and presence count the answer alone, and a bias is added.
func TestPenalties(t *testing.T) {
	var seen counts
	seen.see([]int32{0, 0, 1}, true)
	seen.see([]int32{2, 2, 3}, false)
	var d drawer
	d.penalised([]float32{1, 1, 1, 1}, &Params{Frequency: 0.5, Presence: 0.25,
		Bias: map[int32]float64{1: 3}}, &seen)
	require.Equal(t, []float64{1, 4, -0.25, 0.25}, d.z)
}
