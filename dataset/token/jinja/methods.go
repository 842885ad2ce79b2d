package jinja

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// method returns the named method of a string, dict or list, or nil if there is no such method. Methods
// that would change a dict or a list exist only to say so.
func method(v any, name string) any {
	switch x := v.(type) {
	case string:
		if f := stringMethods[name]; f != nil {
			return &function{name, func(s *state, a arguments) (any, error) {
				out, err := f(s, x, a)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				return out, s.charge(1 + weight(x) + weight(out))
			}}
		}
	case *Map:
		if slices.Contains([]string{"clear", "pop", "popitem", "setdefault", "update"}, name) {
			return refused("dict", name)
		}
		if f := mapMethods[name]; f != nil {
			return &function{name, func(_ *state, a arguments) (any, error) { return f(x, a) }}
		}
	case *List:
		if slices.Contains([]string{"append", "clear", "extend", "insert", "pop", "remove", "reverse",
			"sort"}, name) && !x.tuple {
			return refused("list", name)
		}
		if f := listMethods[name]; f != nil {
			return &function{name, func(_ *state, a arguments) (any, error) { return f(x, a) }}
		}
	}
	return nil
}

func refused(typ, name string) any {
	return &function{name, func(*state, arguments) (any, error) {
		return nil, fmt.Errorf("access to attribute '%s' of '%s' object is unsafe", name, typ)
	}}
}

var mapMethods = map[string]func(*Map, arguments) (any, error){
	"get": func(m *Map, a arguments) (any, error) {
		key := a.arg(0, "", nil)
		if !hashable(key) {
			return nil, fmt.Errorf("%s cannot be a key", quoteType(key))
		}
		if v, ok := m.Get(key); ok {
			return v, nil
		}
		return a.arg(1, "", nil), nil
	},
	"keys":  func(m *Map, _ arguments) (any, error) { return list(slices.Clone(m.keys)), nil },
	"items": func(m *Map, _ arguments) (any, error) { return mapItems(m), nil },
	"copy":  func(m *Map, _ arguments) (any, error) { return m, nil },
	"values": func(m *Map, _ arguments) (any, error) {
		var out []any
		for _, k := range m.keys {
			out = append(out, m.values[k])
		}
		return list(out), nil
	},
}

var listMethods = map[string]func(*List, arguments) (any, error){
	"copy": func(l *List, _ arguments) (any, error) { return l, nil },
	"count": func(l *List, a arguments) (any, error) {
		n := int64(0)
		for _, v := range l.elems {
			n += toInt(equal(v, a.arg(0, "", nil)))
		}
		return n, nil
	},
	"index": func(l *List, a arguments) (any, error) {
		i := slices.IndexFunc(l.elems, func(v any) bool { return equal(v, a.arg(0, "", nil)) })
		if i < 0 {
			return nil, fmt.Errorf("%s is not in list", word(a.arg(0, "", nil)))
		}
		return int64(i), nil
	},
}

type stringMethod func(s *state, v string, a arguments) (any, error)

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"capitalize": plain(capitalize), "lower": plain(lower), "upper": plain(upper),
		"title": plain(pyTitle),
		"strip": stripMethod(true, true), "lstrip": stripMethod(true, false),
		"rstrip":     stripMethod(false, true),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"removeprefix": withText(func(v, x string) any { return strings.TrimPrefix(v, x) }),
		"removesuffix": withText(func(v, x string) any { return strings.TrimSuffix(v, x) }),
		"find":         withText(func(v, x string) any { return runeIndex(v, strings.Index(v, x)) }),
		"rfind":        withText(func(v, x string) any { return runeIndex(v, strings.LastIndex(v, x)) }),
		"count":        withText(func(v, x string) any { return int64(strings.Count(v, x)) }),
		"partition": withText(func(v, x string) any {
			return partition(v, x, strings.Index(v, x), false)
		}),
		"rpartition": withText(func(v, x string) any {
			return partition(v, x, strings.LastIndex(v, x), true)
		}),
		"index": indexMethod, "join": joinMethod, "replace": replaceMethod, "split": splitMethod(false),
		"rsplit": splitMethod(true), "splitlines": splitlines, "format": formatMethod,
		"isdigit": all(unicode.IsDigit), "isnumeric": all(unicode.IsNumber),
		"isdecimal": all(unicode.IsDigit), "isalpha": all(unicode.IsLetter), "isspace": all(isSpace),
		"isalnum": all(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }),
		"islower": func(_ *state, v string, _ arguments) (any, error) { return isCased(v, lower), nil },
		"isupper": func(_ *state, v string, _ arguments) (any, error) { return isCased(v, upper), nil },
		"zfill":   padMethod(func(v, fill string) string { return fill + v }, "0"),
		"ljust":   padMethod(func(v, fill string) string { return v + fill }, " "),
		"rjust":   padMethod(func(v, fill string) string { return fill + v }, " "),
	}
}

