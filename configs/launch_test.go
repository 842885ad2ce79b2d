package configs

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// launchLine is what a launch script of LoongForge's gives to its training (bench/golden/loong_launch.py).
type launchLine struct {
	Script string
	Args   []string
}

// launchLines reads them; files of LoongForge's are those of a clone that LFACTOR_LOONGFORGE names, or those here.
func launchLines(t *testing.T) (lines []launchLine) {
	f, err := os.Open("testdata/launch.jsonl.gz")
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	root := os.Getenv("LFACTOR_LOONGFORGE")
	if root == "" {
		root = "testdata/loong"
	}
	for s := bufio.NewScanner(z); s.Scan(); {
		var l launchLine
		require.NoError(t, json.Unmarshal(s.Bytes(), &l))
		here := true
		for i, a := range l.Args {
			if rest, ok := strings.CutPrefix(a, "LOONGFORGE/"); ok {
				l.Args[i] = filepath.Join(root, rest)
				_, err := os.Stat(l.Args[i])
				here = here && err == nil
			}
		}
		if here {
			lines = append(lines, l)
		}
	}
	return
}

// flagValue is the value of the flag at i, and how many arguments both take; nil for a flag without one,
// or with several.
func flagValue(args []string, i int) (*yaml.Node, int) {
	n := 1
	for i+n < len(args) && !strings.HasPrefix(args[i+n], "--") {
		n++
	}
	if n != 2 {
		return nil, n
	}
	var v yaml.Node
	if yaml.Unmarshal([]byte(args[i+1]), &v) != nil || len(v.Content) == 0 {
		return nil, n
	}
	return v.Content[0], n
}

// TestAlterLaunchLines replays the command lines of LoongForge's launch scripts. Of those that are accepted each flag
// is left out, and its value altered: that must change the configuration, be refused, or be named by a note.
func TestAlterLaunchLines(t *testing.T) {
	lines := launchLines(t)
	accepted, altered, seen := 0, 0, map[string]bool{}
	for _, l := range lines {
		base, err := Load(Request{Args: l.Args})
		if err != nil {
			continue
		}
		accepted++
		try := func(i, n int, with ...string) {
			args := slices.Concat(l.Args[:i], with, l.Args[i+n:])
			c, err := Load(Request{Args: args})
			altered++
			if err != nil || !maps.Equal(base.Flat(), c.Flat()) || base.VocabUnit != c.VocabUnit {
				return
			}
			name := l.Args[i]
			named := func(s string) bool {
				// a note that the flag overrules something would hide that nothing came of it
				_, loser, both := strings.Cut(s, "overrules")
				return strings.Contains(s, name) && (!both || strings.Contains(loser, name))
			}
			if len(with) == 0 && !slices.Equal(base.Notices, c.Notices) ||
				slices.ContainsFunc(c.Notices, named) {
				return
			}
			if len(with) == 0 {
				return // it said what holds without it
			}
			t.Errorf("%s: %s %v in place of %v is swallowed", l.Script, name, with[1:], l.Args[i+1:i+n])
		}
		for i := 0; i < len(l.Args); {
			v, n := flagValue(l.Args, i)
			if key := strings.Join(l.Args[i:i+n], " "); !seen[key] {
				seen[key] = true
				if try(i, n); v != nil {
					for _, other := range others(v) {
						try(i, n, l.Args[i], other)
					}
				}
			}
			i += n
		}
	}
	t.Logf("%d lines, %d accepted, %d altered", len(lines), accepted, altered)
	require.Greater(t, accepted, 40)
}
