package host

import (
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// byRule makes rows of a parameter anew by the operation that it has for that, and notes what a choice has found.
func (r *Rank) byRule(p layout.ParamPlan, g, rows *tensor.Tensor) {
	stayed := float32(0)
	if p.IsChoice() {
		stayed = r.choiceOf(rows)[kernels.ChoiceStay]
	}
	if move := p.Rule.Move(); move != nil {
		r.move32(move, &p, g, rows)
		return
	}
	r.kernel(p.Rule.Op, p.Rule.Attr, []*tensor.Tensor{g, r.clip}, rows)
	if p.IsPeak() && p.SavesOwn && r.clip.F64()[kernels.ClipOverflow] == 0 {
		r.findings = core.AppendFinding(r.findings, r.peakOf(&p, rows))
	}
	if !p.IsChoice() || !p.SavesOwn {
		return
	}
	c := r.choiceOf(rows)
	changed := (stayed > 0) != (c[kernels.ChoiceStay] > 0)
	if looked := int(c[kernels.ChoiceNext]) == kernels.WatchOf(p.Rule.Attr).Every-1; !looked && !changed {
		return
	}
	r.findings = core.AppendFinding(r.findings,
		core.Finding{Param: p.Index, Stay: float64(c[kernels.ChoiceStay]), Error: float64(c[kernels.ChoiceError]),
			Product: int(c[kernels.ChoiceProduct]), Flushed: float64(c[kernels.ChoiceFlushed]),
			Cut: float64(c[kernels.ChoiceCut]), Falls: float64(c[kernels.ChoiceFalls]), Changed: changed})
}

// move32 makes values anew by a rule that is no kernel: on the host, in one order of sums on every device.
func (r *Rank) move32(move grad.Move, p *layout.ParamPlan, g, rows *tensor.Tensor) {
	if r.clip.F64()[kernels.ClipOverflow] == 1 {
		return
	}
	numbers := func(t *tensor.Tensor) []float32 {
		h := kernels.Host(r.c.Backend, t)
		defer h.Release()
		return slices.Clone(h.F32())
	}
	value, with := numbers(rows), make([][]float32, len(p.Rule.With))
	for i, name := range p.Rule.With {
		with[i] = numbers(r.run.Params[name]) // which lie in one piece, on the same rank
	}
	move(value, numbers(g), with, p.Rule.Attr.F)
	kernels.Write(rows, tensor.Of(tensor.F32, value, rows.Shape...).Bytes())
}

func (r *Rank) choiceOf(rows *tensor.Tensor) (v [kernels.ChoiceLen]float32) {
	h := kernels.Host(r.c.Backend, rows)
	defer h.Release()
	copy(v[:], h.F32())
	return v
}

// look takes what a microbatch's loss has shown beside its value. What all of a replica have counts once.
func (r *Rank) look(seen []float32, eval bool, used *core.Usage) {
	used.Gap = float64(seen[0])
	for i, x := range seen[1:] {
		if r.figures == nil {
			r.figures = make([]float64, len(seen)-1)
		}
		if !eval && r.c.Sides[layout.DecoderSide].First() {
			r.figures[i] += r.added(float64(x))
		}
	}
}

// found appends what the update has found, and what its loss has shown, to the numbers that it leaves.
func (r *Rank) found(v []float64) []float64 {
	if len(r.findings)+len(r.figures) == 0 {
		return v
	}
	if v == nil {
		v = new(core.Usage).Values()
	}
	v = append(v, r.findings...)
	if r.findings = r.findings[:0]; r.figures != nil {
		v = core.AppendLoad(v, core.Load{Block: core.Figures, Rows: r.figures})
		r.figures = nil
	}
	return v
}
