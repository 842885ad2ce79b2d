package grammar

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// nameMost bounds the bytes of a property's name, and triesMost the beginnings of names that other names are told from:
// each is more than 16 instructions.
const nameMost, triesMost = 1 << 10, CodeMost / 16

// object is the expression of objects: properties in the order of the schema, then others where they are asked for.
func (s *schema) object(k *keys, depth int) (node, error) {
	var required []string
	if raw, ok := k.has("required"); ok && json.Unmarshal(raw, &required) != nil {
		return node{}, k.fault("required", "is %s, and no list of names", clip(raw))
	}
	var list []member
	raw, given := k.has("properties")
	if given {
		var err error
		if list, err = members(raw); err != nil {
			return node{}, k.fault("properties", "%v", err)
		}
	}
	names, known, needed := make([]string, len(list)), map[string]bool{}, map[string]bool{}
	for i, m := range list {
		if names[i] = m.key; len(m.key) > nameMost {
			return node{}, k.fault("properties", "has the name %.20q..., of more than %d bytes", m.key, nameMost)
		}
		known[m.key] = true
	}
	for _, name := range required {
		if needed[name] = true; !known[name] {
			return node{}, k.fault("required", "names %.40q, which properties does not have", name)
		}
	}
	others, err := s.others(k, names, given, depth)
	if err != nil {
		return node{}, err
	}
	// what follows once there is a property, and what may stand first, from the end
	behind, first := seq(), seq()
	if others != nil {
		x := s.rule(*others)
		behind = rep(seq(comma(), x), 0, -1)
		first = opt(seq(x, behind))
	}
	for i := len(list) - 1; i >= 0; i-- {
		n, err := s.node(list[i].value, k.at+"/properties/"+list[i].key, depth+1)
		if err != nil {
			return node{}, err
		}
		key, err := json.Marshal(list[i].key)
		if err != nil {
			return node{}, err
		}
		if text, err := written(key); err == nil {
			key = []byte(text)
		}
		x := s.rule(pair(lit(string(key)), n))
		rest := s.rule(behind)
		if needed[list[i].key] {
			first, behind = seq(x, rest), seq(comma(), x, rest)
			continue
		}
		first, behind = alt(seq(x, rest), s.rule(first)), seq(opt(seq(comma(), x)), rest)
	}
	return seq(lit("{"), ref(ruleSpace), first, ref(ruleSpace), lit("}")), nil
}

// others is what further properties are, besides those with names: their keys by propertyNames or patternProperties, or
// any but the names; nil for none.
func (s *schema) others(k *keys, names []string, given bool, depth int) (*node, error) {
	more, ok := k.has("additionalProperties")
	open := !ok && !given || ok && strings.TrimSpace(string(more)) != "false"
	if !ok {
		more = json.RawMessage("true")
	}
	patterns, err := s.patterns(k, names, open && ok && strings.TrimSpace(string(more)) != "true", depth)
	if patterns != nil || err != nil {
		return patterns, err
	}
	keys := s.otherKeys(names)
	if raw, ok := k.has("propertyNames"); ok {
		if len(names) > 0 {
			return nil, k.fault("propertyNames", "beside properties is not supported")
		}
		of, err := s.resolved(raw, depth)
		if err != nil {
			return nil, k.fault("propertyNames", "%v", err)
		}
		if of["type"] == nil && of["enum"] == nil && of["const"] == nil {
			of["type"] = json.RawMessage(`"string"`)
		}
		if t := kinds(of); !slices.Equal(t, []string{"string"}) {
			return nil, k.fault("propertyNames", "is of %s, and names are strings", strings.Join(t, ", "))
		}
		if keys, err = s.node(object(of), k.at+"/propertyNames", depth+1); err != nil {
			return nil, err
		}
	}
	if !open {
		return nil, nil
	}
	n, err := s.node(more, k.at+"/additionalProperties", depth+1)
	if err != nil {
		return nil, err
	}
	x := pair(s.rule(keys), n)
	return &x, nil
}

