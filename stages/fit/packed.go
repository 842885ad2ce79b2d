package fit

import (
	"fmt"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/family"
)

// Values of lora.base beside the forms of kernels.PackedForms.
const (
	baseModel = "model" // in the model's own precision
	baseKept  = "kept"  // as the checkpoint keeps each
)

// Packed is how matrices under adapters lie in memory, by lora.base; nil for all in the model's
// precision. For kept it reads the headers of model.path.
func Packed(c *configs.Config, m *family.Model) (func(param string, columns int) kernels.Packing, error) {
	base := c.Run.LoRA.Base
	if c.Run.LoRA.Rank == 0 || base == baseModel {
		return nil, nil
	}
	if base != baseKept {
		p, err := kernels.PackingOf(base)
		return func(string, int) kernels.Packing { return p }, err
	}
	const key = "lora.base"
	dir := c.Run.Model.Path
	if dir == "" {
		return nil, c.Fault(key, "kept takes the weights as model.path keeps them, and there is none",
			"name a form, such as nf4")
	}
	at, cannot, err := m.PackedIn(dir)
	if err != nil {
		return nil, err
	}
	if cannot != "" {
		return nil, c.Fault(key, fmt.Sprintf("%s cannot lie in memory as %s keeps it: its groups are no "+
			"neighbouring columns (act-order), or its numbers those of no form in memory", cannot, dir),
			"leave it out, or name a form, such as int8")
	}
	if len(at) == 0 {
		return nil, c.Fault(key, dir+" keeps no weights in few bits", "name a form, such as nf4")
	}
	return func(param string, _ int) kernels.Packing { return at[param] }, nil
}

// packed holds lora.base to what else is set.
func (r rules) packed() {
	const key = "lora.base"
	run := &r.c.Run
	if run.LoRA.Base == baseModel {
		return
	}
	switch {
	case run.LoRA.Rank == 0:
		r.at(key, "weights learn that have no additions, and few bits do not", "set lora.rank, or remove it")
	case run.Train.LowPrecision != "none":
		r.at(key, "their products are not rounded by train.low_precision", "set that to none")
	case run.Train.BalanceEvery > 0:
		r.at(key, "experts that lie in few bits are not moved between ranks", "set train.balance_every to 0")
	case run.Model.Encoder != "" || run.Model.Decoder != "" || !r.m.Task().Writes:
		r.at(key, "components with weights of their own, and models that draw, have none in few bits", "remove it")
	case r.m.Spec.Mixes() && run.Plan.ETP > 1:
		r.c.Notices = append(r.c.Notices, fmt.Sprintf("%s = %s has no effect on experts: with plan.etp = %d they are "+
			"cut, and stay in train.precision; plan.ep shares them out in few bits", key, run.LoRA.Base, run.Plan.ETP))
	}
}
