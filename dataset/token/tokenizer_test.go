package token

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Encoders share the tables and never each other's working memory.
func TestConcurrent(t *testing.T) {
	tok, g := loadGolden(t, "qwen")
	text := goldenText(t)
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			for i := k; i < len(g.IDs); i += 3 {
				if ids := tok.Encode(text[i], true); len(ids) != len(g.IDs[i]) {
					t.Errorf("line %d: %d ids, want %d", i, len(ids), len(g.IDs[i]))
				}
			}
		})
	}
	wg.Wait()
}

// A piece cache that overflows starts again; ids stay the same.
func TestCacheBound(t *testing.T) {
	tok, _ := loadGolden(t, "gpt2")
	s := newScratch()
	for i := range cachePiecesMax + 10 {
		s.keep(string(rune(i+256)), []int32{1})
	}
	require.LessOrEqual(t, len(s.cache), cachePiecesMax)
	require.Equal(t, tok.model.appendIDs(newScratch(), nil, " hello"), tok.model.appendIDs(s, nil, " hello"))
}

// One long piece is joined in O(n log n): a quadratic scan of a megabyte would not end in the test's time.
func TestLongPiece(t *testing.T) {
	tok, _ := loadGolden(t, "llama3")
	long := strings.Repeat("abracadabra", 100_000)
	require.Equal(t, long, tok.Decode(tok.Encode(long, false), false))
}

// Bytes that are no text are read as U+FFFD, one for each maximal invalid stretch.
func TestInvalidUTF8(t *testing.T) {
	tok, _ := loadGolden(t, "llama3")
	for in, want := range map[string]string{"a\xffb": "a\uFFFDb", "\xe4\xbd": "\uFFFD",
		"\xf0\x9f\x98x": "\uFFFDx", "\xed\xa0\x80": "\uFFFD\uFFFD\uFFFD",
		"\xc0\x80": "\uFFFD\uFFFD", "\xf4\x90\x80\x80": "\uFFFD\uFFFD\uFFFD\uFFFD", "ok\uFFFD": "ok\uFFFD"} {
		require.Equal(t, want, lossyUTF8([]byte(in)), "%q", in)
		require.Equal(t, tok.Encode(want, false), tok.Encode(in, false), "%q", in)
	}
}

func TestVocabulary(t *testing.T) {
	tok, _ := loadGolden(t, "llama3")
	id, ok := tok.TokenID("<|eot_id|>")
	require.True(t, ok)
	name, ok := tok.Token(id)
	require.True(t, ok)
	require.Equal(t, "<|eot_id|>", name)
	require.True(t, tok.IsSpecial(id))
	require.Greater(t, tok.VocabSize(), int(id))
	_, ok = tok.Token(int32(tok.VocabSize()))
	require.False(t, ok)
	require.False(t, tok.IsSpecial(-1))
	require.Equal(t, "", tok.Decode([]int32{-1, 1 << 30}, false))
	require.Len(t, tok.Fingerprint(), 64)
}

// What the reader does not know it names, instead of encoding wrongly.
func TestParseRefuses(t *testing.T) {
	for doc, want := range map[string]string{
		`{`: "unexpected end",
		`{"model":{"type":"Unigram","vocab":[]}}`:                   "model.vocab is empty",
		`{"model":{"type":"Words","vocab":{"a":0}}}`:                `model.type "Words"`,
		`{"model":{"type":"Unigram","vocab":[["a",-1]]}}`:           "unk_id",
		`{"model":{"type":"WordPiece","vocab":{"a":0}}}`:            "unk_token",
		`{"model":{"type":"BPE","vocab":{"a":0},"dropout":2}}`:      "no probability",
		`{"model":{"type":"BPE","vocab":{}}}`:                       "model.vocab is empty",
		`{"model":{"type":"BPE","vocab":{"a":99999999}}}`:           "outside 0…",
		`{"model":{"type":"BPE","vocab":{"a":-1}}}`:                 "outside 0…",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}}`: "model.merges[0]",
		`{"model":{"type":"BPE","vocab":{"a":0},"merges":["ab"]}}`:  "not two tokens",
		`{"model":{"type":"BPE","vocab":{"a":0},"unk_token":"?"}}`:  "unk_token",
		`{"decoder":{"type":"CTC"},"model":{"vocab":{"a":0}}}`:      `"CTC" is not supported`,

		`{"model":{"type":"Unigram","unk_id":1,"vocab":[["a",-1]]}}`: "unk_id 1 is outside",

		`{"model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"b"}}`: "unk_token",

		`{"normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="},"model":{"vocab":{"a":0}}}`: "does not fit",

		`{"model":{"type":"WordLevel","vocab":{"a":0},"end_of_word_suffix":"</w>"}}`: "end_of_word_suffix",

		`{"normalizer":{"type":"Precompiled"},"model":{"vocab":{"a":0}}}`: "no precompiled_charsmap",

		`{"normalizer":{"type":"Sequence"},"model":{"vocab":{"a":0}}}`: "without a list",

		`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},"behavior":"Isolated"},"model":{"vocab":{"a":0}}}`: `pattern "("`,

		`{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"WhitespaceSplit"}]},"model":{"vocab":{"a":0}}}`: "after ByteLevel",

		`{"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}]},"model":{"vocab":{"a":0}}}`: `"x" has no ids`,
	} {
		_, err := Parse([]byte(doc))
		require.ErrorContains(t, err, want, doc)
	}
}

