package serve

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/objective"
)

// typed are the events of a stream, each with its name.
func typed(t *testing.T, url, body string) (out []map[string]any) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close() //nolint:errcheck // it is only read
	require.Equal(t, "text/event-stream", r.Header.Get("Content-Type"))
	name := ""
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if n, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = n
		} else if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var v map[string]any
			require.NoError(t, json.Unmarshal([]byte(data), &v))
			require.Equal(t, name, v["type"])
			out = append(out, v)
		}
	}
	return out
}

// joined puts a streamed message together, and holds its events to their order.
func joined(t *testing.T, all []map[string]any) map[string]any {
	t.Helper()
	m := at(all[0], "message").(map[string]any)
	require.Equal(t, "message_start", all[0]["type"])
	content, text, open := []any{}, "", false
	for _, e := range all[1:] {
		switch e["type"] {
		case "content_block_start":
			require.False(t, open)
			require.EqualValues(t, len(content), e["index"])
			open, text, content = true, "", append(content, e["content_block"])
		case "content_block_delta":
			require.True(t, open)
			require.EqualValues(t, len(content)-1, e["index"])
			for _, key := range []string{"text", "thinking", "partial_json"} {
				more, _ := at(e, "delta", key).(string)
				text += more
			}
		case "content_block_stop":
			require.True(t, open)
			open = false
			block := content[len(content)-1].(map[string]any)
			if block["type"] == "tool_use" {
				var v any
				require.NoError(t, json.Unmarshal([]byte(text), &v))
				block["input"] = v
			} else {
				block[block["type"].(string)] = text
			}
		case "message_delta":
			require.False(t, open)
			m["stop_reason"], m["stop_sequence"] = at(e, "delta", "stop_reason"), at(e, "delta", "stop_sequence")
			m["usage"] = e["usage"]
		default:
			require.Equal(t, "message_stop", e["type"])
		}
	}
	require.Equal(t, "message_stop", all[len(all)-1]["type"])
	m["content"] = content
	return m
}

// TestClients: what the packages anthropic and openai send has answers in their forms, and a seed's answer is one, at
// once and as a stream.
func TestClients(t *testing.T) {
	_, url := serving(t, spells(t, hermes), Options{})
	f, err := os.Open("testdata/clients.jsonl")
	require.NoError(t, err)
	defer f.Close() //nolint:errcheck // it is only read
	calls, said := 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var sent struct {
			Client, Path string
			Body         map[string]any
		}
		require.NoError(t, json.Unmarshal(lines.Bytes(), &sent))
		sent.Body["model"] = "words"
		if sent.Path != "/v1/messages" {
			code, v := post(t, url+sent.Path, string(asJSON(sent.Body)))
			require.Equal(t, 200, code, v)
			continue
		}
		for seed := range 12 {
			sent.Body["seed"], sent.Body["stream"], sent.Body["request_id"] = seed, false, "same"
			code, whole := post(t, url+sent.Path, string(asJSON(sent.Body)))
			require.Equal(t, 200, code, whole)
			sent.Body["stream"] = true
			parts := joined(t, typed(t, url+sent.Path, string(asJSON(sent.Body))))
			require.Equal(t, whole, parts)
			require.Equal(t, "message", whole["type"])
			for _, b := range whole["content"].([]any) {
				if said++; at(b, "type") == "tool_use" {
					calls++
					require.Equal(t, "tool_use", whole["stop_reason"])
					require.Equal(t, "get", at(b, "name"))
					require.Contains(t, at(b, "input"), "x")
				}
			}
		}
	}
	require.Greater(t, calls, 12)
	require.Greater(t, said-calls, 12)
}

