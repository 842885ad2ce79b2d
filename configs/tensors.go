package configs

import (
	"fmt"
	"strconv"
	"strings"
)

// TensorName is an entry of plan.offload_tensors and its like: a name, and the first and last of the blocks
// that it is for.
type TensorName struct {
	Name     string
	From, To int // To is -1 for all blocks
}

// ParseTensor reads name, name@block or name@first-last.
func ParseTensor(text string) (TensorName, error) {
	name, blocks, some := strings.Cut(text, "@")
	t := TensorName{name, 0, -1}
	if name == "" {
		return t, fmt.Errorf("%q names no tensor", text)
	}
	if !some {
		return t, nil
	}
	first, last, ranged := strings.Cut(blocks, "-")
	if !ranged {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if err != nil || err2 != nil || to < from {
		return t, fmt.Errorf("%q has %q behind @, which is not a block as 2, or blocks as 2-5", text, blocks)
	}
	t.From, t.To = int(from), int(to)
	return t, nil
}

// Has reports whether the entry is for a tensor of a block.
func (t *TensorName) Has(block int, name string) bool {
	return t.Name == name && (t.To < 0 || t.From <= block && block <= t.To)
}

// checkTensors holds names of tensors to their form, and to one list each.
func (p *Plan) checkTensors(at faults) {
	in := map[string]string{}
	for _, l := range []struct {
		key  string
		list []string
	}{{"plan.offload_tensors", p.OffloadTensors}, {"plan.recompute_tensors", p.RecomputeTensors},
		{"plan.keep_tensors", p.KeepTensors}} {
		for _, text := range l.list {
			if _, err := ParseTensor(text); err != nil {
				at.fault(l.key, err.Error(), "try attention, or attention@2-5")
			}
			if other := in[text]; other != "" {
				at.fault(l.key, fmt.Sprintf("%s is in %s too", text, other), "name it once")
			}
			in[text] = l.key
		}
	}
}
