package serve

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// endpoints are paths with the request that vLLM reads there, what of it is read here, and a whole request.
var endpoints = []struct {
	class, path string
	body        any
	whole       string
}{
	{"ChatCompletionRequest", "/v1/chat/completions", chatBody{}, `"messages": [{"role": "user", "content": "w8"}], "max_tokens": 1`},
	{"CompletionRequest", "/v1/completions", completionBody{}, `"prompt": "w8", "max_tokens": 1`},
	{"EmbeddingCompletionRequest", "/v1/embeddings", embeddingBody{}, `"input": "w8"`},
	{"ScoreRequest", "/v1/score", scoreBody{}, `"text_1": "w8", "text_2": ["w9", "w8"]`},
	{"RerankRequest", "/v1/rerank", rerankBody{}, `"query": "w8", "documents": ["w9", "w8"]`},
	{"TokenizeCompletionRequest", "/tokenize", tokenizeBody{}, `"prompt": "w8"`},
	{"TokenizeChatRequest", "/tokenize", tokenizeBody{}, `"messages": [{"role": "user", "content": "w8"}]`},
	{"DetokenizeRequest", "/detokenize", detokenizeBody{}, `"tokens": [1]`},
	{"ResponsesRequest", "/v1/responses", responsesBody{}, `"input": "w8", "max_output_tokens": 1`},
	{"AnthropicMessagesRequest", "/v1/messages", messagesBody{}, `"messages": [{"role": "user", "content": "w8"}], "max_tokens": 1`},
}

// vllmFields are the fields of vLLM's request classes.
func vllmFields(t *testing.T) map[string][]string {
	b, err := os.ReadFile("testdata/vllm_fields.txt")
	require.NoError(t, err)
	out := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		if class, list, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "#") {
			out[class] = strings.Split(list, ", ")
		}
	}
	return out
}

// TestFields: every field of vLLM's requests acts, is noted or is refused, and is one of these alone; the docs name
// it. What is noted changes no status, what is refused is refused by its name where it says anything, and
// what acts is refused by its name where it is of no type.
func TestFields(t *testing.T) {
	_, url := served(t, Options{})
	docs, err := os.ReadFile("../../docs/serving.md")
	require.NoError(t, err)
	all, used := vllmFields(t), map[string]bool{}
	require.Len(t, all, len(endpoints))
	for _, e := range endpoints {
		ask := func(field, value string) (int, any) {
			whole := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(`{"model": "words", `+e.whole+"}"), &whole))
			whole[field] = json.RawMessage(value)
			code, v := post(t, url+e.path, string(asJSON(whole)))
			return code, v["error"]
		}
		for _, f := range all[e.class] {
			kinds := 0
			for _, is := range []bool{fieldOf(reflect.TypeOf(e.body), f) != nil, noted[f] != "", refused[f] != ""} {
				if is {
					kinds++
				}
			}
			require.Equal(t, 1, kinds, "%s.%s", e.class, f)
			require.Contains(t, string(docs), "`"+f+"`", f)
			used[f] = true
			switch code, fault := ask(f, `[[true]]`); {
			case noted[f] != "":
				require.Equal(t, 200, code, "%s %v", f, fault)
			case f == "model":
			default:
				require.Equal(t, 400, code, f)
				if e.class == "AnthropicMessagesRequest" { // whose errors name it in their texts
					require.Contains(t, at(fault, "message"), f)
				} else {
					require.Equal(t, f, at(fault, "param"), "%s: %v", f, fault)
				}
				if refused[f] != "" {
					require.Contains(t, at(fault, "message"), refused[f])
					code, fault = ask(f, "null")
					require.Equal(t, 200, code, "%s %v", f, fault)
				}
			}
		}
	}
	for f := range refused {
		require.True(t, used[f], "nobody sends %s", f)
	}
}

