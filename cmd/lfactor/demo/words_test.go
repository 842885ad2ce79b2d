package demo

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDemoTokenizers: tokens of the demos' tokenizers have every field without which the tokenizers library
// does not read a file ("missing field `single_word`"), so that what demos export loads elsewhere.
func TestDemoTokenizers(t *testing.T) {
	dir := t.TempDir()
	s := &session{dir: dir}
	for _, at := range []string{"robot/tokenizer", "rl/tokenizer"} {
		require.NoError(t, s.lay(at, at, nil))
		text, err := os.ReadFile(filepath.Join(dir, at, "tokenizer.json"))
		require.NoError(t, err)
		var file struct {
			Added []map[string]any `json:"added_tokens"`
		}
		require.NoError(t, json.Unmarshal(text, &file))
		require.NotEmpty(t, file.Added)
		for _, token := range file.Added {
			for _, key := range []string{"id", "content", "single_word", "lstrip", "rstrip", "normalized",
				"special"} {
				require.Contains(t, token, key, at)
			}
		}
	}
}