// TestMessages: conversations in Anthropic's form are those of chats; its errors have its form, and name the field.
func TestMessages(t *testing.T) {
	b := &messagesBody{}
	require.NoError(t, parsed([]byte(`{"model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
		"messages": [{"role": "user", "content": "c"}, {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "s"},
		{"type": "tool_use", "id": "t1", "name": "get", "input": {"z": 7, "a": 1}}]}, {"role": "user", "content": [
		{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "f"}]},
		{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aa"}}, {"type": "text", "text": "d"}]}],
		"tools": [{"name": "get", "input_schema": {"z": 1, "a": 2}}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
		"thinking": {"type": "enabled", "budget_tokens": 2000}, "output_config": {"effort": "high", "format": {"type": "json_schema",
		"schema": {"type": "object"}}}, "stop_sequences": ["x"], "min_tokens": 2}`), b))
	c, err := b.chat(nil)
	require.NoError(t, err)
	var turns []string
	for _, m := range c.Messages {
		turns = append(turns, string(m))
	}
	require.Equal(t, []string{`{"content":"ab","role":"system"}`, `{"content":"c","role":"user","tool_calls":null}`,
		`{"content":null,"reasoning":"h","role":"assistant","tool_calls":[{"function":{"arguments":"{\"z\": 7, \"a\": 1}","name":"get"},"id":"t1","type":"function"}]}`,
		`{"content":"f","role":"tool","tool_call_id":"t1"}`, `{"content":[{"image_url":{"url":"data:image/png;base64,aa"},"type":"image_url"},` +
			`{"text":"d","type":"text"}],"role":"user","tool_calls":null}`}, turns)
	require.Contains(t, string(c.Tools[0]), `"parameters":{"z":1,"a":2}`)
	require.Equal(t, `"required"`, string(c.Choice))
	require.False(t, *c.Parallel)
	require.Equal(t, "high", *c.Effort)
	require.Equal(t, "json_schema", c.Format.Type)
	require.Equal(t, "true", string(c.Variables["enable_thinking"]))
	require.Equal(t, `["x"]`, string(c.Stop))

	_, url := serving(t, spells(t, hermes), Options{})
	for keys, want := range map[string]string{
		`"messages": [{"role": "user", "content": "c"}]`:                                                                "max_tokens is not given",
		`"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "video"}]}]`:                               "messages: message 0",
		`"max_tokens": 3, "messages": [{"role": "user", "content": 7}]`:                                                 "no text and no list",
		`"max_tokens": 3, "messages": [], "tools": [{"type": "web_search", "name": "w"}]`:                               "tools",
		`"max_tokens": 3, "messages": [], "tools": [{"name": "w", "input_schema": {}}], "tool_choice": {"type": 1}`:     "tool_choice",
		`"max_tokens": 3, "messages": [], "system": [{"type": "image"}]`:                                                "system",
		`"max_tokens": 3, "messages": [{"role": "user", "content": "c"}], "stop_sequences": 7`:                          "stop",
		`"max_tokens": 3, "messages": [{"role": "user", "content": "c"}], "output_config": {"format": {"type": "xml"}}`: "response_format",
	} {
		code, v := post(t, url+"/v1/messages", `{"model": "words", `+keys+`}`)
		require.Equal(t, 400, code, keys)
		require.Equal(t, "error", v["type"], keys)
		require.Equal(t, "invalid_request_error", at(v, "error", "type"))
		require.Contains(t, at(v, "error", "message"), want, keys)
	}
}

// TestScores: how alike texts are is the cosine of their vectors, by each of vLLM's names; the likest documents come first.
func TestScores(t *testing.T) {
	_, url := served(t, Options{})
	_, v := post(t, url+"/v1/embeddings", `{"input": ["w3", "w4", "w3 w5"]}`)
	alike := func(i, j int) (sum float64) {
		for k, x := range at(v, "data", i, "embedding").([]any) {
			sum += x.(float64) * at(v, "data", j, "embedding", k).(float64)
		}
		return sum
	}
	for names, scores := range map[string][]float64{`"text_1": "w3", "text_2": ["w4", "w3 w5"]`: {alike(0, 1), alike(0, 2)},
		`"data_1": ["w3", "w4"], "data_2": ["w4", "w3 w5"]`: {alike(0, 1), alike(1, 2)}, `"queries": "w4", "items": "w4"`: {1}} {
		_, got := post(t, url+"/v1/score", "{"+names+"}")
		for i, x := range scores {
			require.InDelta(t, x, at(got, "data", i, "score"), 1e-12, names)
		}
		require.Len(t, got["data"], len(scores))
	}
	_, got := post(t, url+"/v1/rerank", `{"query": "w3", "documents": ["w4", "w3 w5", "w3"], "top_n": 2}`)
	require.Len(t, got["results"], 2)
	require.Equal(t, []any{2.0, "w3"}, []any{at(got, "results", 0, "index"), at(got, "results", 0, "document", "text")})
	require.InDelta(t, max(alike(0, 1), alike(0, 2)), at(got, "results", 1, "relevance_score"), 1e-12)
	for body, field := range map[string]string{
		`/v1/rerank {"query": "w3", "documents": []}`:                      "documents",
		`/v1/rerank {"query": ["w3", "w4"], "documents": ["w4"]}`:          "query",
		`/v1/rerank {"query": "w3", "documents": [{"content": []}]}`:       "documents",
		`/v1/rerank {"query": "w3", "documents": ["w3"], "top_n": -1}`:     "top_n",
		`/v1/score {"text_1": ["w3", "w4"], "text_2": ["w4", "w5", "w6"]}`: "text_1",
		`/v1/score {"text_1": "w3"}`:                                       "text_2",
		`/v1/score {"text_1": "w3", "items": "w4"}`:                        "items",
		`/v1/score {"model": "x", "data_1": "w3", "data_2": "w4"}`:         "model",
	} {
		path, body, _ := strings.Cut(body, " ")
		code, v := post(t, url+path, body)
		require.Contains(t, []int{400, 404}, code, body)
		require.Equal(t, field, at(v, "error", "param"), "%s %s: %v", path, body, v)
	}
}

