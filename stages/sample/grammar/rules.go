package grammar

import (
	"errors"
	"fmt"
	"slices"
)

// node is an expression: exactly one of its fields is used, as kind says.
type node struct {
	kind     kind
	text     string    // literal: its bytes
	runes    [][2]rune // class: ranges, in order
	list     []node    // sequence, choice; the one of repeat
	min, max int       // repeat; max < 0 has no bound
	rule     string    // reference
}

type kind int

const (
	literal kind = iota
	class
	sequence
	choice
	repeat
	reference
)

func lit(s string) node             { return node{kind: literal, text: s} }
func seq(l ...node) node            { return node{kind: sequence, list: l} }
func alt(l ...node) node            { return node{kind: choice, list: l} }
func ref(rule string) node          { return node{kind: reference, rule: rule} }
func rep(n node, min, max int) node { return node{kind: repeat, list: []node{n}, min: min, max: max} }
func opt(n node) node               { return rep(n, 0, 1) }
func set(runes ...rune) node {
	n := node{kind: class}
	for i := 0; i < len(runes); i += 2 {
		n.runes = append(n.runes, [2]rune{runes[i], runes[i+1]})
	}
	return n
}

// op is what an instruction does.
type op uint8

const (
	opByte  op = iota // goes to to with a byte from lo to hi
	opSplit           // goes to to and to also
	opCall            // goes to the rule at to, whose end goes to also
	opEnd             // ends a rule, and a text where no rule called it
	opFail            // goes nowhere
)

type inst struct {
	op     op
	lo, hi byte
	to     int32
	also   int32
}

// CodeMost bounds the instructions of a grammar.
const CodeMost = 1 << 18

// visitsMost bounds the expressions that are compiled to them, of which some are no instructions, and textMost the
// bytes of what a grammar is read from.
const visitsMost, textMost = 8 * CodeMost, 1 << 20

// errLarge says that a grammar has too many parts, errLong that its text is too long.
var (
	errLarge = errors.New("it has too many parts: a bound such as maxLength, maxItems or {n,m} is too large")
	errLong  = fmt.Errorf("it is longer than %d bytes", textMost)
)

// Grammar is a form that texts may have. It is immutable.
type Grammar struct {
	code  []inst
	start int32
}

// builder compiles rules, backwards: what follows an expression is known when it is compiled.
type builder struct {
	code  []inst
	rules map[string]int32 // where they begin
	calls []pending
	ends  map[int32]int32 // the rules of instructions that end them
	// visits counts expressions, also those that are no instruction
	visits int
}

// full reports that a grammar is too large; compile says so.
func (b *builder) full() bool { return len(b.code) > CodeMost || b.visits > visitsMost }

// pending is a call whose rule is not compiled yet.
type pending struct {
	at   int32
	rule string
}

// compile makes a grammar of rules, of which start is the text.
func compile(rules map[string]node, start string) (*Grammar, error) {
	b := &builder{rules: map[string]int32{}, ends: map[int32]int32{}}
	names := make([]string, 0, len(rules))
	for name := range rules {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to := b.emit(inst{op: opEnd})
		b.rules[name] = b.node(rules[name], to)
		b.ends[to] = b.rules[name]
		if b.full() {
			return nil, errLarge
		}
	}
	for _, c := range b.calls {
		to, ok := b.rules[c.rule]
		if !ok {
			return nil, fmt.Errorf("there is no rule %q", c.rule)
		}
		b.code[c.at].to = to
	}
	begin, ok := b.rules[start]
	if !ok {
		return nil, fmt.Errorf("there is no rule %q", start)
	}
	g := &Grammar{code: b.code, start: begin}
	if name := g.leftRecursive(b, names); name != "" {
		return nil, fmt.Errorf("the rule %q begins with itself", name)
	}
	return g, nil
}

func (b *builder) emit(i inst) int32 {
	b.code = append(b.code, i)
	return int32(len(b.code) - 1)
}

