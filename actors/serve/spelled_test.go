package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/stages/sample"
)

// spelling is a server with a vocabulary of pieces, of SentencePiece's form or of bytes, and nothing else.
func spelling(t *testing.T, decoder string, pieces ...string) *Server {
	t.Helper()
	vocab := map[string]int{}
	for i, p := range pieces {
		vocab[p] = i
	}
	b, err := json.Marshal(vocab)
	require.NoError(t, err)
	tok, err := token.Parse([]byte(fmt.Sprintf(
		`{"model": {"type": "BPE", "vocab": %s, "merges": [], "byte_fallback": true}, "decoder": %s}`, b,
		decoder)))
	require.NoError(t, err)
	return &Server{tok: tok, spell: speller{tok: tok}}
}

const (
	sentencePiece = `{"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
		{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}`
	byteLevel = `{"type": "ByteLevel"}`
)

// drew is a part of an answer of these tokens, of which each has the others as what was likely too.
func drew(ids ...int32) *choice {
	c := &choice{}
	for _, id := range ids {
		k := sample.Token{ID: id, LogProb: -float32(id) / 8}
		for _, other := range ids {
			k.Top = append(k.Top, sample.Candidate{ID: other, LogProb: -float32(other) / 8})
		}
		c.tokens = append(c.tokens, k)
	}
	return c
}

// TestSpelled: tokens in log-probabilities have the bytes that they add, parts of characters and spaces too;
// two with one text are both there; places are in characters and go on in a stream.
func TestSpelled(t *testing.T) {
	for _, s := range []*Server{spelling(t, sentencePiece, "▁the", "▁fox", "<0xC3>", "<0xA9>", "<0x61>", "a"),
		spelling(t, byteLevel, "Ġthe", "Ġfox", "Ã", "©", "a", "b")} {
		text, b := s.spell.said(1)
		require.Equal(t, " fox", text)
		require.Equal(t, []int{32, 'f', 'o', 'x'}, b)
		text, b = s.spell.said(2)
		require.Equal(t, `bytes:\xc3`, text)
		require.Equal(t, []int{0xc3}, b)
		whole := (&completionForm{s: s, logProbs: true, places: map[int]*place{}, asked: &asked{b: &body{}}}).choice(0, drew(0, 1, 2, 3, 4, 5))
		probs := whole["logprobs"].(map[string]any)
		from := len(s.tok.Decode([]int32{0}, true))
		require.Equal(t, []int{0, from, from + 4, from + 4, from + 5, from + 6}, probs["text_offset"])
		require.Len(t, probs["top_logprobs"].([]any)[3], 6)
		require.Contains(t, probs["top_logprobs"].([]any)[3], `bytes:\xa9`)
		stream := &completionForm{s: s, logProbs: true, places: map[int]*place{}, asked: &asked{b: &body{}}}
		var offsets []int
		for _, part := range []*choice{drew(0, 1), drew(2), drew(3, 4), drew(5)} {
			x := stream.delta(0, part, false, nil)
			offsets = append(offsets, x["logprobs"].(map[string]any)["text_offset"].([]int)...)
		}
		require.Equal(t, probs["text_offset"], offsets)
		chat := (&chatForm{s: s, logProbs: true, asked: &asked{b: &body{}}}).probs(drew(2, 3)).(map[string]any)["content"].([]any)
		require.Equal(t, []int{0xa9}, chat[1].(map[string]any)["bytes"])
	}
	s := spelling(t, sentencePiece, "▁the", "▁fox", "<0xC3>", "<0xA9>", "<0x61>", "a")
	require.Equal(t, map[string]float32{"a": -0.5, "token_id:5": -0.625}, s.spell.likely([]int32{4, 5, 4},
		[]float32{-0.5, -0.625, 9}, &body{}))
}

// TestOpenAI: what OpenAI's clients look at: names, null usage before the last part, keys to the letter, bounds.
func TestOpenAI(t *testing.T) {
	_, url := served(t, Options{})
	chat := `{"model": "words", "messages": [{"role": "user", "content": "w8"}], "max_tokens": 3`
	_, v := post(t, url+"/v1/chat/completions", chat+"}")
	require.True(t, strings.HasPrefix(v["id"].(string), "chatcmpl-"), v["id"])
	_, v = post(t, url+"/v1/completions", `{"model": "words", "prompt": "w8", "max_tokens": 3}`)
	require.True(t, strings.HasPrefix(v["id"].(string), "cmpl-"), v["id"])
	all := events(t, url+"/v1/chat/completions",
		chat+`, "stream": true, "stream_options": {"include_usage": true}}`)
	for i, e := range all {
		usage, there := e["usage"]
		require.True(t, there)
		require.Equal(t, i == len(all)-1, usage != nil)
	}
	for _, e := range events(t, url+"/v1/chat/completions", chat+`, "stream": true}`) {
		require.NotContains(t, e, "usage")
	}
	for keys, want := range map[string]string{
		`"Temperature": 0`:                              `unknown field \"Temperature\"`,
		`"temperature": 0, "TEMPERATURE": 1`:            "unknown field",
		`"temperature": 0, "temperature": 1`:            "twice",
		`"stream_options": {"Include_Usage": true}`:     "unknown field",
		`"stream_options": {"include_usage": true}`:     "stream_options is for answers with stream: true",
		`"temperature": 3.5`:                            "temperature is 3.5, and not from 0 to 2",
		`"frequency_penalty": 2.5`:                      "frequency_penalty is 2.5",
		`"presence_penalty": -3`:                        "presence_penalty -3",
		`"logit_bias": {"4294967299": 1}`:               "no token's number",
		`"logit_bias": {"-1": 1}`:                       "no token's number",
		`"logit_bias": {"+3": 1}`:                       "no token's number",
		`"logit_bias": {"3": 101}`:                      "no bias",
		`"prompt_cache_key": "x", "Prompt_Cache_Key":1`: "unknown field",
	} {
		code, v := post(t, url+"/v1/completions", `{"model": "words", "prompt": "w3", `+keys+"}")
		require.Equal(t, 400, code, keys)
		require.Contains(t, at(v, "error", "message"), strings.ReplaceAll(want, `\"`, `"`), keys)
	}
}