func plain(f func(string) string) stringMethod {
	return func(_ *state, v string, _ arguments) (any, error) { return f(v), nil }
}

func stripMethod(left, right bool) stringMethod {
	return func(_ *state, v string, a arguments) (any, error) {
		return trim(v, a.arg(0, "", nil), left, right)
	}
}

// withText is a method with one text argument.
func withText(f func(v, x string) any) stringMethod {
	return func(_ *state, v string, a arguments) (any, error) {
		x, ok := a.arg(0, "", nil).(string)
		if !ok {
			return nil, fmt.Errorf("needs a string, not %s", quoteType(a.arg(0, "", nil)))
		}
		return f(v, x), nil
	}
}

// affix takes a string or a tuple of them.
func affix(has func(s, x string) bool) stringMethod {
	return func(_ *state, v string, a arguments) (any, error) {
		switch x := a.arg(0, "", nil).(type) {
		case string:
			return has(v, x), nil
		case *List:
			return slices.ContainsFunc(x.elems, func(e any) bool { t, ok := e.(string); return ok && has(v, t) }), nil
		}
		return nil, fmt.Errorf("needs a string, not %s", quoteType(a.arg(0, "", nil)))
	}
}

// runeIndex turns a byte offset, or -1, into a number of characters.
func runeIndex(v string, i int) int64 {
	if i < 0 {
		return -1
	}
	return int64(len([]rune(v[:i])))
}

func partition(v, sep string, i int, right bool) *List {
	switch {
	case i >= 0:
		return tuple(v[:i], sep, v[i+len(sep):])
	case right:
		return tuple("", "", v)
	}
	return tuple(v, "", "")
}

func indexMethod(s *state, v string, a arguments) (any, error) {
	i, err := stringMethods["find"](s, v, a)
	if err == nil && i == int64(-1) {
		return nil, fmt.Errorf("substring not found")
	}
	return i, err
}

func joinMethod(s *state, v string, a arguments) (any, error) {
	all, err := items(a.arg(0, "", Undefined{}))
	if err != nil {
		return nil, err
	}
	for i, x := range all {
		if _, ok := x.(string); !ok {
			return nil, fmt.Errorf("item %d is %s, not a string", i, quoteType(x))
		}
	}
	return filterJoin(s, list(all), arguments{[]any{v}, nil})
}

func replaceMethod(s *state, v string, a arguments) (any, error) {
	from, ok := a.arg(0, "old", nil).(string)
	to, okTo := a.arg(1, "new", nil).(string)
	if !ok || !okTo {
		return nil, fmt.Errorf("needs two strings")
	}
	return replaceText(s, v, from, to, a.arg(2, "count", nil))
}

// splitMethod cuts at a separator, or at runs of white space, at most maxsplit times, from the left or the right.
func splitMethod(right bool) stringMethod {
	return func(s *state, v string, a arguments) (any, error) {
		n, ok := integer(a.arg(1, "maxsplit", int64(-1)))
		if !ok {
			return nil, fmt.Errorf("maxsplit must be an integer")
		}
		var parts []string
		switch sep := a.arg(0, "sep", nil).(type) {
		case nil:
			parts = splitSpace(v, n, right)
		case string:
			if sep == "" {
				return nil, fmt.Errorf("empty separator")
			}
			parts = splitAt(v, sep, n, right)
		default:
			return nil, fmt.Errorf("a separator must be a string, not %s", quoteType(sep))
		}
		out := make([]any, len(parts))
		for i, p := range parts {
			out[i] = p
		}
		return list(out), s.charge(len(parts))
	}
}

