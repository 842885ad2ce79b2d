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
		Long: "RUN is the run directory (log.dir), by default runs/latest. The answer comes from the actors " +
			"themselves.", Args: cobra.MaximumNArgs(1)}
	timeout := c.Flags().Duration("timeout", 5*time.Second, "how long to wait for the run's answer")
	name := c.Flags().String("cluster", "", "ask a job of this cluster instead; RUN is its number, by "+
		"default the newest")
	c.RunE = func(c *cobra.Command, args []string) error {
		if *name != "" {
			return onCluster(c, *name, args)
		}
		all, silent, err := host.AskWhy(cli.RunDir(args), *timeout)
		if err != nil {
			return err
		}
		return show(c, host.Diagnose(all, silent...))
	}
	return c
}

// show prints a diagnosis, the root first.
func show(c *cobra.Command, d host.Diagnosis) error {
	return cli.Emit(c, d, func(w io.Writer) {
		fmt.Fprintln(w, "root:", d.Root)
		for i, s := range d.Chain {
			fmt.Fprintf(w, "%*s%s\n", 2*i+2, "", s)
		}
	})
}

// onCluster asks the processes of a job, wherever they are.
func onCluster(c *cobra.Command, name string, args []string) error {
	all, silent, err := cli.AskJob(c.Context(), name, args)
	if err != nil {
		return err
	}
	return show(c, host.Diagnose(all, silent...))
}
