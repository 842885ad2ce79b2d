package host

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology"
)

// TestLatentPlans trains the golden models with latent attention, one of them with its layer for a further
// token, with heads and experts shared out: losses are PyTorch's, within what sums in another order leave.
func TestLatentPlans(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"deepseek-v2", "deepseek-v2-lite", "deepseek-v3", furtherGolden} {
		for _, p := range []configs.Plan{
			{PP: 2, DP: 1, TP: 2, EP: 1, ETP: 1}, {PP: 1, DP: 1, TP: 2, EP: 1, ETP: 2}, {PP: 3, DP: 1,
				TP: 4, EP: 1, ETP: 4, SequenceParallel: true},
			{PP: 2, DP: 1, TP: 4, EP: 4, ETP: 1, SequenceParallel: true}, {PP: 1, DP: 1, TP: 2, EP: 2,
				ETP: 1, Zero: 3},
		} {
			if name == "deepseek-v2-lite" {
				p.EP = 1 // its seven experts divide by nothing
			}
			t.Run(fmt.Sprintf("%s pp%d tp%d ep%d etp%d sp%v", filepath.Base(name), p.PP, p.TP, p.EP, p.ETP,
				p.SequenceParallel), func(t *testing.T) {
				g := openGolden(t, name)
				g.plan = func(j *layout.Design) { j.SeqParallel, j.Zero = p.SequenceParallel, p.Zero }
				losses, norms := g.train(layout.MeshOf(&p), goldenBackends["cpu"], 4, nil)
				for i, loss := range losses {
					require.InEpsilon(t, g.AdamW.Losses[i], loss, 1e-4, "loss of step %d", i+1)
					require.InEpsilon(t, g.AdamW.GradNorms[i], norms[i], 1e-3, "gradient norm of step %d",
						i+1)
				}
			})
		}
	}
}

// TestFurtherPlans: hybrids with a layer for a further token train in chunks as PyTorch does on the whole,
// images' features too; and a run that leaves the layer out has a loss of its own on a pipeline.
func TestFurtherPlans(t *testing.T) {
	for _, name := range furtherGoldens[1:] {
		t.Run(filepath.Base(name), func(t *testing.T) {
			g := openGolden(t, name)
			g.plan = func(j *layout.Design) {
				j.Schedule, j.Chunks = "chunkpipe", 3
				j.Rows = (j.Rows + 2) / 3 * 3
			}
			losses, _ := g.train(topology.Grid(1, 1, 1), goldenBackends["cpu"], 4, nil)
			for i, loss := range losses {
				require.InEpsilon(t, g.AdamW.Losses[i], loss, 1e-4, "loss of step %d", i+1)
			}
			g = openGolden(t, name)
			g.m.DropMTP()
			one, _ := g.train(topology.Grid(1, 1, 1), goldenBackends["cpu"], 2, nil)
			two, _ := g.train(topology.Grid(2, 1, 1), goldenBackends["cpu"], 2, nil)
			require.Equal(t, one, two)
			require.Less(t, one[0], g.AdamW.Losses[0]-0.2)
		})
	}
}
