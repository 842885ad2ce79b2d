// Package reference is the verb of that name, which writes what programs know of themselves: it walks, and prints.
package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/topology/cost"
)

// Command is lfactor reference: the pages of docs/reference, or the manual pages of a release.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "reference DIR", Short: "Write the reference of commands, keys, values and operations " +
		"into a folder", Hidden: true, Args: cobra.ExactArgs(1)}
	man := c.Flags().Bool("man", false, "write manual pages, one a command, instead")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := os.MkdirAll(args[0], 0o755); err != nil {
			return err
		}
		root := c.Root()
		if *man {
			root.DisableAutoGenTag = true
			return doc.GenManTree(root, &doc.GenManHeader{Title: "LFACTOR", Section: "1", Source: "lfactor"}, args[0])
		}
		for name, text := range Pages(root) {
			if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return c
}

// Pages are the pages by name of file.
func Pages(root *cobra.Command) map[string]string {
	return map[string]string{"commands.md": commands(root), "keys.md": keys(), "values.md": values(),
		"operations.md": operations(), "clusters.md": clusters()}
}

const written = "This page is written by `go run ./cmd/lfactor reference docs/reference`.\n"

// commands is a section for every command that users have.
func commands(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Commands\n\n" + written + "\nExit codes of all:\n\n| code | means |\n|---|---|\n")
	for _, c := range exit.Codes() {
		fmt.Fprintf(&b, "| %d | %s |\n", c.Code, c.Doc)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.Name() == "completion" {
			return
		}
		if c != root {
			fmt.Fprintf(&b, "\n## %s\n\n%s.\n", c.CommandPath(), strings.TrimSuffix(c.Short, "."))
			if c.Long != "" {
				fmt.Fprintf(&b, "\n%s\n", indented(c.Long))
			}
			fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.TrimSpace(c.UseLine()))
			if c.Example != "" {
				fmt.Fprintf(&b, "\n```\n%s\n```\n", strings.TrimRight(c.Example, "\n"))
			}
			flags(&b, c.NonInheritedFlags())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	return b.String()
}

// flags is a table of the flags of a command, with their defaults.
func flags(b *strings.Builder, f *pflag.FlagSet) {
	first := true
	f.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if first {
			b.WriteString("\n| flag | default | |\n|---|---|---|\n")
		}
		first = false
		usual := ""
		if d := f.DefValue; d != "" && d != "[]" {
			if f.Name == "threads" {
				d = "by the machine"
			}
			usual = "`" + d + "`"
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s |\n", f.Name, usual, cell(f.Usage))
	})
}

// indented is text whose lines of code stay lines.
func indented(text string) string { return strings.ReplaceAll(strings.TrimSpace(text), "\n", "  \n") }

// cell is text in a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "<", "&lt;").Replace(text)
}

