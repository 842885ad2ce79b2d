package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// TestPlaces: a process that leads in another's place, and goes back to the step that the other went back to, names the
// place anew: else the processes that go on would not go back there, and ask their loaders for steps in another order.
func TestPlaces(t *testing.T) {
	seen := map[string]bool{}
	for life := range 3 {
		d := &data{r: &Run{life: life}, marks: marks{recent: map[int64]dataset.Position{1: {Step: 1}}}}
		for range 3 {
			seen[d.place(1)] = true
		}
	}
	require.Len(t, seen, 9)
}
