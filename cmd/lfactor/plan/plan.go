// Package plan is the verb of that name: it parses, calls and prints.
package plan

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// Command is lfactor plan: what each rank holds, or the best plan for a machine.
func Command() *cobra.Command {
	return &cobra.Command{Use: "plan FILE.yaml [key=value ...] [--hosts N[xG]] [--cluster NAME|FILE] [--out plan.yaml] [--schedules] [--program]",
		Short: "Show what each rank holds and whether it fits, or find the fastest plan for a machine",
		Long: `Without --hosts: what each rank of the run file's own plan holds, before anything is allocated.

  --hosts N[xG]     find the best plan for N hosts (with G devices each; default: as many as the cluster has): tensor, pipeline and data
                    parallelism, ZeRO, schedule, stages a rank, microbatches and recomputation. All are ranked by closed forms, the best 64
                    again by simulation of their own programs.
  --cluster C       machine: one that comes with lfactor (` + strings.Join(configs.Clusters(), ", ") + `) or a file; default cpu
  --out FILE        write the best plan; lfactor train FILE.yaml --plan FILE carries it out
  --schedules       list the schedules
  --program         print the run file's program as a table`,
		DisableFlagParsing: true, RunE: planCommand}
}

// planRow is one rank of a plan.
type planRow struct {
	Rank        int   `json:"rank"`
	PP          int   `json:"pp"`
	DP          int   `json:"dp"`
	TP          int   `json:"tp"`
	Stages      []int `json:"stages"`
	Parameters  int64 `json:"parameters"`
	ParamBytes  int64 `json:"param_bytes"`
	StateBytes  int64 `json:"state_bytes"`
	GradBytes   int64 `json:"gradient_bytes"`
	Activations int64 `json:"activation_bytes"`
	Total       int64 `json:"total_bytes"`
	Fits        bool  `json:"fits"`
}

func planCommand(c *cobra.Command, args []string) error {
	file, mine, rest := configs.SplitArgs(args, map[string]bool{"help": false, "h": false, "o": true, "output": true, "schedules": false, "program": false, "hosts": true, "cluster": true, "out": true})
	switch {
	case slices.Contains(mine, "--help") || slices.Contains(mine, "-h"):
		return c.Help()
	case slices.Contains(mine, "--schedules"):
		fmt.Println(strings.Join(schedule.Names(), "\n"))
		return nil
	}
	if cli.FlagValue(mine, "hosts") != "" {
		return findPlan(c.Context(), file, mine, rest)
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: rest, Getenv: os.Getenv})
	if err != nil {
		return err
	}
	if err := setup.Vocabulary(cfg); err != nil {
		return err
	}
	j, err := layout.FromConfig(cfg)
	if err != nil {
		return err
	}
	l, err := layout.Plan(j)
	if err != nil {
		return exit.With(err, exit.Usage)
	}
	if slices.Contains(mine, "--program") {
		fmt.Print(l.Program)
		return nil
	}
	rows := planRows(l)
	if err := printPlan(cli.Form(mine), l, rows); err != nil {
		return err
	}
	return l.Fits()
}

func planRows(l *layout.Layout) (rows []planRow) {
	for r, part := range l.Ranks {
		m := l.Memory(r)
		row := planRow{Rank: r, PP: part.Coord.PP, DP: part.Coord.DP, TP: part.Coord.TP, Stages: part.Stages, ParamBytes: m.Params,
			StateBytes: m.State, GradBytes: m.Grads, Activations: max(m.Activations, m.Update), Total: m.Total()}
		for _, p := range part.All {
			row.Parameters += int64(tensor.Len(p.Local))
		}
		row.Fits = l.Job.Memory == 0 || row.Total <= l.Job.Memory
		rows = append(rows, row)
	}
	return
}

func printPlan(form string, l *layout.Layout, rows []planRow) error {
	if form != "text" && form != "json" && form != "jsonl" {
		return exit.Usagef("-o %s: want text, json or jsonl", form)
	}
	enc := json.NewEncoder(os.Stdout)
	switch form {
	case "json":
		return enc.Encode(rows)
	case "jsonl":
		for _, r := range rows {
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"rank", "pp", "dp", "tp", "blocks", "parameters", "weights", "optimizer", "gradients", "activations", "peak", ""})
	for _, r := range rows {
		fits := "fits"
		if !r.Fits {
			fits = "DOES NOT FIT (" + tensor.Bytes(l.Job.Memory) + ")"
		}
		var blocks []string
		for _, s := range r.Stages {
			blocks = append(blocks, fmt.Sprintf("%d-%d", l.Stages[s].From, l.Stages[s].To-1))
		}
		t.AppendRow(table.Row{r.Rank, r.PP, r.DP, r.TP, strings.Join(blocks, " "), unit.Count(float64(r.Parameters)), tensor.Bytes(r.ParamBytes), tensor.Bytes(r.StateBytes),
			tensor.Bytes(r.GradBytes), tensor.Bytes(r.Activations), tensor.Bytes(r.Total), fits})
	}
	t.Render()
	return nil
}
