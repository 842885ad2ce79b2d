package grammar

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// Regex is the texts that a regular expression matches as a whole, in the syntax of Go's package regexp without
// its tests of places within a text.
func Regex(expr string) (*Grammar, error) {
	n, err := regexNode(expr, true, func(r [][2]rune) node { return node{kind: class, runes: r} })
	if err != nil {
		return nil, err
	}
	return compile(map[string]node{"text": n}, "text")
}

// Choice is one of some texts.
func Choice(texts []string) (*Grammar, error) {
	var l []node
	for _, t := range texts {
		l = append(l, lit(t))
	}
	return compile(map[string]node{"text": alt(l...)}, "text")
}

// regexNode reads an expression; of says how characters are written. One that is not of the whole text may have
// anything before and behind, except where it says ^ or $.
func regexNode(expr string, whole bool, of func([][2]rune) node) (node, error) {
	if len(expr) > CodeMost {
		return node{}, errLarge
	}
	re, err := syntax.Parse(expr, syntax.Perl)
	if err != nil {
		return node{}, err
	}
	r := regexReader{of: of, any: rep(of([][2]rune{{0, unicode.MaxRune}}), 0, -1)}
	if whole {
		r.any = seq()
	}
	return r.top(re)
}

// regexReader makes nodes of parsed expressions.
type regexReader struct {
	of  func([][2]rune) node
	any node // what may stand before and behind
}

// top reads what stands at the border of the whole expression, where ^ and $ have a meaning.
func (r *regexReader) top(re *syntax.Regexp) (node, error) {
	switch re.Op {
	case syntax.OpCapture:
		return r.top(re.Sub[0])
	case syntax.OpAlternate:
		var l []node
		for _, s := range re.Sub {
			n, err := r.top(s)
			if err != nil {
				return node{}, err
			}
			l = append(l, n)
		}
		return alt(l...), nil
	}
	parts := []*syntax.Regexp{re}
	if re.Op == syntax.OpConcat {
		parts = slices.Clone(re.Sub)
	}
	before, behind := r.any, r.any
	for len(parts) > 0 && (parts[0].Op == syntax.OpBeginText || parts[0].Op == syntax.OpBeginLine) {
		parts, before = parts[1:], seq()
	}
	for n := len(parts); n > 0 && (parts[n-1].Op == syntax.OpEndText || parts[n-1].Op == syntax.OpEndLine); n-- {
		parts, behind = parts[:n-1], seq()
	}
	l := []node{before}
	for _, p := range parts {
		n, err := r.node(p)
		if err != nil {
			return node{}, err
		}
		l = append(l, n)
	}
	return seq(append(l, behind)...), nil
}

// node reads an expression within another.
func (r *regexReader) node(re *syntax.Regexp) (node, error) {
	var l []node
	for _, s := range re.Sub {
		n, err := r.node(s)
		if err != nil {
			return n, err
		}
		l = append(l, n)
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return seq(), nil
	case syntax.OpNoMatch:
		return alt(), nil
	case syntax.OpLiteral:
		for _, c := range re.Rune {
			l = append(l, r.of(folded(c, re.Flags&syntax.FoldCase != 0)))
		}
		return seq(l...), nil
	case syntax.OpCharClass:
		var ranges [][2]rune
		for i := 0; i < len(re.Rune); i += 2 {
			ranges = append(ranges, [2]rune{re.Rune[i], re.Rune[i+1]})
		}
		return r.of(ranges), nil
	case syntax.OpAnyChar:
		return r.of([][2]rune{{0, unicode.MaxRune}}), nil
	case syntax.OpAnyCharNotNL:
		return r.of([][2]rune{{0, '\n' - 1}, {'\n' + 1, unicode.MaxRune}}), nil
	case syntax.OpCapture:
		return l[0], nil
	case syntax.OpStar:
		return rep(l[0], 0, -1), nil
	case syntax.OpPlus:
		return rep(l[0], 1, -1), nil
	case syntax.OpQuest:
		return opt(l[0]), nil
	case syntax.OpRepeat:
		return rep(l[0], re.Min, re.Max), nil
	case syntax.OpConcat:
		return seq(l...), nil
	case syntax.OpAlternate:
		return alt(l...), nil
	}
	return node{}, fmt.Errorf("%q tests a place within a text, which is not supported: ^ may begin the expression "+
		"and $ end it", re)
}

// folded is a character, with those that are it in the other case.
func folded(c rune, fold bool) (out [][2]rune) {
	out = [][2]rune{{c, c}}
	for x := unicode.SimpleFold(c); fold && x != c; x = unicode.SimpleFold(x) {
		out = append(out, [2]rune{x, x})
	}
	return out
}
