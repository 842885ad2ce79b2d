package sim

import (
	"fmt"
	"io"
	"math"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/fidelity"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/topology/cost"
)

func predictCommand() *cobra.Command {
	c := &cobra.Command{Use: "predict --calibration FILE.csv [ROWS.csv]",
		Short: "Predict step times from a table of measured ones, term by term",
		Long: "Each row's program is run by the behaviours of training with the row's prices; the terms " +
			"beside it are what its time is made of.\nThe calibration table fits at most 12 constants " +
			"of its cluster. Each row of ROWS.csv is then predicted and printed beside its " +
			"measured\ntime, if it has one. --folds N predicts every row of the calibration " +
			"table from the others and prints the errors.",
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
		slots := fidelity.ProgramSlots()
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
			fmt.Fprintf(out, "%d rows in %d folds: mean error %.2f%%, median %.2f%%, worst %.2f%%\n",
				len(known), *folds, 100*mean, 100*median, 100*worst)
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
		all, err := fidelity.Predict(k, rows, slots)
		if err != nil {
			return err
		}
		return cli.EmitAs(os.Stdout, form, all, func(io.Writer) { printPredictions(all) })
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

func printPredictions(all []fidelity.Prediction) {
	t := cli.TextTable("GPUs", "tp", "dp", "pp", "batch", "micro", "compute", "tp comm", "pp bubble",
		"pp comm", "dp comm", "step", "predicted", "measured", "error")
	var errs []float64
	for _, p := range all {
		r := &p.Row
		line := table.Row{r.GPUs, r.TP, r.DP, r.PP, r.Batch, r.Micro, unit.Seconds(p.Terms.Compute),
			unit.Seconds(p.Terms.TP), unit.Seconds(p.Terms.Bubble), unit.Seconds(p.Terms.PP),
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
		fmt.Printf("%d rows: mean error %.2f%%, median %.2f%%, worst %.2f%%\n", len(errs), 100*mean,
			100*median, 100*worst)
	}
}
