package family

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/block"
)

// TestPhases: each step is of one phase, whose microbatches have a shape of their own; a plan is made for one of all
// phases, and what is not trained is of the last. An optimizer counts a parameter's steps from its first phase on.
func TestPhases(t *testing.T) {
	code := func(p string) bool { return strings.HasPrefix(p, "code") }
	m := &Model{Family: "two"}
	learns, missed := m.Learns("any", 7)
	require.True(t, learns)
	require.Zero(t, missed)
	m.SetPhases(Phase{Name: "codes", Steps: 3, Learns: code}, Phase{Name: "both", Steps: 2, Learns: func(string) bool {
		return true
	}}, Phase{Name: "rest", Learns: func(p string) bool { return !code(p) }})
	for step, want := range []string{"rest", "codes", "codes", "codes", "both", "both", "rest", "rest"} {
		class := m.Class(&Inputs{Step: int64(step)}, true)
		require.Equal(t, block.Shape{Rows: 4, Dims: map[string]int{Phase{Name: want}.Dim(): 1}}, m.Shape(4, class), step)
	}
	require.Len(t, m.Smallest(4).Dims, 3)
	for _, x := range []struct {
		param  string
		step   int64
		learns bool
		missed int64
	}{{"code", 3, true, 0}, {"head", 3, false, 0}, {"head", 4, true, 3}, {"code", 5, true, 0}, {"head", 9, true, 3},
		{"code", 9, false, 0}} {
		learns, missed := m.Learns(x.param, x.step)
		require.Equal(t, x.learns, learns, "%s in step %d", x.param, x.step)
		require.Equal(t, x.missed, missed, "%s in step %d", x.param, x.step)
	}
	require.PanicsWithValue(t, "family: phase rest of two has 0 steps", func() {
		m.SetPhases(Phase{Name: "rest"}, Phase{Name: "codes", Steps: 3})
	})
}
