// Package train is the verb of that name: it parses, calls and prints.
package train

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/cluster/fleet"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/topology/machine"
)

// flags are train's own; all other words are settings.
var flags = cli.Flags{
	{Name: "plan", Value: "FILE", Section: "What is trained",
		Doc: "settings that lfactor plan --hosts --out has written; key=value still overrides them"},
	{Name: "cluster", Value: "NAME", Section: "On a cluster",
		Doc:    "run on a cluster (see `lfactor cluster`); current is the one that was made last",
		Values: func() []string { return []string{"current"} }},
	{Name: "hosts", Value: "N", Doc: "over so many hosts of the cluster", Values: func() []string { return nil }},
	{Name: "detach", Doc: "end this command; the job goes on"},
	{Name: "ui", Value: "PORT", Inline: true, Section: "To see it",
		Doc: "show the run in a browser while it lasts, as lfactor ui does: the link is printed, and works once"},
	{Name: "profile", Value: "FILE", Inline: true,
		Doc: "write where the time of the first steps went: a table, numbers and a drawing, profile.txt, .json and .svg in log.dir"},
	{Name: "capture", Value: "EDGE[=DIR]",
		Doc:    "keep the messages of an edge, or of those that match a pattern such as 'rank*-rank*', as Arrow IPC streams in DIR, by default edges in log.dir; lfactor edges lists them",
		Values: func() []string { return nil }},
	{Name: "quiet", Short: "q", Doc: "say what goes wrong, and no more"},
}

// Command is lfactor train: a training run.
func Command() *cobra.Command {
	return flags.On(&cobra.Command{Use: "train FILE.yaml [key=value ...] [flags] [--megatron-flags]",
		Short: "Train a model; the same command in the same directory goes on where it stopped",
		Long: "Train a model as a graph of actors. FILE is a run file (see `lfactor init`); " +
			"key=value and Megatron-LM's flags override it.\nRepeating the command resumes from the newest " +
			"durable checkpoint of checkpoint.dir.\n-o jsonl " +
			"writes the numbers of each step to stdout as they come, -o json the last ones at the end.",
		Example: `  lfactor train run.yaml plan.pp=2 optimizer.lr=3e-4
  lfactor train run.yaml --cluster current --detach
  lfactor train run.yaml --capture 'rank0-*' train.steps=3`,
		RunE: func(c *cobra.Command, args []string) error { return trainCommand(c, args) }})
}

// finished is what train -o json says at the end; -o jsonl has the numbers of each step.
type finished struct {
	Steps         int64       `json:"steps"` // the last one; 0 if there was nothing to do
	Last          run.Metrics `json:"last"`
	LogDir        string      `json:"log_dir"`
	CheckpointDir string      `json:"checkpoint_dir,omitempty"`
	quiet         bool
}

// String is the same for people.
func (f finished) String() string {
	text := fmt.Sprintf("run     %s", f.LogDir)
	if f.Steps > 0 {
		text = fmt.Sprintf("done    step %d, loss %.4f, in %s", f.Steps, f.Last.Loss, f.LogDir)
	}
	if f.CheckpointDir != "" {
		text += ", checkpoints in " + f.CheckpointDir
	}
	return text + "\n"
}

func trainCommand(c *cobra.Command, args []string) error {
	done, form, err := trained(c, args, "")
	if err != nil || done == nil {
		return err
	}
	return cli.EmitAs(c.OutOrStdout(), form, *done, done.print)
}

// print is for people.
func (f finished) print(w io.Writer) {
	if !f.quiet { // else nothing is to be said
		fmt.Fprint(w, f)
	}
}

// trained trains, and gives what is to be said at the end and in which form: nil where that is said already, or by another
// process. stage is which of a job's stages this is, "" for none.
func trained(c *cobra.Command, args []string, stage string) (*finished, string, error) {
	file, mine, rest := configs.SplitArgs(args, flags.Own())
	if slices.Contains(mine, "--help") || slices.Contains(mine, "-h") {
		return nil, "", c.Help()
	}
	cluster := cli.Given(mine, "cluster")
	cfg, err := setup.Config(file, cli.FlagValue(mine, "plan"), rest,
		!cluster) // a cluster's hosts have other files
	if err != nil {
		return nil, "", err
	}
	form, err := cli.Form(mine)
	if err != nil {
		return nil, "", err
	}
	if cli.Given(mine, "capture") && cli.FlagValue(mine, "capture") == "" {
		return nil, "", exit.Usagef("train: --capture wants the name of an edge, or a pattern of names")
	}
	if cluster {
		return nil, "", onCluster(c, cfg, file, mine, rest)
	}
	if _, err := port(mine); err != nil {
		return nil, "", err
	}
	if slices.Contains(mine, "--detach") {
		return nil, "", exit.Usagef("train: --detach wants --cluster: only a cluster goes on by itself")
	}
	o := run.Options{Warnings: os.Stderr, Profile: profileBase(mine, cfg.Run.Log.Dir), Stage: stage}
	o.Capture, o.CaptureDir, _ = strings.Cut(cli.FlagValue(mine, "capture"), "=")
	if !slices.Contains(mine, "--quiet") && !slices.Contains(mine, "-q") {
		o.Progress = os.Stderr
	}
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	o.Worker = append([]string{self, "train"}, args...)
	f, err := fleet.FromEnv()
	if err != nil {
		return nil, "", err
	}
	if f != nil {
		o.Fleet = f
	}
	done := finished{}
	o.Step = func(m run.Metrics) {
		if done.Steps == 0 { // what reading data takes before has gone
			machine.TightHeap()
		}
		done.Steps, done.Last = m.Step, m
		if form == "jsonl" {
			_ = cli.EmitAs(c.OutOrStdout(), "json", m, nil) // whoever reads may have gone; training goes on
		}
	}
	end, err := show(c.Context(), mine, cfg.Run.Log.Dir)
	if err != nil {
		return nil, "", err
	}
	defer end()
	if err := run.Train(c.Context(), cfg, o); err != nil || form == "jsonl" || !run.Leads() {
		return nil, "", err
	}
	done.LogDir, done.CheckpointDir, done.quiet = cfg.Run.Log.Dir, cfg.Run.Checkpoint.Dir, o.Progress == nil
	return &done, form, nil
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
