package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/sim"
)

// listed is up to how many events are written out.
const listed = 100

// shrink prints the smallest run that fails as the seed's does, and its events.
func (s *simRun) shrink(ctx context.Context, seed uint64, faults []sim.Fault) error {
	read := func(settings ...string) (*configs.Config, error) {
		return setup.Config(s.file, cli.FlagValue(s.mine, "plan"), append(append([]string{}, s.rest...), settings...))
	}
	x, err := rehearsal.Shrink(ctx, read, s.o, seed, faults)
	if err != nil {
		return err
	}
	if x.How == "" {
		fmt.Printf("seed %d ends well: nothing to shrink\n", seed)
		return nil
	}
	fmt.Printf("seed %d %s after %d events; the smallest run that does so takes %d:\n  lfactor sim %s %s --steps %d\n", seed, x.How, x.First, x.Events, s.file,
		strings.Join(append(append([]string{}, s.rest...), x.Settings...), " "), x.Steps)
	for _, f := range x.Faults {
		fmt.Println("  fault:", f)
	}
	return x.Replay(func(n int, at int64, what string) {
		if x.Events <= listed {
			fmt.Printf("%4d  %12d ns  %s\n", n, at, what)
		}
	})
}
