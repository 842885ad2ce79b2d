package cli

import (
	"encoding/json"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// PrintJSON writes one value to stdout.
func PrintJSON(v any) error { return json.NewEncoder(os.Stdout).Encode(v) }

// Emit writes a result: as text by the function, else as JSON on one line.
func Emit(c *cobra.Command, v any, text func(w io.Writer)) error {
	form, err := Output(c)
	if err != nil {
		return err
	}
	if form != "text" {
		return json.NewEncoder(c.OutOrStdout()).Encode(v)
	}
	text(c.OutOrStdout())
	return nil
}

// TextTable is a table for a terminal.
func TextTable(columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(columns)
	return t
}
