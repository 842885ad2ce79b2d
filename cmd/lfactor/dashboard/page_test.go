package dashboard

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestPageMethods: no class of the page sets a member of the name of one of its methods, which would then be gone: curves
// once stood still so.
func TestPageMethods(t *testing.T) {
	class := regexp.MustCompile(`(?ms)^export class (\w+).*?^}`)
	method := regexp.MustCompile(`(?m)^  (?:async )?(\w+)\(.*\) \{`)
	set := regexp.MustCompile(`this\.(\w+) = `)
	files, err := fs.Glob(page, "page/*.js")
	require.NoError(t, err)
	found := 0
	for _, name := range files {
		text, err := page.ReadFile(name)
		require.NoError(t, err)
		for _, c := range class.FindAllStringSubmatch(string(text), -1) {
			members := map[string]bool{}
			for _, m := range set.FindAllStringSubmatch(c[0], -1) {
				members[m[1]] = true
			}
			for _, m := range method.FindAllStringSubmatch(c[0], -1) {
				found++
				require.False(t, members[m[1]], "%s: %s has %s as a method, and sets it", name, c[1], m[1])
			}
		}
	}
	require.Greater(t, found, 40)
}

// TestSumsOfSteps: tokens and time add up over steps, also over those that are taken again.
func TestSumsOfSteps(t *testing.T) {
	s := newSeries()
	for _, step := range []int64{1, 2, 3, 2, 3, 4} {
		s.add(&run.Metrics{Step: step, TokensSec: 100, Seconds: 0.5})
	}
	s.add(&run.Metrics{Step: 5, TokensSec: -1, Seconds: 0.5}) // what JSON cannot hold
	text := string(s.window(nil, 0, 9, 100))
	require.Contains(t, text, `"seen":[50,100,150,200,200]`)
	require.Contains(t, text, `"elapsed":[0.5,1,1.5,2,2.5]`)
}
