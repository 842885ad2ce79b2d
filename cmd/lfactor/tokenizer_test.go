package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

// TestDataTokenizer: the tokenizer of some texts reads any text back, is the same in a second run, has the special
// tokens and the template that were asked for, and is not written over another; what cannot be one is refused.
func TestDataTokenizer(t *testing.T) {
	dir := t.TempDir()
	for i, text := range []string{"the cat and the hat", "a cat, and another cat\n", "läßt the naïve cat"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".txt"), []byte(strings.Repeat(text, 20)), 0o600))
	}
	var r setup.TokenizerReport
	for _, to := range []string{"one", "two"} {
		code, out, errs := streams(t, dir, "", "data", "tokenizer", ".", "--to", to, "--vocab", "300", "--chat", "--special",
			"<image>", "-o", "json")
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &r))
	}
	require.EqualValues(t, 3, r.Documents)
	require.Less(t, r.Vocab, 301)
	require.Greater(t, r.PerToken, 2.0)
	a, err := os.ReadFile(filepath.Join(dir, "one", "tokenizer.json"))
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "two", "tokenizer.json"))
	require.NoError(t, err)
	require.Equal(t, string(a), string(b))

	tok, conf, err := token.LoadDir(filepath.Join(dir, "one"))
	require.NoError(t, err)
	const any = "another naïve ☃ of the \x01 dogs"
	require.Equal(t, any, tok.Decode(tok.Encode(any, false), false))
	for _, special := range []string{"<|endoftext|>", "<image>", "<|im_start|>", "<|im_end|>"} {
		require.Len(t, tok.Encode(special, false), 1, special)
	}
	require.NotNil(t, conf)

	for want, args := range map[string][]string{
		"one/tokenizer.json is there already": {".", "--to", "one"},
		"vocabulary of 200":                   {".", "--to", "three", "--vocab", "200"},
		"--to: name a folder":                 {"."},
		`"<|endoftext|>" is named twice`:      {".", "--to", "three", "--special", "<|endoftext|>"},
		"--sample no: want a size":            {".", "--to", "three", "--sample", "no"},
	} {
		code, _, errs := streams(t, dir, "", append([]string{"data", "tokenizer"}, args...)...)
		require.Equal(t, 2, code, errs)
		require.Contains(t, errs, want)
	}
	require.NoDirExists(t, filepath.Join(dir, "three"))
}
