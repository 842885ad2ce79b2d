package rehearsal

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Cores calls do(0) to do(n-1) on as many processors as the process may use, and returns when all have ended:
// sim.Options.Each. Each processor begins in a stretch of its own, since what neighbours write lies side by
// side, and goes on in those of the others.
func Cores(n int, do func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers < 2 {
		for i := range n {
			do(i)
		}
		return
	}
	next := make([]struct {
		at atomic.Int64
		_  [56]byte // to the end of a line of a cache
	}, workers)
	first := func(stretch int) int { return stretch * n / workers }
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for k := range workers {
				k = (w + k) % workers
				for i := first(k) + int(next[k].at.Add(1)) - 1; i < first(k+1); {
					do(i)
					i = first(k) + int(next[k].at.Add(1)) - 1
				}
			}
		})
	}
	all.Wait()
}
