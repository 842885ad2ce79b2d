package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// sorted orders values by key; text without regard to case where fold is set. The order of equals is kept.
func sorted(all []any, key func(any) (any, error), fold bool) ([]any, error) {
	type pair struct{ key, value any }
	pairs := make([]pair, len(all))
	for i, v := range all {
		k, err := key(v)
		if err != nil {
			return nil, err
		}
		if t, ok := k.(string); ok && fold {
			k = lower(t)
		}
		pairs[i] = pair{k, v}
	}
	var failed error
	slices.SortStableFunc(pairs, func(a, b pair) int {
		c, err := compare(a.key, b.key)
		if err != nil {
			failed = err
		}
		return c
	})
	out := make([]any, len(all))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out, failed
}

func filterDictsort(_ *state, v any, a arguments) (any, error) {
	m, ok := v.(*Map)
	if !ok {
		return nil, fmt.Errorf("%s is no dict", quoteType(v))
	}
	by := word(a.arg(1, "by", "key"))
	pairs := mapItems(m).elems
	out, err := sorted(pairs, func(p any) (any, error) {
		return p.(*List).elems[toInt(by == "value")], nil
	}, !truth(a.arg(0, "case_sensitive", false)))
	if truth(a.arg(2, "reverse", false)) {
		slices.Reverse(out)
	}
	return list(out), err
}

// mapItems are the pairs of a dict in the order in which their keys were set.
func mapItems(m *Map) *List {
	out := make([]any, len(m.keys))
	for i, k := range m.keys {
		out[i] = tuple(k, m.values[k])
	}
	return list(out)
}

func filterItems(_ *state, v any, _ arguments) (any, error) {
	switch x := v.(type) {
	case *Map:
		return mapItems(x), nil
	case Undefined:
		return list(nil), nil
	}
	return nil, fmt.Errorf("%s is no dict", quoteType(v))
}

func filterEnd(last bool) filter {
	return func(_ *state, v any, _ arguments) (any, error) {
		all, err := items(v)
		if err != nil || len(all) == 0 {
			return undefined("an element of an empty sequence"), err
		}
		if last {
			return all[len(all)-1], nil
		}
		return all[0], nil
	}
}

func filterJoin(s *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	key := attributeKey(a.arg(1, "attribute", nil))
	parts := make([]string, len(all))
	total := 0
	for i, item := range all {
		x, err := key(item)
		if err != nil {
			return nil, err
		}
		if parts[i], err = s.text(x); err != nil {
			return nil, err
		}
		total += len(parts[i])
	}
	glue, err := s.text(a.arg(0, "d", ""))
	if err != nil {
		return nil, err
	}
	if err := s.chargeText(total + len(glue)*len(parts)); err != nil {
		return nil, err
	}
	return strings.Join(parts, glue), nil
}

func filterList(_ *state, v any, _ arguments) (any, error) {
	all, err := items(v)
	return list(all), err
}

// attributeKey returns the function that takes an attribute, given as "a.b.0", of a value; the value itself for nil.
func attributeKey(path any) func(any) (any, error) {
	if path == nil {
		return func(v any) (any, error) { return v, nil }
	}
	return func(v any) (any, error) {
		if i, ok := integer(path); ok {
			return subscript(v, i)
		}
		var err error
		for part := range strings.SplitSeq(word(path), ".") {
			var index any = part
			if n, e := strconv.ParseInt(part, 10, 64); e == nil {
				index = n
			}
			if v, err = subscript(v, index); err != nil {
				return nil, err
			}
		}
		return v, nil
	}
}

func filterMap(s *state, v any, a arguments) (any, error) {
	if !truth(v) {
		return list(nil), nil
	}
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	var each func(any) (any, error)
	if path := a.arg(len(a.pos), "attribute", nil); path != nil {
		key, otherwise := attributeKey(path), a.arg(len(a.pos), "default", nil)
		each = func(v any) (any, error) {
			x, err := key(v)
			if isUndefined(x) && otherwise != nil {
				x = otherwise
			}
			return x, err
		}
	} else {
		f := filters[word(a.arg(0, "", ""))]
		if f == nil {
			return nil, fmt.Errorf("map needs a filter or attribute=…")
		}
		each = func(v any) (any, error) { return f(s, v, arguments{a.pos[1:], a.named}) }
	}
	out := make([]any, len(all))
	for i, item := range all {
		if out[i], err = each(item); err != nil {
			return nil, err
		}
		if err := s.charge(1 + weight(out[i])); err != nil {
			return nil, err
		}
	}
	return list(out), nil
}

