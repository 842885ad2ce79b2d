package dataset

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/pack"
)

// An order within windows is a permutation, whatever the sizes, and computing a place does not depend on those before.
func TestWindowOrderIsAPermutation(t *testing.T) {
	for _, c := range []struct{ n, window int64 }{{1, 1}, {7, 3}, {1000, 1}, {1000, 999}, {10_007, 640},
		{100_003, 10_000}, {5000, 1279}, {641, 640}} {
		w := newOrder(c.n, c.window, 1, 2, 3)
		seen := make([]bool, c.n)
		for i := range c.n {
			d := w.At(i)
			require.False(t, seen[d], "%+v: document %d comes twice", c, d)
			seen[d] = true
		}
		for _, i := range []int64{c.n - 1, 0, c.n / 2} {
			require.Equal(t, newOrder(c.n, c.window, 1, 2, 3).At(i), w.At(i))
		}
	}
}

// mixture is how well an order mixes shards: the mean distance in the data of documents that follow each
// other, and the mean entropy of the shards in batches, in nats.
func mixture(o order, shards, each int64, batch int) (distance, entropy float64) {
	n, last := shards*each, int64(0)
	counts := make([]int, shards)
	batches := 0
	for i := range n {
		d := o.At(i)
		if i > 0 {
			distance += math.Abs(float64(d - last))
		}
		last = d
		counts[d/each]++
		if int(i+1)%batch != 0 {
			continue
		}
		for k, c := range counts {
			if c > 0 {
				p := float64(c) / float64(batch)
				entropy -= p * math.Log(p)
			}
			counts[k] = 0
		}
		batches++
	}
	return distance / float64(n-1), entropy / float64(batches)
}

// A window as large as ten shards mixes like an order of all documents, within 2 %: both the distance of neighbours and
// the shards in a batch. Whole shards in windows of ten would lose a tenth of the one and half of the other.
func TestShuffleQuality(t *testing.T) {
	for _, c := range []struct{ shards, each int64 }{{100, 1000}, {30, 10_000}, {12, 500}, {1000, 640}} {
		for seed := range uint64(3) {
			wantD, wantE := mixture(newOrder(c.shards*c.each, 0, seed, 0, 0), c.shards, c.each, 256)
			d, e := mixture(newOrder(c.shards*c.each, 10*c.each, seed, 0, 0), c.shards, c.each, 256)
			require.InEpsilon(t, wantD, d, .02, "%+v seed %d: distance", c, seed)
			require.InEpsilon(t, wantE, e, .02, "%+v seed %d: entropy", c, seed)
		}
	}
}

// The runs of a window keep reading together: a window of ten shards touches at most 2560 places.
func TestWindowOrderReadsInRuns(t *testing.T) {
	const shards, each = 100, 6400
	o := newOrder(shards*each, 10*each, 1, 0, 0)
	runs := map[int64]bool{}
	for i := range int64(10 * each) {
		runs[o.At(i)/25] = true
	}
	require.Len(t, runs, 2560)
}

// Any number of readers and encoders gives the same sequence, with every way of packing, and the stages
// tell their work.
func TestPoolsGiveOneSequence(t *testing.T) {
	for _, p := range Packings() {
		var want []Batch
		for _, pools := range [][2]int{{1, 1}, {2, 1}, {1, 3}, {7, 4}} {
			cfg := LoaderConfig{Sources: []Weighted{{Source: &letters{n: 3000}, Weight: 3},
				{Source: &letters{n: 50, from: 9000}, Weight: 1}}, Mode: ModeSFT, SeqLen: 64, EOD: -1,
				Packing: p, OrderWindow: 500,
				MicroBatch: 2, GlobalBatch: 4, Readers: pools[0], Encoders: pools[1], Seed: 4}
			l, err := OpenLoader(cfg, lengthCoder{})
			require.NoError(t, err)
			var got []Batch
			for step := range int64(60) {
				b, err := l.Step(step)
				require.NoError(t, err)
				got = append(got, b...)
			}
			l.Close()
			stages, wall := l.Stages()
			require.Len(t, stages, 4)
			for _, s := range stages {
				require.Positive(t, s.Items, s.Name)
				require.LessOrEqual(t, s.Use(wall), 1.05, "%+v of %v", s, wall)
			}
			if want == nil {
				want = got
				continue
			}
			require.Equal(t, want, got, "packing %s, pools %v", p, pools)
		}
	}
}

// letters is a source of texts of different lengths.
type letters struct{ n, from int64 }

