package jinja

import (
	"fmt"
)

// test says whether something holds of a value.
type test func(s *state, v any, a arguments) (bool, error)

// tests by name.
var tests map[string]test

func init() {
	tests = map[string]test{
		"boolean":  ofValue(func(v any) bool { _, ok := v.(bool); return ok }),
		"callable": ofValue(func(v any) bool { _, ok := v.(*function); return ok }),
		"defined":  ofValue(func(v any) bool { return !isUndefined(v) }), "undefined": ofValue(isUndefined),
		"divisibleby": testDivisible, "even": testParity(0), "odd": testParity(1),
		"false": ofValue(func(v any) bool { return v == false }), "true": ofValue(func(v any) bool {
			return v == true
		}),
		"float":   ofValue(func(v any) bool { _, ok := v.(float64); return ok }),
		"integer": ofValue(func(v any) bool { _, ok := v.(int64); return ok }),
		"in": func(_ *state, v any, a arguments) (bool, error) {
			return contains(a.arg(0, "seq", nil), v)
		},
		"iterable": ofValue(func(v any) bool { _, err := items(v); return err == nil }),
		"sequence": ofValue(isSequence),
		"lower":    ofValue(func(v any) bool { return isCased(word(v), lower) }),
		"upper":    ofValue(func(v any) bool { return isCased(word(v), upper) }),
		"mapping":  ofValue(func(v any) bool { _, ok := v.(*Map); return ok }),
		"none":     ofValue(func(v any) bool { return v == nil }),
		"number":   ofValue(func(v any) bool { _, ok := number(v); return ok }),
		"string":   ofValue(func(v any) bool { _, ok := v.(string); return ok }),
		"sameas": func(_ *state, v any, a arguments) (bool, error) {
			other := a.arg(0, "other", nil)
			return typeName(v) == typeName(other) && equal(v, other), nil
		},
		"filter": func(_ *state, v any, _ arguments) (bool, error) { return filters[word(v)] != nil, nil },
		"test":   func(_ *state, v any, _ arguments) (bool, error) { return tests[word(v)] != nil, nil },
	}
	for op, names := range map[string][]string{"==": {"eq", "equalto"}, "!=": {"ne"},
		"<": {"lt", "lessthan"}, "<=": {"le"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}} {
		for _, n := range append(names, op) {
			tests[n] = func(s *state, v any, a arguments) (bool, error) {
				return compareOp(s, op, v, a.arg(0, "other", nil))
			}
		}
	}
}

func ofValue(f func(any) bool) test {
	return func(_ *state, v any, _ arguments) (bool, error) { return f(v), nil }
}

func isSequence(v any) bool {
	_, err := size(v)
	return err == nil
}

// isCased is Python's islower or isupper: there is a letter with case, and changing the case changes nothing.
func isCased(s string, to func(string) string) bool {
	return to(s) == s && lower(s) != upper(s)
}

func testDivisible(_ *state, v any, a arguments) (bool, error) {
	x, ok := integer(v)
	y, okY := integer(a.arg(0, "num", nil))
	if !ok || !okY || y == 0 {
		return false, fmt.Errorf("needs integers, the second not 0")
	}
	return x%y == 0, nil
}

func testParity(want int64) test {
	return func(_ *state, v any, _ arguments) (bool, error) {
		x, ok := integer(v)
		if !ok {
			return false, fmt.Errorf("needs an integer, not %s", quoteType(v))
		}
		return x&1 == want, nil
	}
}
