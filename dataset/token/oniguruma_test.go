package token

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Patterns that engines read in different ways find here what the library finds, or are refused; those of
// testdata/patterns.json that must be read are read. bench/golden/token_patterns.py writes the file.
func TestOniguruma(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/patterns.json")
	require.NoError(t, err)
	var golden struct {
		Texts []string
		Found map[string][][]string
	}
	require.NoError(t, json.Unmarshal(b, &golden))
	refused := map[string]bool{ // ignoring case in a class that holds another
		`(?i:a[b&&[a-c]])`: true,
	}
	same := 0
	for pattern, want := range golden.Found {
		find, err := compileRegex(pattern)
		if want == nil {
			require.Error(t, err, "%s: the library refuses it too", pattern)
			continue
		}
		if refused[pattern] {
			require.Error(t, err, pattern)
			continue
		}
		require.NoError(t, err, pattern)
		engine, err := engineRegex(pattern)
		require.NoError(t, err, pattern)
		for i, text := range golden.Texts {
			for name, f := range map[string]finder{"automaton": find, "engine": engine} {
				got := []string{}
				f(text, func(start, stop int) {
					if stop > start {
						got = append(got, text[start:stop])
					}
				})
				require.Equal(t, want[i], got, "%s: %s in %q", name, pattern, text)
			}
		}
		same++
	}
	require.Greater(t, same, 65)
}

// FuzzOniguruma: every pattern is refused or compiled, without a panic.
func FuzzOniguruma(f *testing.F) {
	for _, s := range []string{"[a&&[b]]", `[\p{L}--[a]]`, `(?i:[a-`, `\x{`, `[[:a`, `(?<n>a)\k`, `{,`, `[^]-`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if find, err := compileRegex(pattern); err == nil && len(pattern) < 20 {
			defer func() {
				if r := recover(); r != nil {
					_, slow := r.(*SlowError)
					require.True(t, slow, "%v", r)
				}
			}()
			find("a b\n", func(int, int) {})
		}
	})
}