func (v *letters) Name() string        { return "letters" }
func (v *letters) Kind() Kind          { return KindText }
func (v *letters) Len() int64          { return v.n }
func (v *letters) Fingerprint() string { return fmt.Sprint("letters ", v.n, v.from) }
func (v *letters) Close() error        { return nil }
func (v *letters) Read(i int64) (Document, error) {
	return Document{Text: fmt.Sprintf("%0*d", 4+i*7%40, v.from+i), Place: Place{File: "letters", Offset: i}},
		nil
}

// lengthCoder makes a token of each byte.
type lengthCoder struct{}

func (lengthCoder) Fingerprint() string { return "bytes" }
func (lengthCoder) Encode(text string, _ bool) (out []int32) {
	for _, c := range []byte(text) {
		out = append(out, int32(c))
	}
	return out
}

// Sharing evenly keeps each rank's number of microbatches and the step's samples, and evens out the work.
func TestShareEvenly(t *testing.T) {
	var batches []Batch
	for m := range 64 {
		n := int32(16 + 16*(m*m%61))
		batches = append(batches, Batch{Rows: 1, SeqLen: 1024, CuSeqlens: []int32{0, n, 1024},
			SampleIDs: []int64{int64(m), -1}})
	}
	cost := pack.ModelCost(1024)
	spread := func(shares [][]Batch) float64 {
		most, sum := 0.0, 0.0
		for _, s := range shares {
			work := 0.0
			for _, c := range Costs(s, cost) {
				work += c
			}
			most, sum = max(most, work), sum+work
		}
		return most*float64(len(shares))/sum - 1
	}
	var plain [][]Batch
	for r := range 8 {
		plain = append(plain, Share(batches, r, 8))
	}
	even := ShareEvenly(batches, 8, cost)
	seen := map[int64]bool{}
	for r, s := range even {
		require.Len(t, s, len(plain[r]))
		for i, b := range s {
			require.True(t, i == 0 || s[i-1].SampleIDs[0] < b.SampleIDs[0], "in the order of the step")
			seen[b.SampleIDs[0]] = true
		}
	}
	require.Len(t, seen, 64)
	require.Greater(t, spread(plain), .05)
	require.Less(t, spread(even), .001)
}

// Sharing by both costs evens out images as well as text, keeps counts, samples and order, and is
// ShareEvenly without images.
func TestShareBoth(t *testing.T) {
	var batches []Batch
	for m := range 64 {
		n, p := int32(16+16*(m*m%61)), int32(4+m*m*7%53)
		b := Batch{Rows: 1, SeqLen: 1024, Tokens: make([]int32, 1024), CuSeqlens: []int32{0, n, 1024},
			SampleIDs: []int64{int64(m), -1}}
		for range m % 3 {
			b.Media = append(b.Media, Media{Spans: []Span{{0, p}, {p, 2 * p}}})
		}
		batches = append(batches, b)
	}
	require.EqualValues(t, 2*64*64, VisionCosts(batches[2:3])[0])
	cost := pack.ModelCost(1024)
	of := func(shares [][]Batch) (vision, language float64) {
		var v, l []float64
		for _, s := range shares {
			v, l = append(v, 0), append(l, 0)
			for i := range s {
				v[len(v)-1] += VisionCosts(s[i : i+1])[0]
				l[len(l)-1] += Costs(s[i:i+1], cost)[0]
			}
		}
		return pack.Imbalance(v), pack.Imbalance(l)
	}
	var plain [][]Batch
	for r := range 8 {
		plain = append(plain, Share(batches, r, 8))
	}
	both, seen := ShareBoth(batches, 8, cost), map[int64]bool{}
	for r, s := range both {
		require.Len(t, s, len(plain[r]))
		for i, b := range s {
			require.True(t, i == 0 || s[i-1].SampleIDs[0] < b.SampleIDs[0], "in the order of the step")
			seen[b.SampleIDs[0]] = true
		}
	}
	require.Len(t, seen, 64)
	pv, pl := of(plain)
	bv, bl := of(both)
	ev, _ := of(ShareEvenly(batches, 8, cost))
	t.Logf("vision %.3f, language %.3f at home; %.4f and %.4f shared by both; vision %.3f by one", pv, pl,
		bv, bl, ev)
	require.Greater(t, pv, .2)
	require.Greater(t, ev, .1)
	require.Less(t, bv, .03)
	require.Less(t, bl, .03)
	for i := range batches {
		batches[i].Media = nil
	}
	require.Equal(t, ShareEvenly(batches, 8, cost), ShareBoth(batches, 8, cost))
}
