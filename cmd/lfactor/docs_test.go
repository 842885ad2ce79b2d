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
