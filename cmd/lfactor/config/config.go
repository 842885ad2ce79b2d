// Package config is the verb of that name: it parses, calls and prints.
package config

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/cost"
)

// Command is lfactor config: work on configurations.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check, explain and compare configurations"}
	raw := func(use, short string, complete cobra.CompletionFunc, run func(c *cobra.Command, args []string) error) {
		c.AddCommand(&cobra.Command{Use: use, Short: short, DisableFlagParsing: true,
			ValidArgsFunction: complete, RunE: func(c *cobra.Command, args []string) error {
				for _, a := range args {
					if a == "--help" || a == "-h" {
						return c.Help()
					}
				}
				return run(c, args)
			}})
	}
	raw("check FILE.yaml [key=value ...] [--tokenizer DIR] [-o json]",
		"Report every fault of a run file or of a LoongForge model file at once, and count the parameters",
		cli.CompleteKeys, configCheck)
	raw("explain KEY|SECTION [FILE.yaml ...]",
		"Say what a key means, and where its value comes from; or list the keys of a section",
		cli.CompleteNames, configExplain)
	raw("schema", "Print the JSON schema of run files", nil, func(_ *cobra.Command, args []string) error {
		if _, err := formAlone("schema", args); err != nil {
			return err
		}
		_, err := cli.Out.Write(append(configs.Schema(), '\n'))
		return err
	})
	raw("diff A.yaml B.yaml", "Show the settings that differ", nil, configDiff)
	raw("models", "List the published models that model.name takes", nil, func(_ *cobra.Command, args []string) error {
		form, err := formAlone("models", args)
		if err != nil {
			return err
		}
		return cli.EmitAs(cli.Out, form, configs.Models(),
			func(w io.Writer) { fmt.Fprintln(w, strings.Join(configs.Models(), "\n")) })
	})
	c.AddCommand(importCommand())
	return c
}

// formAlone is the form of the output of a command that takes nothing else.
func formAlone(name string, args []string) (string, error) {
	form, rest, err := cli.TakeForm(args)
	if err == nil && len(rest) > 0 {
		err = exit.Usagef("config %s: it takes no arguments, and got %q", name, rest)
	}
	return form, err
}

func loadArgs(args []string) (*configs.Config, error) {
	file, _, rest := configs.SplitArgs(args, nil)
	return configs.Load(configs.Request{File: file, Args: rest, Getenv: os.Getenv})
}

// explained is a key with its value in a configuration.
type explained struct {
	configs.Key
	Value string `json:"value"`
	From  string `json:"set_by"`
}

func configExplain(_ *cobra.Command, args []string) error {
	form, args, err := cli.TakeForm(args)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return exit.Usagef("config explain: which key? try `lfactor config explain plan.pp`, or a " +
			"section, as in `lfactor config explain plan`")
	}
	if keys := configs.Section(args[0]); len(keys) > 0 {
		return cli.EmitAs(cli.Out, form, keys, func(w io.Writer) {
			var wide [3]int
			for _, k := range keys {
				wide = [3]int{max(wide[0], len(k.Name)), max(wide[1], len(k.Type)), max(wide[2], len(k.Default))}
			}
			for _, k := range keys {
				fmt.Fprintf(w, "%-*s  %-*s  %-*s  %s\n", wide[0], k.Name, wide[1], k.Type, wide[2], k.Default, k.Doc)
			}
		})
	}
	if keys := clusterKeys(args[0]); len(args) == 1 && len(keys) > 0 {
		return cli.EmitAs(cli.Out, form, keys, func(w io.Writer) {
			for _, k := range keys {
				of := []string{"of cluster files"}
				for _, x := range []struct{ name, is string }{{"in ", k.Units}, {"default ", k.Default}} {
					if x.is != "" {
						of = append(of, x.name+x.is)
					}
				}
				fmt.Fprintf(w, "%s (%s)\n  %s\n", k.Name, strings.Join(of, "; "), k.Doc)
			}
		})
	}
	k, err := configs.Find(args[0])
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if len(args) == 1 {
		return cli.EmitAs(cli.Out, form, k, func(w io.Writer) { fmt.Fprintln(w, k.Explain()) })
	}
	cfg, err := loadArgs(args[1:])
	if err != nil {
		return err
	}
	value, _ := cfg.Value(k.Name)
	value = configs.Redact(value)
	return cli.EmitAs(cli.Out, form, explained{k, value, cfg.Origin(k.Name).String()},
		func(w io.Writer) { fmt.Fprintln(w, cfg.Explain(k)) })
}

// clusterKeys are the settings of cluster files that a name or a section means, where no run file has it.
func clusterKeys(name string) []cost.Key {
	return slices.DeleteFunc(cost.Keys(), func(k cost.Key) bool {
		section, _, inner := strings.Cut(k.Name, ".")
		return !inner || k.Name != name && section != name
	})
}

func configDiff(_ *cobra.Command, args []string) error {
	form, args, err := cli.TakeForm(args)
	if err != nil {
		return err
	}
	if len(args) != 2 {
		return exit.Usagef("config diff: want two run files")
	}
	var flat [2]map[string]string
	for i, a := range args {
		cfg, err := loadArgs([]string{a})
		if err != nil {
			return err
		}
		flat[i] = cfg.Flat()
	}
	changes := configs.Diff(flat[0], flat[1])
	return cli.EmitAs(cli.Out, form, changes, func(w io.Writer) {
		for _, ch := range changes {
			fmt.Fprintf(w, "%s: %s → %s  (%s)\n", ch.Key, orNone(ch.A), orNone(ch.B), ch.Class)
		}
	})
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
