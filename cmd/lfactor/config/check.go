package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// configCheck reports the faults of a run file or of a model file of LoongForge's, or what model they describe.
func configCheck(_ *cobra.Command, args []string) error {
	form, args, err := cli.TakeForm(args)
	if err != nil {
		return err
	}
	file, mine, rest := configs.SplitArgs(args, map[string]bool{"tokenizer": true})
	if dir := cli.FlagValue(mine, "tokenizer"); dir != "" {
		rest = append(rest, "data.tokenizer="+dir)
	}
	load := configs.Load
	if file != "" && (configs.LoongFile(file) || configs.ModelFile(file)) || file == "" &&
		configs.LoongFile(configFile(rest)) {
		load = configs.Compose
	}
	cfg, err := load(configs.Request{File: file, Args: rest, Getenv: os.Getenv, Files: true})
	if err != nil {
		return err
	}
	if file == "" {
		file = configFile(rest)
	}
	report, err := run.Describe(cfg, file)
	if err != nil {
		return err
	}
	return cli.EmitAs(cli.Out, form, report, func(io.Writer) {
		for _, n := range report.Notices {
			fmt.Fprintln(os.Stderr, "note:", n)
		}
		printModel(report)
	})
}

// configFile is the file of --config-file, "" if there is none.
func configFile(args []string) string {
	for i, a := range args {
		if path, ok := strings.CutPrefix(a, "--config-file="); ok {
			return path
		}
		if a == "--config-file" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// printModel writes the report for people.
func printModel(r *run.ModelReport) {
	fmt.Fprintln(cli.Out, "ok")
	fmt.Fprintf(cli.Out, "model: %s", r.Model)
	if r.Parts != "" {
		fmt.Fprintf(cli.Out, " (%s)", r.Parts)
	}
	fmt.Fprintln(cli.Out)
	if r.Parameters > 0 {
		fmt.Fprintf(cli.Out, "parameters: %s\n", grouped(r.Parameters))
	}
	known := []string{family.Encoder, family.Projector, family.Foundation}
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Components)), func(c string) bool {
		return slices.Contains(known, c)
	})
	for _, c := range append(known, others...) {
		if n := r.Components[c]; n > 0 && len(r.Components) > 1 {
			fmt.Fprintf(cli.Out, "  %s: %s\n", c, grouped(n))
		}
	}
	switch {
	case r.Published == "":
	case r.Claim == r.Alone:
		fmt.Fprintf(cli.Out, "published: the same (%s)\n", r.Published)
	default:
		fmt.Fprintf(cli.Out, "published: %s (%s)\n", grouped(r.Claim), r.Published)
	}
	for _, w := range r.Why {
		fmt.Fprintln(cli.Out, "  "+w)
	}
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
