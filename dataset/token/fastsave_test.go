package token

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFASTSave: files of others stay, a tokenizer of actions is written over, and its print changes with
// what makes tokens.
func TestFASTSave(t *testing.T) {
	f, err := OpenFAST("testdata/fast")
	require.NoError(t, err)
	dir := t.TempDir()
	words := filepath.Join(dir, "words")
	require.NoError(t, os.Mkdir(words, 0o755))
	require.NoError(t, f.Save(filepath.Join(dir, "new")))
	for name, text := range map[string]string{fastTokenizer: "{}", fastConfig: `{"processor_class": "Qwen2VLProcessor"}`} {
		require.NoError(t, os.WriteFile(filepath.Join(words, name), []byte(text), 0o644))
		require.ErrorContains(t, f.Save(words),
			"has files, and no processor_config.json of a tokenizer of actions")
		b, err := os.ReadFile(filepath.Join(words, name))
		require.NoError(t, err)
		require.Equal(t, text, string(b))
	}
	other := *f
	other.Scale++
	require.NoError(t, other.Save(filepath.Join(dir, "new")))
	again, err := OpenFAST(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.Equal(t, other.Fingerprint(), again.Fingerprint())
	require.NotEqual(t, f.Fingerprint(), again.Fingerprint())
	entries, err := os.ReadDir(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.Len(t, entries, 2)
	other.Scale, other.file = f.Scale, []byte("x")
	require.NotEqual(t, f.Fingerprint(), other.Fingerprint())
}
