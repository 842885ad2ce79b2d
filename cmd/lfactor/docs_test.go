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
