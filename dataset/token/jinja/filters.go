package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filter maps a value, given arguments, to another.
type filter func(s *state, v any, a arguments) (any, error)

// filters by name. They are those of Jinja's that chat templates use, and tojson as Hugging Face defines it.
var filters map[string]filter

func init() {
	filters = map[string]filter{
		"abs": filterAbs, "attr": filterAttr, "batch": filterBatch, "groupby": filterGroupby,
		"slice": filterSlice, "capitalize": onString(capitalize), "count": filterLength,
		"d": filterDefault, "default": filterDefault,
		"dictsort": filterDictsort, "e": onString(escapeHTML), "escape": onString(escapeHTML),
		"first": filterEnd(false), "float": filterFloat,
		"format": filterFormat, "indent": filterIndent, "int": filterInt, "items": filterItems,
		"join": filterJoin, "last": filterEnd(true),
		"length": filterLength, "list": filterList, "lower": onString(lower), "map": filterMap,
		"max": filterExtreme(1), "min": filterExtreme(-1),
		"reject": filterSelect(false, false), "rejectattr": filterSelect(false, true),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound,
		"safe": onString(func(s string) string { return s }), "select": filterSelect(true, false),
		"selectattr": filterSelect(true, true), "sort": filterSort,
		"string": onString(func(s string) string { return s }), "sum": filterSum,
		"title": onString(wordTitle), "tojson": filterToJSON, "trim": filterTrim,
		"unique": filterUnique, "upper": onString(upper), "wordcount": filterWordcount,
	}
}

// onString makes a filter of a function on texts, which other values are turned into first.
func onString(f func(string) string) filter {
	return func(s *state, v any, _ arguments) (any, error) {
		text, err := s.text(v)
		return f(text), err
	}
}

// arg returns argument i, by place or name, or otherwise.
func (a arguments) arg(i int, name string, otherwise any) any {
	if i < len(a.pos) {
		return a.pos[i]
	}
	if a.named != nil {
		if v, ok := a.named.Get(name); ok {
			return v
		}
	}
	return otherwise
}

func escapeHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}

func filterAbs(s *state, v any, _ arguments) (any, error) {
	if x, ok := number(v); ok && x >= 0 {
		return arith(s, "+", int64(0), v)
	}
	return arith(s, "-", int64(0), v)
}

// filterAttr takes attributes only, which dicts do not have beside their methods.
func filterAttr(_ *state, v any, a arguments) (any, error) {
	n := word(a.arg(0, "name", ""))
	if _, ok := v.(*Map); ok {
		if m := method(v, n); m != nil {
			return m, nil
		}
		return undefined(n), nil
	}
	return attribute(v, n)
}

func filterLength(_ *state, v any, _ arguments) (any, error) {
	n, err := size(v)
	return int64(n), err
}

// filterDefault is the value, or the default where it is undefined; with boolean also where it is false.
func filterDefault(_ *state, v any, a arguments) (any, error) {
	if isUndefined(v) || truth(a.arg(1, "boolean", false)) && !truth(v) {
		return a.arg(0, "default_value", ""), nil
	}
	return v, nil
}

func filterFloat(_ *state, v any, a arguments) (any, error) {
	if x, ok := number(v); ok {
		return x, nil
	}
	if t, ok := v.(string); ok {
		if x, err := strconv.ParseFloat(strings.TrimFunc(t, isSpace), 64); err == nil {
			return x, nil
		}
	}
	return a.arg(0, "default", 0.0), nil
}

// filterInt reads a whole number in any base up to 36; what is none gives the default, as in Jinja.
func filterInt(_ *state, v any, a arguments) (any, error) {
	base, _ := integer(a.arg(1, "base", int64(10)))
	switch x := v.(type) {
	case bool, int64:
		n, _ := integer(x)
		return n, nil
	case float64:
		if math.Abs(x) < 1<<62 {
			return int64(x), nil
		}
	case string:
		t := strings.ReplaceAll(strings.TrimFunc(x, isSpace), "_", "")
		if n, err := strconv.ParseInt(t, int(max(2, min(base, 36))), 64); err == nil {
			return n, nil
		}
		if f, err := strconv.ParseFloat(t, 64); err == nil && math.Abs(f) < 1<<62 {
			return int64(f), nil
		}
	}
	return a.arg(0, "default", int64(0)), nil
}

func filterFormat(s *state, v any, a arguments) (any, error) {
	text, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return percent(s, text, tuple(a.pos...))
}

