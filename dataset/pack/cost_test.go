package pack

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The fit finds the coefficients that made the times, from ten steps with some noise, and none is negative.
func TestFit(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	want := Cost{A: 3e-6, B: 2e-2, C: 0.5}
	var steps []Observed
	for range 10 {
		s := Observed{Ranks: make([]RankWork, 16)}
		spread := .4 + 1.2*rng.Float64()
		for r := range s.Ranks {
			for range 4 + rng.IntN(60) {
				s.Ranks[r].Add(min(32768, int(500*math.Exp(spread*rng.NormFloat64()))+1))
			}
			s.Milliseconds = max(s.Milliseconds, want.work(s.Ranks[r]))
		}
		s.Milliseconds *= 1 + .002*rng.NormFloat64()
		steps = append(steps, s)
	}
	got, err := Fit(steps)
	require.NoError(t, err)
	// what counts is the prediction; c hides in b where all ranks have alike samples
	for _, s := range steps {
		most := 0.0
		for _, w := range s.Ranks {
			most = max(most, got.work(w))
		}
		require.InEpsilon(t, s.Milliseconds, most, .03)
	}
	require.InEpsilon(t, want.A, got.A, .15)
	require.InEpsilon(t, want.B, got.B, .15)
	require.GreaterOrEqual(t, got.C, 0.0)
	_, err = Fit(steps[:2])
	require.ErrorContains(t, err, "three steps")
}

// pairsOf draws samples with images: vision work by the square of patches, language work as the cost model has it.
func pairsOf(rng *rand.Rand, ranks, each int) (out []Pair) {
	for r := range ranks {
		for range each {
			text := int(300*math.Exp(.9*rng.NormFloat64())) + 1
			tokens, vision := text, 0.0
			for range rng.IntN(4) {
				patches := 256 + rng.IntN(4096)
				vision += float64(patches) * float64(patches)
				tokens += patches / 4
			}
			l := float64(tokens)
			out = append(out, Pair{Vision: vision, Language: l*l + 24576*l, Tokens: tokens,
				Bytes: int64(tokens) * 100, Home: r})
		}
	}
	return out
}

// Both costs come within half a percent on all ranks, and no rank has over 1.05 times the mean of the tokens.
func TestAssignPairs(t *testing.T) {
	for _, c := range []struct{ ranks, each int }{{8, 64}, {64, 64}, {512, 86}} {
		pairs := pairsOf(rand.New(rand.NewPCG(9, 10)), c.ranks, c.each)
		start := time.Now()
		b := AssignPairs(pairs, c.ranks, 1.05, false)
		var v, l, n = make([]float64, c.ranks), make([]float64, c.ranks), make([]float64, c.ranks)
		var total int64
		for i, p := range pairs {
			v[b.Rank[i]] += p.Vision
			l[b.Rank[i]] += p.Language
			n[b.Rank[i]] += float64(p.Tokens)
			total += p.Bytes
		}
		t.Logf("%d ranks, %d samples: vision %.4f language %.4f tokens %.4f, moved %.1f %%, %v", c.ranks,
			len(pairs), b.Vision, b.Language, b.Tokens, 100*float64(b.Moved)/float64(total),
			time.Since(start))
		require.InDelta(t, Imbalance(v), b.Vision, 1e-9)
		require.LessOrEqual(t, Imbalance(v), .005)
		require.LessOrEqual(t, Imbalance(l), .005)
		require.LessOrEqual(t, Imbalance(n), .05)
		require.Equal(t, b, AssignPairs(pairs, c.ranks, 1.05, false))
	}
	text := []Pair{{Language: 1, Tokens: 1}, {Language: 1, Tokens: 1}}
	require.Equal(t, []int{1, 0}, AssignPairs(text, 2, 1.05, false).Rank, "without images")
}

// Swaps alone even out both costs too, and leave every rank as many samples as it had.
func TestAssignPairsSameCount(t *testing.T) {
	for _, c := range []struct {
		ranks, each int
		most        float64
	}{{8, 64, .005}, {64, 16, .02}, {4, 4, .25}} {
		pairs := pairsOf(rand.New(rand.NewPCG(9, 10)), c.ranks, c.each)
		b := AssignPairs(pairs, c.ranks, 1.5, true)
		count, v, l := make([]int, c.ranks), make([]float64, c.ranks), make([]float64, c.ranks)
		homeV, homeL := make([]float64, c.ranks), make([]float64, c.ranks)
		for i, p := range pairs {
			count[b.Rank[i]]++
			v[b.Rank[i]] += p.Vision
			l[b.Rank[i]] += p.Language
			homeV[p.Home] += p.Vision
			homeL[p.Home] += p.Language
		}
		t.Logf("%d ranks of %d: vision %.4f from %.4f, language %.4f from %.4f", c.ranks, c.each,
			Imbalance(v), Imbalance(homeV), Imbalance(l), Imbalance(homeL))
		for _, n := range count {
			require.Equal(t, c.each, n)
		}
		require.LessOrEqual(t, Imbalance(v), c.most)
		require.LessOrEqual(t, Imbalance(l), c.most)
		require.Less(t, Imbalance(v)+Imbalance(l), (Imbalance(homeV)+Imbalance(homeL))/2)
	}
}
