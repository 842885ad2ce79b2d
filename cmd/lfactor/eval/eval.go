// Package eval is the verb of that name: it parses, calls and prints.
package eval

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
)

// Command is lfactor eval: the loss of a checkpoint.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "eval {FILE.yaml [key=value ...] | --pictures DIR --reference DIR --tower PATH | " +
		"--policy PATH --world COMMAND | --embeddings PATH --pairs FILE}",
		Short: "Loss of a run's newest checkpoint, or of the weights it starts from, on " +
			"its validation data; statistics of pictures against others; how a policy does in a world; or how well embeddings find texts",
		DisableFlagParsing: true, ValidArgsFunction: cli.CompleteKeys, RunE: evalCommand}
	c.Flags().Int("levels", 0, "models of diffusion: also the loss of so many parts of the noise levels")
	c.Flags().Bool("ema", false, "of the average of the weights that optimizer.ema keeps")
	c.Flags().String("pictures", "", "folder of pictures to compare with those below --reference")
	c.Flags().String("reference", "", "folder of reference pictures")
	c.Flags().String("tower", "",
		"network that describes pictures: a file or folder of Inception v3 (FID) or VGG, or a folder of CLIP")
	c.Flags().String("device", "cpu", "device of that network")
	c.Flags().String("embeddings", "",
		"checkpoints or folder of a model of embeddings, to find the texts of --pairs with")
	c.Flags().String("pairs", "", "records of {query, positive, negatives} that were held out")
	bindWorlds(c)
	return c
}

func evalCommand(c *cobra.Command, args []string) error {
	flags := cli.Flags{{Name: "plan", Value: "FILE"}, {Name: "profile", Value: "FILE", Inline: true},
		{Name: "quiet", Short: "q"}, {Name: "ema"}, {Name: "levels", Value: "N"}}.Own()
	for _, flag := range slices.Concat(pictureFlags, worldFlags, recallFlags) {
		flags[flag] = true
	}
	file, mine, rest := configs.SplitArgs(args, flags)
	if slices.Contains(mine, "--help") || slices.Contains(mine, "-h") {
		return c.Help()
	}
	form, err := cli.Form(mine)
	if err != nil {
		return err
	}
	if asked, err := pictures(c, file, mine, rest, form); asked || err != nil {
		return err
	}
	if asked, err := embeddings(c, file, mine, rest, form); asked || err != nil {
		return err
	}
	if asked, err := worlds(c, file, mine, rest, form); asked || err != nil {
		return err
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: append(rest, "plan.procs=1"), Getenv: os.Getenv})
	if err != nil {
		return err
	}
	cli.Notes(cfg.Notices)
	q := run.Question{Average: slices.Contains(mine, "--ema")}
	if q.Levels, err = levels(mine); err != nil {
		return err
	}
	e, err := run.Evaluate(c.Context(), cfg, q)
	if err != nil {
		return err
	}
	return cli.EmitAs(cli.Out, form, e, func(w io.Writer) {
		perplexity := ""
		if e.Perplexity > 0 {
			perplexity = fmt.Sprintf("  perplexity %.3f", e.Perplexity)
		}
		fmt.Fprintf(w, "loss %.6f%s  (%s, %d batches)\n", e.Loss, perplexity, e.From, e.Batches)
		for _, s := range e.Sets {
			fmt.Fprintf(w, "  %s  %.6f\n", s.Name, s.Loss)
		}
		for _, a := range e.Answers {
			fmt.Fprintf(w, "  %q → %q\n", a.Prompt, a.Answer)
		}
		for _, l := range e.Levels {
			fmt.Fprintf(w, "  noise %4.2f to %4.2f  %.6f\n", l.From, l.To, l.Loss)
		}
	})
}

// levels is the value of --levels.
func levels(args []string) (int, error) {
	value, ok := valueOf(args, "levels")
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > 1000 {
		return 0, exit.Usagef("eval: --levels %s: want a number from 1 to 1000", value)
	}
	return n, nil
}
