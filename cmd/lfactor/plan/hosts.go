package plan

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/planner"
	"github.com/lfactor/lfactor/topology/search"
)

// findPlan is lfactor plan with --hosts: it looks for the best plan of a machine, prints what it found, and
// writes the best one.
func findPlan(ctx context.Context, file string, mine, rest []string) error {
	form, err := cli.Form(mine)
	if err != nil {
		return err
	}
	if err := cli.Writable("out", cli.FlagValue(mine, "out")); err != nil {
		return err
	}
	p, err := planner.New(planner.Request{Run: configs.Request{File: file, Args: rest, Getenv: os.Getenv},
		Cluster: cli.FlagValue(mine, "cluster"), Hosts: cli.FlagValue(mine, "hosts")})
	if err != nil {
		return err
	}
	see, end := cli.Tell(os.Stderr, "listing plans")
	defer end()
	p.See = see
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

// offered is a plan with the numbers that docs/json.md promises.
type offered struct {
	*search.Candidate
	StepFlops   float64 `json:"step_flops"`
	StepSeconds float64 `json:"step_seconds"` // simulated where the plan was, else by closed forms
	MFU         float64 `json:"mfu"`
	PeakBytes   int64   `json:"peak_bytes"`
}

func printFound(form string, p *planner.Search, all []search.Candidate) error {
	n := min(len(all), planner.Reranked)
	if form != "text" {
		flops, err := p.StepFlops()
		if err != nil {
			return err
		}
		var found []offered
		for i := range all[:n] {
			c := &all[i]
			o := offered{Candidate: c, StepFlops: flops, StepSeconds: cmp.Or(c.Simulated, c.Step), PeakBytes: c.Memory}
			o.MFU = flops / o.StepSeconds / (float64(p.Space.Devices) * p.Machine.Flops)
			found = append(found, o)
		}
		return cli.EmitAs(cli.Out, form, found, nil)
	}
	fmt.Fprintf(cli.Out, "%d plans of %s for %d hosts with %d devices of %s; the best by closed forms were simulated\n", len(all), p.Model(), p.Hosts, p.Machine.Devices, p.Machine.Name)
	n = min(n, p.Exact)
	shared := slices.ContainsFunc(all[:n], func(c search.Candidate) bool { return c.CP > 1 })
	t := cli.TextTable(columns(p, shared, "encoder", "ep", "cp", "tp", "pp", "dp", "zero", "schedule",
		"micro-batch", "recompute", "step", "closed form", "bubble", "memory", "")...)
	for i := range all[:n] {
		c := &all[i]
		name, fits, step, least := c.Schedule, "fits", "–", ""
		if c.Unpriced {
			least = "≥ "
		}
		if c.Loops > 1 {
			name += fmt.Sprintf("×%d", c.Loops)
		}
		if c.Chunks > 1 {
			name += fmt.Sprintf(" in %d", c.Chunks)
		}
		if c.Pairs {
			name += " overlapped"
		} else if c.Overlap {
			name += " overlap"
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
		experts, zero := fmt.Sprint(c.EP), fmt.Sprint(c.Zero)
		if c.Groups > 0 {
			zero += fmt.Sprintf(" over %d", c.Groups)
		}
		if c.ETP > 1 {
			experts = fmt.Sprintf("%d × etp %d", c.EP, c.ETP)
		}
		t.AppendRow(columns(p, shared, c.Encoder.Short(), experts, c.Context, c.Tensor(), c.Pipeline(), c.DP,
			zero, name, fmt.Sprintf("%d × %d", c.Micro, c.Batch), c.Recomputes(), step, least+unit.Seconds(c.Step),
			fmt.Sprintf("%.1f%%", 100*c.Bubble), least+tensor.Bytes(c.Memory), fits))
	}
	t.Render()
	return nil
}

// columns leaves out the cells of what the model has not, an encoder and experts, and of what no plan does:
// tokens that ranks share.
func columns(p *planner.Search, shared bool, encoder, experts, cp any, rest ...any) (row table.Row) {
	if p.Space.Tower != nil {
		row = append(row, encoder)
	}
	if p.Space.Shares != nil {
		row = append(row, experts)
	}
	if shared {
		row = append(row, cp)
	}
	return append(row, rest...)
}
