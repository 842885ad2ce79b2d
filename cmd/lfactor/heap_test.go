package main

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHeapPercent: garbage is bounded by 64 MiB or a tenth, whichever is more, and never by more than the heap itself.
func TestHeapPercent(t *testing.T) {
	for _, c := range []struct {
		live int64
		want int
	}{{0, 100}, {1 << 20, 100}, {64 << 20, 100}, {128 << 20, 50}, {320 << 20, 20}, {640 << 20, 10}, {20 << 30, 10}} {
		require.Equal(t, c.want, heapPercent(c.live), "%d bytes", c.live)
	}
}

// TestTightHeap: the collector is set while a run lasts, and left alone if the user has set it.
func TestTightHeap(t *testing.T) {
	now := func() int {
		p := debug.SetGCPercent(100)
		debug.SetGCPercent(p)
		return p
	}
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	s := &stepBench{shape: "llama58m", precision: "fp32", threads: 1, steps: 1, hidden: 512, inter: 1408, vocab: 32000, pp: 1}
	require.NoError(t, s.check())
	m, err := s.model()
	require.NoError(t, err)
	l, err := s.layout(m)
	require.NoError(t, err)
	t.Setenv("GOGC", "")
	undo := tightHeap(l, 0, 1)
	require.Equal(t, 10, now())
	undo()
	require.Equal(t, 100, now())
	tightHeap(l, 1, 2)
	require.Equal(t, 100, now(), "a process without ranks")
	t.Setenv("GOGC", "70")
	tightHeap(l, 0, 1)
	require.Equal(t, 100, now())
}
