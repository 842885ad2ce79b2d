package token

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOtherFilesRefuse: what is not a tokenizer says so, with the file's name.
func TestOtherFilesRefuse(t *testing.T) {
	for name, contents := range map[string][]string{
		"tokenizer.model": {"", "not a model", "\x0a\x03\x0a\x01", "IQ== 0\nIQ==\n",
			"\x0a\x05\x0a\x01a\x18\x01\x12\x02\x18\x03"},
		"qwen.tiktoken": {"", "IQ==", "IQ== -1", "?? 0", "IQ== 99999999"},
		"tekken.json": {"", "{}",
			`{"config":{"pattern":"a","default_vocab_size":3,"default_num_special_tokens":2},"vocab":[]}`},
	} {
		for _, c := range contents {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(c), 0o600))
			_, _, err := LoadDir(dir)
			require.ErrorContains(t, err, name, "%q", c)
		}
	}
	_, _, err := LoadDir(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "nor tekken.json")
}

// TestOtherFilesBeside: tokenizer_config.json and added_tokens.json decide what stands around texts and
// which tokens there are more.
func TestOtherFilesBeside(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("tokenizer.model", string(unzip(t, "models/bpe.model.gz")))
	plain, _, err := LoadDir(dir)
	require.NoError(t, err)
	ids := plain.Encode("a text", false)
	require.Equal(t, append([]int32{1}, ids...), plain.Encode("a text", true), "BOS, as LlamaTokenizer does")
	write("tokenizer_config.json",
		`{"add_bos_token":false,"add_eos_token":true,"bos_token":"<s>","eos_token":"</s>","added_tokens_decoder":{"2600":{"content":"<more>","special":true}}}`)
	write("added_tokens.json", `{"<most>":2601}`)
	tok, _, err := LoadDir(dir)
	require.NoError(t, err)
	require.Equal(t, append(append([]int32{}, ids...), 2), tok.Encode("a text", true))
	size := int32(plain.VocabSize())
	require.Equal(t, []int32{size, size + 1}, tok.Encode("<more><most>", false))
	require.NotEqual(t, plain.Fingerprint(), tok.Fingerprint())
}

// FuzzOtherFiles: whatever a file holds, reading it ends, and what is read encodes.
func FuzzOtherFiles(f *testing.F) {
	f.Add([]byte("IQ== 0\nIg== 1\n"), "!\"")
	f.Add([]byte(`{"config":{"pattern":"\\w+","default_vocab_size":2,"default_num_special_tokens":1},"vocab":[{"rank":0,"token_bytes":"YQ=="}]}`), "aa")
	f.Add([]byte("\x0a\x0b\x0a\x03\xe2\x96\x81\x15\x00\x00\x00\x00\x0a\x07\x0a\x03<u>\x18\x02\x12\x05\x18\x02\xc0\x02\x01"), " a ")
	f.Add(unzip(f, "models/bpe.model.gz")[:3000], "hello")
	f.Fuzz(func(t *testing.T, b []byte, text string) {
		for _, o := range otherFiles {
			file, err := o.read(b)
			if err != nil {
				continue
			}
			tok := &Tokenizer{}
			if tok.build(file) != nil {
				continue
			}
			tok.scratch.New = func() any { return newScratch() }
			if _, err := tok.TryEncode(strings.ToValidUTF8(text, ""), true); err != nil {
				require.ErrorAs(t, err, new(*SlowError))
			}
		}
	})
}
