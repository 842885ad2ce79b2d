package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim/planner"
)

// chooseTensors is lfactor plan with --tensors.
func chooseTensors(ctx context.Context, form, file string, mine, rest []string) error {
	if cli.FlagValue(mine, "hosts") != "" {
		return exit.Usagef("--tensors: it decides for the run file's own plan; for another, write the best with " +
			"--hosts N --out plan.yaml, and give lfactor plan FILE.yaml --tensors the settings in it")
	}
	if err := cli.Writable("out", cli.FlagValue(mine, "out")); err != nil {
		return err
	}
	t, err := planner.ChooseTensors(ctx, configs.Request{File: file, Args: rest, Getenv: os.Getenv},
		cmp.Or(cli.FlagValue(mine, "cluster"), "cpu"))
	if err != nil {
		return err
	}
	if err := cli.EmitAs(cli.Out, form, t, func(w io.Writer) { printTensors(w, t) }); err != nil {
		return err
	}
	if out := cli.FlagValue(mine, "out"); out != "" {
		return os.WriteFile(out, t.PlanFile(), 0o644)
	}
	return nil
}

func printTensors(w io.Writer, t *planner.Tensors) {
	table := cli.TextTable("tensor", "blocks", "each", "fate")
	for _, f := range t.List {
		blocks := fmt.Sprintf("%d-%d", f.From, f.To)
		if f.From == f.To {
			blocks = fmt.Sprint(f.From)
		}
		table.AppendRow([]any{f.Tensor, blocks, tensor.Bytes(f.Bytes), f.Fate})
	}
	table.Render()
	note := ""
	if !t.Exact {
		note = "; of combinations that keep and move about as much only the fastest were looked at"
	}
	fmt.Fprintf(w, "step %s by simulation, %s a rank%s\n", unit.Seconds(t.StepSeconds), tensor.Bytes(t.PeakBytes), note)
	fmt.Fprintf(w, "plan: %s\n", strings.Join(t.Settings, " "))
}
