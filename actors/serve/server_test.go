package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// served is a server of a small model whose tokens are words, with a chat template.
func served(t *testing.T, o Options) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	from := "../run/testdata/preference/policy"
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json",
		"tokenizer_config.json"} {
		b, err := os.ReadFile(filepath.Join(from, name))
		require.NoError(t, err)
		if name == "tokenizer_config.json" {
			var c map[string]any
			require.NoError(t, json.Unmarshal(b, &c))
			c["chat_template"] = "{% for m in messages %}w3 {{ m['content'] }} {% endfor %}w4 "
			b, err = json.Marshal(c)
			require.NoError(t, err)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
	}
	m, err := trained.Open(dir, "")
	require.NoError(t, err)
	return serving(t, m, o)
}

// serving serves a model by the name of words, and closes it.
func serving(t *testing.T, m *trained.Trained, o Options) (*Server, string) {
	t.Helper()
	o.Name = "words"
	s, err := New(m, o)
	require.NoError(t, err)
	h := httptest.NewServer(s)
	t.Cleanup(func() {
		h.Close()
		s.Close()
		m.Close()
	})
	return s, h.URL
}

// post sends a request and returns the status and the answer.
func post(t *testing.T, url, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	var v map[string]any
	require.NoError(t, json.NewDecoder(r.Body).Decode(&v))
	return r.StatusCode, v
}

// at follows keys and places into an answer.
func at(v any, path ...any) any {
	for _, p := range path {
		switch k := p.(type) {
		case string:
			v = v.(map[string]any)[k]
		case int:
			v = v.([]any)[k]
		}
	}
	return v
}

// events are those of a stream, without the last.
func events(t *testing.T, url, body string) (out []map[string]any) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	done := false
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok || data == "" {
			continue
		}
		if done = data == "[DONE]"; done {
			continue
		}
		var v map[string]any
		require.NoError(t, json.Unmarshal([]byte(data), &v))
		out = append(out, v)
	}
	require.True(t, done)
	return out
}

// TestAnswers: a seed gives one text, at once and as a stream, in a conversation and as a completion of what the
// template writes; texts and tokens end answers; the usage is counted.
func TestAnswers(t *testing.T) {
	_, url := served(t, Options{})
	code, whole := post(t, url+"/v1/chat/completions",
		`{"model": "words", "messages": [{"role": "user", "content": "w8 w9"}],
		"max_tokens": 12, "seed": 3, "logprobs": true, "top_logprobs": 3, "return_token_ids": true, "n": 2}`)
	require.Equal(t, 200, code, whole)
	text := at(whole, "choices", 0, "message", "content").(string)
	require.NotEqual(t, text, at(whole, "choices", 1, "message", "content"))
	require.Equal(t, []any{3.0, 8.0, 9.0, 4.0}, whole["prompt_token_ids"])
	require.Equal(t, 4.0, at(whole, "usage", "prompt_tokens"))
	require.Len(t, at(whole, "choices", 0, "logprobs", "content", 0, "top_logprobs"), 3)
	streamed, first := "", true
	for _, e := range events(t, url+"/v1/chat/completions",
		`{"model": "words", "messages": [{"role": "user", "content":
		[{"type": "text", "text": "w8 w9"}]}], "max_completion_tokens": 12, "seed": 3, "stream": true,
		"stream_options": {"include_usage": true}}`) {
		require.Equal(t, "chat.completion.chunk", e["object"])
		if len(e["choices"].([]any)) == 0 {
			require.Equal(t, 4.0, at(e, "usage", "prompt_tokens"))
			continue
		}
		d := at(e, "choices", 0, "delta").(map[string]any)
		if first {
			require.Equal(t, "assistant", d["role"])
		}
		first = false
		if s, ok := d["content"].(string); ok {
			streamed += s
		}
	}
	require.Equal(t, text, streamed)
	_, same := post(t, url+"/v1/completions",
		`{"model": "words", "prompt": [[3, 8, 9, 4]], "max_tokens": 12, "seed": 3,
		"logprobs": 1}`)
	require.Equal(t, text, at(same, "choices", 0, "text"))
	words := strings.Fields(text)
	stop := words[3] + " " + words[4] // over the border of two tokens
	_, cut := post(t, url+"/v1/completions",
		fmt.Sprintf(`{"model": "words", "prompt": [3, 8, 9, 4], "max_tokens": 12,
		"seed": 3, "stop": %q}`, stop))
	require.Equal(t, "stop", at(cut, "choices", 0, "finish_reason"))
	require.Equal(t, text[:strings.Index(text, stop)], at(cut, "choices", 0, "text"))
	id := at(whole, "choices", 0, "token_ids", 2)
	code, cut = post(t, url+"/v1/completions",
		fmt.Sprintf(`{"model": "words", "prompt": [3, 8, 9, 4], "max_tokens": 12,
		"seed": 3, "stop_token_ids": [%v], "return_token_ids": true}`, id))
	require.Equal(t, 200, code, cut)
	require.Equal(t, "stop", at(cut, "choices", 0, "finish_reason"))
	require.LessOrEqual(t, len(at(cut, "choices", 0, "token_ids").([]any)), 3)
}

