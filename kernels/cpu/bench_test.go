package cpu

import (
	"fmt"
	"testing"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func filled(d tensor.DType, shape ...int) *tensor.Tensor {
	t := tensor.Make(d, shape...)
	x := make([]float32, t.Len())
	s := uint32(1)
	for i := range x {
		s = s*1664525 + 1013904223
		x[i] = float32(int32(s)) / (1 << 31)
	}
	if d == tensor.F32 {
		copy(t.F32(), x)
		return t
	}
	goToBF16(t.U16(), x)
	return t
}

// bench runs a call for the usual time and reports its rate; work is flops or bytes, unit 1e9 of them.
func bench(b *testing.B, be *Backend, c *kernels.Call, work float64, unit string) {
	be.Run(c)
	best := time.Duration(1 << 62)
	for b.Loop() {
		start := time.Now()
		be.Run(c)
		best = min(best, time.Since(start))
	}
	b.ReportMetric(work/best.Seconds()/1e9, unit)
}

// BenchmarkMatrix gives GF/s of the linear layers of a model of 512 wide with 8 layers.
func BenchmarkMatrix(b *testing.B) {
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, k := range levels() {
			if k.name == "go" {
				continue
			}
			for _, threads := range []int{1, 2} {
				be := newBackend(k, threads)
				for _, s := range [][3]int{{2048, 1536, 512}, {2048, 512, 512}, {2048, 2816, 512},
					{2048, 512, 1408}, {2048, 2048, 512}} {
					m, n, kk := s[0], s[1], s[2]
					x, w, y, dw := filled(d, m, kk), filled(d, n, kk), filled(d, m, n),
						filled(tensor.F32, n, kk)
					name := fmt.Sprintf("%v/%s/%d/%dx%dx%d", d, k.name, threads, m, n, kk)
					fl := 2 * float64(m) * float64(n) * float64(kk)
					b.Run(name+"/fwd", func(b *testing.B) {
						bench(b, be, &kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w},
							Out: []*tensor.Tensor{y}}, fl, "GF/s")
					})
					b.Run(name+"/dx", func(b *testing.B) {
						bench(b, be, &kernels.Call{Op: kernels.LinearDX, In: []*tensor.Tensor{y, w},
							Out: []*tensor.Tensor{x}}, fl, "GF/s")
					})
					b.Run(name+"/dw", func(b *testing.B) {
						bench(b, be, &kernels.Call{Op: kernels.LinearDW, In: []*tensor.Tensor{y, x},
							Out: []*tensor.Tensor{dw}, Attr: kernels.Attr{I: [4]int{1}}}, fl, "GF/s")
					})
				}
				be.Close()
			}
		}
	}
}

// BenchmarkPeak is the yardstick: multiply-adds and tile products in registers, and memory.
func BenchmarkPeak(b *testing.B) {
	be := newBackend(levels()[0], 2)
	defer be.Close()
	var p kernels.Peaks
	for b.Loop() {
		q := be.Peaks()
		p = kernels.Peaks{MultiplyAdd: max(p.MultiplyAdd, q.MultiplyAdd), Tiles: max(p.Tiles, q.Tiles),
			Memory: max(p.Memory, q.Memory)}
	}
	b.ReportMetric(p.MultiplyAdd/1e9, "GF/s")
	b.ReportMetric(p.Tiles/1e9, "tile-GF/s")
	b.ReportMetric(p.Memory/1e9, "GB/s")
}
