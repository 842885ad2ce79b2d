package decide

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// TestGateSplits: what has waited behind a commit goes into as few commits as the store's limits let it,
// each turn whole and in its order; a turn that is larger than a limit goes alone.
func TestGateSplits(t *testing.T) {
	var g gate
	turn := func(name string, ops, bytes int) []Effect {
		for i := range ops {
			g.write(fmt.Sprint(name, i), make([]byte, bytes))
		}
		g.say(Tell{Event{Text: name}})
		return g.close()
	}
	first := turn("first", 1, 1)
	require.Len(t, first, 1)
	require.Empty(t, turn("half", store.MostOps/2, 1))
	require.Empty(t, turn("other half", store.MostOps/2, 1))
	require.Empty(t, turn("over", 1, 1))
	require.Empty(t, turn("large", 1, store.MostBytes+1))
	require.Empty(t, turn("last", 1, 1))
	var got []string
	for n := int64(1); g.commit != nil; n++ {
		require.Equal(t, n, g.commit.N)
		line := fmt.Sprint(len(g.commit.Ops))
		for _, e := range g.stored(n) {
			if e, ok := e.(Tell); ok {
				line += " " + e.Event.Text
			}
		}
		got = append(got, line)
	}
	require.Equal(t, []string{"1 first", fmt.Sprint(store.MostOps, " half other half"), "1 over", "1 large",
		"1 last"}, got)
}