// TestRefusals: what cannot be answered is refused in OpenAI's form, and ends nothing else.
func TestRefusals(t *testing.T) {
	_, url := served(t, Options{Body: 4096})
	refused := map[string]string{
		`{"model": "words"`:                                                   "is not understood",
		`{"model": "words", "prompt": "w3"} {}`:                               "goes on behind",
		`{"prompt": "w3"}`:                                                    "names no model",
		`{"model": "x", "prompt": "w3"}`:                                      "is not served here",
		`{"model": "words"}`:                                                  "has no prompt",
		`{"model": "words", "prompt": []}`:                                    "there are 0 prompts",
		`{"model": "words", "prompt": [99]}`:                                  "is id 99",
		`{"model": "words", "prompt": [-1]}`:                                  "is id -1",
		`{"model": "words", "prompt": ""}`:                                    "has no tokens",
		`{"model": "words", "prompt": "` + strings.Repeat("w3 ", 2000) + `"}`: "more than 4096 bytes",
		`{"model": "words", "prompt": "` + strings.Repeat("w3 ", 70) + `"}`:   "at most 64",
	}
	for keys, want := range map[string]string{
		`"temperature": -1`:                   "temperature is -1",
		`"top_p": 1.5`:                        "top_p is 1.5",
		`"n": 1000`:                           "n is 1000",
		`"max_tokens": -3`:                    "max_tokens is -3",
		`"logprobs": 99`:                      "logprobs is 99",
		`"echo": 1`:                           "echo has number where the value is to be bool",
		`"stop": 3`:                           "stop is no text",
		`"stop": ""`:                          "a stop has 0 bytes",
		`"logit_bias": {"x": 1}`:              "no token's number",
		`"logit_bias": {"999": 1}`:            "is of no token",
		`"guided_jsn": {}`:                    "unknown field",
		`"guided_json": {"oneOf": []}`:        "guided_json: #/oneOf is no list",
		`"guided_regex": "("`:                 "guided_regex: error parsing",
		`"guided_regex": "(a|aa|b?){0,900}c"`: "too many ways",
		`"guided_grammar": ""`:                "no rule \"root\"",
		`"guided_regex": "a", "response_format": {"type": "json_object"}`: "both say",
		`"response_format": {"type": "xml"}`:                              "response_format is \"xml\"",
		`"response_format": {"type": "json_schema"}`:                      "no json_schema.schema",
	} {
		refused[`{"model": "words", "prompt": "w3", `+keys+"}"] = want
	}
	for body, want := range refused {
		code, v := post(t, url+"/v1/completions", body)
		require.GreaterOrEqual(t, code, 400, body)
		require.Less(t, code, 500, body)
		require.Contains(t, at(v, "error", "message"), want, body)
	}
	for messages, want := range map[string]string{
		`[]`:                                  "no messages",
		`[{"role": "robot", "content": "x"}]`: "role",
		`[{"role": "user", "content": [{"type": "image_url"}]}]`:         "reads text",
		`[{"role": "user", "content": "w3"}], "top_logprobs": 2`:         "wants logprobs",
		`[{"role": "user", "content": "w3"}], "tools": [{}]`:             "says nothing of tools",
		`[{"role": "user", "content": "w3", "colour": 1}]`:               "the key \"colour\"",
		`[{"role": "user", "content": "w3"}], "tool_choice": "required"`: "there are none",
	} {
		body := `{"model": "words", "messages": ` + messages + "}"
		code, v := post(t, url+"/v1/chat/completions", body)
		require.Equal(t, 400, code, body)
		require.Contains(t, at(v, "error", "message"), want, body)
	}
	code, _ := post(t, url+"/v1/nothing", "{}")
	require.Equal(t, 404, code)
	code, v := post(t, url+"/v1/completions", `{"model": "words", "prompt": "w3", "temperature": 0}`)
	require.Equal(t, 200, code, v)
}

