package format

import (
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format/formattest"
	"github.com/lfactor/lfactor/dataset/token"
)

// unsized hides that a source knows its documents' sizes.
type unsized struct{ dataset.Source }

// stepLosses are the mean losses of the steps of one pass, of a model that knows how frequent each token is and nothing
// else. The last steps are left out: what remains of documents is joined there, with few to join.
func stepLosses(t *testing.T, src dataset.Source, tok *token.Tokenizer, shuffle int,
	seed uint64) (out []float64) {
	t.Helper()
	l, err := dataset.OpenLoader(dataset.LoaderConfig{Sources: []dataset.Weighted{{Source: src}},
		Mode: dataset.ModePretrain, SeqLen: 64, EOD: -1, Seed: seed, MicroBatch: 8,
		GlobalBatch: 8, Passes: 1, Shuffle: shuffle, Readers: 2, CacheBytes: 64 << 20}, tok)
	require.NoError(t, err)
	defer l.Close()
	var steps [][]int32
	count, all := make([]float64, tok.VocabSize()), 0.0
	for step := int64(0); ; step++ {
		batches, err := l.Step(step)
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		steps = append(steps, batches[0].Tokens)
		for _, id := range batches[0].Tokens {
			count[id]++
			all++
		}
	}
	for _, ids := range steps[:len(steps)*19/20] {
		sum := 0.0
		for _, id := range ids {
			sum -= math.Log(count[id] / all)
		}
		out = append(out, sum/float64(len(ids)))
	}
	return out
}

// lag1 is the correlation of values with those before them.
func lag1(x []float64) float64 {
	mean, variance, covariance := 0.0, 0.0, 0.0
	for _, v := range x {
		mean += v / float64(len(x))
	}
	for i, v := range x {
		variance += (v - mean) * (v - mean)
		if i > 0 {
			covariance += (v - mean) * (x[i-1] - mean)
		}
	}
	return covariance / variance
}

// TestOrderOfRealTexts: on this machine's Go sources, with files of hundreds of rows, a step's loss tells no
// more of the next one's than in an i.i.d. order, whose correlation of n steps is 0 with a standard error of
// 1/√n: as texts and as ids. With whole files, of which 64 rows are shuffled, it does.
func TestOrderOfRealTexts(t *testing.T) {
	docs := goDocs(t, 1<<20)
	tok := trained(t, docs[:len(docs)/8], 500)
	texts := formattest.Open(t, jsonlOf(t, docs), dataset.Options{})
	prefix := t.TempDir() + "/ids"
	writeIDs(t, texts, tok, prefix, -1)
	ids := formattest.Open(t, prefix, dataset.Options{})
	const seeds = 2
	for name, c := range map[string]struct {
		src     dataset.Source
		shuffle int
	}{"texts": {texts, 0}, "ids": {ids, 0}, "whole files": {unsized{texts}, 64}} {
		sum, n := 0.0, 0
		for seed := range uint64(seeds) {
			losses := stepLosses(t, c.src, tok, c.shuffle, seed)
			sum, n = sum+lag1(losses)/seeds, len(losses)
		}
		limit := 2 / math.Sqrt(float64(seeds*n))
		t.Logf("%s: lag-1 correlation %.3f of %d × %d steps, 2 standard errors are %.3f", name, sum, seeds,
			n, limit)
		if name == "whole files" {
			require.Greater(t, sum, 5*limit)
		} else {
			require.Less(t, math.Abs(sum), limit, name)
		}
	}
}
