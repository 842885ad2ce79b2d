package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// follow is the state behind a text, nil if it is not the beginning of one of the form.
func follow(m *Machine, text string) *State {
	s := m.Start()
	for i := 0; i < len(text) && s != nil; i++ {
		s = s.After(text[i])
	}
	return s
}

// is reports whether a text is of the form.
func is(g *Grammar, text string) bool {
	s := follow(NewMachine(g), text)
	return s != nil && s.Ends()
}

// TestRegex: every text over a small alphabet is of the form exactly where package regexp says so.
func TestRegex(t *testing.T) {
	for _, expr := range []string{"", "a", "a*", "(a|b)*c", "a{2,3}", "[^a]b?", "(?i)aB", "a|bc|",
		"(ab)+c{0,2}",
		".", "(?s).a", "^a+$|^b", "é?a", `[b-é]`, "a{0}b"} {
		g, err := Regex(expr)
		require.NoError(t, err, expr)
		whole := regexp.MustCompile(`\A(?:` + expr + `)\z`)
		m := NewMachine(g)
		var all func(text string, n int)
		all = func(text string, n int) {
			s := follow(m, text)
			require.Equal(t, whole.MatchString(text), s != nil && s.Ends(), "%q of %q", text, expr)
			if n > 0 {
				for _, c := range []string{"a", "b", "B", "c", "é", "\n"} {
					all(text+c, n-1)
				}
			}
		}
		all("", 5)
	}
	for expr, want := range map[string]string{"a(": "missing closing", `a\bc`: "tests a place", "a^b": "tests a place",
		"(a{900}){900}": "invalid repeat"} {
		_, err := Regex(expr)
		require.ErrorContains(t, err, want, expr)
	}
}

// TestCharacters: a range of characters is compiled to their bytes and no others.
func TestCharacters(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	borders := []rune{0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xd800, 0xdfff, 0xe000, 0xffff, 0x10000, 0x10ffff}
	for range 300 {
		lo := borders[r.IntN(len(borders))] + r.Int32N(70)
		hi := lo + r.Int32N(1<<r.IntN(20))
		g, err := compile(map[string]node{"text": set(lo, hi)}, "text")
		require.NoError(t, err)
		m := NewMachine(g)
		for range 200 {
			c := r.Int32N(utf8.MaxRune + 1)
			if r.IntN(2) == 0 {
				c = lo - 5 + r.Int32N(hi-lo+10)
			}
			if c < 0 || !utf8.ValidRune(c) {
				continue
			}
			s := follow(m, string(c))
			require.Equal(t, lo <= c && c <= hi, s != nil && s.Complete(), "%x of %x to %x", c, lo, hi)
		}
	}
}