// keys is a table of the keys of run files for each of their sections.
func keys() string {
	var b strings.Builder
	b.WriteString("# Keys of run files\n\n" + written + "\n`lfactor config explain KEY` says the same of one, and what a run " +
		"sets it to. *On resume*: `free` may change when a run goes on, `replan` makes its plan anew, `fixed` may not.\n")
	section := ""
	for _, k := range configs.Keys() {
		if head, _, _ := strings.Cut(k.Name, "."); head != section {
			section = head
			fmt.Fprintf(&b, "\n## %s\n\n| key | type | default | on resume | |\n|---|---|---|---|---|\n", section)
		}
		kind := k.Type
		if len(k.OneOf) > 0 {
			kind = strings.Join(k.OneOf, ", ")
		}
		if k.Unit != "" {
			kind += " (" + k.Unit + ")"
		}
		if k.Min != nil {
			kind += fmt.Sprintf(", at least %g", *k.Min)
		}
		if k.Max != nil {
			kind += fmt.Sprintf(", at most %g", *k.Max)
		}
		text := cell(k.Doc)
		if len(k.Flags) > 0 {
			var names []string
			for _, f := range k.Flags {
				names = append(names, "`--"+f.Name+"`")
			}
			text += " Megatron and LoongForge: " + strings.Join(names, ", ") + "."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", k.Name, cell(kind), cell(k.Default), k.Class, text)
	}
	return b.String()
}

// values lists what registers itself: families, and what keys take.
func values() string {
	var b strings.Builder
	b.WriteString("# Values that register themselves\n\n" + written + "\nEach is one file; [library.md](../library.md) says " +
		"how a Go program adds its own.\n")
	for _, list := range []struct{ title, key, list string }{
		{"Optimizers", "optimizer.kind", source.Optimizers}, {"Learning-rate schedules", "schedule.kind", source.Rates},
		{"Ends of WSD", "schedule.wsd_decay", source.Tails}, {"Pipeline schedules", "plan.schedule", source.Schedules},
		{"Formats of texts and tokens", "data.kind", source.Formats},
		{"Formats of conversations", "data.messages", source.Chats},
		{"Losses over answers", "objective.kind", source.Losses}, {"Rewards", "reward.kind", source.Rewards},
		{"Times of diffusion", "diffusion.times", source.Draws}, {"Weights of diffusion", "diffusion.weight",
			source.Weights},
		{"Trackers", "log.trackers", source.Trackers},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`: %s\n", list.title, list.key, quoted(source.Offered(list.list)))
	}
	fmt.Fprintf(&b, "\n## Families of models\n\n`model_type` of a config.json: %s\n", quoted(family.Names()))
	b.WriteString("\n## Precisions of products\n\n| `train.low_precision` | | source |\n|---|---|---|\n")
	for _, p := range kernels.Precisions[1:] {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, cell(p.Description), cell(p.Source))
	}
	b.WriteString("\n## State of optimizers\n\n| kind | tensors | source |\n|---|---|---|\n")
	for _, name := range optim.Names() {
		o, err := optim.Get(name)
		if err == nil { // it is listed
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, quoted(o.State), o.Paper)
		}
	}
	return b.String()
}

// clusters is a table of the settings of cluster files, and one of those of software.
func clusters() string {
	var b strings.Builder
	b.WriteString("# Keys of cluster files\n\n" + written + "\n`lfactor config explain KEY` says the same of one. Files that come with " +
		"lfactor: " + quoted(configs.Clusters()) + ". [Software](../simulation.md#software) has files of its own.\n")
	section := "-"
	for _, k := range cost.Keys() {
		head, _, inner := strings.Cut(k.Name, ".")
		if !inner {
			head = "at the top"
		}
		if head != section {
			section = head
			fmt.Fprintf(&b, "\n## %s\n\n| key | unit | default | |\n|---|---|---|---|\n", head)
		}
		if k.Must {
			k.Default = "has to be there"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, cell(k.Units), k.Default, cell(k.Doc))
	}
	return b.String()
}

func quoted(names []string) string {
	out := slices.Clone(names)
	for i := range out {
		out[i] = "`" + out[i] + "`"
	}
	return strings.Join(out, ", ")
}

// operations is a table of what devices compute, as kernels/ref defines it.
func operations() string {
	var b strings.Builder
	b.WriteString("# Operations\n\n" + written + "\nThe contract of devices: operands with shapes and types (A is the model's " +
		"type, ? is optional), and what is computed, with the order of sums where bits depend on it. `kernels/ref` is the " +
		"definition.\n")
	specs := kernels.Specs()
	slices.SortFunc(specs, func(a, b kernels.Spec) int {
		return strings.Compare(string(a.Op), string(b.Op))
	})
	for _, s := range specs {
		fmt.Fprintf(&b, "\n## %s\n\n`%s`\n\n%s\n", s.Op, s.Sig, s.Doc)
		if s.Source != "" {
			fmt.Fprintf(&b, "\nSource: %s\n", s.Source)
		}
	}
	return b.String()
}
