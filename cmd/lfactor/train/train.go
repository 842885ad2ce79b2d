// Package train is the verb of that name: it parses, calls and prints.
package train

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
)

// Command is lfactor train: a training run.
func Command() *cobra.Command {
	return &cobra.Command{Use: "train FILE.yaml [key=value ...] [--plan plan.yaml] [--megatron-flags]", Short: "Train a model; the same command in the same directory goes on where it stopped",
		Long:               "Train a model as a graph of actors. FILE is a run file (see `lfactor init`); key=value and Megatron-LM's flags override it.\nRepeating the command resumes from the newest durable checkpoint of checkpoint.dir.\n--plan takes the settings that lfactor plan --hosts --out has written; key=value still overrides them.\n--profile[=FILE] writes where the time of the first steps went: a table, numbers and a picture, profile.txt, .json and .svg in log.dir.",
		DisableFlagParsing: true, RunE: func(c *cobra.Command, args []string) error { return trainCommand(c, args) }}
}

func trainCommand(c *cobra.Command, args []string) error {
	file, mine, rest := configs.SplitArgs(args, cli.RunFlags)
	if slices.Contains(mine, "--help") || slices.Contains(mine, "-h") {
		return c.Help()
	}
	cfg, err := setup.Config(file, cli.FlagValue(mine, "plan"), rest)
	if err != nil {
		return err
	}
	o := run.Options{Warnings: os.Stderr, Profile: profileBase(mine, cfg.Run.Log.Dir)}
	if !slices.Contains(mine, "--quiet") && !slices.Contains(mine, "-q") {
		o.Progress = os.Stderr
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	o.Worker = append([]string{self, "train"}, args...)
	return run.Train(c.Context(), cfg, o)
}

// profileBase is where --profile is to write, without the endings; "" for no profile. A relative file lies below dir.
func profileBase(flags []string, dir string) string {
	for _, f := range flags {
		name, file, _ := strings.Cut(f, "=")
		if name != "--profile" {
			continue
		}
		if file == "" {
			file = "profile"
		}
		if filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(dir, file)
	}
	return ""
}
