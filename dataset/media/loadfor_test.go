package media

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoadFor: a processor of squeezed images counts the patches of the tower that it serves, whatever
// config.json lies beside.
func TestLoadFor(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file("preprocessor_config.json",
		`{"image_processor_type":"SiglipImageProcessor","size":{"height":224,"width":224}}`)
	tokens := func(patch, merge int) int {
		p, err := LoadFor(dir, patch, merge)
		require.NoError(t, err)
		e, err := p.Image.ImageExtent(50, 60, 1)
		require.NoError(t, err)
		return e.Tokens
	}
	require.Equal(t, 0, tokens(0, 1))
	require.Equal(t, 256, tokens(14, 1))
	require.Equal(t, 64, tokens(14, 2))
	file("config.json", `{"vision_config":{"patch_size":32}}`)
	require.Equal(t, 49, tokens(0, 1))
	require.Equal(t, 196, tokens(16, 1))
}
