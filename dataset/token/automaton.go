package token

import (
	"encoding/binary"
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// automaton is a regular expression as a table: in one pass over a text it finds where the match ends that
// an engine which goes back would find. It is built whole and not changed afterwards.
type automaton struct {
	classes  [1 << 16]uint8 // of the basic multilingual plane
	above    []classRange   // of the characters above it
	nClasses int            // the last one stands for the end of the text
	// by state and class what follows, with isMatch if a match ends before the character
	steps []uint16
}

// classRange is the class of characters up to one.
type classRange struct {
	last  rune
	class uint8
}

const (
	isMatch   = 1 << 15 // a match ends here
	statesMax = 2000    // of an automaton; the expressions in use have under 50
	workMax   = 16      // bytes read for each of a text before the engine takes over, besides a fixed number
)

var errNoAutomaton = errors.New("the expression is not one for an automaton")

// notBeforeText is the one look-ahead that an automaton knows. In the compiled program a word boundary stands for it.
const notBeforeText = `(?!\S)`

// newAutomaton compiles an expression, unless it has what an automaton cannot have: other look-arounds,
// references to groups, anchors, what stands for any character, or an empty match.
func newAutomaton(expr string) (*automaton, error) {
	expr, err := flatClasses(expr)
	if err != nil {
		return nil, err
	}
	if !isPlain(strings.ReplaceAll(expr, notBeforeText, "")) {
		return nil, errNoAutomaton
	}
	marked := strings.ReplaceAll(expr, notBeforeText, `\b`)
	tree, err := syntax.Parse(spellClasses(marked, goRange), syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	a, b := &automaton{}, &builder{program: program, ids: map[string]uint16{}}
	a.number(program)
	b.a = a
	return a, b.build()
}

// flatClasses writes the classes of an expression that hold others in them out.
func flatClasses(expr string) (string, error) {
	t := &translator{expr: expr, write: goRange, fold: []bool{false}}
	for t.at < len(expr) {
		var err error
		switch rest := expr[t.at:]; {
		case rest[0] == '\\' && len(rest) > 1:
			_, _, size := classAtEscape(rest)
			t.copy(min(size, len(rest)))
		case rest[0] == '[':
			err = t.class(rest)
		case strings.HasPrefix(rest, "{,"):
			t.put(2, "{0,")
		case rest[0] == '(' && strings.HasPrefix(rest, "(?i"):
			t.fold = append(t.fold, true)
			t.copy(1)
		case rest[0] == '(':
			t.fold = append(t.fold, t.fold[len(t.fold)-1])
			t.copy(1)
		case rest[0] == ')' && len(t.fold) > 1:
			t.fold = t.fold[:len(t.fold)-1]
			t.copy(1)
		default:
			t.copy(1)
		}
		if err != nil {
			return "", err
		}
	}
	return t.out.String(), nil
}

// isPlain tells whether an expression means the same to Go, its classes of characters aside, and has no anchors.
func isPlain(expr string) bool {
	depth := 0
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\':
			if i+1 == len(expr) || strings.IndexByte("abBAzZGhHRXKkgQEC0123456789", expr[i+1]) >= 0 {
				return false
			}
			name, _, size := classAtEscape(expr[i:])
			if strings.IndexByte("pPwWsSdD", expr[i+1]) >= 0 && unicodeTables()[name] == nil {
				return false
			}
			i += size - 1
		case depth > 0 && (c == '[' || strings.HasPrefix(expr[i:], "&&")):
			return false // a class in a class, or an intersection
		case c == '[':
			depth++
		case c == ']' && depth > 0:
			depth--
		case depth > 0:
		case c == '.', c == '^', c == '$':
			return false
		case c == '(' && strings.HasPrefix(expr[i:], "(?"):
			if !strings.HasPrefix(expr[i:], "(?:") && !strings.HasPrefix(expr[i:], "(?i:") {
				return false
			}
		}
	}
	return depth == 0
}

// number gives classes to the characters that the program does not tell apart.
func (a *automaton) number(program *syntax.Prog) {
	first := []rune{0, unicode.MaxRune + 1} // characters with which a class may begin
	var sets []*syntax.Inst
	for i := range program.Inst {
		in := &program.Inst[i]
		if in.Op < syntax.InstRune {
			continue
		}
		sets = append(sets, in)
		if len(in.Rune) == 1 {
			for r := in.Rune[0]; ; {
				first = append(first, r, r+1)
				if r = unicode.SimpleFold(r); r == in.Rune[0] {
					break
				}
			}
			continue
		}
		for k := 0; k+1 < len(in.Rune); k += 2 {
			first = append(first, in.Rune[k], in.Rune[k+1]+1)
		}
	}
	white := inClass(`\s`)
	for _, r := range unicodeTables()[`\s`].R16 {
		first = append(first, rune(r.Lo), rune(r.Hi)+1)
	}
	slices.Sort(first)
	first = slices.Compact(first)
	ids := map[string]uint8{}
	for k, r := range first[:len(first)-1] {
		key := []byte{0}
		if white(r) {
			key[0] = 1
		}
		for _, in := range sets {
			key = append(key, '0'+byte(min(in.MatchRunePos(r)+1, 1)))
		}
		id, ok := ids[string(key)]
		if !ok {
			id = uint8(len(ids))
			ids[string(key)] = id
		}
		for x := r; x < min(first[k+1], 1<<16); x++ {
			a.classes[x] = id
		}
		a.above = append(a.above, classRange{first[k+1] - 1, id})
	}
	a.nClasses = len(ids) + 1
	a.above = slices.DeleteFunc(a.above, func(c classRange) bool { return c.last < 1<<16 })
}

