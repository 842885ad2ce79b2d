package torch

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Values of a pickle are nil, bool, int64, float64, string, []byte, and these.
type (
	tuple  []any
	list   struct{ items []any }
	dict   struct{ keys, values []any }
	global struct{ module, name string }
	// object is what a call would have made, or a class of its own: nothing is called.
	object struct {
		class global
		args  tuple
		state any
		items dict
	}
	// persistent is a reference to what lies beside the pickle.
	persistent struct{ id any }
	// huge is an integer of more than 64 bits.
	huge []byte
	mark struct{}
)

// String is the name in Python.
func (g global) String() string {
	s := g.module + "." + g.name
	if q := fmt.Sprintf("%.200q", s); q != `"`+s+`"` { // it could write to the terminal
		return q
	}
	return s
}

// show is a value for a message: a number, a text or a short list of numbers, else what kind of value it
// is. Values may hold one another many times over, so that nothing that is nested is written out.
func show(v any) string {
	switch x := v.(type) {
	case nil, bool, int64, float64:
		return fmt.Sprint(x)
	case string:
		return fmt.Sprintf("%.200q", x)
	case global:
		return x.String()
	}
	if n, ok := ints(v); ok && len(n) <= axesMax {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("a value of another kind (%T)", v)
}

// get is the value of a key that is a text, nil for none; of a key that is there twice the last, as in Python.
func (d *dict) get(key string) any {
	for i := len(d.keys) - 1; i >= 0; i-- {
		if d.keys[i] == any(key) {
			return d.values[i]
		}
	}
	return nil
}

// machine reads a pickle. Every step takes at least a byte of it, and values are shared, not copied: so
// what it holds is bounded by the pickle's length.
type machine struct {
	b       []byte
	at      int
	stack   []any
	memo    map[int64]any
	globals map[global]int // where each was named first
}

// fault is a pickle that is none, or does what is not read.
type fault struct {
	at  int
	why string
}

// Error implements error.
func (f *fault) Error() string { return fmt.Sprintf("at byte %d of the pickle: %s", f.at, f.why) }

func (m *machine) fail(format string, a ...any) { panic(&fault{m.at, fmt.Sprintf(format, a...)}) }

// unpickle reads one pickle: its value, the globals that it names, and its length.
func unpickle(b []byte) (v any, globals map[global]int, n int, err error) {
	m := &machine{b: b, memo: map[int64]any{}, globals: map[global]int{}}
	defer func() {
		if x := recover(); x != nil {
			f, ours := x.(*fault)
			if !ours {
				panic(x)
			}
			err = f
		}
	}()
	for {
		op := m.take(1)[0]
		if op == '.' {
			v = m.pop()
			return v, m.globals, m.at, nil
		}
		m.step(op)
	}
}

// take is the next n bytes.
func (m *machine) take(n int64) []byte {
	if n < 0 || n > int64(len(m.b)-m.at) {
		m.fail("%d bytes are to follow, %d are left", n, len(m.b)-m.at)
	}
	b := m.b[m.at : m.at+int(n)]
	m.at += int(n)
	return b
}

// line is the text up to the end of a line.
func (m *machine) line() string {
	for i := m.at; i < len(m.b); i++ {
		if m.b[i] == '\n' {
			s := string(m.b[m.at:i])
			m.at = i + 1
			return s
		}
	}
	m.fail("a line has no end")
	return ""
}

// number is the next n bytes as an unsigned number.
func (m *machine) number(n int64) int64 {
	v := uint64(0)
	for i, c := range m.take(n) {
		v |= uint64(c) << (8 * i)
	}
	if v > math.MaxInt64 {
		m.fail("a length is above 2^63")
	}
	return int64(v)
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) pop() any {
	n := len(m.stack) - 1
	if n < 0 {
		m.fail("the stack is empty")
	}
	v := m.stack[n]
	if _, is := v.(mark); is {
		m.fail("a mark is no value")
	}
	m.stack[n] = nil
	m.stack = m.stack[:n]
	return v
}

// top is the last value, which stays.
func (m *machine) top() any {
	v := m.pop()
	m.push(v)
	return v
}

// marked are the values behind the last mark, which goes too.
func (m *machine) marked() []any {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if _, is := m.stack[i].(mark); is {
			out := append([]any(nil), m.stack[i+1:]...)
			m.stack = m.stack[:i]
			return out
		}
	}
	m.fail("there is no mark")
	return nil
}

// step carries out an operation.
func (m *machine) step(op byte) {
	switch op {
	case 0x80: // PROTO
		if v := m.take(1)[0]; v < 2 || v > 5 {
			m.fail("protocol %d, 2 to 5 are read", v)
		}
	case 0x95: // FRAME
		m.take(8)
	case '(':
		m.push(mark{})
	case '0':
		m.pop()
	case '1':
		m.marked()
	case '2':
		m.push(m.top())
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case 'q', 'r', 0x94, 'h', 'j':
		m.remember(op)
	case 'c', 0x93, 'R', 0x81, 0x92, 'b', 'Q':
		m.objects(op)
	default:
		if !m.scalars(op) && !m.collections(op) {
			m.at--
			m.fail("operation 0x%02x is not read", op)
		}
	}
}