// filterExtreme makes max, or min for a negative sign; of equals the first is taken, as in Python.
func filterExtreme(sign int) filter {
	return func(_ *state, v any, a arguments) (any, error) {
		all, err := items(v)
		if err != nil || len(all) == 0 {
			return undefined("an element of an empty sequence"), err
		}
		order, err := sorted(all, attributeKey(a.arg(1, "attribute", nil)), !truth(a.arg(0, "case_sensitive", false)))
		if err != nil || sign < 0 {
			return order[0], err
		}
		last := order[len(order)-1]
		for _, x := range order { // the first of equals
			if c, err := compare(x, last); err == nil && c == 0 {
				return x, nil
			}
		}
		return last, nil
	}
}

// filterSelect keeps (or drops) the items for which a test holds, of the item or of an attribute of it.
func filterSelect(keep, attr bool) filter {
	return func(s *state, v any, a arguments) (any, error) {
		if !truth(v) { // none too: jinja looks at nothing then
			return list(nil), nil
		}
		all, err := items(v)
		if err != nil {
			return nil, err
		}
		key, rest := attributeKey(nil), a.pos
		if attr {
			if len(rest) == 0 {
				return nil, fmt.Errorf("an attribute name is missing")
			}
			key, rest = attributeKey(rest[0]), rest[1:]
		}
		test := func(_ *state, v any, _ arguments) (bool, error) { return truth(v), nil }
		if len(rest) > 0 {
			if test = tests[word(rest[0])]; test == nil {
				return nil, fmt.Errorf("no test is named '%s'", word(rest[0]))
			}
			rest = rest[1:]
		}
		var out []any
		for _, item := range all {
			x, err := key(item)
			if err != nil {
				return nil, err
			}
			ok, err := test(s, x, arguments{rest, a.named})
			if err != nil {
				return nil, err
			}
			if ok == keep {
				out = append(out, item)
			}
		}
		return list(out), s.charge(len(all))
	}
}

func filterReverse(_ *state, v any, _ arguments) (any, error) {
	if t, ok := v.(string); ok {
		r := []rune(t)
		slices.Reverse(r)
		return string(r), nil
	}
	all, err := items(v)
	all = slices.Clone(all)
	slices.Reverse(all)
	return list(all), err
}

func filterSort(_ *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	fold, key := !truth(a.arg(1, "case_sensitive", false)), attributeKey(a.arg(2, "attribute", nil))
	down := truth(a.arg(0, "reverse", false))
	all = slices.Clone(all)
	if down { // equals keep their order
		slices.Reverse(all)
	}
	out, err := sorted(all, key, fold)
	if down {
		slices.Reverse(out)
	}
	return list(out), err
}

func filterSum(s *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	key, total := attributeKey(a.arg(0, "attribute", nil)), a.arg(1, "start", int64(0))
	for _, item := range all {
		x, err := key(item)
		if err != nil {
			return nil, err
		}
		if total, err = arith(s, "+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// filterUnique keeps the first of equals, which are told by an attribute and without case unless it is asked for.
func filterUnique(_ *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	key, fold := attributeKey(a.arg(1, "attribute", nil)), !truth(a.arg(0, "case_sensitive", false))
	seen, out := NewMap(), []any(nil)
	for _, item := range all {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		if t, ok := k.(string); ok && fold {
			k = lower(t)
		}
		if !hashable(k) {
			return nil, fmt.Errorf("%s cannot be compared", quoteType(k))
		}
		if _, ok := seen.Get(k); !ok {
			seen.Set(k, true)
			out = append(out, item)
		}
	}
	return list(out), nil
}
