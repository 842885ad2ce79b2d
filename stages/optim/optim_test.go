package optim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLR pins Megatron-LM's OptimizerParamScheduler.get_lr. The numbers come from its formulas evaluated
// apart, in Python, at the step before the update: step n sees n-1 steps done.
func TestLR(t *testing.T) {
	base := LR{Max: 1, Min: 0.1, Warmup: 4, Decay: 20, WSDDecay: 5, WSDStyle: "exponential"}
	for _, c := range []struct {
		style, wsd string
		step       int64
		want       float64
	}{
		{"cosine", "", 1, 0}, {"cosine", "", 3, 0.5}, {"cosine", "", 5, 1}, {"cosine", "", 13, 0.55},
		{"cosine", "", 21, 0.1}, {"cosine", "", 22, 0.1},
		{"linear", "", 9, 0.775}, {"linear", "", 21, 0.1}, {"constant", "", 100, 1},
		{"constant", "", 2, 0.25},
		{"inverse-square-root", "", 17, 0.5}, {"inverse-square-root", "", 10, 2.0 / 3},
		{"inverse-square-root", "", 22, 0.1},
		{"wsd", "exponential", 16, 1}, {"wsd", "exponential", 21, 0.1},
		{"wsd", "exponential", 18, 0.5641449099},
		{"wsd", "linear", 18, 0.64}, {"wsd", "cosine", 18, 0.6890576475},
		{"wsd", "minus_sqrt", 18, 0.4307900212},
	} {
		l := base
		l.Style = c.style
		if c.wsd != "" {
			l.WSDStyle = c.wsd
		}
		require.NoError(t, l.Check())
		require.InDelta(t, c.want, l.At(c.step), 1e-9, "%s %s at step %d", c.style, c.wsd, c.step)
	}
	require.ErrorContains(t, LR{Style: "zigzag"}.Check(), "zigzag")
}

// TestRegistry: every optimizer has a kernel, state names and a source.
func TestRegistry(t *testing.T) {
	require.Subset(t, Names(), []string{"adamw", "sgd"})
	for _, n := range Names() {
		o, err := Get(n)
		require.NoError(t, err)
		require.True(t, o.Op != "" && len(o.State) > 0 || o.Update != nil,
			"%s has neither a kernel with state nor an update of its own", n)
		require.NotEmpty(t, o.Paper)
	}
	_, err := Get("adam8")
	require.ErrorContains(t, err, "have ["+strings.Join(Names(), " ")+"]")
}
