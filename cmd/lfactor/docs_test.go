package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTroubleshooting: the texts that docs/troubleshooting.md explains are the program's.
func TestTroubleshooting(t *testing.T) {
	var all strings.Builder
	joined := regexp.MustCompile(`"\s*\+\s*"`)
	root := filepath.Join("..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		all.WriteString(joined.ReplaceAllString(string(text), ""))
		return err
	}))
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	require.NoError(t, err)
	heads := regexp.MustCompile("(?m)^### `(.*)`$").FindAllStringSubmatch(string(page), -1)
	require.Greater(t, len(heads), 15)
	source := all.String()
	for _, h := range heads {
		for _, part := range strings.Split(h[1], "…") {
			if part = strings.TrimSpace(part); len(part) > 2 {
				require.True(t, strings.Contains(source, part), "%s: %s", h[1], part)
			}
		}
	}
}

// TestCheckpointTables: docs/checkpoints.md is looked things up in: facts are rows of tables whose cells have at most 25 words, and so has
// each line beside them.
func TestCheckpointTables(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "checkpoints.md"))
	require.NoError(t, err)
	cells, code := 0, false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if code {
			continue
		}
		for _, cell := range strings.Split(strings.Trim(line, "| "), " | ") {
			require.LessOrEqual(t, len(strings.Fields(cell)), 25, "docs/checkpoints.md:%d: %s", i+1, cell)
			cells++
		}
	}
	require.Greater(t, cells, 500)
}

// TestShortProse: pages are read in one go: no paragraph or item of a list has more than 90 words, no cell of a table more
// than 25, and README fits on a page of 90 lines.
func TestShortProse(t *testing.T) {
	top := filepath.Join("..", "..")
	pages, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	require.NoError(t, err)
	quick, err := filepath.Glob(filepath.Join(top, "docs", "quickstart", "*.md"))
	require.NoError(t, err)
	require.Greater(t, len(pages), 25)
	begins := regexp.MustCompile(`^([*+-]|\d+\.)\s`)
	for _, page := range append(append(pages, quick...), filepath.Join(top, "README.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		words, code := 0, false
		for i, line := range strings.Split(string(text), "\n") {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "```") {
				code = !code
			}
			if code || line == "" || strings.HasPrefix(line, "|") || begins.MatchString(line) {
				words = 0
			}
			if strings.HasPrefix(line, "|") && !code {
				for _, cell := range strings.Split(strings.Trim(line, "| "), " | ") {
					require.LessOrEqual(t, len(strings.Fields(cell)), 25, "%s:%d: a cell", page, i+1)
				}
			} else if !code {
				words += len(strings.Fields(line))
				require.LessOrEqual(t, words, 90, "%s:%d: the paragraph that ends here", page, i+1)
			}
		}
		if filepath.Base(page) == "README.md" && filepath.Dir(page) == filepath.Clean(top) {
			require.LessOrEqual(t, strings.Count(string(text), "\n"), 90)
		}
	}
}

// TestTasks: docs/tasks.md has a command for each of sixty tasks and more, and each is one that there is, with flags that
// it has.
func TestTasks(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "tasks.md"))
	require.NoError(t, err)
	quoted := regexp.MustCompile(`"[^"]*"`)
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| `lfactor ([^`]*)` \\| \\[").FindAllStringSubmatch(string(text), -1)
	require.GreaterOrEqual(t, len(rows), 60)
	seen := map[string]bool{}
	for _, r := range rows {
		require.False(t, seen[r[1]], r[1])
		seen[r[1]] = true
		c, rest, err := root().Find(strings.Fields(quoted.ReplaceAllString(r[2], "x")))
		require.NoError(t, err, r[2])
		require.NotEqual(t, "lfactor", c.Name(), r[2])
		if !c.DisableFlagParsing {
			require.NoError(t, c.ParseFlags(rest), r[2])
		}
	}
}