// asking asks for completions of three words, with further keys.
func asking(t *testing.T, url string) func(keys string) map[string]any {
	return func(keys string) map[string]any {
		t.Helper()
		code, v := post(t, url+"/v1/completions", `{"model": "words", "prompt": "w5 w6 w7", "seed": 4, `+
			`"return_token_ids": true, `+keys+"}")
		require.Equal(t, 200, code, v)
		return v
	}
}

// TestActs: what vLLM's users send of tokens and of stops acts as there.
func TestActs(t *testing.T) {
	_, url := served(t, Options{})
	ask := asking(t, url)
	usual := ask(`"max_tokens": 9, "ignore_eos": true`)
	ids, text := at(usual, "choices", 0, "token_ids").([]any), at(usual, "choices", 0, "text").(string)
	words := strings.Fields(text)
	require.Nil(t, at(usual, "choices", 0, "stop_reason"))

	// Stops: which there was, with it or without, and not before so many tokens.
	cut := fmt.Sprintf(`"max_tokens": 9, "ignore_eos": true, "stop_token_ids": [%v]`, ids[2])
	v := ask(cut)
	require.Equal(t, ids[2], at(v, "choices", 0, "stop_reason"))
	require.Equal(t, strings.Join(words[:2], " "), strings.TrimSpace(at(v, "choices", 0, "text").(string)))
	v = ask(cut + `, "include_stop_str_in_output": true`)
	require.Equal(t, strings.Join(words[:3], " "), strings.TrimSpace(at(v, "choices", 0, "text").(string)))
	require.Greater(t, len(at(ask(cut+`, "min_tokens": 5`), "choices", 0, "token_ids").([]any)), 4)
	cut = fmt.Sprintf(`"max_tokens": 9, "ignore_eos": true, "stop": [%q]`, words[2])
	require.Equal(t, words[2], at(ask(cut), "choices", 0, "stop_reason"))
	require.Contains(t, at(ask(cut+`, "include_stop_str_in_output": true`), "choices", 0, "text"), words[2])
	require.Equal(t, text, at(ask(cut+`, "min_tokens": 9`), "choices", 0, "text"))

	// Tokens that may come, and that may not.
	for _, id := range at(ask(`"max_tokens": 9, "allowed_token_ids": [7, 9]`), "choices", 0, "token_ids").([]any) {
		require.Contains(t, []any{7.0, 9.0}, id)
	}
	v = ask(fmt.Sprintf(`"max_tokens": 9, "bad_words": [%q, "%s %s"], "temperature": 0`, words[0], words[1], words[2]))
	require.NotContains(t, strings.Fields(at(v, "choices", 0, "text").(string)), words[0])
}

