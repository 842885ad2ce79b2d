package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
)

// fault is an error as scripts read it.
type fault struct {
	File string `json:"file"`           // or "command line", or a flag
	Line int    `json:"line,omitempty"` // 0 where there are none
	Key  string `json:"key,omitempty"`
	Why  string `json:"why"`
	Try  string `json:"try,omitempty"` // what to do
}

// Say tells of an error as text or, where data has another form than text, as an object of JSON on one line.
func Say(w io.Writer, err error, form string) {
	text := configs.Redact(Plain(err))
	if form == "text" {
		fmt.Fprintln(w, "error:", text)
		return
	}
	out := struct {
		Error  string  `json:"error"`
		Code   int     `json:"code"`
		Faults []fault `json:"faults,omitempty"` // of a configuration
	}{Error: text, Code: ExitCode(err)}
	for _, e := range configs.Faults(err) {
		out.Faults = append(out.Faults, fault{File: e.File, Line: e.Line, Key: e.Key, Why: configs.Redact(e.Why),
			Try: configs.Redact(e.Try)})
	}
	b, bad := json.Marshal(out)
	if bad != nil {
		panic(bad) // texts and numbers alone
	}
	fmt.Fprintf(w, "%s\n", b)
}

// FormOf is the form of a command line's output: that of the flag, or of arguments that a verb reads itself.
func FormOf(flag string, args []string) string {
	if form, _, err := TakeForm(args); err == nil && form != "text" {
		return form
	}
	return flag
}

// called is how Go's errors name a call of the system, its file, and what came of it.
var called = regexp.MustCompile(`\b(?:open|stat|lstat|read|readlink|mkdir|fstat|unlink) (\S+): ` +
	`(no such file or directory|permission denied|not a directory|is a directory)`)

// Plain is the text of an error without the names of the system's calls.
func Plain(err error) string { return called.ReplaceAllString(err.Error(), "$1: $2") }

// OnProcessor has a command that computes on the processor say so where the environment names another device.
func OnProcessor(c *cobra.Command) {
	c.PreRun = func(c *cobra.Command, _ []string) {
		if v := os.Getenv("LFACTOR_DEVICE"); v != "" && v != "cpu" {
			fmt.Fprintf(c.ErrOrStderr(), "note: LFACTOR_DEVICE=%s has no effect: lfactor %s computes on the processor\n", v, c.Name())
		}
	}
}
