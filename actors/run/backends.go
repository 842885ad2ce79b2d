package run

import (
	"runtime"
	"strings"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
)

// joins tells whether ranks of all processes are on devices that a library joins; which devices auto finds,
// other processes do not know.
func joins(device string) bool { return device == "cuda" || strings.HasPrefix(device, "cuda:") }

// backends opens a backend for each of this process's ranks, which share its cores; the second result closes
// them.
func backends(c *configs.Config, ranks []int) (func(rank int) kernels.Backend, func(), error) {
	n := c.Run.Plan.Threads
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/max(1, c.Run.Plan.Procs))
	}
	of, closeAll, err := host.OpenBackends(c.Run.Device, ranks,
		kernels.Options{Threads: n, Strict: c.Run.Strict, Dir: c.Run.Log.Dir})
	if err != nil {
		return nil, nil, c.Fault("device", err.Error(), "set device: cpu")
	}
	return of, closeAll, nil
}