// schemas are schemas with texts that are of them and texts that are not.
var schemas = []struct {
	schema  string
	yes, no []string
}{
	{`{}`, []string{`1`, `"a"`, `{"a": [1, {}]}`, `null`}, []string{``, `x`, `{"a"}`, `[1,]`, `01`, "\"\n\""}},
	{`{"type": "string"}`, []string{`""`, `"é\n\u00e9\ud83d\ude00"`}, []string{`"`, `"\x"`, `"\ud800"`, "\"\xff\"", `1`}},
	{`{"type": "string", "minLength": 2, "maxLength": 3}`, []string{`"ab"`, `"é\né"`}, []string{`"a"`, `"abcd"`}},
	{`{"type": "string", "pattern": "^[a-c]+$"}`, []string{`"abc"`}, []string{`""`, `"abd"`}},
	{`{"type": "string", "pattern": "b\"\\d"}`, []string{`"ab\"7c"`}, []string{`"b\""`, `"b"7"`}},
	{`{"type": "string", "format": "date-time"}`, []string{`"2024-02-28T23:59:59Z"`}, []string{`"2024-13-01T00:00:00Z"`}},
	{`{"type": "string", "format": "ipv4"}`, []string{`"255.0.19.7"`}, []string{`"256.0.0.1"`, `"1.2.3"`}},
	{`{"type": ["integer", "null"]}`, []string{`-12`, `0`, `null`}, []string{`1.5`, `00`, `1234567890123456`, `"1"`}},
	{`{"type": "number"}`, []string{`-0.5e-3`, `12`}, []string{`.5`, `1.`, `+1`}},
	{`{"enum": ["a\u00e9", 1.50, null, {"x": [1]}]}`, []string{`"aé"`, `1.50`, `{"x":[1]}`}, []string{`1.5`, `"a"`}},
	{`{"const": "<&>", "type": "string", "title": "T"}`, []string{`"<&>"`}, []string{`""`}},
	{`{"type": "array", "items": {"type": "boolean"}}`, []string{`[]`, "[\n  true,\n  false\n]", `[true, false]`},
		[]string{`[1]`, `[true false]`, `[true,]`, `[  true]`}},
	{`{"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 3}`, []string{`[1,1]`, `[1, 1, 1]`},
		[]string{`[]`, `[1]`, `[1,1,1,1]`}},
	{`{"prefixItems": [{"const": 1}, {"const": 2}], "items": false}`, []string{`[]`, `[1]`, `[1,2]`}, []string{`[2]`,
		`[1,2,3]`}},
	{`{"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "minItems": 2, "maxItems": 4}`,
		[]string{`[1,2]`, `[1,2,3]`, `[1,2,3,3]`}, []string{`[1]`, `[1,2,3,3,3]`, `[1,2,2]`}},
	{`{"type": "array", "maxItems": 0}`, []string{`[]`}, []string{`[1]`}},
	{`{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a", "b"],
		"additionalProperties": false}`, []string{`{"a": 1, "b": "x"}`, "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
		[]string{`{}`, `{"a":1}`, `{"b":"","a":1}`, `{"a":1,"b":"","c":1}`}},
	{`{"properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}}, "required": ["b"]}`,
		[]string{`{"b":2}`, `{"a":1,"b":2}`, `{"b":2,"c":3}`, `{"a":1,"b":2,"c":3}`}, []string{`{}`, `{"a":1}`, `{"a":1,"c":3}`,
			`{,"b":2}`}},
	{`{"properties": {"a": {"const": 1}, "ab": {"const": 2}}, "additionalProperties": {"type": "null"}}`,
		[]string{`{}`, `{"a":1}`, `{"ab":2,"abc":null}`, `{"b":null,"":null}`, `{"a":1,"ab":2,"x":null}`},
		[]string{`{"a":null}`, `{"ab":2,"a":null}`, `{"a\u0062":null}`, `{"x":1}`}},
	{`{"type": "object"}`, []string{`{}`, `{"x": {"y": []}}`}, []string{`[]`, `{x:1}`}},
	{`{"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"type": "object", "properties":
		{"next": {"$ref": "#"}}, "required": ["next"]}}}`, []string{`null`, `{"next": {"next": null}}`}, []string{`{}`,
		`{"next": 1}`}},
	{`{"allOf": [{"const": 1}]}`, []string{`1`}, []string{`2`}},
	{`{"type": "integer", "minimum": -3, "exclusiveMaximum": 120}`, []string{`-3`, `0`, `7`, `99`, `119`}, []string{`-4`,
		`120`, `1000`}},
}

// TestSchema: texts are of a schema or not; what is of it is JSON.
func TestSchema(t *testing.T) {
	for _, c := range schemas {
		g, err := Schema([]byte(c.schema))
		require.NoError(t, err, c.schema)
		v, plain := validator(t, c.schema)
		for _, text := range c.yes {
			require.True(t, !plain || valid(t, v, text), "%s of %s", text, c.schema)
			require.True(t, is(g, text), "%s of %s", text, c.schema)
			require.True(t, json.Valid([]byte(text)), text)
		}
		for _, text := range c.no {
			require.False(t, is(g, text), "%s of %s", text, c.schema)
		}
	}
	require.True(t, is(JSON(), `{"a": [1, 2]}`))
	require.False(t, is(JSON(), `[1]`))
	g, err := Choice([]string{"yes", "no"})
	require.NoError(t, err)
	require.True(t, is(g, "no"))
	require.False(t, is(g, "n"))
}

// validator is that of a schema, and false for one that it does not know.
func validator(t *testing.T, schema string) (*Validator, bool) {
	t.Helper()
	v, err := NewValidator([]byte(schema))
	if err != nil {
		require.ErrorContains(t, err, "format is not supported")
	}
	return v, err == nil
}

// TestValidator: values are of a schema whatever their order, and what a validator does not know is refused.
func TestValidator(t *testing.T) {
	for schema, c := range map[string]struct{ yes, no []string }{
		`{"properties": {"a": {"type": "integer"}}, "required": ["a", "b"]}`: {[]string{`{"b": 1, "a": 2.0}`, `{"a":1,"b":[],"c":3}`},
			[]string{`{"a": 1}`, `{"a": 1.5, "b": 0}`, `{"a":1,"b":2} x`, `{`, ``}},
		`{"oneOf": [{"type": "number", "minimum": 3}, {"type": "integer"}]}`:         {[]string{`2`, `3.5`}, []string{`4`, `"x"`, `2.5`}},
		`{"not": {"const": {"b": 1, "a": 2}}, "type": "object", "maxProperties": 2}`: {[]string{`{}`}, []string{`{"a": 2, "b": 1}`, `3`}},
		`{"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"exclusiveMaximum": 3}}}`: {
			[]string{`[1, 2, "s"]`, `[]`}, []string{`[1, 1]`, `[3]`}},
		`{"type": "string", "pattern": "b+", "maxLength": 3}`:                         {[]string{`"abb"`, `"éb"`}, []string{`"a"`, `"abbb"`}},
		`{"anyOf": [{"type": "integer"}, {"items": {"$ref": "#"}, "type": "array"}]}`: {[]string{`[1, [2, []]]`}, []string{`[[""]]`}},
	} {
		v, err := NewValidator([]byte(schema))
		require.NoError(t, err)
		for _, text := range c.yes {
			require.True(t, valid(t, v, text), "%s of %s", text, schema)
		}
		for _, text := range c.no {
			require.False(t, valid(t, v, text), "%s of %s", text, schema)
		}
	}
	for schema, want := range map[string]string{`3`: "# is no schema", `{"properties": {"a": {"contains": 3}}}`: "#/properties/a/contains is not",
		`{"$ref": "#"}`: "#/$ref leads back to itself", `{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}`: "leads back to itself",
		`{"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"not": {"oneOf": [{"$ref": "#/$defs/x"}]}}}}`: "leads back to itself",
		`{"$ref": "#/default", "default": {"$ref": "#/x"}}`:                                                         "#/default/$ref leads to no part",
		`{"$ref": "#/default", "default": {"pattern": "("}}`:                                                        "#/default/pattern",
		`{"title": "` + strings.Repeat("a", textMost) + `"}`:                                                        "longer than",
		`{"pattern": "("}`: "#/pattern", `{"$ref": "#/x"}`: "leads to no part", `{"anyOf": {}}`: "no list", `{`: "EOF"} {
		_, err := NewValidator([]byte(schema))
		require.ErrorContains(t, err, want)
	}
}

// valid reports whether a text is of a validator's schema.
func valid(t *testing.T, v *Validator, text string) bool {
	t.Helper()
	is, err := v.Text(text)
	require.NoError(t, err)
	return is
}

// TestUnsupported: what nobody holds to is refused by the key's name and place.
func TestUnsupported(t *testing.T) {
	for schema, want := range map[string]string{
		`7`:                                   "# is 7, and no object",
		`{"type": "string"`:                   "EOF",
		`{"type": "string"} x`:                "goes on behind",
		`{"type": "real"}`:                    `#/type is "real"`,
		`{"type": "number", "multipleOf": 0}`: "#/multipleOf is 0",
		`{"type": "number", "multipleOf": 0.513}`:                          "is supported up to 512",
		`{"type": "integer", "multipleOf": 3, "minimum": 1}`:               "give both",
		`{"type": "integer", "multipleOf": 3, "minimum": 1, "maximum": 2}`: "or none",
		`{"type": "number", "minimum": 2, "exclusiveMaximum": 2}`:          "leaves no number",
		`{"type": "number", "minimum": 1e-20}`:                             "#/minimum is 1e-20",
		`{"type": "number", "format": "int"}`:                              `#/format is "int"`,
		`{"oneOf": [{}, {}]}`:                                              "schemas 0 and 1, which may both hold",
		`{"oneOf": [{"type": "number"}, {"type": "integer"}]}`:             "say anyOf",
		`{"oneOf": {}}`: "#/oneOf is no list",
		`{"allOf": [{"type": "string"}, {"type": "null"}]}`:                                                                   "type: nothing is of both",
		`{"allOf": [{"pattern": "a"}, {"pattern": "b"}]}`:                                                                     "pattern: both say",
		`{"allOf": [{"properties": {"a": {}}, "additionalProperties": false}, {"properties": {"b": {}}, "required": ["b"]}]}`: `"b" is required by one`,
		`{"patternProperties": {"^a": {}, "^ab": {}}, "type": "object"}`:                                                      "a name may be of two of",
		`{"patternProperties": {"a|b": {}}, "properties": {"xa": {}}}`:                                                        `which the property "xa" is of too`,
		`{"type": "object", "propertyNames": {"type": "null"}}`:                                                               "names are strings",
		`{"not": {}}`: "# has not",
		`{"properties": {"a": {"type": "string", "format": "regex"}}}`: `#/properties/a/format is "regex"`,
		`{"type": "array", "uniqueItems": true}`:                       "# has uniqueItems",
		`{"type": "array", "minItems": 3, "maxItems": 2}`:              "minItems is more",
		`{"type": "string", "maxLength": -1}`:                          "#/maxLength is -1",
		`{"type": "string", "maxLength": 200000}`:                      "too many parts",
		`{"type": "string", "pattern": "a(?=b)"}`:                      "#/pattern",
		`{"type": "string", "pattern": "a", "maxLength": 3}`:           "#/pattern together with",
		`{"type": "object", "required": ["x"], "properties": {}}`:      `names "x"`,
		`{"type": "object", "patternProperties": {"(": {}}}`:           "which is no expression",
		`{"type": "object", "properties": {"a": {}, "a": {}}}`:         "twice",
		`{"$ref": "#"}`: "begins with itself",
		`{"anyOf": [{"$ref": "#"}, {"type": "null"}]}`:                       "begins with itself",
		`{"$ref": "http://x/y"}`:                                             "leads to no part",
		`{"$ref": "#/$defs/x"}`:                                              "there is no such part",
		`{"properties": {"a": false}}`:                                       "#/properties/a is false",
		`{"type": "integer", "minimum": 3, "maximum": 2.5}`:                  "leaves no integer",
		`{"enum": []}`:                                                       "#/enum",
		`{"type": ["object", "object"]}`:                                     `#/type has "object" twice`,
		named(strings.Repeat("a", 1_000_000)):                                `#/properties has the name "aaa`,
		named(distinct(20, 1000)...):                                         "too many parts",
		`{"title": "` + strings.Repeat("a", textMost) + `"}`:                 "longer than",
		strings.Repeat(`{"anyOf":[`, 300) + `{}` + strings.Repeat(`]}`, 300): "deeper than",
	} {
		_, err := Schema([]byte(schema))
		require.ErrorContains(t, err, want, schema)
	}
}

// TestIntegers: bounds hold for every number near them.
func TestIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 60 {
		lo := r.Int64N(3000) - 1500
		hi := lo + r.Int64N(2500)
		g, err := Schema(fmt.Appendf(nil, `{"type": "integer", "minimum": %d, "maximum": %d}`, lo, hi))
		require.NoError(t, err)
		m := NewMachine(g)
		for x := int64(-1600); x < 4100; x++ {
			s := follow(m, fmt.Sprint(x))
			require.Equal(t, lo <= x && x <= hi, s != nil && s.Ends(), "%d of %d to %d", x, lo, hi)
		}
	}
}

