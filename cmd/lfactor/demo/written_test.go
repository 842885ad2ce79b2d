package demo

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWritten: where there is no Go installation the demo has sources all the same, which differ, are the same each
// time, and are Go.
func TestWritten(t *testing.T) {
	t.Setenv("GOROOT", "")
	t.Setenv("PATH", t.TempDir())
	c, err := demoCorpus()
	require.NoError(t, err)
	require.Len(t, c.valid, writtenFiles/20)
	require.Len(t, c.train, writtenFiles-writtenFiles/20)
	seen := map[string]bool{}
	for n := range 50 {
		text := written(n)
		require.Equal(t, text, written(n))
		require.False(t, seen[text])
		seen[text] = true
		_, err := parser.ParseFile(token.NewFileSet(), "", text, 0)
		require.NoError(t, err, text)
	}
	dir := t.TempDir()
	n, err := GoSources(dir, 3)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	text, err := os.ReadFile(fmt.Sprintf("%s/00002.txt", dir))
	require.NoError(t, err)
	require.Equal(t, written(2), string(text))
}
