package data

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/policies"
)

const fastHelp = `The run file says which recordings, in which numbers (section policy) and of how many actions a chunk is (policy.horizon); policy.fast
is the folder that gets the files, which are those of physical-intelligence/fast. The same recordings give the same tokenizer.`

// dataFast makes the tokenizer of a policy's actions.
func dataFast() *cobra.Command {
	c := &cobra.Command{Use: "fast RUN.yaml [key=value…]", Short: "Make FAST's tokenizer of a robot's actions",
		Long: fastHelp, Example: "  lfactor data fast policy.yaml policy.fast=actions --vocab 1024",
		Args: cobra.MinimumNArgs(1)}
	f := c.Flags()
	vocab := f.Int("vocab", 1024, "tokens at most: the coefficients that there are, and pairs of them")
	scale := f.Float64("scale", 10,
		"what coefficients are multiplied by before they are rounded: more is finer, in more tokens")
	most := f.Int("chunks", 20000, "chunks to learn of, about, from all over the recordings")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *vocab < 2 || *vocab > 1<<20 || !(*scale > 0) || *scale > 1e6 || *most < 1 {
			return exit.Usagef("--vocab %d, --scale %g, --chunks %d: want at least 2 tokens, a scale from above 0 to 1e6 and "+
				"at least a chunk", *vocab, *scale, *most)
		}
		cfg, err := configs.Load(configs.Request{File: args[0], Args: args[1:], Getenv: os.Getenv})
		if err != nil {
			return err
		}
		r, err := policies.FitFAST(cfg, *most, *vocab, *scale)
		if err != nil {
			return err
		}
		return cli.Emit(c, r, func(w io.Writer) {
			fmt.Fprintf(w, "%s: %d tokens, learnt of %d chunks; a chunk of %d numbers is %.1f tokens, %d at most, and is read back "+
				"within %.3g of numbers from about -1 to 1\n", r.Folder, r.Vocab, r.Chunks, r.Plain, r.Each,
				r.Most, r.Worst)
		})
	}
	return c
}
