package fit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestPlanAndObjective: a plan under which a loss of the router, a bound on experts or a scale is of other rows is said to
// change what the run minimises; plans that keep it, and keys that no plan changes, are not.
func TestPlanAndObjective(t *testing.T) {
	for _, x := range []struct {
		args string
		says string // "" for nothing
	}{
		{"plan.cp=2 train.router.loss=pooled", ""},
		{"plan.cp=2 train.router.loss=sequence", ""},
		{"plan.tp=2 train.low_precision=block", ""},
		{"plan.tp=4 plan.ep=4 train.low_precision=mxfp8", ""},
		{"plan.dp=2 train.router.loss=layer", ""},
		{"plan.dp=2 train.low_precision=tensor", ""},
		{"plan.tp=2 train.low_precision=delayed", ""},
		{"plan.tp=2 plan.dp=2 train.router.loss=pooled train.micro_batch=2", ""},
		{"plan.dp=2 train.router.loss=batch", "taken of the microbatches of all replicas so far"},
		{"plan.tp=2 train.router.capacity=1.5", "rows that an expert takes of each rank's part"},
		{"plan.tp=2 train.low_precision=tensor", "train.low_precision = tensor has a scale"},
		{"plan.dp=2 plan.ep=2 train.low_precision=nvfp4", "plan.ep changes what the run minimises"},
		{"plan.tp=2 plan.etp=2 train.low_precision=nvfp4", "plan.etp changes what the run minimises"},
		{"plan.tp=8 train.low_precision=block", "has blocks of 128 numbers, which do not fit into a rank's 64 of 512"},
		{"plan.chunk_size=32 train.router.loss=none", ""},
		{"plan.chunk_size=32 train.low_precision=block", ""},
		{"plan.cp=2 train.low_precision=delayed", ""},
		{"plan.chunk_size=32 train.router.loss=pooled", "train.router.loss is taken of each chunk"},
		{"plan.chunk_size=32 train.router.loss=layer", "train.router.loss is taken of each chunk"},
		{"plan.chunk_size=32 train.router.loss=sequence", "train.router.loss is taken of each chunk"},
		{"plan.chunk_size=32 train.router.loss=batch", "train.router.loss is taken of each chunk"},
		{"plan.chunk_size=32 train.router.capacity=1.5", "rows that an expert takes of each chunk"},
		{"plan.cp=2 train.router.capacity=1.5", "rows that an expert takes of each rank's rows"},
		{"plan.cp=2 train.low_precision=tensor", "train.low_precision = tensor has a scale"},
		{"plan.cp=2 train.low_precision=tensor_e4m3", "train.low_precision = tensor_e4m3 has a scale"},
		{"plan.cp=2 train.low_precision=nvfp4", "train.low_precision = nvfp4 has a scale"},
		{"plan.chunk_size=32 train.low_precision=nvfp4", "train.low_precision = nvfp4 has a scale"},
	} {
		args := append([]string{"model.name=qwen/3-30b-a3b", "model.init=random", "data.paths=[d]", "data.tokenizer=t",
			"data.seq_len=64", "train.global_batch=8", "train.micro_batch=1", "train.steps=1"}, strings.Fields(x.args)...)
		c, err := configs.Load(configs.Request{Args: args, Getenv: func(string) string { return "" }})
		require.NoError(t, err, x.args)
		said := strings.Join(c.Notices, "\n")
		require.Equal(t, x.says != "", strings.Contains(said, "changes what the run minimises"), "%s: %s", x.args, said)
		require.Contains(t, said, x.says, x.args)
	}
}
