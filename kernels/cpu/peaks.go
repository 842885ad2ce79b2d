package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Peaks measures for about 100 ms.
func (b *Backend) Peaks() kernels.Peaks {
	b.mu.Lock()
	defer b.mu.Unlock()
	var p kernels.Peaks
	x := make([]float32, 16)
	const n = 50000
	p.MultiplyAdd = n * 24 * float64(b.k.lanes) / fastest(20, func() { b.k.peak(n, x) })
	team := float64(len(b.team.workers))
	p.TeamMultiplyAdd = team * n * 24 * float64(b.k.lanes) / b.together(100,
		func() { b.k.peak(n, make([]float32, 16)) })
	if b.k.amx {
		p.Tiles = b.k.pairs(n/20) / fastest(50, func() { b.k.pairs(n / 20) })
		p.TeamTiles = team * b.k.pairs(n/20) / b.together(100, func() { b.k.pairs(n / 20) })
	}
	const size = 8 << 20
	src, dst := tensor.Make(tensor.F32, size).F32(), tensor.Make(tensor.F32, size).F32()
	p.Memory = 8 * size / fastest(4, func() {
		b.elements(size, func(w *worker, at, n int) { w.k.scale(dst[at:at+n], src[at:at+n], 1) })
	})
	return p
}

// together is the shortest time, in seconds, in which as many goroutines as the team has threads run f at
// once, of several runs. They meet before each, and the slowest of a run counts. The team itself will not
// do: a worker that starts late leaves its share to the others.
func (b *Backend) together(runs int, f func()) float64 {
	n := len(b.team.workers)
	took := make([][]time.Duration, n)
	var met atomic.Int64
	var done sync.WaitGroup
	for i := range n {
		done.Go(func() {
			for r := range runs {
				met.Add(1)
				for met.Load() < int64(n*(r+1)) {
					runtime.Gosched()
				}
				start := time.Now()
				f()
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	done.Wait()
	best := time.Duration(1 << 62)
	for r := range runs {
		slowest := time.Duration(0)
		for i := range n {
			slowest = max(slowest, took[i][r])
		}
		best = min(best, slowest)
	}
	return best.Seconds()
}

// fastest is the shortest of several runs in seconds.
func fastest(runs int, f func()) float64 {
	best := time.Duration(1 << 62)
	for range runs {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return best.Seconds()
}
