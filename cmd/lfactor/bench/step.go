package bench

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/bench/rates"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/topology/machine"
)

func stepBenchCommand() *cobra.Command {
	c := &cobra.Command{Use: "step",
		Short: "Time training steps beside the least that this machine could take; bench/step.py times " +
			"the same model in PyTorch beside it",
		Long: "Trains llama58m (hidden 512, 8 layers, 8 heads, 1408 inner, 32000 tokens; 4 sequences of " +
			"512) or qwen3-0.6b (1 sequence of 1024) on random tokens.\n" +
			"The floor is products and attention at the measured peak plus the memory that must move, " +
			"once, at the measured rate.", Args: cobra.NoArgs}
	var s rates.Step
	f := c.Flags()
	f.StringVar(&s.Device, "device", "cpu",
		"where it trains, as the key device says; the floor is of the processor alone")
	f.StringVar(&s.Shape, "shape", "llama58m", "llama58m or qwen3-0.6b")
	f.StringVar(&s.Model, "model", "",
		"a directory with config.json, in place of a shape; sequences are 4 of 512 if not said")
	f.IntVar(&s.Chunk, "chunk", 0, "tokens of a microbatch that are computed at a time, 0 for all")
	f.IntVar(&s.Cp, "cp", 1, "ranks that share the tokens of a sequence, by a ring, all in this process")
	f.BoolVar(&s.Offload, "offload", false,
		"keep what backwards need in files mapped into memory in between, as plan.offload does")
	f.BoolVar(&s.OffloadOptimizer, "offload-optimizer", false,
		"keep the optimizer's state there, as plan.offload_optimizer does")
	f.StringVar(&s.Precision, "precision", "fp32", "fp32, bf16 or fp16")
	f.StringVar(&s.Recompute, "recompute", "selective", "none, selective or full")
	f.StringSliceVar(&s.Keep, "keep", nil,
		"tensors that are kept all the same, as in plan.keep_tensors: attention, say")
	f.IntVar(&s.Threads, "threads", 1, "kernel threads")
	f.IntVar(&s.Steps, "steps", 5, "steps that count; one more warms up")
	f.IntVar(&s.Layers, "layers", 0, "decoder layers, 0 for the shape's")
	f.IntVar(&s.Hidden, "hidden", 512, "hidden size of llama58m")
	f.IntVar(&s.Inter, "intermediate", 1408, "intermediate size of llama58m")
	f.IntVar(&s.Vocab, "vocab", 32000, "vocabulary of llama58m")
	f.IntVar(&s.Seq, "seq", 0, "tokens of a sequence, 0 for the shape's")
	f.IntVar(&s.Batch, "batch", 0, "sequences of a step, 0 for the shape's")
	f.IntVar(&s.Pp, "pp", 1, "pipeline stages")
	f.StringVar(&s.Numpy, "numpy", "python3",
		"the Python whose numpy is timed as well, where the step is in fp32: a second floor; empty for none")
	f.StringVar(&s.Profile, "profile", "", "write where the time went to FILE.txt, .json and .svg")
	f.Lookup("profile").NoOptDefVal = "profile"
	c.RunE = func(c *cobra.Command, _ []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		began := time.Now()
		see, end := cli.Tell(c.ErrOrStderr(), "laying the model out")
		defer end()
		machine.TightHeap() // as lfactor train
		s.See, s.Asked = see, c.Flags().Changed("numpy")
		res, report, err := s.Measure()
		if err != nil {
			return err
		}
		return cli.EmitAs(cli.Out, form, res, func(w io.Writer) {
			printStep(w, &s, &res)
			if res.Profile != nil {
				report.PrintPhases(w)
				report.PrintKernels(w, 0)
				report.PrintMemory(w, 20)
				fmt.Fprintf(w, "profile %s.txt, .json and .svg\n", s.Profile)
			}
			fmt.Fprintf(os.Stderr, "took %v\n", time.Since(began).Round(time.Millisecond))
		})
	}
	return c
}

func encodeBenchCommand() *cobra.Command {
	c := &cobra.Command{Use: "encode", Short: "Time what an autoencoder of models of diffusion takes to encode; " +
		"bench/diffusion.py times the same in PyTorch beside it", Args: cobra.NoArgs}
	var e rates.Encode
	f := c.Flags()
	f.StringVar(&e.Model, "model", "", "folder with the autoencoder's config.json; weights are random")
	f.StringVar(&e.Size, "size", "17x64x96", "frames×height×width in pixels")
	f.IntVar(&e.Threads, "threads", 1, "kernel threads")
	f.IntVar(&e.Times, "times", 3, "runs that count; one more warms up")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if e.Model == "" {
			return exit.Usagef("bench encode: --model wants a folder with config.json")
		}
		res, err := e.Measure()
		if err != nil {
			return err
		}
		return cli.Emit(c, res, func(w io.Writer) {
			fmt.Fprintf(w, "%s %s %d threads: %s (median of %d), %.0f MiB at most\n", e.Model, e.Size, e.Threads,
				unit.Seconds(res.Median), e.Times, float64(res.PeakRSS)/(1<<20))
		})
	}
	return c
}

func printStep(w io.Writer, s *rates.Step, res *rates.StepResult) {
	mib := func(n int64) float64 { return float64(n) / (1 << 20) }
	fmt.Fprintf(w, "%s %s %d threads: %.0f tokens/s (median of %d; best %.0f), loss %.4f → %.4f\n",
		cmp.Or(s.Model, s.Shape), s.Precision, s.Threads, res.TokensPerSecond, len(res.Seconds), res.Best,
		res.Losses[0], res.Losses[len(res.Losses)-1])
	fmt.Fprintf(w, "memory  tensors at most %.0f MiB, process %.0f MiB; above parameters, gradients and "+
		"moments (%.0f MiB): %.0f and %.0f MiB\n", mib(res.PeakBytes), mib(res.PeakRSS),
		mib(res.StateBytes), mib(res.PeakBytes-res.StateBytes), mib(res.PeakRSS-res.StateBytes))
	f := res.Floor
	if f.Seconds == 0 {
		return // on a device whose peaks are not probed
	}
	fmt.Fprintf(w, "floor   %s: %.1f GFLOP of products and %.1f of attention at %.1f GFLOP/s, %.2f GB at %.1f "+
		"GB/s; a step takes %s, the floor is %s of it\n", unit.Seconds(f.Seconds), f.Products/1e9, f.Attention/1e9,
		f.Peak/1e9, f.Bytes/1e9, f.Memory/1e9, unit.Seconds(res.Median), unit.Percent(res.OfFloor))
	switch x := res.Library; {
	case x == nil:
	case x.Why != "":
		fmt.Fprintf(w, "library not timed (--numpy says where): %s\n", x.Why)
	default:
		fmt.Fprintf(w, "library %s: products at %.1f GFLOP/s at best; by that the floor is %s, %s of a step\n",
			x.Name, x.Flops/1e9, unit.Seconds(x.Floor), unit.Percent(x.OfFloor))
	}
}
