package profiler

import (
	"runtime"
	"sync"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// PeakOnce measures the rates of large products on this machine, in FLOP/s, once a process.
var PeakOnce = sync.OnceValues(func() (f32, bf16 float64) { return probe(tensor.F32), probe(tensor.BF16) })

// PeakFlops is what the machine reaches in a large product of matrices, measured once: the denominator of mfu.
func PeakFlops(precision string) float64 {
	f32, bf16 := PeakOnce()
	if precision == "bf16" {
		return bf16
	}
	return f32
}

func probe(d tensor.DType) float64 {
	const n = 1024
	b := cpu.New(runtime.GOMAXPROCS(0))
	defer b.Close()
	x, w, y := tensor.Make(d, n, n), tensor.Make(d, n, n), tensor.Make(d, n, n)
	call := &kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w, nil}, Out: []*tensor.Tensor{y}}
	best := time.Hour
	for began := time.Now(); time.Since(began) < 150*time.Millisecond; { // the best of many: others may use the machine too
		t := time.Now()
		b.Run(call)
		best = min(best, time.Since(t))
	}
	return 2 * n * n * n / best.Seconds()
}
