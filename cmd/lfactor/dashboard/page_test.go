package dashboard

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/rollout"
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

// TestDrawnAnswers: the newest answers come first, as many as are asked for, without tokens; a line that is not whole is none.
func TestDrawnAnswers(t *testing.T) {
	f := &folder{dir: t.TempDir()}
	ask := func(query string) []drawnAnswer {
		got, err := drawnOf(f, httptest.NewRequest(http.MethodGet, "/?"+query, nil))
		require.NoError(t, err)
		return got.([]drawnAnswer)
	}
	require.Empty(t, ask(""))
	var text strings.Builder
	for step := range 5 {
		fmt.Fprintf(&text, `{"step": %d, "asked": "1+1=", "text": "%s", "answer": [1, 2], "reward": %s, "end": "length"}`+"\n", step+1,
			strings.Repeat("é", 5000), []string{"null", "0.5"}[step%2])
	}
	text.WriteString(`{"step": 6, "as`)
	require.NoError(t, os.WriteFile(filepath.Join(f.dir, rollout.FileName), []byte(text.String()), 0o600))
	all := ask("")
	require.Len(t, all, 5)
	require.EqualValues(t, 5, all[0].Step)
	require.Nil(t, all[0].Reward)
	require.Equal(t, 0.5, *all[1].Reward)
	require.Equal(t, 2, all[0].Tokens)
	require.Equal(t, strings.Repeat("é", 4000)+" …", all[0].Text)
	require.Len(t, ask("most=2"), 2)
}