// patterns is the properties whose names are of an expression: of several, each begins with a text that tells it from
// the others, and none is of a name that properties has, so that a property has one schema.
func (s *schema) patterns(k *keys, names []string, more bool, depth int) (*node, error) {
	raw, ok := k.has("patternProperties")
	if !ok {
		return nil, nil
	}
	list, err := members(raw)
	switch {
	case err != nil:
		return nil, k.fault("patternProperties", "%v", err)
	case len(list) == 0:
		return nil, nil
	case more:
		return nil, k.fault("patternProperties", "beside a schema of additionalProperties is not supported")
	case k.given["propertyNames"] != nil:
		return nil, k.fault("patternProperties", "beside propertyNames is not supported")
	}
	var out []node
	var heads []string
	for _, m := range list {
		e, err := regexp.Compile(m.key)
		if err != nil {
			return nil, k.fault("patternProperties", "has %.40q, which is no expression: %v", m.key, err)
		}
		if at := slices.IndexFunc(names, e.MatchString); at >= 0 {
			return nil, k.fault("patternProperties", "has %.40q, which the property %.40q is of too", m.key, names[at])
		}
		head := ""
		if rest, ok := strings.CutPrefix(m.key, "^"); ok && !strings.Contains(rest, "|") {
			head = rest[:len(rest)-len(strings.TrimLeftFunc(rest, plainLetter))]
			if len(head) < len(rest) && strings.ContainsRune("?*{", rune(rest[len(head)])) && head != "" {
				head = head[:len(head)-1] // it need not be there
			}
		}
		for _, other := range heads {
			if strings.HasPrefix(head, other) || strings.HasPrefix(other, head) {
				return nil, k.fault("patternProperties", "has expressions that a name may be of two of: begin each with ^ and letters "+
					"that the others do not begin with")
			}
		}
		heads = append(heads, head)
		name, err := regexNode(m.key, false, inString)
		if err != nil {
			return nil, k.fault("patternProperties", "%v", err)
		}
		n, err := s.node(m.value, k.at+"/patternProperties/"+m.key, depth+1)
		if err != nil {
			return nil, err
		}
		out = append(out, pair(s.rule(seq(lit(`"`), name, lit(`"`))), n))
	}
	n := alt(out...)
	return &n, nil
}

// plainLetter reports whether a character stands for itself in an expression.
func plainLetter(c rune) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
}

// otherKeys is a string that is none of some names, without escapes, so that it spells none of them in another way.
func (s *schema) otherKeys(names []string) node {
	return seq(lit(`"`), s.otherThan(names))
}

// plain are the characters that stand for themselves in strings.
var plain = [][2]rune{{' ', '!'}, {'#', '['}, {']', utf8.MaxRune}}

// otherThan is the rest of a string, with its quote, that is none of some rests.
func (s *schema) otherThan(rests []string) node {
	if len(rests) > 0 {
		s.tries++
	}
	if len(rests) == 0 || s.tries > triesMost { // schemaNode says so
		return seq(rep(node{kind: class, runes: plain}, 0, -1), lit(`"`))
	}
	by := map[rune][]string{}
	var begins []rune
	ends := false
	for _, r := range rests {
		if r == "" {
			ends = true
			continue
		}
		c, n := utf8.DecodeRuneInString(r)
		if by[c] == nil {
			begins = append(begins, c)
		}
		by[c] = append(by[c], r[n:])
	}
	slices.Sort(begins)
	var out []node
	if !ends {
		out = append(out, lit(`"`))
	}
	var free [][2]rune
	for _, p := range plain {
		lo := p[0]
		for _, c := range begins {
			if c < lo || c > p[1] {
				continue
			}
			free = append(free, [2]rune{lo, c - 1})
			lo = c + 1
			out = append(out, seq(lit(string(c)), s.otherThan(by[c])))
		}
		free = append(free, [2]rune{lo, p[1]})
	}
	return alt(append(out, seq(node{kind: class, runes: free}, s.otherThan(nil)))...)
}

