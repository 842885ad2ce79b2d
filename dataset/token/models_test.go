package token

import (
	"encoding/json"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func goldenJSON[T any](t testing.TB, name string) (v T) {
	t.Helper()
	require.NoError(t, json.Unmarshal(unzip(t, "models/"+name+".json.gz"), &v))
	return v
}

// TestModels: tokenizers of each kind and from each kind of file give the ids of sentencepiece,
// tiktoken and tokenizers.
func TestModels(t *testing.T) {
	text := goldenJSON[[]string](t, "text")
	require.Greater(t, len(text), 200)
	for name, file := range map[string]string{"unigram": "tokenizer.model", "bpe": "tokenizer.model",
		"unigram_bytes": "tokenizer.model", "qwen.tiktoken": "qwen.tiktoken",
		"unigram_hf": "tokenizer.json", "wordpiece": "tokenizer.json"} {
		t.Run(name, func(t *testing.T) {
			source := map[string]string{"tokenizer.model": name + ".model.gz", "qwen.tiktoken": name + ".gz",
				"tokenizer.json": name + ".tokenizer.json.gz"}[file]
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, file), unzip(t, "models/"+source), 0o600))
			tok, _, err := LoadDir(dir)
			require.NoError(t, err)
			for i, want := range goldenJSON[[][]int32](t, name+".ids") {
				require.Equal(t, append([]int32{}, want...),
					append([]int32{}, tok.Encode(text[i], false)...), "line %d %q", i, text[i])
			}
			if file != "tokenizer.json" {
				return
			}
			for i, want := range goldenJSON[[]string](t, name+".text") {
				require.Equal(t, want, tok.Decode(tok.Encode(text[i], false), true), "line %d", i)
			}
		})
	}
}

// TestNormalFormsOfManyMarks: over 30 combining marks in a row stay as they are, in the order of their
// classes. golang.org/x/text alone would put a joiner among them.
func TestNormalFormsOfManyMarks(t *testing.T) {
	marks := strings.Repeat("\u0301\u0316", 40)
	sorted := strings.Repeat("\u0316", 40) + strings.Repeat("\u0301", 40)
	for name, want := range map[string]string{"NFC": "é" + sorted[:len(sorted)-2], "NFD": "e" + sorted,
		"NFKC": "é" + sorted[:len(sorted)-2], "NFKD": "e" + sorted} {
		n, err := parseNormalizer([]byte(`{"type":"` + name + `"}`))
		require.NoError(t, err)
		require.Equal(t, "ab "+want+" c", n("ab e"+marks+" c"), name)
		require.Equal(t, "\u034f"+want, n("\u034fe"+marks), "%s: a joiner of the text itself stays", name)
	}
}

// TestDropout: a tokenizer with dropout leaves merges out, the same ones for the same text, and its tokens
// still spell the text. At 0 it leaves out none, at 1 all.
func TestDropout(t *testing.T) {
	const text = "The quick brown fox jumps over the lazy dog, again and again."
	load := func(dropout string) *Tokenizer {
		doc := strings.Replace(string(unzip(t, "gpt2.tokenizer.json.gz")), `"dropout":null`,
			`"dropout":`+dropout, 1)
		require.Contains(t, doc, `"dropout":`+dropout)
		tok, err := Parse([]byte(doc))
		require.NoError(t, err)
		return tok
	}
	count := map[string]int{}
	for _, d := range []string{"null", "0.0", "0.1", "0.5", "1.0"} {
		tok := load(d)
		ids := tok.Encode(text, false)
		require.Equal(t, ids, tok.Encode(text, false), d)
		require.Equal(t, strings.TrimSpace(text), strings.TrimSpace(tok.Decode(ids, false)), d)
		count[d] = len(ids)
	}
	require.Equal(t, count["null"], count["0.0"])
	require.Greater(t, count["0.1"], count["0.0"])
	require.Greater(t, count["0.5"], count["0.1"])
	require.GreaterOrEqual(t, count["1.0"], len(text))
}

// TestSlowPattern: a pattern that would take for ever on a text ends with an error that names it.
func TestSlowPattern(t *testing.T) {
	defer func(d time.Duration) { matchTime = d }(matchTime)
	matchTime = 20 * time.Millisecond
	tok, err := Parse([]byte(`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a|aa|a+)+b(?=c|$)"},"behavior":"Isolated"},"model":{"vocab":{"a":0}}}`))
	require.NoError(t, err)
	_, err = tok.TryEncode(strings.Repeat("a", 60), false)
	var slow *SlowError
	require.ErrorAs(t, err, &slow)
	require.ErrorContains(t, err, "(a|aa|a+)+b(?=c|$)")
	require.ErrorContains(t, err, "a text of 60 bytes")
	var ids []int32
	require.Eventually(t, func() bool { // a machine that stands still for so long makes every pattern slow
		ids, err = tok.TryEncode("aab", false)
		return err == nil
	}, time.Minute, time.Millisecond)
	require.Equal(t, []int32{0, 0}, ids)
	require.Panics(t, func() { tok.Encode(strings.Repeat("a", 60), false) })
}

// TestRealVocabularies compares with the vocabularies of real models, where a folder has them:
// bench/golden/token_real.py says how to get it.
func TestRealVocabularies(t *testing.T) {
	site := os.Getenv("LFACTOR_VOCABULARIES")
	if site == "" {
		t.Skip("left out: DeepSeek's, Llama 3's, Mistral's and Qwen's own vocabularies; " +
			"LFACTOR_VOCABULARIES names the folder of Python packages that has them")
	}
	golden := goldenJSON[struct {
		Lines []string
		CRC   map[string][]uint32
	}](t, "real")
	require.Greater(t, len(golden.Lines), 1000)
	require.Len(t, golden.CRC, 7)
	for path, want := range golden.CRC {
		t.Run(path, func(t *testing.T) {
			name := filepath.Base(path)
			if strings.HasPrefix(name, "tekken") {
				name = "tekken.json"
			} else if strings.Contains(name, ".model") {
				name = "tokenizer.model"
			}
			b, err := os.ReadFile(filepath.Join(site, path))
			require.NoError(t, err)
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o600))
			tok, _, err := LoadDir(dir)
			require.NoError(t, err)
			wrong := 0
			for i, s := range golden.Lines {
				ids, err := tok.TryEncode(s, false)
				require.NoError(t, err)
				text, err := json.Marshal(append([]int32{}, ids...))
				require.NoError(t, err)
				if crc32.ChecksumIEEE(text) != want[i] {
					wrong++
					t.Logf("line %d %.60q", i, s)
				}
			}
			require.Zero(t, wrong, "of %d lines", len(want))
		})
	}
}
