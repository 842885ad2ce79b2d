package fit

import (
	"fmt"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
)

// Fake says how weights of layers are rounded while they learn (train.qat); nil for not at all. They are those that
// a checkpoint can keep in few bits.
func Fake(c *configs.Config, m *family.Model) func(param string) kernels.Fake {
	f, ok := FakeOf(c)
	if !ok {
		return nil
	}
	rounded, _ := m.Rounded()
	return func(param string) kernels.Fake {
		if !rounded[param] {
			return kernels.Fake{}
		}
		return f
	}
}

// FakeOf is what train.qat says.
func FakeOf(c *configs.Config) (f kernels.Fake, ok bool) {
	bits := map[string]int{"int4": 4, "int8": 8}[c.Run.Train.QAT]
	return kernels.Fake{Bits: bits, Group: c.Run.Train.QATGroup}, bits > 0
}

// fake holds train.qat to the model and to what else is set.
func (r rules) fake() {
	const key = "train.qat"
	run := &r.c.Run
	f, ok := FakeOf(r.c)
	if !ok {
		if run.Train.QATGroup != configs.QATGroup {
			r.at(key+"_group", "is not read: "+key+" is none", "remove it")
		}
		return
	}
	switch {
	case run.LoRA.Rank > 0:
		r.at(key, "the weights below additions do not learn", "remove it; lora.base keeps them in few bits")
	case run.Train.LowPrecision != "none":
		r.at(key, "weights would be rounded twice, by train.low_precision too", "set that to none")
	case !r.m.Task().Writes || run.Model.Encoder != "" || run.Model.Decoder != "":
		r.at(key, "models that draw, and components with weights of their own, are not rounded", "remove it")
	}
	rounded, _ := r.m.Rounded()
	for _, p := range r.m.Params(nil) {
		if !rounded[p.Name] {
			continue
		}
		k, group, tp, plan := p.Shape[len(p.Shape)-1], f.Group, run.Plan.TP, "plan.tp"
		if len(p.Shape) == 3 {
			tp, plan = run.Plan.ETP, "plan.etp"
		}
		switch {
		case group > 0 && k%group != 0:
			r.at(key+"_group", fmt.Sprintf("%s has rows of %d numbers, which are no groups of %d", p.Name, k, group),
				"set it to a divisor, or to 0, a whole row")
		case tp > 1 && (group == 0 || k%(tp*group) != 0):
			r.at(key+"_group", fmt.Sprintf("%s has rows of %d numbers, which %s = %d cuts within groups", p.Name, k,
				plan, tp), "set it to a divisor of a rank's columns")
		case k%8 != 0:
			r.at(key, fmt.Sprintf("%s has rows of %d numbers, which fill no whole words", p.Name, k), "remove it")
		default:
			continue
		}
		return
	}
}