// TestWalks: a text that goes on at random by what is allowed is JSON when it ends, and always can end.
func TestWalks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, c := range schemas {
		g, err := Schema([]byte(c.schema))
		require.NoError(t, err)
		m := NewMachine(g)
		for range 20 {
			s, text := m.Start(), []byte{}
			for n := 0; !s.Complete() && (n < 300 || !s.Ends()); n++ {
				var next []byte
				for b := range 256 {
					if s.After(byte(b)) != nil {
						next = append(next, byte(b))
					}
				}
				require.NotEmpty(t, next, "%q of %s", text, c.schema)
				b := next[r.IntN(len(next))]
				if n > 200 { // what is open is closed
					for _, x := range `"]}0e:,1` {
						if s.After(byte(x)) != nil {
							b = byte(x)
							break
						}
					}
				}
				text, s = append(text, b), s.After(b)
				if n > 5000 {
					break
				}
			}
			if s.Ends() {
				require.True(t, json.Valid(text), "%q of %s", text, c.schema)
				require.True(t, utf8.Valid(text))
			}
		}
	}
}

// TestVocabulary: a token is allowed exactly where its bytes are, as the first and behind others, also after all
// states were forgotten.
func TestVocabulary(t *testing.T) {
	tokens := []string{"", "{", "}", `{"`, `"`, `a`, `a"`, `":`, `": `, ": 1", "1", "12", ",", `, "`, "}\n", "é"[:1], "é"[1:], "[[", "]",
		`"a": 1}`, " ", "\n", "\n  ", "tru", "true", "e"}
	other := make([][]byte, len(tokens))
	first := make([][]byte, len(tokens))
	for i, x := range tokens {
		other[i], first[i] = []byte(x), []byte(strings.TrimPrefix(x, " "))
	}
	v := NewVocabulary(first, other)
	g, err := Schema([]byte(`{"type": "object", "properties": {"a": {}, "éa": {}}, "additionalProperties": true}`))
	require.NoError(t, err)
	m, plain := NewMachine(g), NewMachine(g)
	r := rand.New(rand.NewPCG(7, 8))
	for walk := range 60 {
		s, text := m.Start(), ""
		for n := range 30 {
			of := other
			if n == 0 {
				of = first
			}
			if walk%20 == 9 && n == 4 {
				m.forget()
			}
			mask := v.Allowed(s, n == 0)
			var next []int32
			for id, b := range of {
				want := len(b) > 0 && follow(plain, text+string(b)) != nil
				require.Equal(t, want, mask[id/64]>>(id%64)&1 == 1, "%q behind %q", b, text)
				require.Equal(t, want, v.After(s, int32(id), n == 0) != nil)
				if want {
					next = append(next, int32(id))
				}
			}
			if len(next) == 0 {
				break
			}
			id := next[r.IntN(len(next))]
			s, text = v.After(s, id, n == 0), text+string(of[id])
		}
	}
	require.Nil(t, v.After(m.Start(), -1, true))
	require.Nil(t, v.After(m.Start(), 999, true))
}

