package serve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/trained"
)

// TestResponsesSay: what is streamed of a response, its items' events in their order and their texts put together, is
// what the whole one has; calls of tools, log-probabilities and answers that are cut off too.
func TestResponsesSay(t *testing.T) {
	_, url := serving(t, spells(t, hermes), Options{})
	calls, cut := 0, 0
	for seed := range 24 {
		max := []int{200, 200, 2}[seed%3]
		body := fmt.Sprintf(`{"model": "words", "input": "c", "seed": %d, "request_id": "same", "max_output_tokens": %d, `+
			`"tools": [{"type": "function", "name": "get", "parameters": {"type": "object", "properties": {"x": {"type": `+
			`"integer"}}, "required": ["x"]}}]`, seed, max)
		if seed%3 == 0 {
			body = body[:strings.Index(body, `"tools"`)] + `"include": ["message.output_text.logprobs"], "top_logprobs": 1`
		}
		if seed%3 == 1 {
			body += `, "tool_choice": "required"`
		}
		code, whole := post(t, url+"/v1/responses", body+"}")
		require.Equal(t, 200, code, whole)
		texts, open, ended := map[string]string{}, map[string]any{}, []any{}
		for i, e := range typed(t, url+"/v1/responses", body+`, "stream": true}`) {
			require.EqualValues(t, i, e["sequence_number"])
			kind := e["type"].(string)
			switch {
			case kind == "response.output_item.added":
				require.Empty(t, open)
				require.EqualValues(t, len(ended), e["output_index"])
				open = e["item"].(map[string]any)
				require.Equal(t, "in_progress", open["status"])
			case strings.HasSuffix(kind, ".delta"):
				require.Equal(t, open["id"], e["item_id"])
				texts[open["id"].(string)] += e["delta"].(string)
			case kind == "response.output_item.done":
				item := e["item"].(map[string]any)
				require.Equal(t, open["id"], item["id"])
				text := item["arguments"]
				if item["type"] == "message" {
					text = at(item, "content", 0, "text")
				}
				require.Equal(t, texts[item["id"].(string)], text)
				open, ended = map[string]any{}, append(ended, item)
			case kind == "response.completed" || kind == "response.incomplete":
				require.Equal(t, ended, whole["output"])
				last := e["response"].(map[string]any)
				delete(last, "created_at")
				delete(whole, "created_at")
				require.Equal(t, whole, last)
				ended = nil
			default:
				require.Contains(t, "response.created response.in_progress response.content_part.added response.content_part.done "+
					"response.output_text.done response.function_call_arguments.done", kind)
			}
		}
		require.Nil(t, ended, "it has an end")
		for _, item := range whole["output"].([]any) {
			if at(item, "type") == "function_call" {
				calls++
				require.Equal(t, "get", at(item, "name"))
				require.Contains(t, at(item, "arguments"), `"x"`)
			} else if seed%3 == 0 {
				require.NotEmpty(t, at(item, "content", 0, "logprobs"))
			}
		}
		if whole["status"] == "incomplete" {
			cut++
			require.Equal(t, "max_output_tokens", at(whole, "incomplete_details", "reason"))
		}
		require.NotZero(t, at(whole, "usage", "total_tokens"))
	}
	require.Positive(t, calls)
	require.Positive(t, cut)
}

