package token

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The patterns of tokenizer.json are in Oniguruma's syntax, of which the engine reads some otherwise and
// without a word: classes within classes, their intersections (&&), POSIX brackets ([:alpha:]), ^ and $ at
// every line, (?m) for what other engines call (?s). translate writes them as the engine has them, and
// refuses what it cannot write. Source: Oniguruma 6.9.10, doc/RE, syntax Ruby.

// translate writes an expression in the engine's syntax. write writes a range of characters.
func translate(expr string, write func(out *strings.Builder, lo, hi rune)) (string, error) {
	t := &translator{expr: expr, write: write, fold: []bool{false}}
	for t.at < len(expr) {
		if err := t.next(); err != nil {
			return "", fmt.Errorf("pattern %q at byte %d: %w", expr, t.at, err)
		}
	}
	return t.out.String(), nil
}

type translator struct {
	expr  string
	at    int
	out   strings.Builder
	write func(out *strings.Builder, lo, hi rune)
	fold  []bool // of each open group: whether case is ignored
}

// copy writes n bytes as they are.
func (t *translator) copy(n int) {
	t.out.WriteString(t.expr[t.at : t.at+n])
	t.at += n
}

// put writes something in the place of n bytes.
func (t *translator) put(n int, text string) {
	t.out.WriteString(text)
	t.at += n
}

// next translates one piece of an expression from Oniguruma's syntax, where ^ and $ stand for
// lines, to that of the engine used here.
func (t *translator) next() error {
	rest := t.expr[t.at:]
	switch c := rest[0]; {
	case c == '\\' && len(rest) > 1:
		return t.escape(rest)
	case c == '[':
		return t.class(rest)
	case c == '(':
		return t.group(rest)
	case c == ')':
		if len(t.fold) > 1 {
			t.fold = t.fold[:len(t.fold)-1]
		}
		t.copy(1)
	case c == '^': // a line's start, which is none behind the last line's end
		t.put(1, `(?:\A|(?<=\n)(?!\z))`)
	case c == '$':
		t.put(1, `(?=\n|\z)`)
	case strings.HasPrefix(rest, "{,"):
		t.put(2, "{0,")
	default:
		t.copy(1)
	}
	return nil
}

// escape is one outside of a class.
func (t *translator) escape(rest string) error {
	name, _, size := classAtEscape(rest)
	switch c := rest[1]; {
	case strings.IndexByte("pPwWsSdD", c) >= 0:
		if unicodeTables()[name] == nil {
			return fmt.Errorf("the class %q is not known", rest[:size])
		}
		t.copy(size)
	case c == 'b' || c == 'B':
		t.put(2, map[byte]string{'b': `(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))`, 'B': `(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))`}[c])
	case c == 'h':
		t.put(2, "[0-9A-Fa-f]")
	case c == 'H':
		t.put(2, "[^0-9A-Fa-f]")
	case c == 'R':
		t.put(2, `(?>\r\n|[\n\x0b\f\r\u0085\u2028\u2029])`)
	case c == 'N':
		t.put(2, `[^\n]`)
	case c == 'O':
		t.put(2, `(?s:.)`)
	case strings.IndexByte("AZzntrfvae123456789", c) >= 0, !wordByte(c):
		_, n := utf8.DecodeRuneInString(rest[1:])
		t.copy(1 + n)
	case c == 'x' || c == 'u':
		r, n, err := charAt(rest)
		if err != nil {
			return err
		}
		t.write(&t.out, r, r)
		t.at += n
	default:
		return fmt.Errorf("%q is not read here", rest[:2])
	}
	return nil
}

