// Package why is the verb of that name: it parses, calls and prints.
package why

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

// Command is lfactor why: who waits for whom in a running job.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "why [RUN]", Short: "Say who waits for whom in a running job, the root first",
		Long: "RUN is the run directory (log.dir), by default runs/latest. The answer comes from the actors themselves.",
		Args: cobra.MaximumNArgs(1)}
	timeout := c.Flags().Duration("timeout", 5*time.Second, "how long to wait for the run's answer")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := "runs/latest"
		if len(args) == 1 {
			dir = args[0]
		}
		all, silent, err := host.AskWhy(dir, *timeout)
		if err != nil {
			return err
		}
		d := host.Diagnose(all, silent...)
		return cli.Emit(c, d, func(w io.Writer) {
			fmt.Fprintln(w, "root:", d.Root)
			for i, s := range d.Chain {
				fmt.Fprintf(w, "%*s%s\n", 2*i+2, "", s)
			}
		})
	}
	return c
}
