package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/configs"
)

// Flag is a flag of a command that reads its own: all others of its words are settings of a run.
type Flag struct {
	Name    string
	Short   string          // a letter, "" for none
	Value   string          // what stands for its value in the help, "" for a flag without one
	Inline  bool            // the value may be left out, and stands behind "="
	Section string          // of the help, "" for the section of the flag before
	Doc     string          //
	Values  func() []string // that it takes, for completion; nil for files, where Value is FILE, DIR or a name
}

// Flags are all of a command: help, completion and what is read follow from them.
type Flags []Flag

// common are of every such command.
var common = Flags{
	{Name: "output", Short: "o", Value: "FORM", Section: "Output", Doc: "form of the data on stdout: text, json or jsonl",
		Values: func() []string { return []string{"text", "json", "jsonl"} }},
	{Name: "help", Short: "h", Doc: "this text"},
}

// all are a command's flags with those of every command.
func (f Flags) all() Flags { return append(slices.Clone(f), common...) }

// ownFlags marks commands whose help has their flags already.
const ownFlags = "flags"

// On makes a command read these flags itself: help, completion, and no flags of cobra's.
func (f Flags) On(c *cobra.Command) *cobra.Command {
	c.DisableFlagParsing, c.ValidArgsFunction = true, f.Complete
	c.Long += "\n" + f.Help()
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[ownFlags] = "own"
	return c
}

// UsageTemplate is cobra's, but for commands whose help has their flags already.
func UsageTemplate(c *cobra.Command) string {
	own := `(not (index .Annotations "` + ownFlags + `"))`
	return strings.NewReplacer("{{if .HasAvailableLocalFlags}}", "{{if and .HasAvailableLocalFlags "+own+"}}",
		"{{if .HasAvailableInheritedFlags}}", "{{if and .HasAvailableInheritedFlags "+own+"}}").
		Replace(c.UsageTemplate())
}

// Own says for each name whether its value is a word of its own, as configs.SplitArgs wants it.
func (f Flags) Own() map[string]bool {
	out := map[string]bool{}
	for _, x := range f.all() {
		out[x.Name] = x.Value != "" && !x.Inline
		if x.Short != "" {
			out[x.Short] = out[x.Name]
		}
	}
	return out
}

// Given reports whether a command's own flags have one, with a value or without.
func Given(mine []string, name string) bool {
	return slices.ContainsFunc(mine, func(m string) bool {
		n, _, _ := strings.Cut(m, "=")
		return n == "--"+name
	})
}

// helpWidth is where the texts of flags end.
const helpWidth = 120

// Help has a line a flag, or more, by sections.
func (f Flags) Help() string {
	var b strings.Builder
	wide := 0
	for _, x := range f.all() {
		wide = max(wide, len(x.usage()))
	}
	for _, x := range f.all() {
		if x.Section != "" {
			fmt.Fprintf(&b, "\n%s:\n", x.Section)
		}
		left, rest := x.usage(), x.Doc
		for rest != "" {
			line := rest
			if room := helpWidth - wide - 6; len(line) > room {
				line = line[:cmp.Or(max(0, strings.LastIndexByte(line[:room], ' ')), room)]
			}
			rest = strings.TrimSpace(rest[len(line):])
			fmt.Fprintf(&b, "  %-*s    %s\n", wide, left, line)
			left = ""
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// usage is a flag as it is written.
func (x Flag) usage() string {
	text := "    --" + x.Name
	if x.Short != "" {
		text = "-" + x.Short + ", --" + x.Name
	}
	switch {
	case x.Inline:
		text += "[=" + x.Value + "]"
	case x.Value != "":
		text += " " + x.Value
	}
	return text
}

// Complete completes flags, what they take, keys of settings and their values; files are left to the shell.
func (f Flags) Complete(c *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if n := len(args); n > 0 && !strings.HasPrefix(word, "-") {
		for _, x := range f.all() {
			if x.Value != "" && !x.Inline && (args[n-1] == "--"+x.Name || x.Short != "" && args[n-1] == "-"+x.Short) {
				return x.complete("", word)
			}
		}
	}
	if !strings.HasPrefix(word, "-") {
		return CompleteKeys(c, args, word)
	}
	name, value, assigned := strings.Cut(word, "=")
	var out []string
	for _, x := range f.all() {
		switch {
		case assigned && name == "--"+x.Name && x.Value != "":
			return x.complete(name+"=", value)
		case !assigned && strings.HasPrefix("--"+x.Name, word):
			out = append(out, "--"+x.Name+"\t"+x.Doc)
		}
	}
	return append(out, megatron(word)...), cobra.ShellCompDirectiveNoFileComp
}

// megatron completes Megatron-LM's flags, which mean keys: from a letter on, since they are many.
func megatron(word string) (out []string) {
	if len(word) < 3 {
		return nil
	}
	for _, k := range configs.Keys() {
		for _, f := range k.Flags {
			if strings.HasPrefix("--"+f.Name, word) {
				out = append(out, "--"+f.Name+"\t"+k.Name+": "+k.Doc)
			}
		}
	}
	return out
}

// complete completes a flag's value behind what stands before it; lists by commas go on behind the last one.
func (x Flag) complete(before, word string) ([]string, cobra.ShellCompDirective) {
	if x.Values == nil {
		return nil, cobra.ShellCompDirectiveDefault // files
	}
	if i := strings.LastIndexByte(word, ','); i >= 0 && strings.Contains(x.Value, ",") {
		before, word = before+word[:i+1], word[i+1:]
	}
	var out []string
	for _, v := range x.Values() {
		if strings.HasPrefix(v, word) {
			out = append(out, before+v)
		}
	}
	if strings.Contains(x.Value, "FILE") || strings.Contains(x.Value, "DIR") {
		return out, cobra.ShellCompDirectiveDefault
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// Clusters completes machines that come with lfactor.
func Clusters() []string { return configs.Clusters() }
