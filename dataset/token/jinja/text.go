package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// str is Python's str(v): what printing v gives.
func str(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case Undefined:
		return ""
	}
	return repr(v)
}

// word is a value that should be a name: itself, or its type where it is not a string.
func word(v any) string {
	if t, ok := v.(string); ok {
		return t
	}
	return quoteType(v)
}

// repr is Python's repr(v). It stops when the text is over the limit of any text, which its users check.
func repr(v any) string {
	var out strings.Builder
	writeRepr(&out, v)
	return out.String()
}

func writeRepr(out *strings.Builder, v any) {
	switch x := v.(type) {
	case nil:
		out.WriteString("None")
	case bool:
		out.WriteString(map[bool]string{true: "True", false: "False"}[x])
	case int64:
		out.WriteString(strconv.FormatInt(x, 10))
	case float64:
		out.WriteString(reprFloat(x))
	case string:
		writeReprString(out, x)
	case *List:
		writeReprList(out, x)
	case *Map:
		out.WriteByte('{')
		for i, k := range x.keys {
			if out.Len() > outputMax {
				return
			}
			writeComma(out, i)
			writeRepr(out, k)
			out.WriteString(": ")
			writeRepr(out, x.values[k])
		}
		out.WriteByte('}')
	case Undefined:
		out.WriteString("Undefined")
	case *function:
		out.WriteString("<function " + x.name + ">")
	default:
		out.WriteString("<" + typeName(v) + ">")
	}
}

func writeComma(out *strings.Builder, i int) {
	if i > 0 {
		out.WriteString(", ")
	}
}

func writeReprList(out *strings.Builder, l *List) {
	out.WriteByte("[("[toInt(l.tuple)])
	for i, v := range l.elems {
		if out.Len() > outputMax {
			return
		}
		writeComma(out, i)
		writeRepr(out, v)
	}
	if l.tuple && len(l.elems) == 1 {
		out.WriteByte(',')
	}
	out.WriteByte("])"[toInt(l.tuple)])
}

// reprFloat writes the shortest digits that read back, with an exponent below 1e-4 and from 1e16 on.
func reprFloat(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writeReprString quotes as Python does: single quotes, unless there are single and no double ones inside.
func writeReprString(out *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	out.WriteRune(quote)
	for _, r := range s {
		writeReprRune(out, r, quote)
	}
	out.WriteRune(quote)
}

func writeReprRune(out *strings.Builder, r, quote rune) {
	switch {
	case r == quote || r == '\\':
		out.WriteByte('\\')
		out.WriteRune(r)
	case r == '\n':
		out.WriteString(`\n`)
	case r == '\r':
		out.WriteString(`\r`)
	case r == '\t':
		out.WriteString(`\t`)
	case r == ' ' || unicode.IsPrint(r):
		out.WriteRune(r)
	case r < 0x100:
		out.WriteString(`\x` + hex(r, 2))
	case r < 0x10000:
		out.WriteString(`\u` + hex(r, 4))
	default:
		out.WriteString(`\U` + hex(r, 8))
	}
}

func hex(r rune, width int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// upper and lower use Unicode's full mappings, as Python does: ß becomes SS.
func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und, cases.HandleFinalSigma(true)).String(s) }

// capitalize raises the first character and lowers the rest.
func capitalize(s string) string {
	first := firstRune(s)
	return strings.Map(unicode.ToTitle, first) + lower(s[len(first):])
}

// pyTitle is Python's str.title: a letter after anything that is not a letter is raised.
func pyTitle(s string) string {
	inWord := false
	return strings.Map(func(r rune) rune {
		was := inWord
		inWord = unicode.IsLetter(r)
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

// wordTitle is Jinja's title filter: words begin at the start and after white space, hyphens and opening brackets.
func wordTitle(s string) string {
	start := true
	return strings.Map(func(r rune) rune {
		was := start
		start = isSpace(r) || strings.ContainsRune("-({[<", r)
		if was {
			return unicode.ToUpper(r)
		}
		return unicode.ToLower(r)
	}, s)
}
