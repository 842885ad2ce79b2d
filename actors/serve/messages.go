package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// messagesBody is a request in Anthropic's form, with the fields of chats where it has none of its own.
type messagesBody struct {
	System   json.RawMessage `json:"system"`
	Stops    []string        `json:"stop_sequences"`
	Tools    []members       `json:"tools"`
	Choice   members         `json:"tool_choice"`
	Thinking members         `json:"thinking"`
	Output   members         `json:"output_config"`
	chatBody
}

// members are those of an object, in their order within.
type members map[string]json.RawMessage

// text is a member that is a text, "" else.
func (m members) text(key string) string {
	s, _ := as[string](m[key])
	return s
}

// blocksOf reads a text or a list of blocks.
func blocksOf(raw json.RawMessage) (out []members, err error) {
	if _, ok := as[string](raw); ok {
		return []members{{"type": json.RawMessage(`"text"`), "text": raw}}, nil
	}
	if len(raw) > 0 && json.Unmarshal(raw, &out) != nil {
		return nil, errors.New("its content is no text and no list of blocks")
	}
	return out, nil
}

// plain is the text of blocks that are texts.
func plain(raw json.RawMessage) (string, error) {
	blocks, err := blocksOf(raw)
	all := ""
	for _, b := range blocks {
		if b.text("type") != "text" {
			return "", fmt.Errorf("it has a block of the type %.40q where texts alone are read", b.text("type"))
		}
		all += b.text("text")
	}
	return all, err
}

// turnsOf are a message of a chat, behind the results of tools that it has.
func turnsOf(raw json.RawMessage) (turns []json.RawMessage, err error) {
	var m members
	if json.Unmarshal(raw, &m) != nil {
		return nil, errors.New("it is no JSON object")
	}
	blocks, err := blocksOf(m["content"])
	turn, thought := map[string]any{"role": m["role"]}, ""
	var parts, calls []any
	for _, b := range blocks {
		switch b.text("type") {
		case "text":
			parts = append(parts, map[string]any{"type": "text", "text": b.text("text")})
		case "image":
			source, _ := as[members](b["source"])
			url := source.text("url")
			if source.text("type") == "base64" {
				url = "data:" + source.text("media_type") + ";base64," + source.text("data")
			}
			parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": url}})
		case "thinking":
			thought += b.text("thinking")
		case "redacted_thinking": // nobody can read it
		case "tool_use":
			calls = append(calls, map[string]any{"id": b["id"], "type": "function",
				"function": map[string]any{"name": b["name"], "arguments": string(b["input"])}})
		case "tool_result":
			text, err := plain(b["content"])
			if err != nil {
				return nil, err
			}
			turns = append(turns, asJSON(map[string]any{"role": "tool", "tool_call_id": b["tool_use_id"], "content": text}))
		default:
			return nil, fmt.Errorf("it has a block of the type %.40q, which is not known", b.text("type"))
		}
	}
	if turn["content"] = parts; len(parts) == 1 && blocks[len(blocks)-1].text("type") == "text" {
		turn["content"] = parts[0].(map[string]any)["text"]
	}
	if turn["tool_calls"] = calls; thought != "" {
		turn["reasoning"] = thought
	}
	if parts != nil || calls != nil || thought != "" || turns == nil {
		turns = append(turns, asJSON(turn))
	}
	return turns, err
}

// asJSON is what a value that was JSON is again.
func asJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("serve: a request does not marshal: %v", err))
	}
	return b
}

// toolChoices are OpenAI's words for Anthropic's.
var toolChoices = map[string]string{"auto": "auto", "any": "required", "none": "none"}

// chat is the chat that a request asks for.
func (b *messagesBody) chat(dialect) (*chatBody, error) {
	c := &b.chatBody
	if c.Max == nil {
		return nil, bad("max_tokens", "max_tokens is not given")
	}
	text, err := plain(b.System)
	if err != nil {
		return nil, bad("system", "system: %v", err)
	}
	given := c.Messages
	if c.Messages = nil; text != "" {
		c.Messages = append(c.Messages, asJSON(map[string]any{"role": "system", "content": text}))
	}
	for i, raw := range given {
		more, err := turnsOf(raw)
		if err != nil {
			return nil, bad("messages", "messages: message %d: %v", i, err)
		}
		c.Messages = append(c.Messages, more...)
	}
	for _, t := range b.Tools {
		if t["input_schema"] == nil {
			return nil, bad("tools", "the tool %.40q has no input_schema: tools that a server runs are not served", t.text("name"))
		}
		c.Tools = append(c.Tools, asJSON(map[string]any{"type": "function", "function": map[string]any{"name": t["name"],
			"description": t["description"], "parameters": t["input_schema"], "strict": t["strict"]}}))
	}
	if c.Stop = asJSON(b.Stops); b.Thinking != nil && c.Variables["enable_thinking"] == nil {
		c.Variables = maps.Clone(c.Variables)
		if c.Variables == nil {
			c.Variables = members{}
		}
		c.Variables["enable_thinking"] = asJSON(b.Thinking.text("type") != "disabled")
	}
	if kind := b.Choice.text("type"); kind == "tool" {
		c.Choice = asJSON(map[string]any{"type": "function", "function": map[string]any{"name": b.Choice["name"]}})
	} else if c.Choice = asJSON(toolChoices[kind]); b.Choice == nil {
		c.Choice = nil
	} else if toolChoices[kind] == "" {
		return nil, bad("tool_choice", "tool_choice has the type %.40q, and none of auto, any, tool and none", kind)
	}
	if string(b.Choice["disable_parallel_tool_use"]) == "true" {
		c.Parallel = new(bool)
	}
	if b.Output["effort"] != nil {
		c.Effort = new(b.Output.text("effort"))
	}
	if f, _ := as[members](b.Output["format"]); f != nil {
		err = parsed(asJSON(map[string]any{"response_format": map[string]any{"type": f["type"], "json_schema": map[string]any{
			"name": "output", "schema": f["schema"]}}}), &c.formatBody)
	}
	return c, err
}

