package host

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
)

// TestSinkPlans trains the golden gpt-oss, with its logits of heads and biases of experts, with heads,
// tokens and experts shared out: losses are PyTorch's, within what sums in another order leave.
func TestSinkPlans(t *testing.T) {
	for _, p := range []configs.Plan{
		{PP: 2, TP: 2, EP: 1, ETP: 1},
		{PP: 1, TP: 2, EP: 1, ETP: 2},
		{PP: 1, TP: 4, EP: 1, ETP: 2, SequenceParallel: true},
		{PP: 1, TP: 2, CP: 2, EP: 2, ETP: 1},
		{PP: 2, TP: 2, EP: 2, ETP: 1, Zero: 1},
		{PP: 1, TP: 1, CP: 2, CPComm: "ring", EP: 2, ETP: 1, Zero: 3},
		{PP: 1, TP: 2, CP: 2, CPComm: "ulysses", Ulysses: 2, EP: 1, ETP: 1, Zero: 2},
	} {
		p.DP, p.CP = 1, max(p.CP, 1)
		t.Run(fmt.Sprintf("pp%d tp%d cp%d%s ep%d etp%d zero%d", p.PP, p.TP, p.CP, p.CPComm, p.EP, p.ETP,
			p.Zero),
			func(t *testing.T) {
				g := openGolden(t, "gpt-oss")
				g.plan = func(j *layout.Design) {
					j.SeqParallel, j.Zero, j.Ring = p.SequenceParallel, p.Zero, p.CPComm == "ring"
				}
				losses, norms := g.train(layout.MeshOf(&p), goldenBackends["cpu"], 4, nil)
				for i, loss := range losses {
					require.InEpsilon(t, g.AdamW.Losses[i], loss, 1e-4, "loss of step %d", i+1)
					require.InEpsilon(t, g.AdamW.GradNorms[i], norms[i], 1e-3, "norm of step %d", i+1)
				}
			})
	}
}
