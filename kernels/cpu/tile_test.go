package cpu

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkTile gives GF/s of the micro-kernels on operands in the first two levels of cache.
func BenchmarkTile(b *testing.B) {
	for _, k := range levels() {
		for _, n := range []int{1, 20} {
			const kc = 256
			x, y, c := make([]float32, n*kc*k.mr+64), make([]float32, kc*k.nr+4096),
				make([]float32, n*k.mr*k.nr)
			for _, rows := range []bool{false, true} {
				b.Run(fmt.Sprintf("%s/n%d/rows=%v", k.name, n, rows), func(b *testing.B) {
					best := time.Duration(1 << 62)
					for b.Loop() {
						start := time.Now()
						for range 40 / n {
							if rows {
								k.tileRows(x, kc, kc*k.mr, y, k.nr, c, k.nr, k.mr*k.nr, kc, n, 1)
							} else {
								k.tile(x, k.mr, kc*k.mr, y, k.nr, c, k.nr, k.mr*k.nr, kc, n, 1)
							}
						}
						best = min(best, time.Since(start))
					}
					b.ReportMetric(2*float64(kc*k.mr*k.nr*n*(40/n))/best.Seconds()/1e9, "GF/s")
				})
			}
		}
	}
}
