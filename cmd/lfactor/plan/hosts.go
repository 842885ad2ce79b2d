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
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/planner"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// findPlan is lfactor plan with --hosts: it looks for the best plan of a machine, prints what it found, and
// writes the best one.
func findPlan(ctx context.Context, file string, mine, rest []string) error {
	form, p, end, err := searching(file, mine, rest)
	explain := slices.Contains(mine, "--explain")
	switch {
	case err != nil:
		return err
	case explain && form != "text":
		end()
		return exit.Usagef("--explain: with --hosts it is text alone; write the best plan with --out plan.yaml, then lfactor sim FILE.yaml " +
			"--plan plan.yaml --explain -o json")
	}
	defer end()
	all, err := p.Find(ctx)
	if all == nil {
		return err
	}
	if fault := printFound(form, p, all); fault != nil || err != nil {
		return cmp.Or(fault, err)
	}
	if out := cli.FlagValue(mine, "out"); out != "" {
		err = os.WriteFile(out, p.PlanFile(&all[0]), 0o644)
	}
	if explain {
		err = cmp.Or(err, explainFound(p, all))
	}
	return err
}

// searching makes a search for plans that tells how far it is until its end, and reads how to print what it finds.
func searching(file string, mine, rest []string) (form string, p *planner.Search, end func(), err error) {
	if form, err = cli.Form(mine); err == nil {
		err = cli.Writable("out", cli.FlagValue(mine, "out"))
	}
	if err == nil {
		p, err = planner.New(planner.Request{Run: configs.Request{File: file, Args: rest, Getenv: os.Getenv},
			Cluster: cli.FlagValue(mine, "cluster"), Hosts: cmp.Or(cli.FlagValue(mine, "hosts"), "1")})
	}
	if err == nil {
		p.See, end = cli.Tell(os.Stderr, "listing plans")
	}
	return form, p, end, err
}

// offered is a plan with the numbers that docs/json.md promises.
type offered struct {
	*search.Candidate
	StepFlops   float64 `json:"step_flops"`
	StepSeconds float64 `json:"step_seconds"` // simulated where the plan was, else by closed forms
	MFU         float64 `json:"mfu"`
	PeakBytes   int64   `json:"peak_bytes"`
	P10         float64 `json:"step_p10_s,omitempty"` // of GPUs: eight in ten steps are between them
	P90         float64 `json:"step_p90_s,omitempty"`
	Alike       bool    `json:"alike,omitempty"` // it cannot be told whether the first is faster
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
			o := offered{Candidate: c, StepFlops: flops, StepSeconds: c.Seconds(), PeakBytes: c.Memory}
			if p.Machine.Units > 0 {
				o.P10, o.P90, o.Alike = cost.P10*o.StepSeconds, cost.P90*o.StepSeconds, alike(&all[0], c)
			}
			o.MFU = flops / o.StepSeconds / (float64(p.Space.Devices) * p.Machine.Flops)
			found = append(found, o)
		}
		return cli.EmitAs(cli.Out, form, found, nil)
	}
	fmt.Fprintf(cli.Out, "%d plans of %s for %d hosts with %d devices of %s; the best by closed forms were simulated\n", len(all), p.Model(), p.Hosts, p.Machine.Devices, p.Machine.Under())
	n = min(n, p.Exact)
	shared := slices.ContainsFunc(all[:n], func(c search.Candidate) bool { return c.CP > 1 })
	t := cli.TextTable(columns(p, shared, choices, "step", "closed form", "bubble", "memory", "")...)
	for i := range all[:n] {
		c := &all[i]
		fits, step, least := "fits", "–", ""
		if c.Unpriced {
			least = "≥ "
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
		t.AppendRow(columns(p, shared, cells(c), step, least+unit.Seconds(c.Step), fmt.Sprintf("%.1f%%", 100*c.Bubble),
			least+tensor.Bytes(c.Memory), fits))
	}
	t.Render()
	same := slices.IndexFunc(append(all[:n:n], search.Candidate{Why: "behind all"}), func(c search.Candidate) bool { return !alike(&all[0], &c) })
	if first := all[0].Seconds(); p.Machine.Units > 0 && same > 0 {
		fmt.Fprintf(cli.Out, "the first takes %s to %s in eight of ten cases; which of the first %d is fastest cannot be told, as they are within "+
			"%.0f %%\n", unit.Seconds(cost.P10*first), unit.Seconds(cost.P90*first), same, 100*(cost.Alike-1))
	}
	return nil
}

// choices are the columns of what a plan chooses, and cells those of a plan.
var choices = []any{"encoder", "ep", "cp", "tp", "pp", "dp", "zero", "schedule", "micro-batch", "recompute"}

func cells(c *search.Candidate) []any {
	experts := fmt.Sprint(c.EP)
	if c.ETP > 1 {
		experts += fmt.Sprintf(" × etp %d", c.ETP)
	}
	return []any{c.Encoder.Short(), experts, c.Context.String(), c.Tensor(), c.Pipeline(), fmt.Sprint(c.DP), c.Shared(), c.Program(),
		fmt.Sprintf("%d × %d", c.Micro, c.Batch), c.Recomputes()}
}

// alike tells whether a plan that fits takes so little longer than the first that their predictions do not tell them apart.
func alike(first, c *search.Candidate) bool {
	return c.Why == "" && c.Seconds() < cost.Alike*first.Seconds()
}

// columns leaves out the cells of what the model has not, an encoder and experts, and of what no plan does:
// tokens that ranks share.
func columns(p *planner.Search, shared bool, cells []any, rest ...any) (row table.Row) {
	for i, has := range []bool{p.Space.Tower != nil, p.Space.Shares != nil, shared} {
		if has {
			row = append(row, cells[i])
		}
	}
	return append(append(row, cells[3:]...), rest...)
}

// explainFound says what the step of the best plan is made of, and for each choice the best plan that chose otherwise.
func explainFound(p *planner.Search, all []search.Candidate) error {
	best := cells(&all[0])
	t := cli.TextTable("choice", "best", "else", "step", "", "plan")
	for a, name := range choices {
		if i := slices.IndexFunc(all, func(c search.Candidate) bool {
			return c.Why == "" && !c.Unpriced && cells(&c)[a] != best[a]
		}); i > 0 {
			t.AppendRow(table.Row{name, best[a], cells(&all[i])[a], unit.Seconds(all[i].Seconds()),
				fmt.Sprintf("%+.1f %%", 100*(all[i].Seconds()/all[0].Seconds()-1)), &all[i]})
		}
	}
	fmt.Fprintln(cli.Out, "what another choice costs: for each the fastest plan that differs in it")
	t.Render()
	x, micro, err := p.Explain(&all[0])
	if err == nil {
		fmt.Fprintf(cli.Out, "of the first, a step with %d of its %d microbatches:\n", micro, all[0].Micro)
		x.Print(cli.Out)
	}
	return err
}
