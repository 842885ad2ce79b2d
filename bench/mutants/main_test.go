package main

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

const sample = `package p

func f(a, b []int) int {
	n := 0
	for i := range a {
		if i < len(b) && !(a[i] == 3) {
			n += a[i] * b[i]
			continue
		}
		g(n)
	}
	return n
}

func h() (int, error) {
	if _, err := k(); err != nil {
		return 5, err
	}
	return 6, fmt.Errorf("p: %d", 7)
}
`

// TestSites: every kind of change is found at its line, and each leaves source that parses.
func TestSites(t *testing.T) {
	found, err := sites("p.go", []byte(sample))
	require.NoError(t, err)
	var got []string
	for _, s := range found {
		got = append(got, s.what)
		_, err := parser.ParseFile(token.NewFileSet(), "", s.apply([]byte(sample)), 0)
		require.NoError(t, err, "%s\n%s", s.what, s.apply([]byte(sample)))
	}
	require.Equal(t, []string{"0 becomes 1", "the condition is false", "&& becomes ||", "< becomes <=",
		"! is left out", "== becomes !=", "3 becomes 4", "the statement is left out", "* becomes /",
		"continue is left out", "the statement is left out", "the condition is false", "!= becomes ==", "7 becomes 8"},
		got, "and no number beside an error")
	require.Equal(t, `p.go | if i < len(b) && !(a[i] == 3) { | < becomes <=`, found[3].key())
	require.Contains(t, string(found[1].apply([]byte(sample))), "if false && (i < len(b) && !(a[i] == 3)) {")
}

// TestKnown: a line of equivalent.txt without its reason is refused, and the file itself is whole.
func TestKnown(t *testing.T) {
	keys, err := known("# note\na.go | x < 1 | < becomes <= | x is never 1\n")
	require.NoError(t, err)
	require.Equal(t, map[string]bool{"a.go | x < 1 | < becomes <=": true}, keys)
	_, err = known("a.go | x < 1 | < becomes <=")
	require.ErrorContains(t, err, "equivalent.txt:1")
	_, err = known(equivalentText)
	require.NoError(t, err)
}
