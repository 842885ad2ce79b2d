package dataset

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The words are those of Python's braceexpand 0.1.7, which webdataset uses.
func TestExpandBraces(t *testing.T) {
	for in, want := range map[string][]string{
		"s-{000..003}.tar":   {"s-000.tar", "s-001.tar", "s-002.tar", "s-003.tar"},
		"{a,b}-{1..2}":       {"a-1", "a-2", "b-1", "b-2"},
		"{a,b{1..2},}":       {"a", "b1", "b2", ""},
		"{3..1}":             {"3", "2", "1"},
		"{08..10}":           {"08", "09", "10"},
		"{1..010}":           {"001", "002", "003", "004", "005", "006", "007", "008", "009", "010"},
		"{0..6..3}":          {"0", "3", "6"},
		"{6..0..4}":          {"6", "2"},
		"plain":              {"plain"},
		"{one}":              {"{one}"},
		"{}":                 {"{}"},
		"{open":              {"{open"},
		"shut}{a,b}":         {"shut}a", "shut}b"},
		"{{a,b}}":            {"{a}", "{b}"},
		"x{a..b..c..d}{1,2}": {"x{a..b..c..d}1", "x{a..b..c..d}2"},
	} {
		got, err := expandBraces(in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{"{0..9999999}", "{0..99999}{0..99999}", "{a,{0..99999}{0..99999}}"} {
		_, err := expandBraces(in)
		require.ErrorContains(t, err, "more than")
	}
}

func TestExpandPaths(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"b-1", "b-0", "a-1", "{x,y}"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
	}
	for in, want := range map[string][]string{"{b,a}-*": {"b-0", "b-1", "a-1"}, "{x,y}": {"{x,y}"},
		"no{1,2}": {"no1", "no2"}} {
		got, err := ExpandPaths(filepath.Join(dir, in))
		require.NoError(t, err)
		for i, w := range want {
			want[i] = filepath.Join(dir, w)
		}
		require.Equal(t, want, got)
	}
	_, err := ExpandPaths(filepath.Join(dir, "{b,c}-*"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func FuzzExpandBraces(f *testing.F) {
	f.Add("a{1..3}{x,{y,z}}")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 200 {
			return
		}
		words, err := expandBraces(s)
		require.True(t, err != nil || len(words) > 0)
	})
}