// remember carries out operations of the memo.
func (m *machine) remember(op byte) {
	switch op {
	case 'q':
		m.memo[m.number(1)] = m.top()
	case 'r':
		m.memo[m.number(4)] = m.top()
	case 0x94:
		m.memo[int64(len(m.memo))] = m.top()
	default:
		n := int64(1)
		if op == 'j' {
			n = 4
		}
		i := m.number(n)
		v, ok := m.memo[i]
		if !ok {
			m.fail("nothing is remembered under %d", i)
		}
		m.push(v)
	}
}

// scalars pushes numbers and texts, and reports whether op was one of these.
func (m *machine) scalars(op byte) bool {
	switch op {
	case 'J':
		m.push(int64(int32(binary.LittleEndian.Uint32(m.take(4)))))
	case 'K':
		m.push(m.number(1))
	case 'M':
		m.push(m.number(2))
	case 0x8a:
		m.push(m.long(m.number(1)))
	case 0x8b:
		m.push(m.long(m.number(4)))
	case 'G':
		m.push(math.Float64frombits(binary.BigEndian.Uint64(m.take(8))))
	case 'X', 'T':
		m.push(string(m.take(m.number(4))))
	case 0x8c, 'U':
		m.push(string(m.take(m.number(1))))
	case 0x8d:
		m.push(string(m.take(m.number(8))))
	case 'B':
		m.push(m.take(m.number(4)))
	case 'C':
		m.push(m.take(m.number(1)))
	case 0x8e:
		m.push(m.take(m.number(8)))
	default:
		return false
	}
	return true
}

// long is an integer of n bytes in two's complement.
func (m *machine) long(n int64) any {
	b := m.take(n)
	if n > 8 {
		return huge(b)
	}
	v := uint64(0)
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	if n > 0 && n < 8 && b[n-1]&0x80 != 0 {
		v |= ^uint64(0) << (8 * n)
	}
	return int64(v)
}

// collections makes and fills tuples, lists and dictionaries, and reports whether op was one of these.
func (m *machine) collections(op byte) bool {
	switch op {
	case '}':
		m.push(&dict{})
	case ']', 0x8f: // a set is a list here
		m.push(&list{})
	case ')':
		m.push(tuple{})
	case 't':
		m.push(tuple(m.marked()))
	case 'l', 0x91:
		m.push(&list{m.marked()})
	case 'd':
		items := m.marked()
		d := &dict{}
		m.set(d, items)
		m.push(d)
	case 0x85, 0x86, 0x87:
		t := make(tuple, op-0x84)
		for i := len(t) - 1; i >= 0; i-- {
			t[i] = m.pop()
		}
		m.push(t)
	case 'a':
		m.extend([]any{m.pop()})
	case 'e', 0x90:
		m.extend(m.marked())
	case 's':
		v, k := m.pop(), m.pop()
		m.set(m.top(), []any{k, v})
	case 'u':
		items := m.marked()
		m.set(m.top(), items)
	default:
		return false
	}
	return true
}

// extend adds items to the list on top.
func (m *machine) extend(items []any) {
	switch l := m.top().(type) {
	case *list:
		l.items = append(l.items, items...)
	case *object: // a list of a class of its own; what is in it is not asked for
	default:
		m.fail("items for what is no list")
	}
}

// set adds keys and values to a dictionary.
func (m *machine) set(to any, items []any) {
	d, ok := to.(*dict)
	if o, is := to.(*object); is {
		d, ok = &o.items, true
	}
	if !ok || len(items)%2 != 0 {
		m.fail("keys and values for what is no dictionary, or one without the other")
	}
	for i := 0; i < len(items); i += 2 {
		d.keys, d.values = append(d.keys, items[i]), append(d.values, items[i+1])
	}
}

// objects carries out what names and calls: nothing is called, and what would be made is noted.
func (m *machine) objects(op byte) {
	switch op {
	case 'c':
		at := m.at - 1
		m.name(global{m.line(), m.line()}, at)
	case 0x93:
		at := m.at - 1
		name, ok := m.pop().(string)
		module, ok2 := m.pop().(string)
		if !ok || !ok2 {
			m.fail("the name of a global is no text")
		}
		m.name(global{module, name}, at)
	case 'Q':
		m.push(persistent{m.pop()})
	case 'b':
		state := m.pop()
		switch o := m.top().(type) {
		case *object:
			o.state = state
		case *dict: // attributes of an OrderedDict
		default:
			m.fail("a state for what is no object")
		}
	default:
		if op == 0x92 {
			m.pop() // arguments by name
		}
		args, ok := m.pop().(tuple)
		class, ok2 := m.pop().(global)
		if !ok || !ok2 {
			m.fail("a call of what is no global, or without a tuple of arguments")
		}
		m.push(m.made(class, args))
	}
}

func (m *machine) name(g global, at int) {
	if _, known := m.globals[g]; !known {
		m.globals[g] = at
	}
	m.push(g)
}

var orderedDict = global{"collections", "OrderedDict"}

// made is what a call would make.
func (m *machine) made(class global, args tuple) any {
	if class != orderedDict {
		return &object{class: class, args: args}
	}
	d := &dict{}
	if len(args) == 0 {
		return d
	}
	pairs, ok := args[0].(*list)
	if !ok {
		m.fail("an OrderedDict of no list")
	}
	for _, p := range pairs.items {
		switch x := p.(type) {
		case tuple:
			m.set(d, x)
		case *list:
			m.set(d, x.items)
		default:
			m.fail("an OrderedDict of no pairs")
		}
	}
	return d
}
