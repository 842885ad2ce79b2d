package jinja

import (
	"fmt"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/text/unicode/runenames"
)

// filterBatch cuts a sequence into lists of a length, the last filled up where a value is given.
func filterBatch(s *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	n, ok := integer(a.arg(0, "linecount", nil))
	if !ok {
		return nil, fmt.Errorf("batch takes the length of a list")
	}
	var out []any
	var now []any
	fill := a.arg(1, "fill_with", nil)
	for _, item := range all {
		if int64(len(now)) == n {
			out, now = append(out, list(now)), nil
		}
		now = append(now, item)
	}
	if len(now) > 0 {
		for fill != nil && int64(len(now)) < n {
			if err := s.charge(1); err != nil {
				return nil, err
			}
			now = append(now, fill)
		}
		out = append(out, list(now))
	}
	return list(out), s.charge(len(all))
}

// filterSlice cuts a sequence into a number of lists, the first ones longer by one where it does not divide.
func filterSlice(s *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	n, ok := integer(a.arg(0, "slices", nil))
	if !ok || n < 1 || n > rangeMax {
		return nil, fmt.Errorf("slice takes a number of lists, 1 to %d", rangeMax)
	}
	var out []any
	fill := a.arg(1, "fill_with", nil)
	each, longer := int64(len(all))/n, int64(len(all))%n
	at := int64(0)
	for k := range n {
		size := each
		if k < longer {
			size++
		}
		one := append([]any(nil), all[at:at+size]...)
		if at += size; fill != nil && k >= longer {
			one = append(one, fill)
		}
		out = append(out, list(one))
	}
	return list(out), s.charge(len(all) + int(n))
}

// filterGroupby sorts a sequence by an attribute and gives for each of its values the items that have it.
func filterGroupby(s *state, v any, a arguments) (any, error) {
	all, err := items(v)
	if err != nil {
		return nil, err
	}
	path, otherwise, fold := a.arg(0, "attribute", nil), a.arg(1, "default", nil),
		!truth(a.arg(2, "case_sensitive", false))
	attribute := attributeKey(path)
	key := func(v any) (any, error) {
		k, err := attribute(v)
		if err == nil && isUndefined(k) && otherwise != nil {
			k = otherwise
		}
		return k, err
	}
	folded := func(v any) (any, error) {
		k, err := key(v)
		if t, ok := k.(string); ok && fold {
			k = lower(t)
		}
		return k, err
	}
	order, err := sorted(all, key, fold)
	if err != nil {
		return nil, err
	}
	var out []any
	var group []any
	var last any
	flush := func() error {
		if group == nil {
			return nil
		}
		k, err := key(group[0])
		t := tuple(k, list(group))
		t.fields = []string{"grouper", "list"}
		out, group = append(out, t), nil
		return err
	}
	for _, item := range order {
		k, err := folded(item)
		if err != nil {
			return nil, err
		}
		if group != nil && !equal(k, last) {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		group, last = append(group, item), k
	}
	if err := flush(); err != nil {
		return nil, err
	}
	return list(out), s.charge(2 * len(all))
}

// runesByName are the characters that have a name, made when the first name is asked for.
var runesByName = sync.OnceValue(func() map[string]rune {
	out := map[string]rune{}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if n := runenames.Name(r); n != "" && n[0] != '<' {
			out[n] = r
		}
	}
	r := rune(0xac00) // syllables are named by their letters
	for _, l := range strings.Split("G,GG,N,D,DD,R,M,B,BB,S,SS,,J,JJ,C,K,T,P,H", ",") {
		for _, v := range strings.Split("A,AE,YA,YAE,EO,E,YEO,YE,O,WA,WAE,OE,YO,U,WEO,WE,WI,YU,EU,YI,I", ",") {
			for _, t := range strings.Split(",G,GG,GS,N,NJ,NH,D,L,LG,LM,LB,LS,LT,LP,LH,M,B,BS,S,SS,NG,J,C,K,T,P,H", ",") {
				out["HANGUL SYLLABLE "+l+v+t] = r
				r++
			}
		}
	}
	return out
})

// runeNamed returns the character of a name, in any case.
func runeNamed(name string) (rune, bool) {
	name = strings.ToUpper(name)
	if r, ok := runesByName()[name]; ok {
		return r, true
	}
	var r rune
	if n, err := fmt.Sscanf(name, "CJK UNIFIED IDEOGRAPH-%X", &r); n == 1 && err == nil {
		return r, unicode.Is(unicode.Unified_Ideograph, r)
	}
	return controlNames[name], controlNames[name] != 0
}

// controlNames are aliases of characters that have no name of their own.
var controlNames = map[string]rune{"LINE FEED": '\n', "NEW LINE": '\n', "END OF LINE": '\n', "CARRIAGE RETURN": '\r',
	"CHARACTER TABULATION": '\t', "HORIZONTAL TABULATION": '\t', "LINE TABULATION": '\v', "VERTICAL TABULATION": '\v',
	"FORM FEED": '\f', "BACKSPACE": '\b', "ALERT": '\a', "ESCAPE": 0x1b, "DELETE": 0x7f, "NEXT LINE": 0x85,
	"BYTE ORDER MARK": 0xfeff, "NBSP": 0xa0, "ZWJ": 0x200d, "ZWNJ": 0x200c, "ZWSP": 0x200b}
