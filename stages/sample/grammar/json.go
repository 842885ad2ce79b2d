package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Rules of JSON that schemas share. Between parts there is nothing, a space, or a line's end with what indents the
// next: a bound, so that no text is white space without end. Strings have no half surrogates.
const (
	ruleSpace  = " space"
	ruleChar   = " char"
	ruleString = " string"
	ruleNumber = " number"
	ruleInt    = " integer"
	ruleValue  = " value"
	ruleObject = " object"
	ruleArray  = " array"
)

// indentMost is the spaces of an indent, digitsMost the digits of a number before and behind the point.
const indentMost, digitsMost = 24, 15

// jsonRules are the rules of JSON without a schema.
func jsonRules() map[string]node {
	hex := set('0', '9', 'A', 'F', 'a', 'f')
	digit := set('0', '9')
	// XXXX of \u for a character that is no surrogate, and for pairs of surrogates
	unit := alt(seq(set('0', '9', 'A', 'C', 'E', 'F', 'a', 'c', 'e', 'f'), hex, hex, hex), seq(set('D', 'D', 'd', 'd'),
		set('0', '7'), hex, hex), seq(set('D', 'D', 'd', 'd'), set('8', '9', 'A', 'B', 'a', 'b'), hex, hex, lit(`\u`),
		set('D', 'D', 'd', 'd'), set('C', 'F', 'c', 'f'), hex, hex))
	whole := seq(opt(lit("-")), alt(lit("0"), seq(set('1', '9'), rep(digit, 0, digitsMost-1))))
	return map[string]node{
		ruleSpace: opt(alt(lit(" "), seq(lit("\n"), rep(lit(" "), 0, indentMost)))),
		ruleChar: alt(set(' ', '!', '#', '[', ']', 0x10ffff),
			seq(lit(`\`), alt(set('"', '"', '\\', '\\', '/', '/', 'b', 'b', 'f', 'f', 'n', 'n', 'r', 'r', 't', 't'),
				seq(lit("u"), unit)))),
		ruleString: seq(lit(`"`), rep(ref(ruleChar), 0, -1), lit(`"`)),
		ruleInt:    whole,
		ruleNumber: seq(whole, opt(seq(lit("."), rep(digit, 1, digitsMost))),
			opt(seq(set('E', 'E', 'e', 'e'), opt(set('+', '+', '-', '-')), rep(digit, 1, 2)))),
		ruleValue: alt(ref(ruleObject), ref(ruleArray), ref(ruleString), ref(ruleNumber), lit("true"), lit("false"),
			lit("null")),
		ruleObject: seq(lit("{"), ref(ruleSpace), opt(list(pair(ref(ruleString), ref(ruleValue)), 0, -1)), lit("}")),
		ruleArray:  seq(lit("["), ref(ruleSpace), opt(list(ref(ruleValue), 0, -1)), lit("]")),
	}
}

// pair is a key with its value.
func pair(key, value node) node { return seq(key, lit(":"), ref(ruleSpace), value) }

// comma stands between the parts of an object or an array.
func comma() node { return seq(lit(","), ref(ruleSpace)) }

// list is one and then from least to most more, and the space before the bracket that ends it.
func list(x node, least, most int) node {
	return seq(x, rep(seq(comma(), x), least, most), ref(ruleSpace))
}

// JSON is any JSON object.
func JSON() *Grammar {
	g, err := compile(jsonRules(), ruleObject)
	if err != nil {
		panic(fmt.Sprintf("grammar: JSON does not compile: %v", err))
	}
	return g
}

// member is a key of an object with its value, as it stands in the text.
type member struct {
	key   string
	value json.RawMessage
}

// members are those of an object, in order; a key that comes twice is an error.
func members(raw json.RawMessage) ([]member, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("is %s, and no object", clip(raw))
	}
	var out []member
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{key: t.(string)} // keys of objects are strings
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		if seen[m.key] {
			return nil, fmt.Errorf("has the key %q twice", m.key)
		}
		seen[m.key] = true
		out = append(out, m)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("goes on behind its end")
	}
	return out, nil
}

// clip is the beginning of a value, for errors.
func clip(raw json.RawMessage) string {
	if len(raw) > 40 {
		return string(raw[:37]) + "..."
	}
	return string(raw)
}

// written is a value as it is to be written: without spaces, characters as they are.
func written(raw json.RawMessage) (string, error) {
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}
