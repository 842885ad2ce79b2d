package grammar

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nothing is a grammar whose one text is empty, 2^36 times; endless a schema that is twice itself for the same value.
const (
	nothing = `root ::= (""{262144}){262144}`
	endless = `{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}`
)

// named is a schema of objects with properties, and others.
func named(names ...string) string {
	for i, name := range names {
		names[i] = fmt.Sprintf("%q: true", name)
	}
	return `{"type": "object", "properties": {` + strings.Join(names, ", ") + `}, "additionalProperties": true}`
}

// distinct are n names of a length that begin in different ways.
func distinct(n, length int) (out []string) {
	for i := range n {
		out = append(out, string(rune('a'+i))+strings.Repeat("b", length-1))
	}
	return out
}

// repeated is a schema that holds a value to 2^n schemas, none of them within itself.
func repeated(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref": "#/$defs/0", "$defs": {`)
	for i := range n {
		fmt.Fprintf(&b, `"%d": {"allOf": [{"$ref": "#/$defs/%d"}, {"$ref": "#/$defs/%[2]d"}]}, `, i, i+1)
	}
	fmt.Fprintf(&b, `"%d": true}}`, n)
	return b.String()
}

// chain is a grammar of n rules, each of which is the next.
func chain(n int) string {
	var b strings.Builder
	b.WriteString("root ::= r0\n")
	for i := range n {
		fmt.Fprintf(&b, "r%d ::= r%d\n", i, i+1)
	}
	fmt.Fprintf(&b, "r%d ::= \"a\"?\n", n)
	return b.String()
}

// soon fails where f takes far longer than it should: tenths of a second, where all ways that there are
// would take years.
func soon(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
}

// TestBounds: short grammars and schemas of much work are made soon, or refused.
func TestBounds(t *testing.T) {
	soon(t, func() {
		g, err := GBNF(nothing)
		require.NoError(t, err)
		require.True(t, is(g, ""))
		require.False(t, is(g, "a"))
		_, err = GBNF(`root ::= (("" ""){262144} "a"{1,2}){262144}`)
		require.ErrorIs(t, err, errLarge)
	})
	soon(t, func() {
		v, err := NewValidator([]byte(repeated(10)))
		require.NoError(t, err)
		require.True(t, valid(t, v, "1"))
		v, err = NewValidator([]byte(repeated(60)))
		require.NoError(t, err)
		_, err = v.Text("1")
		require.ErrorIs(t, err, errSteps)
		_, err = v.Text("x")
		require.NoError(t, err, "each value has steps of its own")
	})
	for _, name := range []string{strings.Repeat("a", nameMost), "b"} {
		g, err := Schema([]byte(named(name)))
		require.NoError(t, err)
		require.True(t, is(g, `{"`+name+`": 1, "`+name[1:]+`": 2}`))
		require.False(t, is(g, `{"`+name+`": 1, "`+name+`": 2}`))
	}
}

// TestEmpties: each instruction is followed once to know which rules may read nothing, and rules that begin with
// themselves behind such a rule are found.
func TestEmpties(t *testing.T) {
	soon(t, func() {
		_, err := GBNF(chain(40_000))
		require.NoError(t, err)
		g, err := GBNF(chain(1000))
		require.NoError(t, err)
		require.True(t, is(g, ""))
	})
	for src, left := range map[string]bool{
		"root ::= a root \"x\" | \"y\"\na ::= b b\nb ::= c | \"z\"\nc ::= \"\"": true,
		"root ::= a root \"x\" | \"y\"\na ::= b c\nb ::= \"z\"?\nc ::= \"w\"":   false,
	} {
		_, err := GBNF(src)
		require.Equal(t, left, err != nil && strings.Contains(err.Error(), "begins with itself"), src)
	}
}
