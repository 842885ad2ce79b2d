package run

import (
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
)

// microFlops is the work of one microbatch of a class of shape.
func (r *Run) microFlops(class int32) (sum float64) {
	for s := range r.layout.Stages {
		tr := r.layout.Trace(layout.TraceKey{Stage: s, Class: class})
		tp := float64(tr.Size(grad.TP))
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

// trainFlops is the floating-point work of one step over all ranks, from the traces: forward and backward without what is
// recomputed, the convention of model FLOPs utilisation.
func (r *Run) trainFlops() float64 {
	return r.microFlops(r.layout.Class) * float64(r.job.Micro*r.job.Mesh.Replicas())
}
