package grammar

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// walk is a text of a grammar, drawn letter by letter; false where it does not end soon.
func walk(r *rand.Rand, m *Machine) (string, bool) {
	s, text := m.Start(), []byte{}
	for n := 0; n < 400; n++ {
		if s.Complete() || s.Ends() && r.IntN(3) == 0 {
			return string(text), true
		}
		var next []byte
		for b := range 128 {
			if s.After(byte(b)) != nil && (b >= ' ' || n < 20) {
				next = append(next, byte(b))
			}
		}
		if len(next) == 0 {
			return "", false
		}
		b := next[r.IntN(len(next))]
		if n > 60 { // what is open is closed
			for _, x := range `"]}0:,1` {
				if s.After(byte(x)) != nil {
					b = byte(x)
					break
				}
			}
		}
		if text, s = append(text, b), s.After(b); s == nil {
			return "", false // the machine has worked as much as it may
		}
	}
	return "", false
}

// put are schemas that are put together, with texts that are of them and others.
var put = []struct {
	schema  string
	yes, no []string
}{
	{`{"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}`, []string{`"x"`, `3`, `null`}, []string{`3.5`, `[]`}},
	{`{"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], "discriminator": {"propertyName": "kind"}, "$defs": {
		"cat": {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]},
		"dog": {"type": "object", "properties": {"kind": {"enum": ["dog", "wolf"]}}, "required": ["kind"]}}}`,
		[]string{`{"kind": "cat", "lives": 9}`, `{"kind":"wolf"}`}, []string{`{"kind": "dog", "lives": 1}`, `{}`}},
	{`{"oneOf": [{"properties": {"a": {}}, "required": ["a"], "additionalProperties": false}, {"properties": {"b": {}},
		"required": ["b"], "additionalProperties": false}]}`, []string{`{"a":1}`, `{"b":[]}`}, []string{`{}`, `{"a":1,"b":1}`}},
	{`{"allOf": [{"$ref": "#/$defs/named"}, {"properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}],
		"$defs": {"named": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}`,
		[]string{`{"name":"x","age":3}`}, []string{`{"name":"x"}`, `{"age":3}`, `{"name":"x","age":-1}`}},
	{`{"allOf": [{"properties": {"a": {"type": ["integer", "null"]}}}, {"properties": {"a": {"type": "number", "maximum": 5}}}]}`,
		[]string{`{"a":5}`, `{}`}, []string{`{"a":null}`, `{"a":6}`, `{"a":1.5}`}},
	{`{"type": "integer", "allOf": [{"minimum": 2}, {"minimum": 4}, {"maximum": 9}], "maximum": 7}`, []string{`4`, `7`},
		[]string{`3`, `8`}},
	{`{"type": "object", "properties": {"x": {"type": "boolean"}}, "anyOf": [{"required": ["x"]}, {"properties": {"y":
		{"type": "null"}}, "required": ["y"]}]}`, []string{`{"x":true}`, `{"x":true,"y":null}`, `{"y":null}`}, []string{`{}`}},
	{`{"type": ["string", "null"], "anyOf": [{"type": "integer"}, {"maxLength": 2}], "enum": ["a", "abc", null, 3]}`, []string{`"a"`, `null`},
		[]string{`3`, `"abc"`}},
	{`{"type": "string", "anyOf": [{"type": "integer"}, {"maxLength": 2}]}`, []string{`"ab"`}, []string{`3`, `"abc"`}},
	{`{"patternProperties": {"^x_[0-9]{1,2}$": {"type": "integer"}, "^y": {"type": "null"}}, "properties": {"a": {"const": 1}},
		"additionalProperties": false}`, []string{`{}`, `{"a":1,"x_3":4,"yes":null}`, `{"x_12":0}`}, []string{`{"x_123":1}`,
		`{"x_1":null}`, `{"z":1}`}},
	{`{"type": "object", "propertyNames": {"pattern": "^[a-c]+$"}, "additionalProperties": {"type": "boolean"}}`,
		[]string{`{"abc":true}`, `{}`}, []string{`{"d":true}`, `{"a":1}`}},
	{`{"type": "object", "propertyNames": {"enum": ["up", "down"]}, "additionalProperties": {"type": "integer"}}`,
		[]string{`{"up":1,"down":2}`}, []string{`{"left":1}`}},
	{`{"type": "number", "multipleOf": 0.25, "minimum": -1, "exclusiveMaximum": 1}`, []string{`-1`, `0.75`, `0`, `-0.5`},
		[]string{`1`, `0.3`, `0.750`}},
	{`{"type": "number", "multipleOf": 0.01}`, []string{`3`, `3.1`, `-3.14`, `0.10`}, []string{`3.141`, `.1`}},
	{`{"type": "integer", "multipleOf": 7}`, []string{`0`, `7`, `-98`, `700`}, []string{`1`, `70.0`, `007`}},
	{`{"type": "integer", "multipleOf": 5, "exclusiveMinimum": 0}`, []string{`5`, `1995`}, []string{`0`, `-5`, `12`}},
	{`{"type": "number", "minimum": 0, "maximum": 1}`, []string{`0`, `1`, `0.5`, `1.0`, `0.999`}, []string{`1.1`, `-0.1`, `2`}},
	{`{"type": "string", "format": "password", "maxLength": 3}`, []string{`"abc"`}, []string{`"abcd"`}},
}

