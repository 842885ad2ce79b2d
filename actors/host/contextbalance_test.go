package host

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestContextBalance: losses of balance, and the counts that move the experts' biases, are those of one device where
// ranks share the tokens of padded, packed microbatches out, in runs or in zigzag: what is padding is told by borders,
// which count rows in their natural order.
func TestContextBalance(t *testing.T) {
	t.Parallel()
	const rows = contextRows - 5
	for _, name := range []string{"softmax", "shared", "batch", "groups"} {
		one := contextPlan{pp: 1, dp: 1, tp: 1, cp: 1, packed: true, schedule: "1f1b"}
		want, _ := one.train(t, mixture(t, name), rows, 3)
		for _, way := range []contextPlan{{cp: 2}, {cp: 2, zigzag: true}, {cp: 2, zigzag: true, ring: true},
			{cp: 3, zigzag: true}, {cp: 2, zigzag: true, tp: 2, sp: true}} {
			plan := one
			plan.cp, plan.zigzag, plan.ring, plan.tp, plan.sp = way.cp, way.zigzag, way.ring, max(1, way.tp), way.sp
			plan.u = 1
			got, _ := plan.train(t, mixture(t, name), rows, 3)
			for i := range want {
				require.LessOrEqual(t, math.Abs(got[i]-want[i])/want[i], 2e-6, "%s %v, step %d: %v, want %v", name,
					plan, i+1, got, want)
			}
		}
	}
}
