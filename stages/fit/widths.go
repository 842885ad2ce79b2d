package fit

import (
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/family"
)

// Scales are factors on what a parameter has of a run: its rate, its weight decay and the deviation of
// its first values.
type Scales struct{ LR, Decay, Std float64 }

// Widths are the rules by which rates that were found for a narrow model serve a wide one, maximal update
// parametrization (arXiv:2203.03466, table 3, for optimizers whose steps have a size of their own): with
// the width m times that of optimizer.mup_base_width, matrices of layers have a rate 1/m and a deviation
// 1/√m of the narrow model's, heads and routers 1/m and 1/m; embeddings, norms and biases are as they are.
// Decay is decoupled, of rate times decay, and stays as strong (mup's MuAdamW). Nil is a run without.
func Widths(c *configs.Config, m *family.Model) func(param string) Scales {
	base := c.Run.Optimizer.MuPBase
	if base == 0 {
		return nil
	}
	by, kinds := float64(m.Spec.Hidden)/float64(base), map[string]Scales{}
	hidden, output := Scales{1 / by, by, 1 / math.Sqrt(by)}, Scales{1 / by, by, 1 / by}
	for _, p := range m.Params(nil) {
		switch layer := p.Block < len(m.Blocks) && m.Blocks[p.Block].Recompute; {
		case len(p.Shape) < 2:
		case layer && !routes(m, p):
			kinds[p.Name] = hidden
		case layer, p.Block == len(m.Blocks)-1:
			kinds[p.Name] = output
		}
	}
	return func(param string) Scales {
		if s, ok := kinds[param]; ok {
			return s
		}
		return Scales{1, 1, 1}
	}
}

// routes reports whether a matrix of a layer gives a number for each expert.
func routes(m *family.Model, p *grad.Param) bool {
	e := m.Spec.Experts.Experts
	return e > 0 && len(p.Shape) == 2 && p.Shape[0] == e
}

// Begin gives a model's parameters the deviations of the rules.
func Begin(m *family.Model, scales func(param string) Scales) {
	own := m.Initial
	m.Initial = func(param string) (s family.Start) {
		if own != nil {
			s = own(param)
		}
		if s.Std == 0 {
			if s.Std = m.Spec.InitStd; s.Std == 0 {
				s.Std = family.InitStd
			}
		}
		s.Std *= scales(param).Std
		return s
	}
}

// widths holds optimizer.mup_base_width to the model and what trains it.
func (r rules) widths() {
	const key = "optimizer.mup_base_width"
	o := &r.c.Run.Optimizer
	if o.MuPBase == 0 {
		return
	}
	s := r.m.Spec
	plain := func(mixer string) bool { return mixer == "full_attention" || mixer == "sliding_attention" }
	switch {
	case !slices.Contains([]string{"adamw", "lion", "schedule_free"}, o.Kind):
		r.at(key, fmt.Sprintf("its rules are for adamw, lion and schedule_free, and %s has steps of another size", o.Kind),
			"remove it")
	case s.Tie:
		r.at(key, "embedding and head are one matrix, and they want different rates and first values",
			"set model.overrides.tie_word_embeddings to false")
	//lfvet:kind rules of width are those of decoders
	case r.c.Model.Denoises() || r.m.Vision != nil || s.Objective != nil ||
		slices.ContainsFunc(s.Mixers, func(mixer string) bool { return !plain(mixer) }):
		r.at(key, "its rules are for decoders of full or sliding attention", "remove it")
	case r.c.Run.Model.Init == "load" || Lora(r.c) != nil:
		r.at(key, "weights that are loaded have the sizes that they were trained to",
			"remove it, or set model.init to random")
	}
}
