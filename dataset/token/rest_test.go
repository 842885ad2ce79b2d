package token

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEncodeRest: a text that is cut in front of a line, as dataset cuts long texts, gives the ids of the
// whole, with the pre-tokenizers of all models that are in use. (The one called sentencepiece was trained to
// join line ends with words.)
func TestEncodeRest(t *testing.T) {
	var b strings.Builder
	for _, l := range goldenText(t)[:60] {
		l = strings.TrimSpace(strings.ToValidUTF8(l, ""))
		if l != "" && l[0] > ' ' && l[0] < 0x7f {
			b.WriteString(l + "\n")
		}
	}
	text := b.String()
	require.Greater(t, strings.Count(text, "\n"), 20)
	for _, name := range []string{"gpt2", "llama3", "qwen", "deepseek", "tekken", "mistral", "trained"} {
		tok, _ := loadGolden(t, name)
		whole := tok.Encode(text, false)
		for at := range text {
			if at > 0 && text[at-1] == '\n' && at < len(text) && text[at] > ' ' {
				rest, err := tok.EncodeRest(text[at:])
				require.NoError(t, err)
				got := append(tok.Encode(text[:at], false), rest...)
				require.True(t, slices.Equal(whole, got), "%s: cut at byte %d, %.20q", name, at, text[at:])
			}
		}
		rest, err := tok.EncodeRest("")
		require.NoError(t, err)
		require.Empty(t, rest)
	}
}
