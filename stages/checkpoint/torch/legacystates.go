package torch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errNotKept is that a file has nothing of a kind.
var errNotKept = errors.New("it keeps nothing of that kind")

// errDistributed is that an optimizer keeps its state in distribFile.
var errDistributed = errors.New("its optimizer is distributed")

// keptGroup is a group of parameters of an optimizer that is not distributed: which they are, and the state of each.
type keptGroup struct {
	undecayed, expert bool
	params            []any
	states            *dict
	masters           []any // float32 copies, of an optimizer of narrower weights
}

// kept are what the optimizer of a rank keeps of each weight: it numbers them, group by group, in the order
// of the model; vectors and biases are groups that do not decay, and experts groups of their own where they
// lie on other ranks.
func (l *legacy) kept(r legacyRank, a *archive, chunks []*dict, weights []map[string]*view) (
	[]map[string]*view, error) {
	root, _ := a.value.(*dict)
	groups, err := a.groups(root.get("optimizer"))
	if errors.Is(err, errDistributed) {
		return l.distributed(r, a, chunks, weights)
	}
	if err != nil {
		return nil, err
	}
	apart := slices.ContainsFunc(groups, func(g keptGroup) bool { return g.expert })
	out := make([]map[string]*view, len(chunks))
	type at struct {
		chunk int
		name  string
	}
	var order []at
	for i, d := range chunks {
		out[i] = map[string]*view{}
		for _, k := range d.keys {
			name, _ := k.(string)
			if weights[i][name] != nil && !strings.HasSuffix(name, "_extra_state") &&
				!strings.HasSuffix(name, "expert_bias") && !strings.HasSuffix(name, ".inv_freq") {
				order = append(order, at{i, name})
			}
		}
	}
	taken := 0
	for _, g := range groups {
		var mine []at
		for _, x := range order {
			flat := len(weights[x.chunk][x.name].shape) == 1 || strings.HasSuffix(x.name, ".bias")
			if flat == g.undecayed && (!apart || localExpert(x.name) >= 0 == g.expert) {
				mine = append(mine, x)
			}
		}
		if len(mine) != len(g.params) {
			return nil, a.fault("", fmt.Sprintf("a group of the optimizer has %d parameters, where the model has "+
				"%d of its kind", len(g.params), len(mine)))
		}
		taken += len(mine)
		for i, x := range mine {
			t, err := l.state(a, &g, i)
			if err != nil {
				return nil, err
			}
			if want := weights[x.chunk][x.name].shape; !slices.Equal(t.shape, want) {
				return nil, a.fault(x.name, fmt.Sprintf("%s of shape %v, the weight has %v", l.kind, t.shape, want))
			}
			out[x.chunk][x.name] = t
		}
	}
	if taken != len(order) {
		return nil, a.fault("", fmt.Sprintf("the optimizer has %d parameters, the model %d", taken, len(order)))
	}
	return out, nil
}

// state is the kind that is wanted of a group's parameter.
func (l *legacy) state(a *archive, g *keptGroup, i int) (*view, error) {
	var v any
	if l.kind == masters {
		if i >= len(g.masters) {
			return nil, errNotKept
		}
		v = g.masters[i]
	} else {
		s, _ := g.states.of(g.params[i]).(*dict)
		if s == nil {
			return nil, a.fault("", "the optimizer has no state of parameter "+show(g.params[i]))
		}
		v = s.get(l.kind)
		if n, ok := a.number(s.get("step")); ok {
			if l.updates > 0 && l.updates != n {
				return nil, a.fault("", fmt.Sprintf("parameters were changed %g and %g times", l.updates, n))
			}
			l.updates = n
		}
	}
	t, ok, err := a.view(v)
	if err != nil || !ok {
		return nil, a.fault("", fmt.Sprintf("parameter %s has no %s (%v)", show(g.params[i]), l.kind, err))
	}
	return t, nil
}

// of is the value of a key that need not be a string, nil for none.
func (d *dict) of(key any) any {
	if d == nil {
		return nil
	}
	for i, k := range d.keys {
		if n, ok := k.(int64); ok && key == any(n) {
			return d.values[i]
		}
	}
	return nil
}

// groups are those of an optimizer, or of several that are chained.
func (a *archive) groups(v any) (out []keptGroup, err error) {
	if l, ok := v.(*list); ok {
		for _, x := range l.items {
			more, err := a.groups(x)
			if err != nil {
				return nil, err
			}
			out = append(out, more...)
		}
		return out, nil
	}
	d, ok := v.(*dict)
	if !ok {
		return nil, errNotKept
	}
	var copies []any
	if inner, ok := d.get("optimizer").(*dict); ok {
		if x, ok := d.get("fp32_from_fp16_params").(*list); ok {
			copies = x.items
		}
		d = inner
	}
	states, ok1 := d.get("state").(*dict)
	groups, ok2 := d.get("param_groups").(*list)
	if !ok1 || !ok2 {
		return nil, errDistributed
	}
	for i, x := range groups.items {
		g, _ := x.(*dict)
		if g == nil {
			return nil, a.fault("", "a group of the optimizer is none")
		}
		k := keptGroup{states: states, expert: g.get("is_expert_parallel") == any(true)}
		if mult, ok := a.number(g.get("wd_mult")); ok {
			k.undecayed = mult == 0
		}
		if p, ok := g.get("params").(*list); ok {
			k.params = p.items
		}
		if i < len(copies) {
			if m, ok := copies[i].(*list); ok {
				k.masters = m.items
			}
		}
		out = append(out, k)
	}
	return out, nil
}
