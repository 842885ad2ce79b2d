package fit

import (
	"fmt"
	"slices"
	"strings"
)

// elementwise are the optimizers whose update of a number follows from that number's gradient and state alone.
var elementwise = []string{"adamw", "sgd", "lion", "schedule_free"}

// reproducible refuses with train.reproducible what would let a plan change bits: sums over more than one microbatch
// that are not in fixed point, and what nobody has made to be so. What cuts a microbatch's own sums belongs to the run
// (configs.CutsMicrobatch).
func (r rules) reproducible() {
	run := &r.c.Run
	if !run.Train.AnyPlan() {
		return
	}
	t, p, o := &run.Train, &run.Plan, &run.Optimizer
	for _, x := range []struct {
		bad           bool
		key, why, try string
	}{
		{p.EP > 1 && run.Data.Balance, "data.balance", "an expert's gradient is one product over the microbatches of " +
			"plan.ep ranks, which it would pair by plan.dp", "remove it"},
		{t.Precision == "fp16", "train.precision", "a loss scale follows from overflows", "set fp32 or bf16"},
		{t.LowPrecision != "none", "train.low_precision", "errors and scales are summed over microbatches",
			"remove it"},
		{t.LossAverage == "round", "train.loss_average", "a round is as many microbatches as plan.dp",
			"set token or microbatch"},
		{t.Router.Loss == "batch", "train.router.loss", "it counts experts over the microbatches of a step so far",
			"set sequence or layer"},
		{run.Objective.Kind != "none", "objective.kind", "losses of answers are not held to it yet", "remove it"},
		{run.Device != "cpu" && run.Device != "auto", "device", "products are a library's, in an order of its own",
			"set cpu"},
		{!slices.Contains(elementwise, o.Kind), "optimizer.kind", o.Kind + " sums over matrices, which ranks share out",
			"set one of " + strings.Join(elementwise, ", ")},
		{t.GlobalBatch/t.MicroBatch > 4096, "train.global_batch", fmt.Sprintf("sums in fixed point have room for 4096 "+
			"microbatches, not %d", t.GlobalBatch/t.MicroBatch), "lower it, or raise train.micro_batch"},
	} {
		if x.bad {
			r.at(x.key, x.why+", and train.reproducible: any-plan wants none changed", x.try)
		}
	}
}
