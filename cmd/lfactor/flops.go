package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// trainFlops is the floating-point work of one step over all ranks, from the traces: forward and backward without what is
// recomputed, the convention of model FLOPs utilisation.
func (r *run) trainFlops() float64 {
	return r.microFlops(r.layout.Class) * float64(r.job.Micro*r.job.Mesh.DP)
}

// microFlops is the work of one microbatch of a class of shape.
func (r *run) microFlops(class int32) (sum float64) {
	for s := range r.layout.Stages {
		tr := r.layout.Trace(host.TraceKey{Stage: s, Class: class})
		tp := float64(tr.Mesh[0].Size)
		for _, p := range []grad.Phase{grad.F, grad.B} {
			for _, seg := range tr.Segments(p) {
				for _, n := range seg.Ops {
					if p == grad.F || !n.Clone {
						sum += tp * float64(tr.Flops(n))
					}
				}
			}
		}
	}
	return sum
}

var peakOnce = sync.OnceValues(func() (f32, bf16 float64) { return probe(tensor.F32), probe(tensor.BF16) })

// peakFlops is what the machine reaches in a large product of matrices, measured once: the denominator of mfu.
func peakFlops(precision string) float64 {
	f32, bf16 := peakOnce()
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
