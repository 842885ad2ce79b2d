package fit_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	_ "github.com/lfactor/lfactor/stages/fit"
)

// TestReproducible: with train.reproducible what would let a plan change bits is refused with its key and the reason;
// plans that change none are not.
func TestReproducible(t *testing.T) {
	const text = "model: {name: qwen3-30b-a3b, init: random}\ndata: {paths: [texts]}\ntrain: {reproducible: " +
		"any-plan, global_batch: 64}\n"
	load := func(more string) error {
		_, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte(text), Args: strings.Fields(more)})
		return err
	}
	for _, c := range []struct{ args, want string }{
		{"plan.dp=2 plan.ep=2 data.balance=true", "data.balance: an expert's gradient is one product over the microbatches"},
		{"train.precision=fp16", "train.precision: a loss scale follows from overflows"},
		{"train.low_precision=mxfp8", "train.low_precision: errors and scales are summed over microbatches"},
		{"train.loss_average=round", "train.loss_average: a round is as many microbatches as plan.dp"},
		{"train.router.loss=batch", "train.router.loss: it counts experts over the microbatches of a step so far"},
		{"device=cuda", "device: products are a library's"},
		{"optimizer.kind=muon", "optimizer.kind: muon sums over matrices"},
		{"train.global_batch=8192", "train.global_batch: sums in fixed point have room for 4096 microbatches"},
	} {
		require.ErrorContains(t, load(c.args), c.want, c.args)
		if err := load(c.args + " train.reproducible=none"); err != nil {
			require.NotContains(t, err.Error(), "any-plan", c.args)
		}
	}
	require.NoError(t, load("plan.dp=4 plan.pp=2 plan.tp=2 plan.ep=4 plan.zero=3 train.precision=bf16 plan.schedule=zb-h1"))
}
