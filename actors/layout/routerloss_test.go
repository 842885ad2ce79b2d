package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestRouterShare: the losses of routers of a step weigh as much whatever it is cut into, microbatches,
// replicas or chunks.
func TestRouterShare(t *testing.T) {
	for arg, parts := range map[string]float64{"plan.dp=1": 8, "plan.dp=2": 8, "train.micro_batch=2": 4,
		"plan.chunk_size=64": 32} {
		args := []string{"model.name=qwen/3-30b-a3b", "model.init=random", "data.paths=x",
			"data.seq_len=256",
			"model.overrides.num_hidden_layers=2", "train.steps=1", "train.global_batch=8",
			"train.router.loss=layer", "train.router.loss_coef=0.5", "train.router.z_loss_coef=0.25", arg}
		if arg == "plan.chunk_size=64" {
			args = append(args, "plan.schedule=chunkpipe")
		}
		c, err := configs.Load(configs.Request{Text: []byte("{}"), Args: args})
		require.NoError(t, err, arg)
		j, err := FromConfig(c)
		require.NoError(t, err, arg)
		require.InEpsilon(t, 0.5/parts, j.Model.Spec.Balance.Scale, 1e-12, arg)
		require.InEpsilon(t, 0.25/parts, j.Model.Spec.Balance.Z, 1e-12, arg)
	}
}
