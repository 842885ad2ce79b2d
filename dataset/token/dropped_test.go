package token

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Masks of tokenizers that drop white space, or have no token for a word, are those of the
// Python library (bench/golden/token_dropped.py).
func TestMasksOfDropped(t *testing.T) {
	var g struct {
		Template string      `json:"template"`
		Chats    [][]Message `json:"chats"`
		Cases    []struct {
			Name      string          `json:"name"`
			Tokenizer json.RawMessage `json:"tokenizer"`
			Chat      int             `json:"chat"`
			IDs       []int32         `json:"ids"`
			Mask      []int           `json:"mask"`
		} `json:"cases"`
	}
	b, err := os.ReadFile("testdata/dropped.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &g))
	require.Len(t, g.Cases, 32)
	tmpl, err := NewTemplate(g.Template, nil)
	require.NoError(t, err)
	for _, c := range g.Cases {
		tok, err := Parse(c.Tokenizer)
		require.NoError(t, err, c.Name)
		ids, mask, err := EncodeChat(tok, tmpl, g.Chats[c.Chat], ChatOptions{})
		require.NoError(t, err, c.Name)
		require.Equal(t, c.IDs, ids, c.Name)
		for i, m := range c.Mask {
			require.Equal(t, m == 1, mask[i], "%s, chat %d: token %d of %s", c.Name, c.Chat, i, marked(tok, ids, mask))
		}
	}
}
