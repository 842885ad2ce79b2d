package routing

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// written is a trace of a few places, one of them written twice.
func written(t testing.TB) []byte {
	var b bytes.Buffer
	w, err := NewWriter(&b, Header{Model: "m", Plan: "p", Experts: 9, Each: 2, Rows: 2}, false)
	require.NoError(t, err)
	for i, experts := range [][]int32{{0, 8, 3, 1}, {}, {5, 5}, {7, 7}} {
		require.NoError(t, w.Write(Place{Step: int64(1 + i%3), Micro: 2, Block: 3}, experts))
	}
	require.NoError(t, w.Flush())
	return b.Bytes()
}

// TestTrace: what was written is read, the later of two records of one place; a trace that is cut off
// anywhere, or is of another run, is said to be.
func TestTrace(t *testing.T) {
	text := written(t)
	tr, err := OpenTrace(bytes.NewReader(text), int64(len(text)))
	require.NoError(t, err)
	require.Equal(t, []Place{{1, 2, 0, 3}, {2, 2, 0, 3}, {3, 2, 0, 3}}, tr.Places)
	for step, want := range map[int64][]int32{1: {7, 7}, 2: {}, 3: {5, 5}} {
		got, ok, err := tr.Read(Place{Step: step, Micro: 2, Block: 3})
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	_, ok, err := tr.Read(Place{Step: 4})
	require.NoError(t, err)
	require.False(t, ok)
	h := tr.Header
	require.Empty(t, h.Fits(h))
	for _, c := range []struct {
		with Header
		why  string
	}{
		{Header{1, "n", "p", 9, 2, 2, 0}, "of the model m, not of n"}, {Header{1, "m", "p", 8, 2, 2, 0},
			"2 of 9 experts a token, not 2 of 8"},
		{Header{1, "m", "q", 9, 2, 2, 0}, "is of p of 2 tokens, not of q of 2"}, {Header{1, "m", "p", 9, 2,
			3, 0}, "is of p of 2 tokens, not of p of 3"}, {Header{1, "m", "p", 9, 2, 2, 1}, "rank 0"},
	} {
		require.Contains(t, h.Fits(c.with), c.why)
	}
	line := bytes.IndexByte(text, '\n') + 1
	whole := map[int]bool{line: true, line + 32: true, line + 56: true, line + 84: true}
	for n := range text {
		_, err := OpenTrace(bytes.NewReader(text[:n]), int64(n))
		require.Equal(t, !whole[n], err != nil, "%d bytes", n)
	}
}

// FuzzTrace: no bytes crash the reader, or make it name an expert that does not exist.
func FuzzTrace(f *testing.F) {
	f.Add(written(f))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tr, err := OpenTrace(bytes.NewReader(text), int64(len(text)))
		if err != nil {
			return
		}
		for _, p := range tr.Places {
			experts, ok, err := tr.Read(p)
			if err != nil {
				continue
			}
			require.True(t, ok)
			for _, e := range experts {
				require.Less(t, int(e), tr.Header.Experts)
			}
		}
	})
}