// TestCombined: schemas of schemas, bounds and multiples of numbers, and names by expressions allow what they should, and
// whatever is drawn of them is of them.
func TestCombined(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for _, c := range put {
		g, err := Schema([]byte(c.schema))
		require.NoError(t, err, c.schema)
		v, plain := validator(t, c.schema)
		for _, text := range c.yes {
			require.True(t, is(g, text), "%s of %s", text, c.schema)
			require.True(t, !plain || valid(t, v, text), "%s of %s", text, c.schema)
		}
		for _, text := range c.no {
			require.False(t, is(g, text), "%s of %s", text, c.schema)
		}
		m, ended := NewMachine(g), 0
		for range 100 {
			if text, ok := walk(r, m); ok {
				ended++
				require.True(t, !plain || valid(t, v, text), "%s of %s", text, c.schema)
			}
		}
		require.Greater(t, ended, 20, c.schema)
	}
}

// TestDecimals: bounds of numbers hold for every number near them, whichever of its digits is the last.
func TestDecimals(t *testing.T) {
	r := rand.New(rand.NewPCG(13, 14))
	drawn := func() string {
		return strconv.FormatFloat(float64(r.IntN(40000)-20000)/math.Pow10(r.IntN(5)), 'f', -1, 64)
	}
	for range 150 {
		keys, low, high := map[string]json.Number{}, "minimum", "maximum"
		if r.IntN(2) == 0 {
			low = "exclusiveMinimum"
		}
		if r.IntN(2) == 0 {
			high = "exclusiveMaximum"
		}
		a, b := drawn(), drawn()
		if x, _ := strconv.ParseFloat(a, 64); r.IntN(4) > 0 {
			b = strconv.FormatFloat(x+float64(r.IntN(300))/100, 'f', 4, 64)
		}
		if r.IntN(5) > 0 {
			keys[low] = json.Number(a)
		}
		if r.IntN(5) > 0 {
			keys[high] = json.Number(b)
		}
		text, err := json.Marshal(keys)
		require.NoError(t, err)
		schema := `{"type": "number", ` + string(text)[1:]
		if len(keys) == 0 {
			continue
		}
		g, err := Schema([]byte(schema))
		if err != nil {
			require.ErrorContains(t, err, "leaves no number")
			continue
		}
		v, _ := validator(t, schema)
		m := NewMachine(g)
		for range 300 {
			x := drawn()
			if r.IntN(2) == 0 { // near a bound
				f, _ := strconv.ParseFloat([]string{a, b}[r.IntN(2)], 64)
				x = strconv.FormatFloat(f+float64(r.IntN(7)-3)/math.Pow10(r.IntN(6)), 'f', 5, 64)
			}
			s := follow(m, x)
			require.Equal(t, valid(t, v, x), s != nil && s.Ends(), "%s of %s", x, schema)
		}
	}
	for _, by := range []int{1, 2, 3, 7, 10, 12, 64, 99, 125, 512} {
		g, err := Schema(fmt.Appendf(nil, `{"type": "integer", "multipleOf": %d}`, by))
		require.NoError(t, err)
		m := NewMachine(g)
		for x := -1030; x < 1030; x++ {
			s := follow(m, fmt.Sprint(x))
			require.Equal(t, x%by == 0, s != nil && s.Ends(), "%d of %d", x, by)
		}
	}
}