func splitAt(v, sep string, n int64, right bool) []string {
	if n < 0 || n > int64(len(v)) {
		return strings.Split(v, sep)
	}
	if !right {
		return strings.SplitN(v, sep, int(n)+1)
	}
	var out []string
	for ; n > 0; n-- {
		i := strings.LastIndex(v, sep)
		if i < 0 {
			break
		}
		out = append(out, v[i+len(sep):])
		v = v[:i]
	}
	out = append(out, v)
	slices.Reverse(out)
	return out
}

func splitSpace(v string, n int64, right bool) []string {
	all := strings.FieldsFunc(v, isSpace)
	if n < 0 || n >= int64(len(all)) {
		return all
	}
	if !right {
		rest := v
		for range n {
			rest = strings.TrimLeftFunc(rest, isSpace)
			rest = rest[strings.IndexFunc(rest, isSpace):]
		}
		return append(slices.Clone(all[:n]), strings.TrimLeftFunc(rest, isSpace))
	}
	rest := v
	for range n {
		rest = strings.TrimRightFunc(rest, isSpace)
		rest = strings.TrimRightFunc(rest, func(r rune) bool { return !isSpace(r) })
	}
	return append([]string{strings.TrimRightFunc(rest, isSpace)}, all[len(all)-int(n):]...)
}

func splitlines(s *state, v string, a arguments) (any, error) {
	var out []any
	keep := truth(a.arg(0, "keepends", false))
	v = strings.ReplaceAll(v, "\r\n", "\n")
	for v != "" {
		i := strings.IndexFunc(v, func(r rune) bool {
			return r == '\n' || r == '\r' || r == '\v' || r == '\f' || r >= 0x1c && r <= 0x1e || r == 0x85 ||
				r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			out = append(out, v)
			break
		}
		end := i + len(firstRune(v[i:]))
		if keep {
			i = end
		}
		out = append(out, v[:i])
		v = v[end:]
	}
	return list(out), s.charge(len(out))
}

func firstRune(s string) string {
	for _, r := range s {
		return string(r)
	}
	return ""
}

// formatMethod is str.format for {}, {0} and {name} without format specifications.
func formatMethod(s *state, v string, a arguments) (any, error) {
	var out strings.Builder
	next := 0
	for i := 0; i < len(v); i++ {
		if c := v[i]; c != '{' && c != '}' {
			out.WriteByte(c)
			continue
		}
		if i+1 < len(v) && v[i+1] == v[i] {
			out.WriteByte(v[i])
			i++
			continue
		}
		end := strings.IndexByte(v[i:], '}')
		if v[i] == '}' || end < 0 {
			return nil, fmt.Errorf("single '%c' encountered in format string", v[i])
		}
		field := v[i+1 : i+end]
		i += end
		x, err := formatField(field, &next, a)
		if err != nil {
			return nil, err
		}
		text, err := s.text(x)
		if err != nil {
			return nil, err
		}
		out.WriteString(text)
		if err := s.chargeText(out.Len()); err != nil {
			return nil, err
		}
	}
	return out.String(), s.chargeText(out.Len())
}

func formatField(field string, next *int, a arguments) (any, error) {
	if strings.ContainsAny(field, ":!.[") {
		return nil, fmt.Errorf("format field {%s} is not supported", field)
	}
	if field == "" {
		field = fmt.Sprint(*next)
		*next++
	}
	if n, ok := a.named.Get(field); ok {
		return n, nil
	}
	i := 0
	if _, err := fmt.Sscanf(field, "%d", &i); err != nil || i < 0 || i >= len(a.pos) {
		return nil, fmt.Errorf("nothing given for {%s}", field)
	}
	return a.pos[i], nil
}

func all(is func(rune) bool) stringMethod {
	return func(_ *state, v string, _ arguments) (any, error) {
		return v != "" && !strings.ContainsFunc(v, func(r rune) bool { return !is(r) }), nil
	}
}

// padMethod fills up to a width in characters.
func padMethod(pad func(v, fill string) string, fill string) stringMethod {
	return func(s *state, v string, a arguments) (any, error) {
		width, ok := integer(a.arg(0, "width", nil))
		f, okF := a.arg(1, "fillchar", fill).(string)
		if !ok || !okF || len(f) != 1 || width > outputMax {
			return nil, fmt.Errorf("needs a width and one character")
		}
		n := int(width) - len([]rune(v))
		return pad(v, strings.Repeat(f, max(0, n))), s.chargeText(max(0, n))
	}
}
