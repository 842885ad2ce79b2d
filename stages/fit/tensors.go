package fit

import (
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
)

// tensors holds log.tensors to the model: each pattern names something.
func (r rules) tensors() {
	patterns := r.c.Run.Log.Tensors
	if len(patterns) == 0 {
		return
	}
	var names []string
	for _, p := range r.m.Params(Lora(r.c)) {
		if p.IsState() {
			continue
		}
		names = append(names, p.Name, p.Name+"_grad")
		if strings.HasSuffix(p.Name, ".weight") {
			for _, suffix := range []string{grad.SeenInput, grad.SeenOutput, grad.SeenGrad} {
				names = append(names, grad.Module(p.Name)+suffix)
			}
		}
	}
	r.match("log.tensors", patterns, names)
}
