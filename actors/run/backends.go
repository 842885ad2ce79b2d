package run

import (
	"fmt"
	"runtime"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
)

// backends makes a backend for each rank; the ranks of a process share its cores.
func backends(c *configs.Config) (func(rank int) kernels.Backend, func(), error) {
	device := c.Run.Device
	if device != "cpu" {
		return nil, nil, c.Fault("device", fmt.Sprintf("%q: this version computes on cpu only", device), "set device: cpu")
	}
	n := c.Run.Plan.Threads
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/max(1, c.Run.Plan.Procs))
	}
	var made []*cpu.Backend
	return func(int) kernels.Backend {
			b := cpu.New(n)
			made = append(made, b)
			return b
		}, func() {
			for _, b := range made {
				b.Close()
			}
		}, nil
}
