package token

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tokens that only the files beside tokenizer.json have are tokens, with their flags; the ids are those of
// AutoTokenizer of transformers 5.24 (bench/golden/token_folders.py).
func TestMoreTokens(t *testing.T) {
	const words = `{"model":{"type":"WordLevel","vocab":{"[UNK]":0,"a":1,"b":2},"unk_token":"[UNK]"},` +
		`"pre_tokenizer":{"type":"WhitespaceSplit"}}`
	for _, c := range []struct {
		why   string
		files map[string]string
		text  string
		want  []int32
	}{
		{"decoder",
			map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{"3":{"content":"<|speak|>",` +
				`"lstrip":true,"special":true}}}`}, "a <|speak|>b", []int32{1, 3, 2}},
		{"named, own and extra",
			map[string]string{"tokenizer_config.json": `{"image_token":"<i>","extra_special_tokens":` +
				`["<x>"],"eos_token":"<e>"}`}, "<x><i><e>", []int32{5, 4, 3}},
		{"older extra", map[string]string{"tokenizer_config.json": `{"additional_special_tokens":["<x>"]}`},
			"a<x>",
			[]int32{1, 3}},
		{"added_tokens.json", map[string]string{"added_tokens.json": `{"<y>":9,"<x>":8}`}, "<y><x>",
			[]int32{4, 3}},
		{"special_tokens_map.json", map[string]string{"tokenizer_config.json": `{"eos_token":"<f>"}`,
			"special_tokens_map.json": `{"eos_token":{"content":"<e>","rstrip":true}}`}, "<e> b", []int32{3,
			2}},
		{"not beside a decoder", map[string]string{"tokenizer_config.json": `{"added_tokens_decoder":{}}`,
			"added_tokens.json": `{"<y>":9}`}, "<y>", []int32{0}},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(words), 0o644))
		for name, text := range c.files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		tok, conf, err := LoadDir(dir)
		require.NoError(t, err, c.why)
		require.Equal(t, c.want, tok.Encode(c.text, false), c.why)
		if c.why == "special_tokens_map.json" {
			require.Equal(t, "<e>", conf.EOS)
		}
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer.json"), []byte(words), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "tokenizer_config.json"),
		[]byte(`{"split_special_tokens":true}`), 0o644))
	_, _, err := LoadDir(dir)
	require.ErrorContains(t, err, "split_special_tokens")
}
