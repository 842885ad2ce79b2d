package sim

import (
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/sim/fidelity"
	"github.com/lfactor/lfactor/topology/cost"
)

func predictCommand() *cobra.Command {
	c := &cobra.Command{Use: "predict --calibration FILE.csv [ROWS.csv]",
		Short: "Predict step times from a table of measured ones, term by term",
		Long: "Each row's program is run by the behaviours of training with the row's prices; the terms " +
			"beside it are what its time is made of.\nThe calibration table fits " +
			fmt.Sprint(len(cost.ConstantTable)) + " constants of its cluster, each within bounds that are physical. Each row of ROWS.csv is then predicted and printed beside its " +
			"measured\ntime, if it has one. --folds N predicts every row of the calibration " +
			"table from the others and prints the errors.",
		Args: cobra.MaximumNArgs(1)}
	file := c.Flags().String("calibration", "", "table of measured steps, in vTrain's columns")
	beside := c.Flags().StringSlice("beside", nil, "tables of steps that the same devices took elsewhere, on other numbers of hosts, say: they "+
		"serve to fit alone, and a fold leaves their rows out too")
	folds := c.Flags().Int("folds", 5, "random folds of the calibration's check; 0: no check")
	c.RunE = func(c *cobra.Command, args []string) error {
		form, err := cli.Output(c)
		if err != nil {
			return err
		}
		if *file == "" || *folds < 0 || *folds == 1 {
			return exit.Usagef("want --calibration FILE.csv, and --folds 0 or at least 2")
		}
		known, err := measured(*file, true)
		if err != nil {
			return err
		}
		if *folds > len(known) && c.Flags().Changed("folds") {
			return exit.Usagef("--folds %d: %s has %d rows, and a fold has at least one", *folds, *file, len(known))
		}
		var others []cost.Measured
		for _, name := range *beside {
			l, err := measured(name, true)
			if err != nil {
				return err
			}
			others = append(others, l...)
		}
		slots := fidelity.ProgramSlots()
		if n := min(*folds, len(known)); n > 1 {
			*folds = n
			if err := crossValidate(form, known, others, *folds, slots); err != nil {
				return err
			}
		}
		k, err := cost.Calibrate(slices.Concat(known, others), slots)
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
		all, err := fidelity.Predict(k, rows, slots)
		if err != nil {
			return err
		}
		return cli.EmitAs(cli.Out, form, all, func(io.Writer) { printPredictions(all) })
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

// crossValidate prints how well rows are predicted by others, for each way of leaving some out, and what
// choosing plans by that would cost.
func crossValidate(form string, rows, beside []cost.Measured, folds int, slots cost.Slots) error {
	out := cli.Out
	if form != "text" {
		out = os.Stderr
	}
	t := cli.TextTable("left out", "folds", "rows", "mean error", "median", "worst", "bias", "choices",
		"lost by choosing", "worst choice")
	t.SetOutputMirror(out)
	percent := func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }
	for _, split := range cost.Splits(folds) {
		h, err := cost.CrossValidate(rows, beside, split, slots)
		if err != nil {
			return err
		}
		if len(h.Rows) == 0 {
			why := "all rows are alike"
			if len(h.Folds) > 1 {
				why = "rows beside these have more"
			}
			t.AppendRow(table.Row{h.Split, len(h.Folds), 0, why})
			continue
		}
		mean, median, worst := cost.Quantiles(cost.Errors(h.Rows, h.Seconds))
		bias := 0.0
		for i, r := range h.Rows {
			bias += (h.Seconds[i]/r.Seconds - 1) / float64(len(h.Rows))
		}
		line := table.Row{h.Split, len(h.Folds), len(h.Rows), percent(mean), percent(median), percent(worst),
			fmt.Sprintf("%+.2f%%", 100*bias)}
		if regrets := cost.Regrets(h.Rows, h.Seconds); len(regrets) > 0 {
			mean, _, worst = cost.Quantiles(regrets)
			line = append(line, len(regrets), percent(mean), percent(worst))
		}
		t.AppendRow(line)
	}
	t.Render()
	return nil
}

func printConstants(form string, k *cost.Constants) error {
	named := map[string]float64{}
	for i, c := range cost.ConstantTable {
		named[c.Name] = k[i]
	}
	return cli.EmitAs(cli.Out, form, named, func(io.Writer) {
		t := cli.TextTable("constant", "value", "unit", "physical", "")
		for i, c := range cost.ConstantTable {
			said := ""
			switch k[i] {
			case c.Least, c.Most:
				said = "at its bound"
			case c.Start:
				said = "no row tells: as it began"
			}
			t.AppendRow(table.Row{c.Name, fmt.Sprintf("%.4g", k[i]), c.Unit,
				fmt.Sprintf("%.4g to %.4g", c.Least, c.Most), said})
		}
		t.Render()
	})
}

func printPredictions(all []fidelity.Prediction) {
	t := cli.TextTable("GPUs", "tp", "dp", "pp", "batch", "micro", "products", "memory", "tp comm", "host", "logits",
		"bubble", "pp comm", "dp comm", "step", "predicted", "measured", "error")
	var errs []float64
	for _, p := range all {
		r := &p.Row
		line := table.Row{r.GPUs, r.TP, r.DP, r.PP, r.Batch, r.Micro, unit.Seconds(p.Terms.Products),
			unit.Seconds(p.Terms.Memory), unit.Seconds(p.Terms.TP), unit.Seconds(p.Terms.Host),
			unit.Seconds(p.Terms.Logits), unit.Seconds(p.Terms.Bubble), unit.Seconds(p.Terms.PP),
			unit.Seconds(p.Terms.DP), unit.Seconds(p.Terms.Step), unit.Seconds(p.Predicted)}
		if p.Error != nil {
			errs = append(errs, math.Abs(*p.Error))
			line = append(line, unit.Seconds(r.Seconds), fmt.Sprintf("%+.1f%%", 100**p.Error))
		}
		t.AppendRow(line)
	}
	t.Render()
	if len(errs) > 0 {
		mean, median, worst := cost.Quantiles(errs)
		fmt.Fprintf(cli.Out, "%d rows: mean error %.2f%%, median %.2f%%, worst %.2f%%\n", len(errs), 100*mean,
			100*median, 100*worst)
	}
}