// TestPaths: tokens of texts and back, vectors of length 1 that do not depend on what is drawn meanwhile,.
func TestPaths(t *testing.T) {
	s, url := served(t, Options{})
	code, v := post(t, url+"/tokenize", `{"prompt": "w8 w9", "return_token_strs": true}`)
	require.Equal(t, 200, code, v)
	require.Equal(t, []any{8.0, 9.0}, v["tokens"])
	require.Equal(t, []any{"w8", "w9"}, v["token_strs"])
	_, v = post(t, url+"/tokenize", `{"messages": [{"role": "user", "content": "w8"}]}`)
	require.Equal(t, []any{3.0, 8.0, 4.0}, v["tokens"])
	_, v = post(t, url+"/detokenize", `{"tokens": [8, 9]}`)
	require.Equal(t, s.tok.Decode([]int32{8, 9}, false), v["prompt"])
	for body, field := range map[string]string{`/detokenize {"tokens": [-1]}`: "tokens", `/detokenize {"tokens": [4000000]}`: "tokens",
		`/tokenize {"prompt": "w8", "model": "x"}`: "model", `/tokenize {"prompt": 7}`: "prompt", `/tokenize {}`: "messages",
		`/v1/embeddings {"model": "words", "input": []}`: "input", `/v1/embeddings {"model": "words", "input": [99]}`: "input",
		`/v1/embeddings {"model": "words", "input": ""}`: "input", `/v1/embeddings {"model": "words", "input": {}}`: "input",
		`/v1/embeddings {"model": "words", "input": "w3", "dimensions": 3}`:          "dimensions",
		`/v1/embeddings {"model": "words", "input": "w3", "encoding_format": "hex"}`: "encoding_format",
		`/v1/embeddings {"model": "x", "input": "w3"}`:                               "model",
	} {
		path, body, _ := strings.Cut(body, " ")
		code, v := post(t, url+path, body)
		require.GreaterOrEqual(t, code, 400, body)
		require.Less(t, code, 500, body)
		require.Equal(t, field, at(v, "error", "param"), "%s %s: %v", path, body, v)
	}
	for _, path := range []string{"/version", "/ping"} {
		r, err := http.Get(url + path)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 200, r.StatusCode)
	}
	draw := `{"model": "words", "prompt": "w5 w6 w7", "seed": 4, "max_tokens": 40, "ignore_eos": true, "logprobs": 0}`
	_, alone := post(t, url+"/v1/completions", draw)
	done := make(chan map[string]any, 1)
	go func() {
		_, v := post(t, url+"/v1/completions", draw)
		done <- v
	}()
	var first any
	for range 20 {
		code, v := post(t, url+"/v1/embeddings", `{"model": "words", "input": ["w8 w9", "w8 w9", "w9"], "encoding_format": "base64"}`)
		require.Equal(t, 200, code, v)
		vector := at(v, "data", 0, "embedding")
		require.Equal(t, vector, at(v, "data", 1, "embedding"))
		require.NotEqual(t, vector, at(v, "data", 2, "embedding"))
		if first == nil {
			first = vector
		}
		require.Equal(t, first, vector)
	}
	raw, err := base64.StdEncoding.DecodeString(first.(string))
	require.NoError(t, err)
	sum := 0.0
	for i := 0; i < len(raw); i += 4 {
		x := float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[i:])))
		sum += x * x
	}
	require.InDelta(t, 1, sum, 1e-6)
	ids := []int32{8, 9}
	require.NoError(t, s.loop().do(t.Context(), func() {
		x, err := s.loop().Engine.Generator().AllStates(ids, []int32{0, 1}, []int32{0, 2})
		require.NoError(t, err)
		last := objective.Pool(x[len(x)/2:], len(x)/2, objective.PoolMean)
		require.Equal(t, float32(last[0]), math.Float32frombits(binary.LittleEndian.Uint32(raw)), "the last token's state")
	}))
	require.Equal(t, at(alone, "choices"), at(<-done, "choices"), "what is drawn meanwhile has its bits")
}