// classOf is the class of a character above the basic multilingual plane.
func (a *automaton) classOf(r rune) uint8 {
	i, _ := slices.BinarySearchFunc(a.above, r, func(c classRange, r rune) int { return int(c.last - r) })
	return a.above[i].class
}

// builder finds the states of an automaton: each is the places in the program that may be next, the likeliest first.
type builder struct {
	program *syntax.Prog
	a       *automaton
	ids     map[string]uint16
	states  [][]uint32
	example []rune // of each class
}

// build makes the states that can be reached, one by one. An expression with too many states, or
// one that matches nothing at all, gets no automaton and is matched otherwise.
func (b *builder) build() error {
	if b.a.nClasses > 250 {
		return errNoAutomaton
	}
	b.example = make([]rune, b.a.nClasses-1)
	for _, c := range b.a.above {
		b.example[c.class] = c.last
	}
	for r := rune(1<<16 - 1); r >= 0; r-- {
		b.example[b.a.classes[r]] = r
	}
	b.id(nil) // from which no match follows
	b.id([]uint32{uint32(b.program.Start)})
	for s := 0; s < len(b.states); s++ {
		for class := range b.a.nClasses {
			b.a.steps = append(b.a.steps, b.step(b.states[s], class))
		}
		if len(b.states) > statesMax {
			return errNoAutomaton
		}
	}
	for _, e := range b.a.steps[b.a.nClasses : 2*b.a.nClasses] {
		if e&isMatch != 0 { // an empty one
			return errNoAutomaton
		}
	}
	return nil
}

// id is the number of a state, which is new if it was not seen before.
func (b *builder) id(places []uint32) uint16 {
	key := make([]byte, 0, 4*len(places))
	for _, p := range places {
		key = binary.LittleEndian.AppendUint32(key, p)
	}
	id, ok := b.ids[string(key)]
	if !ok {
		id = uint16(len(b.states))
		b.ids[string(key)] = id
		b.states = append(b.states, places)
	}
	return id
}

// step is what follows on a character of a class, or on the end.
func (b *builder) step(places []uint32, class int) uint16 {
	r := rune(-1)
	if class < len(b.example) {
		r = b.example[class]
	}
	w := walk{b: b, r: r, noText: r < 0 || inClass(`\s`)(r), seen: make([]bool, len(b.program.Inst)),
		kept: make([]bool, len(b.program.Inst))}
	for _, p := range places {
		if w.from(p) {
			break
		}
	}
	e := b.id(w.next)
	if w.match {
		e |= isMatch
	}
	return e
}

// walk follows a program from places up to a character.
type walk struct {
	b          *builder
	r          rune // -1 at the end
	noText     bool // the end or white space follows
	seen, kept []bool
	next       []uint32
	match      bool
}

// from walks from a place and returns true at a match, behind which nothing counts.
func (w *walk) from(p uint32) bool {
	if w.seen[p] {
		return false
	}
	w.seen[p] = true
	switch in := &w.b.program.Inst[p]; in.Op {
	case syntax.InstAlt, syntax.InstAltMatch:
		return w.from(in.Out) || w.from(in.Arg)
	case syntax.InstCapture, syntax.InstNop:
		return w.from(in.Out)
	case syntax.InstEmptyWidth:
		return w.noText && w.from(in.Out)
	case syntax.InstMatch:
		w.match = true
		return true
	case syntax.InstFail:
	default:
		if w.r >= 0 && in.MatchRune(w.r) && !w.kept[in.Out] {
			w.kept[in.Out] = true
			w.next = append(w.next, in.Out)
		}
	}
	return false
}

// match returns the end of the match that begins at a place, or -1, and how far it had to read.
func (a *automaton) match(text string, from int) (end, read int) {
	end = -1
	state, n := 1, a.nClasses
	for i := from; ; {
		class, size := n-1, 0
		if i < len(text) {
			if c := text[i]; c < utf8.RuneSelf {
				class, size = int(a.classes[c]), 1
			} else {
				class, size = a.wide(text[i:])
			}
		}
		e := a.steps[state*n+class]
		if e&isMatch != 0 {
			end = i
		}
		if state = int(e &^ isMatch); state == 0 || size == 0 {
			return end, i
		}
		i += size
	}
}

// wide is the class and size of a character of more than a byte.
func (a *automaton) wide(text string) (class, size int) {
	r, size := utf8.DecodeRuneInString(text)
	if r < 1<<16 {
		return int(a.classes[r]), size
	}
	return int(a.classOf(r)), size
}

// finder finds all matches. Where matching would take too long it leaves the rest to another finder.
func (a *automaton) finder(rest finder) finder {
	begins := a.steps[a.nClasses : 2*a.nClasses]
	return func(text string, yield func(start, stop int)) {
		work := workMax*len(text) + 1<<20
		for at := 0; at < len(text); {
			class, size := 0, 1
			if c := text[at]; c < utf8.RuneSelf {
				class = int(a.classes[c])
			} else {
				class, size = a.wide(text[at:])
			}
			if begins[class] == 0 {
				at += size
				continue
			}
			end, read := a.match(text, at)
			if work -= read - at; work < 0 {
				rest(text[at:], func(start, stop int) { yield(at+start, at+stop) })
				return
			}
			if end < 0 {
				at += size
				continue
			}
			yield(at, end)
			at = end
		}
	}
}

// goRange writes a range of characters as Go's expressions have it.
func goRange(out *strings.Builder, lo, hi rune) {
	fmt.Fprintf(out, `\x{%x}`, lo)
	if hi > lo {
		fmt.Fprintf(out, `-\x{%x}`, hi)
	}
}