func filterIndent(s *state, v any, a arguments) (any, error) {
	text, err := s.text(v)
	if err != nil {
		return nil, err
	}
	prefix := ""
	switch w := a.arg(0, "width", int64(4)).(type) {
	case string:
		prefix = w
	case int64:
		if w > 1000 {
			return nil, fmt.Errorf("a width of %d is over 1000", w)
		}
		prefix = strings.Repeat(" ", int(max(0, w)))
	}
	first, blank := truth(a.arg(1, "first", false)), truth(a.arg(2, "blank", false))
	if n := strings.Count(text, "\n"); n*len(prefix) > outputMax {
		return nil, fmt.Errorf("the text is over %d bytes", outputMax)
	}
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if i == 0 && first || i > 0 && (blank || strings.TrimFunc(l, isSpace) != "") {
			lines[i] = prefix + l
		}
	}
	return strings.Join(lines, "\n"), nil
}

func filterReplace(s *state, v any, a arguments) (any, error) {
	if len(a.pos) < 2 {
		return nil, fmt.Errorf("replace takes the old and the new text")
	}
	var texts [3]string
	for i, x := range []any{v, a.pos[0], a.pos[1]} {
		var err error
		if texts[i], err = s.text(x); err != nil {
			return nil, err
		}
	}
	return replaceText(s, texts[0], texts[1], texts[2], a.arg(2, "count", nil))
}

// replaceText replaces the first count occurrences, all for nil.
func replaceText(s *state, v, from, to string, count any) (any, error) {
	n := int64(-1)
	if count != nil {
		var ok bool
		if n, ok = integer(count); !ok {
			return nil, fmt.Errorf("a count must be an integer, not %s", quoteType(count))
		}
	}
	hits := strings.Count(v, from)
	if n >= 0 {
		hits = int(min(int64(hits), n))
	}
	if err := s.chargeText(len(v) + hits*max(0, len(to)-len(from))); err != nil {
		return nil, err
	}
	return strings.Replace(v, from, to, int(n)), nil
}

// filterRound rounds as Python does: to even for negative precisions, and by the decimal form otherwise.
func filterRound(_ *state, v any, a arguments) (any, error) {
	x, ok := number(v)
	digits, okDigits := integer(a.arg(0, "precision", int64(0)))
	if !ok || !okDigits || digits < -300 || digits > 300 {
		return nil, fmt.Errorf("round takes a number and a precision")
	}
	scale := math.Pow(10, float64(digits))
	switch word(a.arg(1, "method", "common")) {
	case "ceil":
		return math.Ceil(x*scale) / scale, nil
	case "floor":
		return math.Floor(x*scale) / scale, nil
	}
	if digits < 0 {
		return math.RoundToEven(x*scale) / scale, nil
	}
	return strconv.ParseFloat(strconv.FormatFloat(x, 'f', int(digits), 64), 64)
}

// filterToJSON is json.dumps with Hugging Face's defaults: nothing escaped that need not be.
func filterToJSON(_ *state, v any, a arguments) (any, error) {
	style := jsonStyle{item: ", ", key: ": ", sortKeys: truth(a.arg(3, "sort_keys", false)),
		ascii: truth(a.arg(0, "ensure_ascii", false))}
	switch w := a.arg(1, "indent", nil).(type) {
	case nil:
	case string:
		style.lines, style.indent, style.item = true, w, ","
	case int64:
		if w > 100 {
			return nil, fmt.Errorf("an indent of %d is over 100", w)
		}
		style.lines, style.indent, style.item = true, strings.Repeat(" ", int(max(0, w))), ","
	}
	if l, ok := a.arg(2, "separators", nil).(*List); ok && len(l.elems) == 2 {
		style.item, style.key = word(l.elems[0]), word(l.elems[1])
	}
	var out strings.Builder
	err := style.dump(&out, v, 0)
	return out.String(), err
}

func filterTrim(s *state, v any, a arguments) (any, error) {
	text, err := s.text(v)
	if err != nil {
		return nil, err
	}
	return trim(text, a.arg(0, "chars", nil), true, true)
}

// trim drops characters of a set, white space for nil, from the ends of s.
func trim(s string, chars any, left, right bool) (any, error) {
	in := isSpace
	if chars != nil {
		set, ok := chars.(string)
		if !ok {
			return nil, fmt.Errorf("the characters to strip must be a string, not %s", quoteType(chars))
		}
		in = func(r rune) bool { return strings.ContainsRune(set, r) }
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s, nil
}

func filterWordcount(s *state, v any, _ arguments) (any, error) {
	text, err := s.text(v)
	n := 0
	inWord := false
	for _, r := range text {
		is := r == '_' || r >= utf8.RuneSelf && !isSpace(r) || r >= '0' && r <= '9' || r >= 'a' &&
			r <= 'z' || r >= 'A' && r <= 'Z'
		n += int(toInt(is && !inWord))
		inWord = is
	}
	return int64(n), err
}
