package jinja

import (
	"fmt"
)

// globals are the functions every template has, as Hugging Face sets them up.
func globals() map[string]any {
	out := map[string]any{}
	for name, call := range map[string]func(*state, arguments) (any, error){
		"raise_exception": raiseException,
		"strftime_now":    strftimeNow,
		"range":           makeRange,
		"dict":            func(_ *state, a arguments) (any, error) { return mapOf(a) },
		"namespace": func(_ *state, a arguments) (any, error) {
			m, err := mapOf(a)
			return &namespace{m}, err
		},
	} {
		out[name] = &function{name, call}
	}
	return out
}

// mapOf is Python's dict(mapping or pairs, name=value…).
func mapOf(a arguments) (*Map, error) {
	m := NewMap()
	if len(a.pos) > 1 {
		return nil, fmt.Errorf("expected at most 1 argument, got %d", len(a.pos))
	}
	for _, v := range a.pos {
		if from, ok := v.(*Map); ok {
			for _, k := range from.keys {
				m.Set(k, from.values[k])
			}
			continue
		}
		pairs, err := items(v)
		if err != nil {
			return nil, err
		}
		for _, p := range pairs {
			l, ok := p.(*List)
			if !ok || len(l.elems) != 2 || !hashable(l.elems[0]) {
				return nil, fmt.Errorf("a dict is made of a dict or of pairs, not of %s", quoteType(p))
			}
			m.Set(l.elems[0], l.elems[1])
		}
	}
	for _, k := range a.named.Keys() {
		v, _ := a.named.Get(k)
		m.Set(k, v)
	}
	return m, nil
}

// raiseException ends the rendering with the template's own message.
func raiseException(_ *state, a arguments) (any, error) {
	e := &Error{Raised: true}
	if len(a.pos) > 0 {
		e.Msg = str(a.pos[0])
	}
	return nil, e
}

// makeRange is range with one to three numbers, bounded in length so that a template cannot fill the memory.
func makeRange(s *state, a arguments) (any, error) {
	var n []int64
	for _, v := range a.pos {
		i, ok := integer(v)
		if !ok {
			return nil, fmt.Errorf("range takes integers, not %s", quoteType(v))
		}
		n = append(n, i)
	}
	start, step := int64(0), int64(1)
	switch len(n) {
	case 1:
		n = []int64{0, n[0]}
	case 2:
	case 3:
		step = n[2]
	default:
		return nil, fmt.Errorf("range takes 1 to 3 arguments, got %d", len(n))
	}
	if start = n[0]; step == 0 {
		return nil, fmt.Errorf("range step must not be zero")
	}
	var out []any
	for i := start; step > 0 && i < n[1] || step < 0 && i > n[1]; i += step {
		if len(out) >= rangeMax {
			return nil, fmt.Errorf("range has over %d elements", rangeMax)
		}
		out = append(out, i)
	}
	return list(out), s.charge(len(out))
}

func strftimeNow(s *state, a arguments) (any, error) {
	if len(a.pos) != 1 {
		return nil, fmt.Errorf("strftime_now takes a format")
	}
	return strftime(s.now, str(a.pos[0])), nil
}
