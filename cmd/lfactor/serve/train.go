package serve

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// trainFlags are those that --train reads.
var trainFlags = []string{"adapters", "rank", "alpha", "targets", "train-tokens", "train-step-tokens", "adapters-dir"}

// training are the flags of serving adapters that clients train.
type training struct {
	on bool
	o  serve.TrainOptions
}

// bindTrain declares them.
func bindTrain(c *cobra.Command, t *training) {
	f := c.Flags()
	f.BoolVar(&t.on, "train", false, "clients train adapters of the model, and draw with them (docs/post-training.md)")
	f.IntVar(&t.o.Adapters, "adapters", 16, "with --train: adapters at once")
	f.IntVar(&t.o.Rank, "rank", 16, "with --train: rank of an adapter")
	f.Float64Var(&t.o.Alpha, "alpha", 32, "with --train: what alpha/rank scales an adapter by")
	f.StringSliceVar(&t.o.Targets, "targets", []string{"*_proj"},
		"with --train: patterns of the layers that have adapters")
	f.IntVar(&t.o.Rows, "train-tokens", 2048,
		"with --train: tokens of a sequence at most, and of an adapter's share of a step")
	f.IntVar(&t.o.Most, "train-step-tokens", 512,
		"with --train: tokens of several adapters that are trained on at once; more of one alone may be")
	f.StringVar(&t.o.Dir, "adapters-dir", "",
		"with --train: folder that adapters are saved in; without it they are not")
}

// options enters them into a server's, or refuses them.
func (t *training) options(c *cobra.Command, o *serve.Options, draft string) error {
	if !t.on {
		if i := slices.IndexFunc(trainFlags, c.Flags().Changed); i >= 0 {
			return exit.Usagef("serve: --%s is read with --train", trainFlags[i])
		}
		return nil
	}
	switch {
	case draft != "":
		return exit.Usagef("serve: with --train a draft model would draw without the adapters: leave --draft out")
	case o.DType != tensor.F32:
		return exit.Usagef("serve: adapters are trained with --precision fp32")
	case t.o.Adapters < 1 || t.o.Adapters > 1024 || t.o.Rank < 1 || t.o.Rank > 1024 || !(t.o.Alpha > 0) ||
		t.o.Rows < 1 || t.o.Most < 1 || len(t.o.Targets) == 0:
		return exit.Usagef("serve: --adapters and --rank lie between 1 and 1024, --alpha, --train-tokens and " +
			"--train-step-tokens are above 0, and --targets names a pattern")
	}
	o.Train = &t.o
	return nil
}
