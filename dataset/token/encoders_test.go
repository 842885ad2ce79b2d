package token

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var long = flag.Bool("long", false, "run the long tier as well")

// encoded are texts and what the tokenizers of testdata/encoders make of each, with special tokens.
type encoded struct {
	Text    []string
	IDs     map[string][][]int32
	Decoded []string // of clip-hf, for the first texts
}

// encoderDir unpacks a folder of testdata/encoders; without leaves files out.
func encoderDir(t testing.TB, name string, without ...string) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join("testdata/encoders", name, "*.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, files, name)
	for _, f := range files {
		file := strings.TrimSuffix(filepath.Base(f), ".gz")
		if !strings.Contains(strings.Join(without, " "), file) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, file),
				unzip(t, filepath.Join("encoders", name, file+".gz")), 0o600))
		}
	}
	return dir
}

// hold compares the tokenizers with the ids of texts.
func (e *encoded) hold(t *testing.T) {
	require.Equal(t, 6, len(e.IDs))
	for name, ids := range e.IDs {
		tok, _, err := LoadDir(encoderDir(t, name))
		require.NoError(t, err)
		require.Equal(t, len(e.Text), len(ids))
		for i, want := range ids {
			if want == nil { // no reference
				continue
			}
			require.Equal(t, want, tok.Encode(e.Text[i], true), "%s: text %d %q", name, i, e.Text[i])
		}
	}
}

// Tokenizers of text encoders, as CLIP's vocabulary with merges, T5's spiece.model and tokenizer.json, give
// the ids of transformers, SentencePiece and tokenizers, with their special tokens.
func TestEncoders(t *testing.T) {
	var e encoded
	require.NoError(t, json.Unmarshal(unzip(t, "encoders.json.gz"), &e))
	require.Greater(t, len(e.Text), 150)
	e.hold(t)
	tok, _, err := LoadDir(encoderDir(t, "clip-hf"))
	require.NoError(t, err)
	for i, want := range e.Decoded {
		require.Equal(t, want, tok.Decode(e.IDs["clip-hf"][i], true), "text %d %q", i, e.Text[i])
	}
}

// The configuration beside a vocabulary says which token fills; CLIP's own are what it does not say.
func TestEncoderTokens(t *testing.T) {
	for name, want := range map[string]string{"clip": "<|endoftext|>", "clip-pad": "!"} {
		tok, c, err := LoadDir(encoderDir(t, name))
		require.NoError(t, err)
		require.Equal(t, want, c.PAD)
		require.Equal(t, 77.0, c.MaxLength)
		before, after := tok.Around()
		begin, _ := tok.TokenID("<|startoftext|>")
		end, _ := tok.TokenID("<|endoftext|>")
		require.Equal(t, [][]int32{{begin}, {end}}, [][]int32{before, after})
		require.True(t, tok.IsSpecial(end))
	}
	dir := encoderDir(t, "clip", "tokenizer_config.json")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("tokenizer_config.json", `{"tokenizer_class": "CLIPTokenizerFast", "pad_token": null}`)
	write("special_tokens_map.json", `{"pad_token": {"content": "!", "normalized": false}}`)
	tok, c, err := LoadDir(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"<|startoftext|>", "<|endoftext|>", "!"}, []string{c.BOS, c.EOS, c.PAD})
	pad, _ := tok.TokenID("!")
	require.Equal(t, []int32{pad, pad}, tok.Encode("!!", false), "a token that fills is found in text")
	tok, _, err = LoadDir(encoderDir(t, "t5"))
	require.NoError(t, err)
	before, after := tok.Around()
	require.Equal(t, [][]int32{{}, {1}}, [][]int32{before, after})
}

// What is no CLIP tokenizer, or half of one, says so with the file's name.
func TestEncoderRefuses(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"tokenizer_config.json", `{"tokenizer_class": "GPT2Tokenizer"}`, `tokenizer_class "GPT2Tokenizer"`},
		{"tokenizer_config.json", `{}`, `class "", and a vocab.json is read of CLIPTokenizer alone`},
		{"vocab.json", `[]`, "vocab.json: json: cannot unmarshal array"},
		{"vocab.json", `{"a": 0}`, `eos_token "<|endoftext|>" is not in the vocabulary`},
		{"merges.txt", "#version: 0.2\na b\na b c\n", `merges.txt:3: "a b c" is not two tokens`},
		{"merges.txt", "a nowhere\n", `model.merges[0] ["a" "nowhere"]`},
		{"special_tokens_map.json", `{"pad_token": 3}`, "special_tokens_map.json: pad_token: json"},
	} {
		dir := encoderDir(t, "clip")
		require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600))
		_, _, err := LoadDir(dir)
		require.ErrorContains(t, err, c.want)
	}
	_, _, err := LoadDir(encoderDir(t, "clip", "merges.txt"))
	require.ErrorContains(t, err, "merges.txt: no such file")
}

// TestEncodersOfManyTexts is TestEncoders of 10,000 random texts in some fifty languages. It wants Python
// with transformers and sentencepiece, named by LFACTOR_PYTHON or python3.
func TestEncodersOfManyTexts(t *testing.T) {
	if !*long {
		t.Skip("10,000 texts are compared with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, sentencepiece").Run(); err != nil {
		t.Skipf("%s cannot import transformers and sentencepiece (%v): nothing is compared", python, err)
	}
	dir := t.TempDir()
	run := exec.Command(python, "bench/golden/token_clip.py", dir, "10000")
	run.Dir = "../.."
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	text, err := os.ReadFile(filepath.Join(dir, "ids.json"))
	require.NoError(t, err)
	var e encoded
	require.NoError(t, json.Unmarshal(text, &e))
	require.Equal(t, 10000, len(e.Text))
	e.hold(t)
}

// FuzzCLIP: whatever a vocabulary, its merges and its configuration hold, reading them ends, and what is read encodes.
func FuzzCLIP(f *testing.F) {
	f.Add(`{"a":0,"b</w>":1,"ab</w>":2,"<|startoftext|>":3,"<|endoftext|>":4}`, "#version: 0.2\na b</w>\n",
		`{"tokenizer_class":"CLIPTokenizer","pad_token":"!"}`, "ab AB!")
	f.Add(`{"<|startoftext|>":-1,"<|endoftext|>":4}`, "", `{"tokenizer_class":"CLIPTokenizer",
		"bos_token":{"content":"x","lstrip":true}}`, "x")
	f.Fuzz(func(t *testing.T, vocab, merges, config, text string) {
		dir := t.TempDir()
		for name, b := range map[string]string{vocabName: vocab, mergesName: merges,
			"tokenizer_config.json": config} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(b), 0o600))
		}
		tok, _, err := LoadDir(dir)
		if err != nil {
			return
		}
		if _, err := tok.TryEncode(text, true); err != nil {
			require.ErrorAs(t, err, new(*SlowError))
		}
	})
}