func TestLoadDir(t *testing.T) {
	dir := t.TempDir()
	write := func(name, s string) {
		require.NoError(t,
			os.WriteFile(filepath.Join(dir, name), []byte(s), 0o600))
	}
	_, _, err := LoadDir(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
	write("tokenizer.json", string(unzip(t, "qwen.tokenizer.json.gz")))
	_, c, err := LoadDir(dir)
	require.NoError(t, err)
	require.Equal(t, &Config{}, c)
	write("tokenizer_config.json", `{"bos_token":null,"eos_token":{"content":"<|im_end|>","lstrip":false},"pad_token":"<|endoftext|>","add_bos_token":false,
		"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}],"model_max_length":131072}`)
	_, c, err = LoadDir(dir)
	require.NoError(t, err)
	no := false
	c.named = nil
	require.Equal(t, &Config{EOS: "<|im_end|>", PAD: "<|endoftext|>", AddBOS: &no, ChatTemplate: "D",
		ChatTemplates: map[string]string{"default": "D", "tool_use": "T"}, MaxLength: 131072}, c)
	write("chat_template.jinja", "{{ 1 }}")
	_, c, err = LoadDir(dir)
	require.NoError(t, err)
	require.Equal(t, "{{ 1 }}", c.ChatTemplate)
	write("tokenizer_config.json", string((&Config{EOS: "<nope>"}).JSON()))
	tok, _, err := LoadDir(dir)
	require.NoError(t, err)
	_, added := tok.TokenID("<nope>")
	require.True(t, added, "a named token that tokenizer.json lacks is added, as transformers does")
}

func FuzzParse(f *testing.F) {
	small := `{"added_tokens":[{"id":9,"content":"<s>","special":true,"lstrip":true}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Replace","pattern":{"String":" "},"content":"_"}]},
		"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\s+"},"behavior":"Removed"},"decoder":{"type":"Strip","content":" ","start":1,"stop":0},
		"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},{"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[9]}}},
		"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<0x20>":3,"?":4},"merges":[["a","b"]],"byte_fallback":true,"unk_token":"?","fuse_unk":true}}`
	require.True(f, json.Valid([]byte(small)))
	f.Add([]byte(small), "ab <s> aab\n")
	f.Add([]byte(`{"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"vocab":{"a":0}}}`), "a\xff")
	f.Add([]byte(`{"pre_tokenizer":{"type":"Metaspace","replacement":"_","prepend_scheme":"first"},"decoder":{"type":"Metaspace","replacement":"_"},"model":{"vocab":{"a":0}}}`), " a")
	f.Fuzz(func(t *testing.T, doc []byte, text string) {
		tok, err := Parse(doc)
		if err != nil {
			return
		}
		ids := tok.Encode(text, true)
		for _, id := range ids {
			if id < 0 || int(id) >= max(tok.VocabSize(), idMax) {
				t.Fatalf("id %d of %d", id, tok.VocabSize())
			}
		}
		tok.Decode(ids, true)
	})
}