// TestToken: without the token clients learn nothing but that somebody is there.
func TestToken(t *testing.T) {
	_, url := served(t, Options{Token: "secret"})
	for path, want := range map[string]int{"/v1/models": 401, "/metrics": 401, "/health": 200} {
		r, err := http.Get(url + path)
		require.NoError(t, err)
		require.Equal(t, want, r.StatusCode, path)
		require.NoError(t, r.Body.Close())
	}
	q, err := http.NewRequest("GET", url+"/v1/models", nil)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer secret")
	r, err := http.DefaultClient.Do(q)
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	require.Equal(t, 200, r.StatusCode)
	var v map[string]any
	require.NoError(t, json.NewDecoder(r.Body).Decode(&v))
	require.Equal(t, "words", at(v, "data", 0, "id"))
}

// long is a request that draws as much as there is room for.
const long = `{"model": "words", "prompt": "w5 w6", "max_tokens": 60, "stream": true, "ignore_eos": true}`

// TestAborts: a thousand clients that go away at any moment leave no page and no answer under way.
func TestAborts(t *testing.T) {
	s, url := served(t, Options{})
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for i := k; i < 1000; i += 8 {
				ctx, cancel := context.WithCancel(context.Background())
				q, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions",
					strings.NewReader(long))
				if err != nil {
					panic(err)
				}
				if i%9 == 0 {
					cancel() // before anything was asked
				}
				if r, err := http.DefaultClient.Do(q); err == nil {
					_, _ = io.CopyN(io.Discard, r.Body, int64(i%7)*100) // some of the answer
					cancel()
					_ = r.Body.Close() // it was given up
				}
				cancel()
			}
		})
	}
	all.Wait()
	require.Eventually(t, func() bool {
		x := s.Stats()
		return x.PagesUsed == 0 && x.Running == 0 && x.Waiting == 0
	}, 2*time.Minute, time.Millisecond)
}

// TestBounds: more requests than may wait are refused with 429, and one whose time is over ends.
func TestBounds(t *testing.T) {
	s, url := served(t, Options{Queue: 2, Deadline: time.Hour, Engine: sample.EngineOptions{Pages: 4,
		Running: 1}})
	code, v := post(t, url+"/v1/completions", `{"model": "words", "prompt": "w5", "n": 3}`)
	require.Equal(t, 429, code)
	require.Contains(t, at(v, "error", "message"), "too many requests")
	_, url = served(t, Options{Deadline: time.Nanosecond})
	code, v = post(t, url+"/v1/completions", `{"model": "words", "prompt": "w5"}`)
	require.Equal(t, 504, code, v)
	require.Eventually(t, func() bool { return s.Stats().PagesUsed == 0 }, 2*time.Minute, time.Millisecond)
	r, err := http.Get(url + "/metrics")
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Contains(t, string(b), "# TYPE lfactor_pages_used gauge\nlfactor_pages_used 0\n")
}

// TestHeldBack: text that may be the beginning of a stop is held back, and said if it is none.
func TestHeldBack(t *testing.T) {
	k := &talk{stops: []string{"END", "\n\n"}}
	var out []string
	for _, s := range []string{"a", "E", "N", "x", "\n", "y E", "ND z"} {
		out = append(out, k.release(s, false))
	}
	require.Equal(t, []string{"a", "", "", "ENx", "", "\ny ", ""}, out)
	require.True(t, k.cut)
}
