package rates

import (
	"slices"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/fit"
)

// floor is the least time that a step could take on this machine: its products and its attention at the peak
// of the threads' multiply-adds, and then what must move between memory and processor, once. Nothing is
// hidden behind anything else, and nothing is computed twice: the logits of the loss count once.
type floor struct {
	Seconds   float64 `json:"seconds"`
	Products  float64 `json:"products_flops"`
	Attention float64 `json:"attention_flops"` // of the pairs that see each other
	Bytes     float64 `json:"bytes"`
	Peak      float64 `json:"peak_flops"`   // a second, of all threads
	Memory    float64 `json:"memory_bytes"` // a second
}

// floor of the run that l lays out.
func (s *Step) floor(l *layout.Layout, params int64, p kernels.Peaks) floor {
	d := fit.Precisions[s.Precision]
	f := floor{Peak: p.TeamMultiplyAdd, Memory: p.Memory}
	if d == tensor.BF16 && p.TeamTiles > 0 {
		f.Peak = p.TeamTiles
	}
	for st := range l.Stages {
		tr := l.Trace(layout.TraceKey{Stage: st})
		for _, ph := range []grad.Phase{grad.F, grad.B} {
			for _, seg := range tr.Segments(ph) {
				for _, n := range seg.Ops {
					if !n.Clone {
						s.work(&f, n)
					}
				}
			}
		}
		f.Bytes += savedBytes(tr)
	}
	f.Products, f.Attention, f.Bytes = f.Products*float64(s.Pp), f.Attention*float64(s.Pp), f.Bytes*float64(s.Pp)
	state := 28 // AdamW reads gradient, parameter and both moments and writes all but the gradient
	if d != tensor.F32 {
		state += d.Size() // the copy to compute with
	}
	// forward and backward read the weights, and gradients are written
	f.Bytes += float64(params) * float64(state+2*d.Size()+4)
	f.Seconds = (f.Products+f.Attention)/f.Peak + f.Bytes/f.Memory
	return f
}

// work adds the arithmetic of a node.
func (s *Step) work(f *floor, n *grad.Node) {
	pairs := float64(s.Batch/s.Pp) * float64(s.Seq) * float64(s.Seq+1) / 2
	width := func(i int) float64 { return float64(n.In[i].Shape[len(n.In[i].Shape)-1]) }
	switch spec, ok := kernels.Lookup(n.Op.Kernel); {
	case !ok || spec.Flops == nil:
	case n.Op.Kernel == kernels.Attention:
		f.Attention += 2 * pairs * float64(n.In[0].Shape[1]) * (width(0) + width(2))
	case n.Op.Kernel == kernels.AttentionBwd:
		f.Attention += 2 * pairs * float64(n.In[1].Shape[1]) * (3*width(1) + 2*width(3))
	// two gradients; what else it computes depends on what the forward keeps
	case n.Op.Kernel == kernels.LinearCEBwd:
		f.Products += 4 * float64(tensor.Len(n.In[0].Local)) * float64(n.In[1].Local[0])
	default: // of the product alone, whatever runs behind it
		in := make([][]int, len(n.In))
		for i, v := range n.In {
			if v != nil {
				in[i] = v.Local
			}
		}
		f.Products += float64(spec.Flops(in, [][]int{n.Out[0].Local}))
	}
}

// savedBytes is what a forward leaves for its backward, written once and read once. Logits are no part of
// it: they need not be held.
func savedBytes(tr *grad.Trace) (n float64) {
	seen := map[*grad.Value]bool{}
	for _, seg := range tr.Segments(grad.B) {
		for _, x := range seg.Ops {
			in := slices.Clone(x.In)
			for _, e := range x.Then {
				in = append(in, e.In...)
			}
			for _, v := range in {
				if v != nil && v.Const == nil && v.Node.Phase == grad.F &&
					v.Node.Op.Kernel != kernels.LinearLSE && !v.Weight && !seen[v] {
					seen[v] = true
					n += 2 * float64(tensor.Len(v.Local)*v.DType.Size())
				}
			}
		}
	}
	return n
}
