package layout

import (
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/topology"
)

// work is what a microbatch of a class of shape costs: all but the attention within its sequences of tokens,
// and that by pair.
type work struct {
	base     float64
	attended []grad.Attended
}

// work is that of a class, made when the class is first met.
func (l *Layout) work(class int32) work {
	l.mu.Lock()
	w, known := l.works[class]
	l.mu.Unlock()
	if known {
		return w
	}
	chunks := max(1, l.Design.Chunks)
	for s := range l.Stages {
		for c := range chunks {
			w.add(l.Trace(TraceKey{Stage: s, Chunk: c, Class: class}), chunks == 1)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.works[class] = w
	return w
}

// add counts a trace; attention within whole sequences is counted by pair later.
func (w *work) add(tr *grad.Trace, whole bool) {
	heads := float64(tr.Size(topology.TP) * tr.Size(topology.Ulysses))
	ranks := heads * float64(tr.Size(topology.CP))
	for _, p := range []grad.Phase{grad.F, grad.B} {
		for _, seg := range tr.Segments(p) {
			for _, n := range seg.Ops {
				if p == grad.B && n.Clone {
					continue
				}
				if a, ok := tr.Attends(n); ok && whole && a.Data == "cu_seqlens" {
					a.PerPair *= heads * a.Share
					w.attended = append(w.attended, a)
					continue
				}
				w.base += ranks * float64(tr.Flops(n))
			}
		}
	}
}

// MicroFlops is the work of one microbatch of a class of shape whose sequences have the given borders:
// forward and backward without what is recomputed, the convention of model FLOPs utilisation. Attention is
// counted by the pairs that see each other.
func (l *Layout) MicroFlops(class int32, cu []int32) float64 {
	w := l.work(class)
	sum := w.base
	for _, a := range w.attended {
		for i := 1; i < len(cu); i++ {
			n := int(cu[i] - cu[i-1])
			sum += a.PerPair * a.Pairs(n, n)
		}
	}
	return sum
}

// StepFlops is the work of one step over all ranks, of microbatches that are as the plan has them.
func (l *Layout) StepFlops() float64 {
	return l.MicroFlops(l.Class, l.Borders()) * float64(l.Design.Micro*l.Design.Mesh.Replicas())
}

// tokens is the length of a microbatch's sequences as the plan has them.
func (l *Layout) tokens() int {
	if n := l.Design.SeqLen; n > 0 && n <= l.Design.Rows {
		return n
	}
	return l.Design.Rows
}

// Borders are those of the sequences of a microbatch as the plan has it.
func (l *Layout) Borders() (cu []int32) {
	n := l.tokens()
	for at := 0; at < l.Design.Rows; at += n {
		cu = append(cu, int32(at))
	}
	return append(cu, int32(l.Design.Rows))
}
