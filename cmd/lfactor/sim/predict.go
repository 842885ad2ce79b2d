package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
)

func predictCommand() *cobra.Command {
	c := &cobra.Command{Use: "predict --calibration FILE.csv [ROWS.csv]", Short: "Predict step times from a table of measured ones, term by term",
		Long: "Each row's program is run by the behaviours of training with the row's prices; the terms beside it are what its time is made of.\nThe calibration table fits at most 12 constants of its cluster. Each row of ROWS.csv is then predicted and printed beside its measured\ntime, if it has one. --folds N predicts every row of the calibration table from the others and prints the errors.",
		Args: cobra.MaximumNArgs(1)}
	file := c.Flags().String("calibration", "", "table of measured steps, in vTrain's columns")
	folds := c.Flags().Int("folds", 0, "cross-validate the calibration in so many folds")
	c.RunE = func(c *cobra.Command, args []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *file == "" || len(args) == 0 && *folds == 0 || *folds < 0 || *folds == 1 {
			return exit.Usagef("want --calibration FILE.csv and rows to predict, or --folds 5")
		}
		known, err := measured(*file, true)
		if err != nil {
			return err
		}
		slots := programSlots()
		if *folds > 1 {
			errs, err := cost.CrossValidate(known, *folds, slots)
			if err != nil {
				return err
			}
			mean, median, worst := cost.Quantiles(errs)
			out := os.Stdout
			if form != "text" {
				out = os.Stderr
			}
			fmt.Fprintf(out, "%d rows in %d folds: mean error %.2f%%, median %.2f%%, worst %.2f%%\n", len(known), *folds, 100*mean, 100*median, 100*worst)
		}
		k, err := cost.Calibrate(known, slots)
		if err != nil {
			return err
		}
		if len(args) == 0 {
			return printConstants(form, k)
		}
		rows, err := measured(args[0], false)
		if err != nil {
			return err
		}
		return printPredictions(form, k, rows, slots)
	}
	return c
}

func measured(name string, timed bool) ([]cost.Measured, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, &configs.Error{File: name, Why: err.Error()}
	}
	return cost.ReadMeasured(name, string(text), timed)
}

// programSlots runs the 1F1B program of a pipeline of equal stages in the simulator, with full recompute: forward 1, backward 3 of 4.
func programSlots() cost.Slots {
	type key struct{ p, m int }
	known := map[key]float64{}
	return func(p, m int) (float64, error) {
		if x, ok := known[key{p, m}]; ok {
			return x, nil
		}
		x, err := simulateRow(&cost.Measured{PP: p, Micro: 1, Batch: m, DP: 1}, &cost.Pieces{Layers: 1})
		if err != nil {
			return 0, err
		}
		known[key{p, m}] = x
		return x, nil
	}
}

// simulateRow runs a row's program with the behaviours of training: the stages' passes, the messages between them, which a stage
// sends itself, the logits on the last stage, and the exchange and step at the end. The time is in seconds.
func simulateRow(r *cost.Measured, p *cost.Pieces) (float64, error) {
	prog, err := schedule.Build("1f1b", schedule.Shape{Ranks: r.PP, Micro: r.Microbatches()})
	if err != nil {
		return 0, exit.With(err, exit.Usage)
	}
	d := &sim.Description{Mesh: topology.Grid(r.PP, 1, 1), Program: prog, Steps: 1, Update: []core.Segment{{Ready: true}}, Passes: func(plan.Action) []core.Segment { return rehearsal.OnePass }}
	res := sim.New(d.Layout(), sim.Prices{Job: func(rank int, j *actors.Job, _ *core.Segment) int64 {
		switch {
		case rank < 0, j.Kind == actors.UpdatePhase && j.Segment > 0:
			return 0
		case j.Kind == actors.UpdatePhase:
			return int64(math.Round(1e9 * (p.DP + p.Step)))
		}
		t := p.Layers + p.TP
		if rank == r.PP-1 {
			t += p.Logits
		}
		if j.Action.Kind == plan.F {
			return int64(math.Round(1e9 * (t/4 + p.Message)))
		}
		return int64(math.Round(1e9 * (3*t/4 + p.Message)))
	}}, sim.Options{}).Run()
	if res.Failed != "" || res.Stall != nil {
		return 0, fmt.Errorf("the simulated run ended badly: %s", rehearsal.Why(res))
	}
	return res.Steps[0].Time / 1e9, nil
}

func printConstants(form string, k *cost.Constants) error {
	named := map[string]float64{}
	for i, name := range cost.ConstantNames {
		named[name] = k[i]
	}
	return cli.EmitAs(os.Stdout, form, named, func(w io.Writer) {
		for i, name := range cost.ConstantNames {
			fmt.Fprintf(w, "%-24s %.4g\n", name, k[i])
		}
	})
}

// prediction is one row beside what was measured.
type prediction struct {
	Row       cost.Measured `json:"row"`
	Terms     cost.Terms    `json:"terms_s"`
	Predicted float64       `json:"predicted_s"`
	Error     *float64      `json:"relative_error,omitempty"`
}

func printPredictions(form string, k *cost.Constants, rows []cost.Measured, slots cost.Slots) error {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"GPUs", "tp", "dp", "pp", "batch", "micro", "compute", "tp comm", "pp bubble", "pp comm", "dp comm", "step", "predicted", "measured", "error"})
	var all []prediction
	var errs []float64
	for _, r := range rows {
		n, err := slots(r.PP, r.Microbatches())
		if err != nil {
			return err
		}
		p, pieces := prediction{Row: r, Terms: k.Predict(&r, n)}, k.Pieces(&r)
		if p.Predicted, err = simulateRow(&r, &pieces); err != nil {
			return err
		}
		line := table.Row{r.GPUs, r.TP, r.DP, r.PP, r.Batch, r.Micro, unit.Seconds(p.Terms.Compute), unit.Seconds(p.Terms.TP), unit.Seconds(p.Terms.Bubble), unit.Seconds(p.Terms.PP), unit.Seconds(p.Terms.DP), unit.Seconds(p.Terms.Step), unit.Seconds(p.Predicted)}
		if r.Seconds > 0 {
			e := p.Predicted/r.Seconds - 1
			p.Error, errs = &e, append(errs, math.Abs(e))
			line = append(line, unit.Seconds(r.Seconds), fmt.Sprintf("%+.1f%%", 100*e))
		}
		all = append(all, p)
		t.AppendRow(line)
	}
	switch form {
	case "json":
		return json.NewEncoder(os.Stdout).Encode(all)
	case "jsonl":
		for _, p := range all {
			if err := json.NewEncoder(os.Stdout).Encode(p); err != nil {
				return err
			}
		}
		return nil
	}
	t.Render()
	if len(errs) > 0 {
		mean, median, worst := cost.Quantiles(errs)
		fmt.Printf("%d rows: mean error %.2f%%, median %.2f%%, worst %.2f%%\n", len(errs), 100*mean, 100*median, 100*worst)
	}
	return nil
}
