package ui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestDataJob looks at the page of a data job, as a user does: at every width, light and dark.
func TestDataJob(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: wants chromium; -long runs it")
	}
	b := startBrowser(t, "")
	dir := t.TempDir()
	text := strings.Repeat("{\"text\": \"one two three four five six seven\"}\n", 30)
	for i := range 40 {
		text += fmt.Sprintf("{\"text\": \"%d of all that is said once\"}\n", i)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "in.jsonl"), []byte(text+"{\"text\"\n"), 0o644))
	recipe := filepath.Join(dir, "recipe.yaml")
	require.NoError(t, os.WriteFile(recipe, []byte("output: clean\ninputs:\n"+
		"  - {name: all, path: in.jsonl}\nsteps:\n  - {step: length, min_words: 3}\n  - {step: exact_dedup}\n"+
		"outputs:\n  - {format: jsonl}\n"), 0o644))
	code, out := clitest.RunIn(t, dir, nil, "data", "run", "recipe.yaml")
	require.Zero(t, code, out)
	s := start(t, dir, false, "ui", "clean")
	p := b.Open(t, 1280, 900)
	require.Equal(t, 200, p.Go(s.link(t)))
	p.Until("the steps are shown", `document.querySelector("#main").innerText.includes("exact_dedup")
		&& document.querySelector("#main").innerText.includes("unreadable")`)
	for _, c := range []struct{ width, height int }{{360, 740}, {1280, 900}, {2560, 1440}} {
		p.Size(c.width, c.height)
		for _, dark := range []bool{false, true} {
			if dark {
				p.Key("t")
			}
			p.Until("nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
			shot(t, p, fmt.Sprintf("datajob-%d-%v", c.width, dark))
		}
		p.Key("t")
	}
	require.Empty(t, p.Wrong())
}
