// Package config is the verb of that name: it parses, calls and prints.
package config

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/configs"
)

// Command is lfactor config: work on configurations.
func Command() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Check, explain and compare configurations"}
	raw := func(use, short string, run func(c *cobra.Command, args []string) error) {
		c.AddCommand(&cobra.Command{Use: use, Short: short, DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error {
			for _, a := range args {
				if a == "--help" || a == "-h" {
					return c.Help()
				}
			}
			return run(c, args)
		}})
	}
	raw("check FILE.yaml [key=value ...] [--tokenizer DIR] [-o json]", "Report every fault of a run file or of a LoongForge model file at once, and count the parameters", configCheck)
	raw("explain KEY [FILE.yaml ...]", "Say what a key means, and where its value comes from", configExplain)
	raw("schema", "Print the JSON schema of run files", func(*cobra.Command, []string) error {
		_, err := os.Stdout.Write(append(configs.Schema(), '\n'))
		return err
	})
	raw("diff A.yaml B.yaml", "Show the settings that differ", configDiff)
	raw("models", "List the published models that model.name takes", func(*cobra.Command, []string) error {
		fmt.Println(strings.Join(configs.Models(), "\n"))
		return nil
	})
	return c
}

func loadArgs(args []string) (*configs.Config, error) {
	file, _, rest := configs.SplitArgs(args, nil)
	return configs.Load(configs.Request{File: file, Args: rest, Getenv: os.Getenv})
}

func configExplain(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.Usagef("config explain: which key? try `lfactor config explain plan.pp`")
	}
	k, err := configs.Find(args[0])
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if len(args) == 1 {
		fmt.Println(k.Explain())
		return nil
	}
	cfg, err := loadArgs(args[1:])
	if err != nil {
		return err
	}
	fmt.Println(cfg.Explain(k))
	return nil
}

func configDiff(_ *cobra.Command, args []string) error {
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
	for _, ch := range configs.Diff(flat[0], flat[1]) {
		fmt.Printf("%s: %s → %s  (%s)\n", ch.Key, orNone(ch.A), orNone(ch.B), ch.Class)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
