package rehearsal

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Cores calls do(0) to do(n-1) on as many processors as the process may use, and returns when all have ended:
// sim.Options.Each.
func Cores(n int, do func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}
