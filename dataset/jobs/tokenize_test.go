package jobs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

type upperEncoder struct{}

func (upperEncoder) Fingerprint() string { return "upper" }
func (upperEncoder) Encode(text string, _ bool) (out []int32) {
	for _, r := range text {
		out = append(out, int32(r))
	}
	return out
}

// Texts written as ids are the same data set, bad documents and all.
func TestTokenize(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.jsonl")
	require.NoError(t, os.WriteFile(path,
		[]byte("{\"text\":\"ab\"}\nbroken\n{\"text\":\"\"}\n{\"text\":\"c\"}\n"), 0o600))
	src := open(t, path, dataset.Options{})
	q, err := dataset.OpenQuarantine("")
	require.NoError(t, err)
	var done []int64
	require.NoError(t, Tokenize(src, upperEncoder{}, filepath.Join(dir, "out"),
		TokenizeOptions{Vocab: 256, Quarantine: q, Workers: 3,
			Progress: func(n int64) { done = append(done, n) }}))
	require.Equal(t, []int64{1, 2, 3, 4}, done)
	require.Len(t, q.List(), 1)
	var got [][]int32
	out := open(t, filepath.Join(dir, "out"), dataset.Options{})
	for i := range out.Len() {
		d, err := out.Read(i)
		require.NoError(t, err)
		got = append(got, d.Tokens)
	}
	require.Equal(t, [][]int32{{'a', 'b', 0}, nil, {0}, {'c', 0}}, got)
	require.ErrorContains(t, Tokenize(open(t, "../format/testdata/ids_int8", dataset.Options{}),
		upperEncoder{},
		filepath.Join(dir, "x"), TokenizeOptions{Vocab: 9, Quarantine: q}), "not text")
}
