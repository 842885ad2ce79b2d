package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
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

// Seconds writes a duration in the unit that suits it.
func Seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3f s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3f ms", s*1e3)
	}
	return fmt.Sprintf("%.1f µs", s*1e6)
}

// Sec turns nanoseconds into seconds.
func Sec(ns int64) float64 { return float64(ns) / 1e9 }

// Count prints a number with a metric suffix.
func Count(n float64) string {
	for _, u := range []struct {
		v float64
		s string
	}{{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " k"}} {
		if n >= u.v {
			return fmt.Sprintf("%.3g%s", n/u.v, u.s)
		}
	}
	return fmt.Sprintf("%.0f", n)
}

// Percent writes a share.
func Percent(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }

// Create writes a file through f.
func Create(name string, f func(w *bufio.Writer)) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	f(w)
	if err := w.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// FileExists reports whether there is something at path.
func FileExists(path string) bool { _, err := os.Stat(path); return err == nil }