// TestPrompts: prompts have log-probabilities, are repeated, are asked for alone, and are cut.
func TestPrompts(t *testing.T) {
	s, url := served(t, Options{})
	ask := asking(t, url)
	text := at(ask(`"max_tokens": 9, "ignore_eos": true`), "choices", 0, "text").(string)
	v := ask(`"max_tokens": 0, "echo": true, "logprobs": 1`)
	require.Equal(t, "w5 w6 w7", at(v, "choices", 0, "text"))
	require.Equal(t, "length", at(v, "choices", 0, "finish_reason"))
	require.Equal(t, 0.0, at(v, "usage", "completion_tokens"))
	require.Equal(t, []any{0.0, 2.0, 4.0}, at(v, "choices", 0, "logprobs", "text_offset"))
	require.Nil(t, at(v, "choices", 0, "logprobs", "token_logprobs", 0))
	second := at(v, "choices", 0, "prompt_logprobs", 1, "6")
	require.Equal(t, at(v, "choices", 0, "logprobs", "token_logprobs", 1), at(second, "logprob"))
	require.Equal(t, "w6", strings.TrimSpace(at(second, "decoded_token").(string)))
	v = ask(`"max_tokens": 9, "ignore_eos": true, "echo": true, "logprobs": 0, "return_tokens_as_token_ids": true`)
	require.Equal(t, "w5 w6 w7"+text, at(v, "choices", 0, "text"))
	require.Len(t, at(v, "choices", 0, "logprobs", "tokens"), 12)
	require.Equal(t, "token_id:5", at(v, "choices", 0, "logprobs", "tokens", 0))
	parts := events(t, url+"/v1/completions", `{"model": "words", "prompt": [5, 6, 7], "seed": 4, "max_tokens": 9, "ignore_eos": true,
		"echo": true, "logprobs": 0, "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true}}`)
	said, tokens := "", 0
	for _, p := range parts[:len(parts)-1] {
		said += at(p, "choices", 0, "text").(string)
		tokens += len(at(p, "choices", 0, "logprobs", "tokens").([]any))
		require.NotNil(t, p["usage"])
	}
	require.Equal(t, "w5 w6 w7"+text, said)
	require.Equal(t, 12, tokens)
	require.Equal(t, 2.0, at(ask(`"max_tokens": 1, "truncate_prompt_tokens": 2`), "usage", "prompt_tokens"))
	require.Equal(t, []any{5.0}, ask(`"max_tokens": 1, "truncate_prompt_tokens": 1, "truncation_side": "right"`)["prompt_token_ids"])
	require.Equal(t, []any{5.0, 6.0, 7.0}, ask(`"max_tokens": 1, "truncate_prompt_tokens": -1, "add_special_tokens": false`)["prompt_token_ids"])
	require.Equal(t, "cmpl-mine", ask(`"max_tokens": 1, "request_id": "mine", "cache_salt": "a"`)["id"])
	v = ask(`"max_tokens": 1, "allowed_token_ids": [1], "skip_special_tokens": false, "ignore_eos": true`)
	name, _ := s.tok.Token(1)
	require.Equal(t, name, strings.TrimSpace(at(v, "choices", 0, "text").(string)))
}

// TestGoesOn: conversations go on with their last message, are repeated and scored, and bad values are named.
func TestGoesOn(t *testing.T) {
	_, url := served(t, Options{})
	chat := func(keys string) map[string]any {
		t.Helper()
		code, v := post(t, url+"/v1/chat/completions", `{"model": "words", "seed": 4, "return_token_ids": true, `+keys+"}")
		require.Equal(t, 200, code, v)
		return v
	}
	messages := `"messages": [{"role": "user", "content": "w8"}, {"role": "assistant", "content": "w9"}], "max_tokens": 2`
	require.Equal(t, []any{3.0, 8.0, 3.0, 9.0, 4.0}, chat(messages)["prompt_token_ids"])
	v := chat(messages + `, "continue_final_message": true, "echo": true, "return_prompt_text": true`)
	require.Equal(t, []any{3.0, 8.0, 3.0, 9.0}, v["prompt_token_ids"])
	require.Equal(t, "w3 w8 w3 w9", v["prompt_text"])
	require.True(t, strings.HasPrefix(at(v, "choices", 0, "message", "content").(string), "w9"))
	require.Len(t, v["prompt_logprobs"], 4)
	require.Len(t, at(chat(messages+`, "prompt_logprobs": 2`), "prompt_logprobs", 1), 3, "two, and the token")
	for keys, want := range map[string]string{
		`"continue_final_message": true, "add_generation_prompt": true`: "continue_final_message",
		`"reasoning_effort": "much"`:                                    "reasoning_effort", `"min_tokens": 5`: "min_tokens",
		`"prompt_logprobs": 21`: "prompt_logprobs", `"prompt_logprobs": 1, "stream": true`: "prompt_logprobs",
		`"truncate_prompt_tokens": 0`: "truncate_prompt_tokens", `"truncation_side": "up"`: "truncation_side",
		`"allowed_token_ids": []`: "allowed_token_ids", `"bad_words": [""]`: "bad_words", `"cache_salt": "a@"`: "cache_salt",
		`"request_id": "a b"`: "request_id",
	} {
		code, v := post(t, url+"/v1/chat/completions", `{"model": "words", `+messages+", "+keys+"}")
		require.Equal(t, 400, code, keys)
		require.Equal(t, want, at(v, "error", "param"), "%s: %v", keys, v)
	}
}