// messages writes answers in Anthropic's form.
type messages struct {
	begun, called bool
	open          string // the kind of the block under way
	index         int
	why, stop     any // it ended
}

func newMessages() dialect { return &messages{} }

// begins are the members of a message or of a part of one that blocks have, with these blocks' kinds and keys.
var begins = [][3]string{{"reasoning", "thinking", "thinking"}, {"content", "text", "text"}}

// said is what a block has more of.
type said struct {
	kind, delta, key, text string
	block                  map[string]any // as it begins
}

// saidIn are the blocks of a message or of a part of one.
func saidIn(d map[string]any) (out []said) {
	for _, k := range begins {
		if t, _ := d[k[0]].(string); t != "" {
			out = append(out, said{kind: k[1], delta: k[1] + "_delta", key: k[2], text: t,
				block: map[string]any{"type": k[1], k[2]: ""}})
		}
	}
	for _, k := range listOf(d["tool_calls"]) {
		f := k["function"].(map[string]any)
		out = append(out, said{kind: "tool_use", delta: "input_json_delta", key: "partial_json",
			text:  f["arguments"].(string),
			block: map[string]any{"type": "tool_use", "id": k["id"], "name": f["name"], "input": map[string]any{}}})
	}
	return out
}

// ended notes why an answer has ended, and by which text.
func (m *messages) ended(c map[string]any) {
	m.why = "end_turn"
	if s, ok := c["stop_reason"].(string); ok {
		m.why, m.stop = "stop_sequence", s
	} else if c["finish_reason"] == "length" {
		m.why = "max_tokens"
	} else if m.called {
		m.why = "tool_use"
	}
}

func (m *messages) message(v map[string]any) map[string]any {
	u := v["usage"].(map[string]any)
	return map[string]any{"id": strings.Replace(v["id"].(string), "chatcmpl-", "msg_", 1), "type": "message", "role": "assistant",
		"model": v["model"], "content": []any{}, "stop_reason": m.why, "stop_sequence": m.stop,
		"usage": map[string]any{"input_tokens": u["prompt_tokens"], "output_tokens": u["completion_tokens"]}}
}

// whole implements dialect.
func (m *messages) whole(v map[string]any) any {
	c, content := listOf(v["choices"])[0], []any{}
	for _, x := range saidIn(c["message"].(map[string]any)) {
		m.called = m.called || x.kind == "tool_use"
		if x.block[x.key] = x.text; x.kind == "tool_use" {
			delete(x.block, x.key)
			x.block["input"] = json.RawMessage(x.text)
		}
		content = append(content, x.block)
	}
	m.ended(c)
	out := m.message(v)
	out["content"] = content
	return out
}

// part implements dialect.
func (m *messages) part(v map[string]any) (out []map[string]any) {
	shut := func() {
		if m.open != "" {
			out = append(out, map[string]any{"type": "content_block_stop", "index": m.index})
			m.open, m.index = "", m.index+1
		}
	}
	if !m.begun {
		m.begun = true
		out = append(out, map[string]any{"type": "message_start", "message": m.message(v)})
	}
	if all := listOf(v["choices"]); len(all) > 0 { // one, the usage alone has none
		c := all[0]
		for _, x := range saidIn(c["delta"].(map[string]any)) {
			m.called = m.called || x.kind == "tool_use"
			if m.open != x.kind || x.kind == "tool_use" {
				shut()
				m.open = x.kind
				out = append(out, map[string]any{"type": "content_block_start", "index": m.index, "content_block": x.block})
			}
			out = append(out, map[string]any{"type": "content_block_delta", "index": m.index,
				"delta": map[string]any{"type": x.delta, x.key: x.text}})
		}
		m.ended(c)
		return out
	}
	shut()
	end := m.message(v)
	return append(out, map[string]any{"type": "message_delta", "usage": end["usage"], "delta": map[string]any{"stop_reason": m.why,
		"stop_sequence": m.stop}}, map[string]any{"type": "message_stop"})
}

// fault implements dialect.
func (*messages) fault(f fault) any {
	if f.status >= 500 {
		f.kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]any{"type": f.kind, "message": f.message}}
}
