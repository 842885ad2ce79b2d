package eval

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/diffusion"
)

// pictureFlags are those of the statistics of pictures, by what they are called.
var pictureFlags = []string{"pictures", "reference", "tower", "device"}

// valueOf is the value of a flag among arguments.
func valueOf(args []string, flag string) (value string, ok bool) {
	for i, a := range args {
		if v, inline := strings.CutPrefix(a, "--"+flag+"="); inline {
			return v, true
		}
		if a == "--"+flag && i+1 < len(args) {
			return args[i+1], true
		}
	}
	return "", false
}

// pictures compares a folder of pictures with a reference; asked is whether a flag asks for it.
func pictures(c *cobra.Command, file string, mine, rest []string, form string) (asked bool, err error) {
	of := map[string]string{"device": "cpu"}
	for _, flag := range pictureFlags {
		if v, ok := valueOf(mine, flag); ok {
			of[flag], asked = v, true
		}
	}
	if !asked {
		return false, nil
	}
	for _, flag := range pictureFlags {
		if of[flag] == "" {
			return true, exit.Usagef("eval: statistics of pictures want --pictures DIR, --reference DIR and --tower "+
				"PATH; --%s is not there", flag)
		}
	}
	if file != "" || len(rest) > 0 {
		return true, exit.Usagef("eval: statistics of pictures read no run: leave %s out",
			strings.Join(append([]string{file}, rest...), " "))
	}
	shown := cli.NewProgress(c.ErrOrStderr())
	j, err := diffusion.Judge(c.Context(), of["pictures"], of["reference"], of["tower"], of["device"],
		func(done, all int) {
			shown.Show(int64(done), int64(all), 0, func(time.Duration) string { return "pictures described" })
		})
	if err != nil {
		return true, err
	}
	for _, s := range j.Skipped {
		fmt.Fprintf(c.ErrOrStderr(), "left out: %s\n", s)
	}
	return true, cli.EmitAs(cli.Out, form, j, func(w io.Writer) {
		fmt.Fprintf(w, "%d pictures against %d, by %d numbers of %s\n", j.Drawn, j.Reference, j.Width, j.Tower)
		fmt.Fprintf(w, "  Fréchet distance %.4f\n  kernel distance  %.6f\n  precision %.3f  recall %.3f\n", j.Frechet,
			j.Kernel, j.Precision, j.Recall)
	})
}
