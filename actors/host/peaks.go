package host

import (
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// shrink takes rows of a parameter of queries or keys, from one of its own on, back where scores of attention were
// too great in this step.
func (r *Rank) shrink(p *layout.ParamPlan, master, model *tensor.Tensor, first int) {
	if p.Peak == nil || master.Len() == 0 {
		return
	}
	at := kernels.Attr{F: [2]float64{p.Peak.Limit, p.Peak.Power},
		I: [4]int{p.First + first, p.Peak.Rows, p.Peak.Whole, p.Peak.Heads}}
	r.kernel(kernels.PeakClip, at, []*tensor.Tensor{r.run.Params[p.Peak.Of], r.clip}, master, model)
}

// peakOf is what a step has found of a layer's scores of attention: the greatest, and its head.
func (r *Rank) peakOf(p *layout.ParamPlan, rows *tensor.Tensor) core.Finding {
	h := kernels.Host(r.c.Backend, rows)
	defer h.Release()
	f := core.Finding{Param: p.Index}
	for i, x := range h.F32() {
		if !(float64(x) <= f.Error) {
			f.Error, f.Product = float64(x), i
		}
	}
	return f
}
