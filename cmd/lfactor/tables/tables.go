// Package tables is the verb of that name: it parses, calls and prints.
package tables

import (
	"cmp"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run/tables"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

// Command is lfactor tables: a run's telemetry as Parquet.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "tables [RUN]", Short: "Make tables in Parquet of what a run has written down",
		Long: "RUN is the run directory (log.dir), by default runs/latest; the run may be under way. The tables are " +
			strings.Join(tables.Names(), ", ") + ";\ndocs/telemetry.md has their columns and queries for DuckDB.",
		Args: cobra.MaximumNArgs(1)}
	out := c.Flags().String("out", "", "folder for the tables, by default tables in RUN")
	c.RunE = func(c *cobra.Command, args []string) error {
		dir := cli.RunDir(args)
		made, err := tables.Make(dir, cmp.Or(*out, filepath.Join(dir, "tables")))
		if err != nil {
			return err
		}
		return cli.Emit(c, made, func(io.Writer) {
			t := cli.TextTable("table", "rows", "file")
			for _, m := range made {
				t.AppendRow([]any{m.Name, m.Rows, m.File})
			}
			t.Render()
		})
	}
	return c
}
