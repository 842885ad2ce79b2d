package layout

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Chosen is what becomes of a tensor, by name, between forward and backward.
type Chosen struct {
	configs.TensorName
	What  grad.Choice
	Key   string   // that says so, for messages
	Globs []string // names that it stands for, nil for its own
}

// has reports whether a choice is for a tensor of a block.
func (c *Chosen) has(block int, name string) bool { return c.Matches(c.Globs, block, name) }

// ChosenOf lists what a plan says of tensors by name. Entries that are none are left out: a configuration is
// checked for them.
func ChosenOf(p *configs.Plan) (out []Chosen) {
	add := func(key string, list []string, what grad.Choice) {
		for _, text := range list {
			if t, err := configs.ParseTensor(text); err == nil { // checked with the configuration
				c := Chosen{TensorName: t, What: what, Key: key}
				if what != grad.Keep {
					c.Globs = t.Globs(what == grad.Away)
				}
				out = append(out, c)
			}
		}
	}
	add("plan.offload_tensors", p.OffloadTensors, grad.Away)
	add("plan.recompute_tensors", p.RecomputeTensors, grad.Again)
	add("plan.keep_tensors", p.KeepTensors, grad.Keep)
	return out
}

// choose is what the job says of a block's tensor.
func (l *Layout) choose(block int, name string) grad.Choice {
	for i := range l.Design.Chosen {
		if c := &l.Design.Chosen[i]; c.has(block, name) {
			return c.What
		}
	}
	return grad.ByPolicy
}

// allChosen refuses choices that decide nothing: of tensors that no backward needs.
func (l *Layout) allChosen() error {
	if len(l.Design.Chosen) == 0 {
		return nil
	}
	used, names := make([]bool, len(l.Design.Chosen)), map[string]bool{}
	for s := range l.Stages {
		for _, m := range l.Made(s) {
			names[m.Tensor] = true
			for i := range l.Design.Chosen {
				c := &l.Design.Chosen[i]
				can := c.What == grad.Keep || c.What == grad.Away && m.Away || c.What == grad.Again && m.Again
				if c.has(m.Block, m.Tensor) {
					used[i] = used[i] || can
					break
				}
			}
		}
	}
	for i, c := range l.Design.Chosen {
		if !used[i] {
			var list []string
			for n := range names {
				list = append(list, n)
			}
			slices.Sort(list)
			why := "no block has a tensor of that name"
			if names[c.Name] {
				why = "its tensors cannot be dealt with so, or another entry decides"
			}
			return fmt.Errorf("%s: %s: %s; blocks have %s", c.Key, c.Name, why, strings.Join(list, ", "))
		}
	}
	return nil
}

// Made lists what the forward of a stage makes if nothing is computed again or moved.
func (l *Layout) Made(stage int) []grad.Made {
	o := l.options(false, stage, 0)
	o.Choose, o.Offload, o.Recompute = nil, nil, grad.RecomputeNone
	if each := l.each(stage, 0); each != nil {
		o.Each = func(block int) (tensor.DType, grad.Recompute) {
			d, _ := each(block)
			return d, grad.RecomputeNone
		}
	}
	return l.recordWith(o, TraceKey{Stage: stage, Class: l.Class}).Made()
}
