package token

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false,
	"write testdata/trained.tokenizer.json.gz; then run bench/golden/token_golden.py, which adds the "+
		"library's ids")

// Training is deterministic: the file of testdata comes out again byte for byte. TestGolden has the Python
// library read that file and encode with it.
func TestTrainDeterministic(t *testing.T) {
	cfg := TrainConfig{VocabSize: 1200, Special: []string{"<|endoftext|>", "<|pad|>"}}
	got, err := Train(cfg, slices.Values(goldenText(t)))
	require.NoError(t, err)
	if *rewrite {
		var out bytes.Buffer
		z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		require.NoError(t, err)
		_, err = z.Write(got)
		require.NoError(t, err)
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile("testdata/trained.tokenizer.json.gz", out.Bytes(), 0o644))
	}
	require.Equal(t, string(unzip(t, "trained.tokenizer.json.gz")), string(got))
	again, err := Train(cfg, slices.Values(goldenText(t)))
	require.NoError(t, err)
	require.True(t, bytes.Equal(got, again))
}

// Merges come in order of count, then of ids, on a text small enough to do by hand.
func TestTrainByHand(t *testing.T) {
	b, err := Train(TrainConfig{VocabSize: 260},
		slices.Values([]string{"abab", " abab", " ab", " cd", " cd"}))
	require.NoError(t, err)
	tok, err := Parse(b)
	require.NoError(t, err)
	// (a,b) comes 5 times; then (space,ab), (ab,ab), (space,c) and (c,d) twice each: the space (32) is the smallest
	// left id, and c (99) a smaller right one than ab (256). With " c" (257) made, (space,ab) is still before (257,d).
	require.Equal(t, []string{"ab", " c", " ab", " cd"}, []string{
		tok.Decode([]int32{256}, false), tok.Decode([]int32{257}, false), tok.Decode([]int32{258}, false),
		tok.Decode([]int32{259}, false)})
	require.Equal(t, 260, tok.VocabSize())
}

// Every text survives encoding and decoding, and special tokens take the last ids.
func TestTrainRoundTrip(t *testing.T) {
	text := goldenText(t)
	b, err := Train(TrainConfig{VocabSize: 600, Special: []string{"<|end|>"}}, slices.Values(text[:100]))
	require.NoError(t, err)
	tok, err := Parse(b)
	require.NoError(t, err)
	for _, s := range text {
		require.Equal(t, s, tok.Decode(tok.Encode(s, true), false))
	}
	id, ok := tok.TokenID("<|end|>")
	require.True(t, ok)
	require.Equal(t, int32(tok.VocabSize()-1), id)
	require.True(t, tok.IsSpecial(id))
}

func TestTrainRefuses(t *testing.T) {
	_, err := Train(TrainConfig{VocabSize: 256, Special: []string{"x"}}, slices.Values([]string{}))
	require.ErrorContains(t, err, "must hold 256 bytes and 1 special tokens")
}
