package plan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/unit"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// lengthRows is how many plans the table of --max-length has.
const lengthRows = 12

// maxLength is lfactor plan with --max-length: the longest sequence that can be trained, and by which plan.
func maxLength(ctx context.Context, file string, mine, rest []string) error {
	form, p, end, err := searching(file, mine, rest)
	if err != nil {
		return err
	}
	defer end()
	all, err := p.Longest(ctx)
	if all == nil {
		return err
	}
	fault := cli.EmitAs(cli.Out, form, all, func(w io.Writer) {
		fmt.Fprintf(w, "The longest sequences that %s trains on within %s a device: %d hosts with %d devices of "+
			"%s, one sequence a microbatch, the longest of %d kinds of plans\n", p.Model(), tensor.Bytes(p.Space.Limit),
			p.Hosts, p.Machine.Devices, p.Machine.Name, len(all))
		t := cli.TextTable("tokens", "tp", "pp", "cp", "dp", "zero", "chunks", "recompute", "peak")
		for _, c := range all[:min(lengthRows, len(all))] {
			share := fmt.Sprint(c.CP)
			if c.CP > 1 {
				share += " " + c.Comm
			}
			t.AppendRow(table.Row{
				unit.Count(float64(c.SeqLen)), c.TP, c.PP, share, c.DP, c.Zero, c.Chunks, c.Recompute,
				tensor.Bytes(c.Peak),
			})
		}
		t.Render()
	})
	if fault != nil || err != nil {
		return cmp.Or(fault, err)
	}
	if out := cli.FlagValue(mine, "out"); out != "" {
		f := configs.PlanFile{Model: p.Model(), Settings: all[0].PlanSettings()}
		return os.WriteFile(out, f.Text(fmt.Sprintf("%d tokens", all[0].SeqLen),
			fmt.Sprintf("the longest for %d hosts of %d devices of %s: %s a rank",
				p.Hosts, p.Machine.Devices, p.Machine.Name, tensor.Bytes(all[0].Peak)),
			fmt.Sprintf("lfactor train %s data.seq_len=%d --plan this file", file, all[0].SeqLen)), 0o644)
	}
	return nil
}
