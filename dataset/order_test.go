package dataset

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Draws are numpy.random.Philox(key=[seed, 0]) at the counter (element, sample, block, pass).
func TestDrawEqualsNumpy(t *testing.T) {
	for _, c := range []struct {
		seed                         uint64
		pass, sample, block, element int64
		want                         uint64
	}{
		{0, 0, 0, 0, 0, 0x16554d9eca36314c},
		{1, 2, 3, 4, 5, 0x8f21a9666345974c},
		{math.MaxUint64, 0, math.MaxInt64, -1, 7, 0x1161ccc88167f6cb},
		{0x123456789abcdef, 9, 1e12, 3, 999999, 0xdf1d51283a33826},
	} {
		require.Equal(t, c.want, Draw(c.seed, c.pass, c.sample, c.block, c.element))
	}
}

// A permutation hits every element once, for every size, and each key gives another one.
func TestPermutation(t *testing.T) {
	for n := int64(1); n < 300; n++ {
		p := NewPermutation(n, 7, 0, 0, n)
		seen := make([]bool, n)
		for i := range n {
			at := p.At(i)
			require.False(t, seen[at], "n %d: element %d twice", n, at)
			seen[at] = true
		}
	}
	a, b, c := NewPermutation(1000, 1, 0, 0, 0), NewPermutation(1000, 1, 1, 0, 0),
		NewPermutation(1000, 1, 0, 0, 0)
	same := 0
	for i := range int64(1000) {
		require.Equal(t, a.At(i), c.At(i))
		if a.At(i) == b.At(i) {
			same++
		}
	}
	require.Less(t, same, 20)
}

// Huge orders cost no more than small ones, and no memory.
func TestPermutationHuge(t *testing.T) {
	p := NewPermutation(1<<40+12345, 3, 0, 0, 0)
	n := testing.AllocsPerRun(10, func() {
		for i := range int64(1000) {
			if at := p.At(i * 1_000_000_007 % (1 << 40)); at < 0 || at >= 1<<40+12345 {
				t.Fatalf("element %d", at)
			}
		}
	})
	require.Zero(t, n)
}

// Neighbours in the order come from everywhere: their mean distance is that of random pairs, a third of the size.
func TestPermutationSpreads(t *testing.T) {
	const n = 100_000
	p := NewPermutation(n, 11, 0, 0, 0)
	sum := 0.0
	for i := range int64(n - 1) {
		sum += math.Abs(float64(p.At(i+1) - p.At(i)))
	}
	require.InEpsilon(t, float64(n)/3, sum/(n-1), 0.02) // the standard error of the mean is 0.2 %
}

// Picks are Megatron-LM's (bench/golden/dataset_blend.py).
func TestBlendGolden(t *testing.T) {
	raw, err := os.ReadFile("testdata/blend.json")
	require.NoError(t, err)
	var cases []struct {
		Weights []float64
		Picks   []int
	}
	require.NoError(t, json.Unmarshal(raw, &cases))
	require.NotEmpty(t, cases)
	for _, c := range cases {
		var sources []Weighted
		for _, w := range c.Weights {
			sources = append(sources, Weighted{Weight: w})
		}
		b := newBlend(&LoaderConfig{Sources: sources}, &Position{Sources: make([]SourcePosition, len(sources))})
		var got []int
		for range c.Picks {
			got = append(got, b.next(make([]bool, len(b.shares))))
		}
		require.Equal(t, c.Picks, got, "%v", c.Weights)
	}
}

// Of any number of samples each of two sources has its share, to within one.
func TestBlendExact(t *testing.T) {
	for _, w := range []float64{3, 1, 0.37, 1e-4} {
		b := newBlend(&LoaderConfig{Sources: []Weighted{{Weight: w}, {Weight: 1}}}, &Position{Sources: make([]SourcePosition, 2)})
		first := 0.0
		for n := 1.0; n <= 100_000; n++ {
			if b.next(make([]bool, len(b.shares))) == 0 {
				first++
			}
			if short := n*w/(w+1) - first; short < -1 || short > 1 {
				t.Fatalf("weight %g: %g of %g samples", w, first, n)
			}
		}
	}
}

// Parts of a source share no document and cover it; Sampled ones are even samples of it.
func TestParts(t *testing.T) {
	src := textSource("s", 1000)
	split := [3][2]float64{{0, 0.9}, {0.9, 0.99}, {0.99, 1}}
	for name, cut := range map[string]func(from, to float64) Source{
		"Range":   func(from, to float64) Source { return Range(src, from, to) },
		"Sampled": func(from, to float64) Source { return Sampled(src, 5, from, to) },
	} {
		seen := map[string]string{}
		prints := map[string]bool{}
		for i, f := range split {
			p := cut(f[0], f[1])
			require.Equal(t, int64([]int{900, 90, 10}[i]), p.Len())
			prints[p.Fingerprint()] = true
			for k := range p.Len() {
				d, err := p.Read(k)
				require.NoError(t, err)
				require.Empty(t, seen[d.Text], "%s: %q is in two parts", name, d.Text)
				seen[d.Text] = p.Name()
			}
		}
		require.Len(t, seen, 1000)
		require.Len(t, prints, 3)
	}
}

func TestConcat(t *testing.T) {
	a, b, c := textSource("a", 3), textSource("b", 0), textSource("c", 2)
	all, err := Concat(a, b, c)
	require.NoError(t, err)
	require.Equal(t, int64(5), all.Len())
	var got []string
	for i := range all.Len() {
		d, err := all.Read(i)
		require.NoError(t, err)
		got = append(got, d.Text)
	}
	require.Equal(t, []string{"a0", "a1", "a2", "c0", "c1"}, got)
	_, err = Concat(a, &memory{name: "t", kind: KindTokens})
	require.ErrorContains(t, err, "a holds text and t holds tokens")
	_, err = Concat()
	require.ErrorContains(t, err, "no data source")
	other, err := Concat(c, b, a)
	require.NoError(t, err)
	require.NotEqual(t, all.Fingerprint(), other.Fingerprint())
}
