// Package edges is the verb of that name: it parses, calls and prints.
package edges

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs/unit"
)

// Command is lfactor edges: what the actors of a run send each other.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "edges [RUN]", Short: "List what the actors of a run send each other",
		Long: "RUN is the run directory (log.dir), by default runs/latest. A run that is under way is asked; " +
			"one that has ended has written its edges down.\nThe names are those that `lfactor train --capture` takes.",
		Args: cobra.MaximumNArgs(1)}
	timeout := c.Flags().Duration("timeout", 5*time.Second, "how long to wait for the run's answer")
	name := c.Flags().String("cluster", "", "ask a job of this cluster instead; RUN is its number, by "+
		"default the newest")
	c.RunE = func(c *cobra.Command, args []string) error {
		all, silent, err := ask(c, *name, *timeout, args)
		if err != nil {
			return err
		}
		for _, s := range silent {
			fmt.Fprintf(os.Stderr, "note: process %d is %s: what its actors send is left out\n", s.Proc, s.State)
		}
		return cli.Emit(c, all, func(io.Writer) { show(all) })
	}
	return c
}

// ask collects the edges of a run, or of a job of a cluster.
func ask(c *cobra.Command, cluster string, timeout time.Duration, args []string) (all []host.Edge,
	silent []host.Silent, err error) {
	if cluster == "" {
		return run.Edges(cli.RunDir(args), timeout)
	}
	status, silent, err := cli.AskJob(c.Context(), cluster, args)
	for _, s := range status {
		all = append(all, s.Sent...)
	}
	return all, silent, err
}

func show(all []host.Edge) {
	t := cli.TextTable("edge", "messages", "count", "bytes", "process", "way")
	for _, e := range all {
		t.AppendRow([]any{e.Name, strings.Join(e.Kinds, " "), e.Messages, unit.Count(float64(e.Bytes)), e.Proc, e.Way})
	}
	t.Render()
}
