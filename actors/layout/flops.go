package layout

import "github.com/lfactor/lfactor/kernels/grad"

// MicroFlops is the work of one microbatch of a class of shape.
func (l *Layout) MicroFlops(class int32) (sum float64) {
	for s := range l.Stages {
		tr := l.Trace(TraceKey{Stage: s, Class: class})
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

// StepFlops is the floating-point work of one step over all ranks, from the traces: forward and backward without what is
// recomputed, the convention of model FLOPs utilisation.
func (l *Layout) StepFlops() float64 {
	return l.MicroFlops(l.Class) * float64(l.Job.Micro*l.Job.Mesh.Replicas())
}
