package sample

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestLookup: with drafts out of what was said before answers and log-probabilities are those without, to the bit: greedy
// or drawn, under penalties, filters and guides, with pages given up and prompts cut.
func TestLookup(t *testing.T) {
	b := cpu.New(2)
	defer b.Close() //nolint:errcheck // it ends threads
	for name, s := range exact() {
		t.Run(name, func(t *testing.T) {
			e, err := NewEngine(drawn(t, s, tensor.F32, b), EngineOptions{Pages: 64})
			require.NoError(t, err)
			want := asked(t, e, guidedRequests(12), 3)
			e.Close()
			for _, o := range []EngineOptions{{Pages: 64}, {Pages: 9, Rows: 13, Ahead: 2}, {Pages: 20, Rows: 40, Ahead: 7, Running: 4}} {
				o.Lookup = true
				e, err := NewEngine(drawn(t, s, tensor.F32, b), o)
				require.NoError(t, err)
				require.Equal(t, want, asked(t, e, guidedRequests(12), 3), "%+v", o)
				e.Close()
			}
		})
	}
}

// TestLookupAccepted: a model whose next token depends on the last alone repeats itself, and most of the drafts are what
// it draws, so that an answer takes fewer steps.
func TestLookupAccepted(t *testing.T) {
	b := cpu.New(1)
	defer b.Close() //nolint:errcheck // it ends threads
	var steps [2]int64
	for i, lookup := range []bool{false, true} {
		e, err := NewEngine(copying(t, b), EngineOptions{Lookup: lookup})
		require.NoError(t, err)
		asked(t, e, []*Request{{Prompt: []int32{1, 2, 3}, Params: Params{Max: 60}}}, 1)
		st := e.Stats()
		if steps[i] = st.Steps; lookup {
			require.Positive(t, st.Drafted)
			require.Greater(t, 10*st.Accepted, 9*st.Drafted)
		}
		e.Close()
	}
	require.Less(t, 2*steps[1], steps[0])
}

// TestBehind: the longest run of last tokens counts, up to four, and of these the last place; one token alone says nothing.
func TestBehind(t *testing.T) {
	for text, want := range map[string]string{"": "", "1": "", "1 2 1": "", "1 2 9 1 2": "9 1", "1 2 8 5 1 2 9 5 1 2": "9 5",
		"3 1 2 8 5 1 2 9 5 3 1 2": "8 5", "7 7 7": "7 7", "1 2 1 2": "1 2"} {
		read := func(s string) (x []int32) {
			for _, w := range strings.Fields(s) {
				n, err := strconv.Atoi(w)
				require.NoError(t, err)
				x = append(x, int32(n))
			}
			return x
		}
		require.Equal(t, read(want), behind(read(text), 2), text)
	}
}
