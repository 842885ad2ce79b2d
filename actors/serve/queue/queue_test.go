package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample"
)

func ask(n int) []*sample.Request {
	return []*sample.Request{{Prompt: make([]int32, n), Params: sample.Params{Max: 4},
		Emit: func(sample.Token) bool { return true }, Done: func(sample.End) {}}}
}

// TestTokens: so many tokens may wait, whoever they are of; a request that is longer than that waits alone.
func TestTokens(t *testing.T) {
	q := Queue{Engine: sample.NewVirtual(sample.EngineOptions{}, 9, nil), Most: 3, Tokens: 10}
	require.NoError(t, q.takes(ask(14)))
	require.NoError(t, q.Submit(ask(4)))
	require.NoError(t, q.takes(ask(6)))
	require.ErrorIs(t, q.takes(ask(7)), ErrFull)
	require.NoError(t, q.Submit(ask(2)))
	require.NoError(t, q.Submit(ask(2)))
	require.ErrorIs(t, q.takes(ask(1)), ErrFull)
}

// TestTogether: of requests that come together none is taken where one is wrong, and a queue that has retired takes
// none, and is over when the last has ended.
func TestTogether(t *testing.T) {
	q := Queue{Engine: sample.NewVirtual(sample.EngineOptions{}, 9, nil), Most: 8, Tokens: 100}
	ends, two := 0, append(ask(3), ask(0)...)
	two[0].Done = func(e sample.End) { ends++; require.Equal(t, sample.EndCancel, e) }
	require.ErrorContains(t, q.Submit(two), "no tokens")
	require.False(t, q.Engine.Busy())
	require.Equal(t, 1, ends)
	require.NoError(t, q.Submit(ask(3)))
	q.Retired = true
	require.ErrorIs(t, q.Submit(ask(3)), ErrClosed)
	for n := 0; !q.Over(); n++ {
		require.Less(t, n, 9)
		q.Step()
	}
}