// TestResponses: items of an input are the turns of a chat, an assistant's thoughts, words and calls one; what is
// refused is named.
func TestResponses(t *testing.T) {
	b := &responsesBody{}
	require.NoError(t, parsed([]byte(`{"model": "m", "instructions": "a", "max_output_tokens": 5, "truncation": "auto",
		"input": [{"role": "user", "content": [{"type": "input_text", "text": "b"}, {"type": "input_image", "image_url": "data:x"}]},
		{"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]},
		{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "s", "annotations": []}]},
		{"type": "function_call", "call_id": "t1", "name": "get", "arguments": "{\"z\": 7}"},
		{"type": "function_call", "call_id": "t2", "name": "get", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "t1", "output": "f"}, {"role": "assistant", "content": "u"}],
		"tools": [{"type": "function", "name": "get", "parameters": {"z": 1, "a": 2}, "strict": false}],
		"tool_choice": {"type": "function", "name": "get"}, "reasoning": {"effort": "high"},
		"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}}`), b))
	in := &responses{}
	c, err := b.chat(in)
	require.NoError(t, err)
	require.Equal(t, b, in.asked)
	var turns []string
	for _, m := range c.Messages {
		turns = append(turns, string(m))
	}
	require.Equal(t, []string{`{"content":"a","role":"system"}`,
		`{"content":[{"text":"b","type":"text"},{"image_url":{"url":"data:x"},"type":"image_url"}],"role":"user"}`,
		`{"content":"s","reasoning":"h","role":"assistant","tool_calls":[` +
			`{"function":{"arguments":"{\"z\": 7}","name":"get"},"id":"t1","type":"function"},` +
			`{"function":{"arguments":"{}","name":"get"},"id":"t2","type":"function"}]}`,
		`{"content":"f","role":"tool","tool_call_id":"t1"}`, `{"content":"u","role":"assistant"}`}, turns)
	require.Contains(t, string(c.Tools[0]), `"parameters":{"z":1,"a":2}`)
	require.JSONEq(t, `{"type": "function", "function": {"name": "get"}}`, string(c.Choice))
	require.Equal(t, "high", *c.Effort)
	require.Equal(t, "json_schema", c.Format.Type)
	require.Equal(t, []int{5, -1}, []int{*c.Max, *c.Truncate})

	_, url := serving(t, spells(t, hermes), Options{})
	for keys, want := range map[string][2]string{
		`"max_output_tokens": 3`:                                      {"input", "no text and no list"},
		`"input": [{"type": "computer_call"}]`:                        {"input", "item 0: it has the type"},
		`"input": [{"role": "user", "content": [{"type": "video"}]}]`: {"input", "a part of the type"},
		`"input": "c", "messages": []`:                                {"input", "are of chats"},
		`"input": "c", "include": ["web_search_call.results"]`:        {"include", "alone can be told"},
		`"input": "c", "include": ["message.output_text.logprobs"], "tools": [{"type": "function", "name": "f"}]`: {"include", "of the calls too"},
		`"input": "c", "truncation": "some"`:                   {"truncation", "neither auto nor disabled"},
		`"input": "c", "tools": [{"type": "web_search"}]`:      {"tools", "are not served"},
		`"input": "c", "tool_choice": {"type": "file_search"}`: {"tool_choice", "or a function"},
		`"input": "c", "previous_response_id": "resp_1"`:       {"previous_response_id", "nothing is kept"},
		`"input": "c", "text": {"format": {"type": "xml"}}`:    {"response_format", "xml"},
	} {
		code, v := post(t, url+"/v1/responses", `{"model": "words", `+keys+`}`)
		require.Equal(t, 400, code, keys)
		require.Equal(t, want[0], at(v, "error", "param"), keys)
		require.Contains(t, at(v, "error", "message"), want[1], keys)
	}
}

// TestNoChats: a model without a template of chats refuses whatever is one, by each path.
func TestNoChats(t *testing.T) {
	m, err := trained.Open("../run/testdata/preference/policy", "")
	require.NoError(t, err)
	_, url := serving(t, m, Options{})
	for path, keys := range map[string]string{"/v1/chat/completions": "", "/v1/messages": `, "max_tokens": 1`, "/tokenize": "",
		"/v1/messages/count_tokens": "", "/v1/responses": ""} {
		body := `{"model": "words", "messages": [{"role": "user", "content": "w8"}]` + keys + "}"
		if path == "/v1/responses" {
			body = `{"model": "words", "input": "c"}`
		}
		code, v := post(t, url+path, body)
		require.Equal(t, 400, code, path)
		require.Contains(t, at(v, "error", "message"), "the model has no chats", path)
	}
	_, url = served(t, Options{})
	code, v := post(t, url+"/v1/messages/count_tokens", `{"model": "words", "messages": [{"role": "user", "content": "w8"}]}`)
	require.Equal(t, 200, code, v)
	require.Equal(t, map[string]any{"input_tokens": 3.0}, v)
}
