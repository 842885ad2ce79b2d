package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// quickStarts are the pages of docs/quickstart in the order of its table.
func quickStarts(t *testing.T) (dir string, pages []string) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "docs", "quickstart"))
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\| \[\w+\]\((\w+\.md)\)`).FindAllStringSubmatch(string(text), -1) {
		pages = append(pages, m[1])
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.md"))
	require.NoError(t, err)
	require.Len(t, all, len(pages)+1, "every page is in the table of README.md")
	return dir, pages
}

var shell = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// commandsOf are the blocks of shell of a page, one behind the other.
func commandsOf(t *testing.T, page string) string {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 60, "%s has at most 60 lines", page)
	var b strings.Builder
	for _, m := range shell.FindAllStringSubmatch(string(text), -1) {
		b.WriteString(m[1])
	}
	require.NotZero(t, b.Len(), page)
	return b.String()
}

// TestQuickStartCommands: every command of a quick start is one that there is, with flags that it has.
func TestQuickStartCommands(t *testing.T) {
	dir, pages := quickStarts(t)
	line := regexp.MustCompile(`(?m)^(?:until )?lfactor ([^#|&>\n]*)`)
	quoted := regexp.MustCompile(`"[^"]*"|'[^']*'`)
	seen := 0
	for _, page := range pages {
		for _, m := range line.FindAllStringSubmatch(commandsOf(t, filepath.Join(dir, page)), -1) {
			args := strings.Fields(quoted.ReplaceAllString(m[1], "x"))
			c, rest, err := root().Find(args)
			require.NoError(t, err, "%s: %s", page, m[0])
			require.NotEqual(t, "lfactor", c.Name(), "%s: %s", page, m[0])
			if !c.DisableFlagParsing {
				require.NoError(t, c.ParseFlags(rest), "%s: %s", page, m[0])
			}
			seen++
		}
	}
	require.GreaterOrEqual(t, seen, 50)
}

// TestQuickStarts: the pages' commands run one behind the other in one folder, as they stand, but that demos
// take few steps.
func TestQuickStarts(t *testing.T) {
	if !*clitest.Long {
		t.Skip("skipped: the commands of all quick starts take some minutes; -long runs them")
	}
	for _, tool := range []string{"bash", "curl", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("skipped: %v", err)
		}
	}
	dir, pages := quickStarts(t)
	work, bin := t.TempDir(), t.TempDir()
	clitest.InstallBoth(t, filepath.Join(bin, "lfactor-real"))
	require.NoError(t, os.WriteFile(filepath.Join(bin, "lfactor"), []byte("#!/bin/bash\nif [ \"$1\" = demo ]; then\n"+
		"exec lfactor-real \"$@\" --steps 4\nfi\nexec lfactor-real \"$@\"\n"), 0o755))
	environment := append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"HOME="+t.TempDir(), "TEXT=demo/text")
	first := exec.Command(filepath.Join(bin, "lfactor"), "demo", "--dir", "demo")
	first.Dir, first.Env = work, environment
	out, err := first.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, page := range pages {
		require.True(t, t.Run(page, func(t *testing.T) {
			c := exec.Command("bash", "-euo", "pipefail", "-c", commandsOf(t, filepath.Join(dir, page)))
			c.Dir, c.Env = work, environment
			out, err := c.CombinedOutput()
			if len(out) > 4000 {
				out = out[len(out)-4000:]
			}
			require.NoError(t, err, "%s", out)
		}))
	}
}

// TestLinks: every link of README and docs to a file of the project names one that is there, and a heading that
// is in it.
func TestLinks(t *testing.T) {
	top := filepath.Join("..", "..")
	pages := []string{filepath.Join(top, "README.md"), filepath.Join(top, "CONTRIBUTING.md"), filepath.Join(top, "bench", "README.md")}
	require.NoError(t, filepath.WalkDir(filepath.Join(top, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	}))
	code := regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]*`")
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	seen := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(m[1], "#")
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			_, err := os.Stat(to)
			require.NoError(t, err, "%s links to %s", page, m[1])
			if heading != "" && filepath.Ext(to) == ".md" {
				require.Contains(t, headings(t, to), heading, "%s links to %s", page, m[1])
			}
			seen++
		}
	}
	require.Greater(t, seen, 100)
}

// headings are the anchors of a page's headings, as code hosts make them.
func headings(t *testing.T, page string) (out []string) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	plain := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(string(text), "")
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(plain, -1) {
		name := regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(m[1], "$1")
		name = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(name)), "")
		out = append(out, strings.ReplaceAll(name, " ", "-"))
	}
	return out
}
