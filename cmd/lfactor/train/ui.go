package train

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/dashboard"
	"github.com/lfactor/lfactor/cmd/lfactor/ui"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

// port is where --ui is to listen, 0 for a free one, -1 where it was not given.
func port(flags []string) (int, error) {
	for _, f := range flags {
		name, value, given := strings.Cut(f, "=")
		if name != "--ui" {
			continue
		}
		if !given {
			return 0, nil
		}
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return -1, exit.Usagef("train: --ui=%s: want a port, or --ui alone for a free one", value)
		}
		return int(n), nil
	}
	return -1, nil
}

// show serves the dashboard beside a run, if --ui asks for it, until the returned function is called. Its
// end is not the run's.
func show(ctx context.Context, flags []string, dir string) (func(), error) {
	at, err := port(flags)
	if err != nil || at < 0 || !run.Leads() {
		return func() {}, err
	}
	m, err := rehearsal.Machine("cpu")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it shows how the run ends, too
	ready, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		err := ui.Serve(
			ctx,
			at,
			false,
			dashboard.Options{Dirs: []string{dir}, Machine: m},
			func(l ui.Links) error {
				fmt.Fprint(os.Stderr, l)
				select {
				case ready <- nil:
				default:
				}
				return nil
			},
		)
		if err != nil && ctx.Err() == nil {
			select {
			case ready <- err: // before the run has begun
			default:
				fmt.Fprintf(os.Stderr, "! the dashboard has ended: %v; training goes on\n", err)
			}
		}
	}()
	if err := <-ready; err != nil {
		cancel()
		return nil, err
	}
	return func() { cancel(); <-done }, nil
}
