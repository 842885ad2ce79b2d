package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/block"
)

// Low says in which precision layers multiply a weight, of kernels.Precisions; nil for all in the model's
// own.
func Low(c *configs.Config) func(param string) int {
	p, err := kernels.PrecisionOf(c.Run.Train.LowPrecision)
	if err != nil {
		panic("fit: a precision that was checked: " + err.Error())
	}
	if p == 0 {
		return nil
	}
	keep := slices.Clone(c.Run.Train.LowPrecisionKeep)
	return func(param string) int {
		for _, pattern := range keep {
			if block.Match(pattern, param) {
				return 0
			}
		}
		return p
	}
}

// lowPrecision holds train.low_precision and the patterns behind it to the model.
func (r rules) lowPrecision() {
	const key = "train.low_precision"
	t := &r.c.Run.Train
	if t.LowPrecision == "none" {
		if len(t.LowPrecisionKeep) > 0 {
			r.at(key+"_keep", "is not read: "+key+" is none", "remove it")
		}
		return
	}
	if t.Precision == "fp16" {
		r.at(key, "operands that are rounded have the range of bf16", "set train.precision to bf16")
	}
	var names []string
	for _, p := range r.m.Params(nil) {
		if (len(p.Shape) == 2 || p.Experts) && strings.HasSuffix(p.Name, ".weight") {
			names = append(names, p.Name)
		}
	}
	if !r.match(key+"_keep", t.LowPrecisionKeep, names) {
		return
	}
	low := Low(r.c)
	if !slices.ContainsFunc(names, func(name string) bool { return low(name) > 0 }) {
		r.at(key+"_keep", fmt.Sprintf("it keeps all %d weights", len(names)), "name less")
	}
}
