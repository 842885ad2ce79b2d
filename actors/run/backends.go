package run

import (
	"io"
	"runtime"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	_ "github.com/lfactor/lfactor/kernels/cpu" // registers itself
)

// backends opens a backend for each of this process's ranks, which share its cores; the second result closes them.
func backends(c *configs.Config, ranks []int) (func(rank int) kernels.Backend, func(), error) {
	n := c.Run.Plan.Threads
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/max(1, c.Run.Plan.Procs))
	}
	made := map[int]kernels.Backend{}
	closeAll := func() {
		for _, b := range made {
			if x, ok := b.(io.Closer); ok {
				_ = x.Close() // the run is over, and its result stands
			}
		}
	}
	for _, r := range ranks {
		b, err := kernels.Open(c.Run.Device, n)
		if err != nil {
			closeAll()
			return nil, nil, c.Fault("device", err.Error(), "set device: cpu")
		}
		made[r] = b
	}
	return func(rank int) kernels.Backend { return made[rank] }, closeAll, nil
}