func wordByte(c byte) bool {
	return c < utf8.RuneSelf && (c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z')
}

// group opens a group, whose flags have other letters here.
func (t *translator) group(rest string) error {
	fold := t.fold[len(t.fold)-1]
	end := 2
	for strings.HasPrefix(rest, "(?") && end < len(rest) && strings.IndexByte("imx-", rest[end]) >= 0 {
		end++
	}
	if end == 2 || end == len(rest) || rest[end] != ')' && rest[end] != ':' {
		t.fold = append(t.fold, fold)
		if strings.HasPrefix(rest, "(?") {
			return t.copyGroup(rest)
		}
		t.copy(1)
		return nil
	}
	on, off, _ := strings.Cut(rest[2:end], "-")
	if strings.Contains(on, "i") {
		fold = true
	}
	if strings.Contains(off, "i") {
		fold = false
	}
	if strings.Contains(on+off, "x") {
		return fmt.Errorf("%q is not read here", rest[:end+1])
	}
	if rest[end] == ')' {
		t.fold[len(t.fold)-1] = fold
	} else {
		t.fold = append(t.fold, fold)
	}
	t.put(end+1, strings.ReplaceAll(rest[:end+1], "m", "s"))
	return nil
}

// copyGroup copies the head of a group that is the same in both syntaxes.
func (t *translator) copyGroup(rest string) error {
	for _, head := range []string{"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?#"} {
		if strings.HasPrefix(rest, head) {
			t.copy(len(head))
			return nil
		}
	}
	if strings.HasPrefix(rest, "(?<") {
		t.copy(3)
		return nil
	}
	return fmt.Errorf("%q is not read here", rest[:min(3, len(rest))])
}

// class is a bracket expression. One that both syntaxes read alike is copied.
func (t *translator) class(rest string) error {
	p := classParser{expr: rest}
	set, err := p.parse()
	if err != nil {
		return err
	}
	if !p.own {
		t.copy(p.at)
		return nil
	}
	if t.fold[len(t.fold)-1] {
		return fmt.Errorf("%q ignores case, which is read only of classes without others in them", rest[:p.at])
	}
	t.at += p.at
	if len(set) == 0 {
		t.out.WriteString(`(?!)`)
		return nil
	}
	t.out.WriteByte('[')
	for _, r := range set {
		t.write(&t.out, r[0], r[1])
	}
	t.out.WriteByte(']')
	return nil
}

// runeSet is ranges of characters, in order and apart.
type runeSet [][2]rune

// setOf sorts ranges of characters and joins those that touch.
func setOf(ranges [][2]rune) runeSet {
	slices.SortFunc(ranges, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	var out runeSet
	for _, r := range ranges {
		if n := len(out); n > 0 && r[0] <= out[n-1][1]+1 {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}

// others are all characters outside the set.
func (s runeSet) others() runeSet {
	var out runeSet
	next := rune(0)
	for _, r := range s {
		if r[0] > next {
			out = append(out, [2]rune{next, r[0] - 1})
		}
		next = r[1] + 1
	}
	if next <= unicode.MaxRune {
		out = append(out, [2]rune{next, unicode.MaxRune})
	}
	return out
}

// both is what lies in two sets: what lies outside of neither.
func (s runeSet) both(o runeSet) runeSet {
	return setOf(append(slices.Clone(s.others()), o.others()...)).others()
}

// tableSet is a class of unicodeFile.
func tableSet(name string, negated bool) (runeSet, bool) {
	t := unicodeTables()[name]
	if t == nil {
		return nil, false
	}
	var ranges [][2]rune
	for _, r := range t.R16 {
		ranges = append(ranges, [2]rune{rune(r.Lo), rune(r.Hi)})
	}
	for _, r := range t.R32 {
		ranges = append(ranges, [2]rune{rune(r.Lo), rune(r.Hi)})
	}
	set := setOf(ranges)
	if negated {
		set = set.others()
	}
	return set, true
}

// classParser reads a bracket expression at the start of expr.
type classParser struct {
	expr string
	at   int
	own  bool // it has what only Oniguruma reads so
}

// parse reads from a bracket to behind the one that closes it.
func (p *classParser) parse() (runeSet, error) {
	p.at++
	negated := strings.HasPrefix(p.expr[p.at:], "^")
	if negated {
		p.at++
	}
	var have [][2]rune
	var all runeSet
	joined := false // an && stands in front
	for first := true; ; first = false {
		if p.at >= len(p.expr) {
			return nil, fmt.Errorf("a class of characters does not end")
		}
		rest := p.expr[p.at:]
		switch {
		case rest[0] == ']' && !first:
			p.at++
			set := setOf(have)
			if joined {
				set = all.both(set)
			}
			if negated {
				set = set.others()
			}
			return set, nil
		case strings.HasPrefix(rest, "&&"):
			p.own = true
			p.at += 2
			if set := setOf(have); joined {
				all = all.both(set)
			} else {
				all = set
			}
			have, joined = nil, true
			continue
		}
		set, err := p.member(first)
		if err != nil {
			return nil, err
		}
		have = append(have, set...)
	}
}

// member reads a character, a range, a class, or a bracket expression within another.
func (p *classParser) member(first bool) (runeSet, error) {
	rest := p.expr[p.at:]
	if strings.HasPrefix(rest, "[:") {
		if end := strings.Index(rest, ":]"); end > 0 && !strings.ContainsAny(rest[2:end], "[]") {
			p.own = true
			name, negated := strings.CutPrefix(rest[2:end], "^")
			set, ok := tableSet("[:"+name+":]", negated)
			if !ok {
				return nil, fmt.Errorf("the class [:%s:] is not known", name)
			}
			p.at += end + 2
			return set, p.noRange(rest[:end+2])
		}
	}
	if rest[0] == '[' {
		p.own = true
		return p.parse()
	}
	if rest[0] == '\\' && len(rest) > 1 && strings.IndexByte("pPwWsSdDhH", rest[1]) >= 0 {
		name, negated, size := classAtEscape(rest)
		set, ok := tableSet(inBrackets(name), negated)
		if rest[1]|0x20 == 'h' {
			p.own = true
			name, negated = "[:xdigit:]", rest[1] == 'H'
			set, ok = tableSet(name, negated)
		}
		if !ok {
			return nil, fmt.Errorf("the class %q is not known", rest[:size])
		}
		p.at += size
		return set, p.noRange(rest[:size])
	}
	lo, n, err := charAt(rest)
	if err != nil {
		return nil, err
	}
	p.at += n
	rest = p.expr[p.at:]
	if len(rest) < 2 || rest[0] != '-' || rest[1] == ']' || lo == '-' && !first {
		return runeSet{{lo, lo}}, nil
	}
	if rest[1] == '[' || strings.HasPrefix(rest[1:], "&&") {
		return nil, fmt.Errorf("%q: a range that ends in a class", rest[:2])
	}
	hi, n, err := charAt(rest[1:])
	if err != nil {
		return nil, err
	}
	if hi < lo {
		return nil, fmt.Errorf("the range from %q to %q is empty", lo, hi)
	}
	p.at += 1 + n
	if strings.HasPrefix(p.expr[p.at:], "-") && !strings.HasPrefix(p.expr[p.at:], "-]") {
		p.own = true // stands for itself behind a range, which the engine may take for a difference
		p.at++
		return runeSet{{lo, hi}, {'-', '-'}}, nil
	}
	return runeSet{{lo, hi}}, nil
}

// noRange refuses a range that begins with a class.
func (p *classParser) noRange(class string) error {
	if rest := p.expr[p.at:]; strings.HasPrefix(rest, "-") && !strings.HasPrefix(rest, "-]") {
		return fmt.Errorf("%q begins a range", class)
	}
	return nil
}

// charAt reads one character of a class, and its size in bytes.
func charAt(s string) (rune, int, error) {
	r, n := utf8.DecodeRuneInString(s)
	if r != '\\' {
		return r, n, nil
	}
	if len(s) < 2 {
		return 0, 0, fmt.Errorf("it ends in a backslash")
	}
	if i := strings.IndexByte("ntrfvaeb", s[1]); i >= 0 {
		return rune("\n\t\r\f\v\a\x1b\b"[i]), 2, nil
	}
	digits := ""
	switch {
	case s[1] == 'x' && strings.HasPrefix(s[2:], "{"):
		inner, _, ok := strings.Cut(s[3:], "}")
		if !ok {
			return 0, 0, fmt.Errorf("%q does not end", s[:3])
		}
		digits, n = inner, len(inner)+4
	case s[1] == 'x':
		digits, n = s[2:min(4, len(s))], min(4, len(s))
	case s[1] == 'u':
		digits, n = s[2:min(6, len(s))], min(6, len(s))
	case wordByte(s[1]):
		return 0, 0, fmt.Errorf("%q is not read here", s[:2])
	default:
		r, n = utf8.DecodeRuneInString(s[1:])
		return r, n + 1, nil
	}
	v, err := strconv.ParseUint(digits, 16, 32)
	if err != nil || v > unicode.MaxRune {
		return 0, 0, fmt.Errorf("%q is no character", s[:n])
	}
	return rune(v), n, nil
}
