package sim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// listed is up to how many events are written out.
const listed = 100

// shrink prints the smallest run that fails as the seed's does, and its events.
func (s *simRun) shrink(ctx context.Context, seed uint64, faults []sim.Fault) error {
	read := func(settings ...string) (*configs.Config, error) {
		return setup.Config(s.file, cli.FlagValue(s.mine, "plan"),
			append(append([]string{}, s.rest...), settings...), false)
	}
	x, err := rehearsal.Shrink(ctx, read, s.o, seed, faults)
	if err != nil {
		return err
	}
	command := fmt.Sprintf("lfactor sim %s %s --steps %d", s.file,
		strings.Join(append(append([]string{}, s.rest...), x.Settings...), " "), x.Steps)
	out := shrunk{Seed: seed, How: x.How, First: x.First, Events: x.Events}
	if x.How == "" {
		return cli.EmitAs(cli.Out, s.form, out,
			func(w io.Writer) { fmt.Fprintf(w, "seed %d ends well: nothing to shrink\n", seed) })
	}
	out.Command = command
	for _, f := range x.Faults {
		out.Faults = append(out.Faults, f.String())
	}
	fault := x.Replay(func(n int, at int64, what string) {
		if x.Events <= listed {
			out.Log = append(out.Log, fmt.Sprintf("%4d  %12d ns  %s", n, at, what))
		}
	})
	err = cli.EmitAs(cli.Out, s.form, out, func(w io.Writer) {
		fmt.Fprintf(w, "seed %d %s after %d events; the smallest run that does so takes %d:\n  %s\n", seed,
			x.How, x.First, x.Events, command)
		for _, f := range out.Faults {
			fmt.Fprintln(w, "  fault:", f)
		}
		for _, line := range out.Log {
			fmt.Fprintln(w, line)
		}
	})
	return cmp.Or(err, fault)
}

// shrunk is the smallest run that fails as a seed's does.
type shrunk struct {
	Seed    uint64   `json:"seed"`
	How     string   `json:"how"` // "" if the run ends well
	First   uint64   `json:"first_events"`
	Events  uint64   `json:"events"`
	Command string   `json:"command,omitempty"`
	Faults  []string `json:"faults,omitempty"`
	Log     []string `json:"log,omitempty"`
}