// node compiles an expression that next follows and returns where it begins.
func (b *builder) node(n node, next int32) int32 {
	if b.visits += 1 + len(n.runes); b.full() {
		return next
	}
	switch n.kind {
	case literal:
		for i := len(n.text) - 1; i >= 0; i-- {
			next = b.emit(inst{op: opByte, lo: n.text[i], hi: n.text[i], to: next})
		}
		return next
	case class:
		return b.class(n.runes, next)
	case sequence:
		for _, x := range slices.Backward(n.list) {
			next = b.node(x, next)
		}
		return next
	case choice:
		return b.choice(n.list, next)
	case repeat:
		return b.repeat(n, next)
	}
	at := b.emit(inst{op: opCall, also: next})
	b.calls = append(b.calls, pending{at, n.rule})
	return at
}

func (b *builder) choice(list []node, next int32) int32 {
	if len(list) == 0 {
		return b.emit(inst{op: opFail})
	}
	at := b.node(list[len(list)-1], next)
	for _, x := range slices.Backward(list[:len(list)-1]) {
		at = b.emit(inst{op: opSplit, to: b.node(x, next), also: at})
	}
	return at
}

// repeat compiles min copies and then max-min that may be left out, each only behind the one before.
func (b *builder) repeat(n node, next int32) int32 {
	x, at := n.list[0], next
	if n.max < 0 {
		at = b.emit(inst{op: opSplit, also: next})
		b.code[at].to = b.node(x, at)
	}
	for range n.max - n.min {
		if b.full() {
			return next
		}
		at = b.emit(inst{op: opSplit, to: b.node(x, at), also: next})
	}
	for range n.min {
		before := len(b.code)
		if at = b.node(x, at); b.full() || len(b.code) == before { // further copies are nothing either
			break
		}
	}
	return at
}

// leftRecursive is the name of a rule that may call itself before it has read a byte, "" if there is none: the
// places where its texts may be would not end.
func (g *Grammar) leftRecursive(b *builder, names []string) string {
	empty := g.empties(b)
	begun := map[int32]int{} // 1 under way, 2 done
	var visit func(at int32) bool
	visit = func(at int32) bool {
		if begun[at] > 0 {
			return begun[at] == 1
		}
		begun[at] = 1
		cycle := false
		g.reach(at, empty, func(rule int32) { cycle = cycle || visit(rule) })
		begun[at] = 2
		return cycle
	}
	for _, name := range names {
		if visit(b.rules[name]) {
			return name
		}
	}
	return ""
}

// empties are the rules that may read nothing. All rules are followed at once, each instruction is met once, and what
// stands behind a call waits until the rule that it calls is known to be one of them.
func (g *Grammar) empties(b *builder) map[int32]bool {
	empty, waiting := map[int32]bool{}, map[int32][]int32{}
	seen := make([]bool, len(g.code))
	var todo []int32
	for _, at := range b.rules { // the order does not matter
		todo = append(todo, at)
	}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		switch i := g.code[at]; i.op {
		case opSplit:
			todo = append(todo, i.to, i.also)
		case opCall:
			if empty[i.to] {
				todo = append(todo, i.also)
			} else {
				waiting[i.to] = append(waiting[i.to], i.also)
			}
		case opEnd:
			rule := b.ends[at]
			empty[rule] = true
			todo = append(todo, waiting[rule]...)
		}
	}
	return empty
}

// reach follows all of a rule that reads no byte, and tells call of the rules that are met.
func (g *Grammar) reach(from int32, empty map[int32]bool, call func(rule int32)) {
	seen, todo := map[int32]bool{}, []int32{from}
	for len(todo) > 0 {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		switch i := g.code[at]; i.op {
		case opSplit:
			todo = append(todo, i.to, i.also)
		case opCall:
			if call(i.to); empty[i.to] {
				todo = append(todo, i.also)
			}
		}
	}
}