// FuzzSchema: no schema crashes or hangs, and what is of one that compiles is JSON.
func FuzzSchema(f *testing.F) {
	for _, c := range schemas {
		f.Add(c.schema, c.yes[0])
	}
	for _, schema := range []string{named(strings.Repeat("a", 1_000_000)), named(distinct(20, 1000)...),
		endless, repeated(40), `{"type": ["object", "object"], "properties": {"a": {"$ref": "#"}}}`} {
		f.Add(schema, `1`)
	}
	f.Fuzz(func(t *testing.T, schema, text string) {
		if v, err := NewValidator([]byte(schema)); err == nil {
			_, _ = v.Text(text)
		}
		g, err := Schema([]byte(schema))
		if err == nil && is(g, text) && !json.Valid([]byte(text)) {
			t.Fatalf("%q of %q", text, schema)
		}
	})
}

// TestGBNF: rules in the form of llama.cpp are read, and faults are told with their lines.
func TestGBNF(t *testing.T) {
	g, err := GBNF(`# arithmetic
root ::= sum "\n"
sum  ::= term ([-+] term)*
term ::= number | "(" sum ")" |
         "\x70i" # pi
number ::= [0-9]{1,3} ("." [^\x00-/:-\U0010ffff]+)?
`)
	require.NoError(t, err)
	for _, text := range []string{"1\n", "12+(pi-3.14)\n", "((1))-2\n"} {
		require.True(t, is(g, text), text)
	}
	for _, text := range []string{"1", "\n", "1+\n", "1234\n", "(1\n", "1.\n"} {
		require.False(t, is(g, text), text)
	}
	for src, want := range map[string]string{
		"":                                       `no rule "root"`,
		"root ::= a":                             `no rule "a"`,
		"root ::= root \"a\"":                    "begins with itself",
		"root ::= \"a":                           "line 1",
		"root ::= [a":                            "line 1",
		"\nroot ::= (\"a\"":                      "line 2",
		"root = \"a\"":                           "line 1",
		"root ::= \"a\"{3,2}":                    "line 1",
		"root ::= *":                             "line 1",
		"root ::= \"a\"\nroot ::= \"b\"":         "twice",
		"root ::= " + strings.Repeat("(", 10000): "line 1",
		"root ::= (" + strings.Repeat(`"" `, 100) + `"a"{1,2}){100000}`: "too many parts",
		"root ::= # " + strings.Repeat("a", textMost):                   "longer than",
	} {
		_, err := GBNF(src)
		require.ErrorContains(t, err, want, src)
	}
}