// escapes are the characters that strings have as an escape.
var escapes = map[rune]string{'"': `\"`, '\\': `\\`, '\n': `\n`, '\t': `\t`, '\r': `\r`, '\b': `\b`, '\f': `\f`}

// inString is a character of some ranges as a string has it.
func inString(ranges [][2]rune) node {
	var out []node
	var free [][2]rune
	for _, r := range ranges {
		for _, p := range plain {
			free = append(free, [2]rune{max(r[0], p[0]), min(r[1], p[1])})
		}
		for _, c := range []rune{'"', '\\', '\n', '\t', '\r', '\b', '\f'} {
			if r[0] <= c && c <= r[1] {
				out = append(out, lit(escapes[c]))
			}
		}
	}
	return alt(append(out, node{kind: class, runes: free})...)
}

// hostname are names of hosts of up to four parts.
const hostname = `[A-Za-z0-9]([A-Za-z0-9-]{0,28}[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]{0,28}[A-Za-z0-9])?){1,3}`

// formats are expressions for what format says of a string.
var formats = map[string]string{
	"date":      `\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])`,
	"time":      `([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`,
	"date-time": `\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)`,
	"uuid":      `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`,
	"ipv4":      `((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`,
	"ipv6":      `([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}`,
	"hostname":  hostname,
	"email":     `[A-Za-z0-9_+-]{1,30}(\.[A-Za-z0-9_+-]{1,30})?@` + hostname,
	"uri":       `(https?|ftp)://` + hostname + `(:\d{1,4})?(/[A-Za-z0-9._~-]{0,60}){0,6}(\?[A-Za-z0-9=&._~-]{0,60})?(#[A-Za-z0-9._~-]{0,60})?`,
	"duration":  `P(\d{1,4}W|\d{1,4}Y(\d{1,2}M(\d{1,2}D)?)?|\d{1,4}M(\d{1,2}D)?|\d{1,4}D(T\d{1,2}H)?|T\d{1,4}(H(\d{1,2}M(\d{1,2}S)?)?|M(\d{1,2}S)?|S))`,
}

// saidFormats are those of Pydantic's and OpenAPI's that describe a string to people, as every format does by the
// standard's default; texts are not held to them.
var saidFormats = []string{"binary", "byte", "password", "path", "file-path", "directory-path", "base64", "base64url",
	"json-string", "color", "phone", "time-delta"}

// text is the expression of strings.
func (s *schema) text(k *keys) (node, error) {
	least, err := k.number("minLength", 0)
	if err != nil {
		return node{}, err
	}
	most, err := k.number("maxLength", -1)
	if err != nil {
		return node{}, err
	}
	if most >= 0 && least > most {
		return node{}, k.fault("minLength", "is more than maxLength")
	}
	expr, key, whole := "", "pattern", false
	if raw, ok := k.has("pattern"); ok && json.Unmarshal(raw, &expr) != nil {
		return node{}, k.fault("pattern", "is %s, and no text", clip(raw))
	}
	if raw, ok := k.has("format"); ok {
		var name string
		if json.Unmarshal(raw, &name) != nil || formats[name] == "" && !slices.Contains(saidFormats, name) {
			return node{}, k.fault("format", "is %s, and none of %s, nor one that only describes", clip(raw),
				strings.Join(slices.Sorted(maps.Keys(formats)), ", "))
		}
		if expr != "" && formats[name] != "" {
			return node{}, k.fault("format", "and pattern together are not supported")
		}
		if formats[name] != "" {
			expr, key, whole = formats[name], "format", true
		}
	}
	if expr == "" {
		return seq(lit(`"`), rep(ref(ruleChar), least, most), lit(`"`)), nil
	}
	if least > 0 || most >= 0 {
		return node{}, k.fault(key, "together with minLength or maxLength is not supported")
	}
	n, err := regexNode(expr, whole, inString)
	if err != nil {
		return node{}, k.fault("pattern", "%v", err)
	}
	return s.rule(seq(lit(`"`), n, lit(`"`))), nil
}
