package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
)

// PrintJSON writes one value to stdout.
func PrintJSON(v any) error { return json.NewEncoder(Out).Encode(v) }

// Emit writes a result in the form that the flag -o asks for.
func Emit(c *cobra.Command, v any, text func(w io.Writer)) error {
	form, err := Output(c)
	if err != nil {
		return err
	}
	return EmitAs(c.OutOrStdout(), form, v, text)
}

// EmitAs writes a result: as text by the function, as json on one line, or as jsonl with an element of a
// list on each line.
func EmitAs(w io.Writer, form string, v any, text func(w io.Writer)) error {
	enc := json.NewEncoder(w)
	list := reflect.ValueOf(v)
	switch {
	case form == "text":
		text(w)
		return nil
	case list.Kind() != reflect.Slice:
		return enc.Encode(v)
	case form == "json" && list.IsNil():
		_, err := fmt.Fprintln(w, "[]")
		return err
	case form == "json":
		return enc.Encode(v)
	}
	for i := range list.Len() {
		if err := enc.Encode(list.Index(i).Interface()); err != nil {
			return err
		}
	}
	return nil
}

// TextTable is a table for a terminal.
func TextTable(columns ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(Out)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(columns)
	return t
}

// Notes prints what reading a configuration had to say to stderr.
func Notes(notes []string) {
	for _, n := range notes {
		fmt.Fprintln(os.Stderr, "note: "+n)
	}
}