// FuzzGBNF: no grammar crashes or hangs.
func FuzzGBNF(f *testing.F) {
	f.Add("root ::= [a-z]+ (\"x\" | root2)*\nroot2 ::= \"\\n\"", "abc")
	f.Add(nothing, "")
	f.Add(chain(8000), "a")
	f.Fuzz(func(t *testing.T, src, text string) {
		if g, err := GBNF(src); err == nil {
			is(g, text)
		}
	})
}

// TestCalls: calls of tools have the tools' names and arguments of their schemas, alone or behind a text that has not
// what calls begin with.
func TestCalls(t *testing.T) {
	c := Calls{From: "<<c>", Name: `{"name": `, Arguments: `, "arguments": `, End: "}", Between: "<<c>", To: "</c>", Least: 1,
		Most: 2, Tools: []Tool{{"f", []byte(`{"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x"],
		"$defs": {"n": {"type": "integer"}}}`)}, {Name: "g"}, {"h", []byte(`{"properties": {"x": {"$ref": "#/$defs/n"}},
		"$defs": {"n": {"type": "null"}}}`)}}}
	f, g := `{"name": "f", "arguments": {"x": 3}}`, `{"name": "g", "arguments": {"y": []}}`
	for _, free := range []bool{false, true} {
		for _, least := range []int{0, 1} {
			c.Free, c.Least = free, least
			x, err := c.Grammar()
			require.NoError(t, err)
			for _, calls := range []string{f, g, f + "<<c>" + g, `{"name": "h", "arguments": {"x": null}}`} {
				require.True(t, is(x, "<<c>"+calls+"</c>"))
				for _, text := range []string{"hm <", "<<", "<<<é", "<<c"} {
					require.Equal(t, free, is(x, text+"<<c>"+calls+"</c>"), text)
				}
				require.False(t, is(x, "<<c>"+calls))
				require.Equal(t, free && least == 0 && !strings.Contains(calls, "<<c>"), is(x, calls))
			}
			require.Equal(t, least == 0, is(x, ""))
			require.Equal(t, least == 0 && free, is(x, "hello <<c"))
			for _, text := range []string{"a<<c>b", "<<c></c>",
				"<<c>" + f + "<<c>" + f + "<<c>" + f + "</c>",
				`<<c>{"name": "f", "arguments": {"x": null}}</c>`, `<<c>{"name": "k", "arguments": {}}</c>`} {
				require.False(t, is(x, text), text)
			}
		}
	}
	c.Tools[0].Parameters = []byte(`{"oneOf": []}`)
	_, err := c.Grammar()
	require.ErrorContains(t, err, "parameters of f: #/oneOf is no list")
}
