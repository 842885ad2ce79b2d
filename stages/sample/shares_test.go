package sample

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestShares: one client's hundred requests do not hold another's up, who comes later: tokens are computed for both
// alike while both wait, each client's requests in their order; who was away has nothing saved up.
func TestShares(t *testing.T) {
	b := cpu.New(1)
	defer b.Close() //nolint:errcheck // it ends threads
	e, err := NewEngine(drawn(t, exact()["dense"], tensor.F32, b), EngineOptions{Running: 2, Pages: 64})
	require.NoError(t, err)
	defer e.Close()
	var ended []string
	had := map[string]int{}
	ask := func(share string, i int) {
		r := &Request{Prompt: []int32{int32(1 + i%7), 2, 3}, Params: Params{Max: 5, Seed: 1}, Sample: i, Share: share,
			Emit: func(Token) bool { had[share]++; return true }}
		r.Done = func(End) { ended = append(ended, fmt.Sprint(share, i)) }
		require.NoError(t, e.Submit(r))
	}
	for i := range 30 {
		ask("much", i)
	}
	for range 20 {
		require.NoError(t, e.Step())
	}
	before := had["much"]
	for i := range 6 {
		ask("few", i)
	}
	for e.Stats().Waiting > 0 && had["few"] < 30 {
		require.NoError(t, e.Step())
	}
	require.InDelta(t, had["few"], had["much"]-before, 12) // two requests of a share may be computed at once
	var few []string
	for _, x := range ended {
		if x[:3] == "few" {
			few = append(few, x)
		}
	}
	require.Equal(t, []string{"few0", "few1", "few2", "few3", "few4", "few5"}, few)
	require.Equal(t, 3*e.Stats().Waiting, e.Stats().WaitingTokens)

	for i := range 4 { // who comes again begins with the one that waits
		ask("new", i)
	}
	require.GreaterOrEqual(t, e.shares["new"], min(e.shares["much"], e.shares["few"]))
	for e.Busy() {
		require.NoError(t, e.Step())
	}
	require.Len(t, ended, 40)
}
