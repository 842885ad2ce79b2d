package plan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/planner"
	"github.com/lfactor/lfactor/topology/search"
)

// findPlan is lfactor plan with --hosts: it looks for the best plan of a machine, prints what it found, and writes the best one.
func findPlan(ctx context.Context, file string, mine, rest []string) error {
	form := cli.Form(mine)
	if form != "text" && form != "json" && form != "jsonl" {
		return exit.Usagef("-o %s: want text, json or jsonl", form)
	}
	p, err := planner.New(planner.Request{Run: configs.Request{File: file, Args: rest, Getenv: os.Getenv}, Cluster: cli.FlagValue(mine, "cluster"), Hosts: cli.FlagValue(mine, "hosts")})
	if err != nil {
		return err
	}
	all, err := p.Find(ctx)
	if all == nil {
		return err
	}
	if fault := printFound(form, p, all); fault != nil || err != nil {
		return cmp.Or(fault, err)
	}
	if out := cli.FlagValue(mine, "out"); out != "" {
		return os.WriteFile(out, p.PlanFile(&all[0]), 0o644)
	}
	return nil
}

func printFound(form string, p *planner.Search, all []search.Candidate) error {
	n := min(len(all), planner.Reranked)
	switch form {
	case "json":
		return cli.PrintJSON(all[:n])
	case "jsonl":
		for i := range all[:n] {
			if err := json.NewEncoder(os.Stdout).Encode(all[i]); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Printf("%d plans of %s for %d hosts with %d devices of %s; the best by closed forms were simulated\n", len(all), p.Model(), p.Hosts, p.Machine.Devices, p.Machine.Name)
	t := cli.TextTable(columns(p, "encoder", "tp", "pp", "dp", "zero", "schedule", "micro-batch", "recompute", "step", "closed form", "bubble", "memory", "")...)
	for i := range all[:min(n, p.Exact)] {
		c := &all[i]
		name, fits, step := c.Schedule, "fits", "–"
		if c.Loops > 1 {
			name += fmt.Sprintf("×%d", c.Loops)
		}
		switch {
		case c.Why == "memory":
			fits = "DOES NOT FIT: " + tensor.Bytes(p.Space.Limit)
		case c.Why != "":
			fits = c.Why
		}
		if c.Simulated > 0 {
			step = unit.Seconds(c.Simulated)
		}
		t.AppendRow(columns(p, c.Encoder.Short(), c.TP, c.PP, c.DP, c.Zero, name, fmt.Sprintf("%d × %d", c.Micro, c.Batch), c.Recompute, step, unit.Seconds(c.Step), fmt.Sprintf("%.1f%%", 100*c.Bubble), tensor.Bytes(c.Memory), fits))
	}
	t.Render()
	return nil
}

// columns leaves the first cell out for a model without an encoder.
func columns(p *planner.Search, encoder any, rest ...any) table.Row {
	if p.Space.Tower == nil {
		return rest
	}
	return append(table.Row{encoder}, rest...)
}
