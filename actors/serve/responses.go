package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
)

// responsesBody is a request for a response, OpenAI's form behind chats, with the fields of chats where it has none of
// its own.
type responsesBody struct {
	Input        json.RawMessage `json:"input"`
	Instructions *string         `json:"instructions"`
	MaxOutput    *int            `json:"max_output_tokens"`
	Include      []string        `json:"include"`
	Text         members         `json:"text"`
	Reasoning    members         `json:"reasoning"`
	Tools        []members       `json:"tools"`
	Choice       json.RawMessage `json:"tool_choice"`
	Truncation   *string         `json:"truncation"`
	Prompt       json.RawMessage `json:"prompt"`
	chatBody
}

// withLogProbs is the value of include that acts.
const withLogProbs = "message.output_text.logprobs"

// items are the turns of a chat that items of an input are. What an assistant thinks, says and calls are items each,
// and one turn where they follow each other.
type items struct{ turns []map[string]any }

// spoken is the assistant's turn that has no key yet, the last or a new one.
func (x *items) spoken(key string) map[string]any {
	if n := len(x.turns); n > 0 && x.turns[n-1]["role"] == "assistant" && x.turns[n-1][key] == nil {
		return x.turns[n-1]
	}
	x.turns = append(x.turns, map[string]any{"role": "assistant"})
	return x.turns[len(x.turns)-1]
}

// partsOf reads a text or a list of parts, as a chat has them, and the text of those that are texts.
func partsOf(raw json.RawMessage) (parts []any, text string, err error) {
	blocks, err := blocksOf(raw)
	for _, b := range blocks {
		switch kind := b.text("type"); kind {
		case "text", "input_text", "output_text", "reasoning_text", "summary_text":
			parts = append(parts, map[string]any{"type": "text", "text": b.text("text")})
			text += b.text("text")
		case "refusal":
			parts = append(parts, map[string]any{"type": "text", "text": b.text("refusal")})
			text += b.text("refusal")
		case "input_image":
			parts = append(parts, map[string]any{"type": "image_url", "image_url": map[string]any{"url": b.text("image_url")}})
		default:
			return nil, "", fmt.Errorf("it has a part of the type %.40q, which is not known", kind)
		}
	}
	return parts, text, err
}

// add adds an item of an input.
func (x *items) add(m members) error {
	switch kind := m.text("type"); kind {
	case "", "message":
		parts, text, err := partsOf(m["content"])
		if m.text("role") == "assistant" {
			x.spoken("content")["content"] = text
			return err
		}
		turn := map[string]any{"role": m["role"], "content": parts}
		if x.turns = append(x.turns, turn); len(parts) == 1 && parts[0].(map[string]any)["type"] == "text" {
			turn["content"] = text
		}
		return err
	case "reasoning":
		_, text, err := partsOf(m["content"])
		if text == "" && err == nil {
			_, text, err = partsOf(m["summary"])
		}
		if text != "" {
			x.spoken("reasoning")["reasoning"] = text
		}
		return err
	case "function_call":
		call := map[string]any{"id": m["call_id"], "type": "function",
			"function": map[string]any{"name": m["name"], "arguments": m["arguments"]}}
		turn := x.spoken("")
		calls, _ := turn["tool_calls"].([]any)
		turn["tool_calls"] = append(calls, call)
	case "function_call_output":
		_, text, err := partsOf(m["output"])
		x.turns = append(x.turns, map[string]any{"role": "tool", "tool_call_id": m["call_id"], "content": text})
		return err
	default:
		return fmt.Errorf("it has the type %.40q, which is not known", kind)
	}
	return nil
}

// turns reads the input behind the instructions.
func (b *responsesBody) turns() (x items, err error) {
	if b.Instructions != nil {
		x.turns = append(x.turns, map[string]any{"role": "system", "content": *b.Instructions})
	}
	if text, ok := as[string](b.Input); ok {
		x.turns = append(x.turns, map[string]any{"role": "user", "content": text})
		return x, nil
	}
	given, ok := as[[]members](b.Input)
	if !ok || len(given) == 0 {
		return x, bad("input", "input is no text and no list of items")
	}
	for i, m := range given {
		if err := x.add(m); err != nil {
			return x, bad("input", "input: item %d: %v", i, err)
		}
	}
	return x, nil
}

// chat is the chat that a request asks for; answers are told in the words of the request.
func (b *responsesBody) chat(in dialect) (*chatBody, error) {
	c := &b.chatBody
	if c.Messages != nil || c.Max != nil || c.MaxNew != nil {
		return nil, bad("input", "a response has input and max_output_tokens; messages and max_tokens are of chats")
	}
	if b.Prompt != nil && string(b.Prompt) != "null" {
		return nil, bad("prompt", "no prompts are kept: instructions and input are to have the text")
	}
	x, err := b.turns()
	if err != nil {
		return nil, err
	}
	for _, turn := range x.turns {
		c.Messages = append(c.Messages, asJSON(turn))
	}
	c.Max = b.MaxOutput
	if b.Reasoning["effort"] != nil && string(b.Reasoning["effort"]) != "null" {
		c.Effort = new(b.Reasoning.text("effort"))
	}
	for _, what := range b.Include {
		if what != withLogProbs {
			return nil, bad("include", "include has %.60q, and %s alone can be told", what, withLogProbs)
		}
		if c.LogProbs = new(true); len(b.Tools) > 0 {
			return nil, bad("include", "include wants log-probabilities, and in answers that may call tools they are of the calls too")
		}
	}
	switch or(b.Truncation, "disabled") {
	case "auto":
		c.Truncate = new(-1)
	case "disabled":
	default:
		return nil, bad("truncation", "truncation is %.40q, and neither auto nor disabled", *b.Truncation)
	}
	if err := b.offers(c); err != nil {
		return nil, err
	}
	if f, _ := as[members](b.Text["format"]); f != nil {
		form := map[string]any{"type": f["type"]}
		if f.text("type") == "json_schema" {
			form["json_schema"] = map[string]any{"name": f["name"], "schema": f["schema"], "strict": f["strict"]}
		}
		if err := parsed(asJSON(map[string]any{"response_format": form}), &c.formatBody); err != nil {
			return nil, bad("text", "text: %v", err)
		}
	}
	in.(*responses).asked = b
	return c, nil
}

// offers hands on the tools, and which of them are to be called.
func (b *responsesBody) offers(c *chatBody) error {
	for _, t := range b.Tools {
		if t.text("type") != "function" {
			return bad("tools", "a tool has the type %.40q: tools that a server runs are not served", t.text("type"))
		}
		f := map[string]any{}
		for _, key := range []string{"name", "description", "parameters", "strict"} {
			if t[key] != nil {
				f[key] = t[key]
			}
		}
		c.Tools = append(c.Tools, asJSON(map[string]any{"type": "function", "function": f}))
	}
	c.Choice = b.Choice
	if one, _ := as[members](b.Choice); one != nil {
		if one.text("type") != "function" {
			return bad("tool_choice", "tool_choice has the type %.40q, and is auto, none, required or a function", one.text("type"))
		}
		c.Choice = asJSON(map[string]any{"type": "function", "function": map[string]any{"name": one["name"]}})
	}
	return nil
}

// responses writes answers as responses.
type responses struct {
	asked *responsesBody
	seq   int
	begun bool
	done  []map[string]any // items that have ended
	open  map[string]any   // the item under way
	kind  string           // of it
	text  string
	probs []any
	told  int // of probs, in events
	why   any // the answer ended
}

func newResponses() dialect { return &responses{} }

// itemKinds are what items of the kinds of blocks are, with the prefix of their ids and of their events.
var itemKinds = map[string]struct{ kind, id, part, delta string }{
	"text":     {"message", "msg_", "output_text", "response.output_text"},
	"thinking": {"reasoning", "rs_", "reasoning_text", "response.reasoning_text"},
	"tool_use": {"function_call", "fc_", "", "response.function_call_arguments"},
}

// item is a new item of a kind of block.
func (m *responses) item(v map[string]any, x said) map[string]any {
	k := itemKinds[x.kind]
	id := strings.Replace(v["id"].(string), "chatcmpl-", k.id, 1) + fmt.Sprintf("-%d", len(m.done))
	out := map[string]any{"id": id, "type": k.kind, "status": "in_progress"}
	switch x.kind {
	case "text":
		out["role"], out["content"] = "assistant", []any{}
	case "thinking":
		out["summary"], out["content"] = []any{}, []any{}
	default:
		out["call_id"], out["name"], out["arguments"] = x.block["id"], x.block["name"], ""
	}
	return out
}

// content is the part of an item that has a text.
func (m *responses) content() map[string]any {
	out := map[string]any{"type": itemKinds[m.kind].part, "text": m.text}
	if m.kind == "text" {
		out["annotations"] = []any{}
		if m.probs != nil {
			out["logprobs"] = m.probs
		}
	}
	return out
}

// end is the item under way with all that it has.
func (m *responses) end() map[string]any {
	out := m.open
	if out["status"] = "completed"; m.kind == "tool_use" {
		out["arguments"] = m.text
	} else {
		out["content"] = []any{m.content()}
	}
	m.done, m.open, m.text, m.probs, m.told = append(m.done, out), nil, "", nil, 0
	return out
}

// response is the response so far.
func (m *responses) response(v map[string]any, status string) map[string]any {
	b := m.asked
	out := map[string]any{"id": strings.Replace(v["id"].(string), "chatcmpl-", "resp_", 1), "object": "response", "status": status,
		"created_at": v["created"], "model": v["model"], "output": append([]map[string]any{}, m.done...), "error": nil,
		"incomplete_details": nil, "instructions": b.Instructions, "tools": append([]members{}, b.Tools...), "tool_choice": "auto",
		"parallel_tool_calls": or(b.Parallel, true), "max_output_tokens": b.MaxOutput, "temperature": b.Temp, "top_p": b.TopP,
		"metadata": map[string]any{}, "truncation": or(b.Truncation, "disabled")}
	if b.Choice != nil {
		out["tool_choice"] = b.Choice
	}
	if status == "incomplete" {
		out["incomplete_details"] = map[string]any{"reason": "max_output_tokens"}
	}
	if u, _ := v["usage"].(map[string]any); u != nil && status != "in_progress" {
		out["usage"] = map[string]any{"input_tokens": u["prompt_tokens"], "output_tokens": u["completion_tokens"],
			"total_tokens": u["total_tokens"]}
	}
	return out
}

// status is how the answer has ended.
func (m *responses) status() string {
	if m.why == "length" {
		return "incomplete"
	}
	return "completed"
}

// whole implements dialect.
func (m *responses) whole(v map[string]any) any {
	c := listOf(v["choices"])[0]
	for _, x := range saidIn(c["message"].(map[string]any)) {
		m.kind, m.text, m.open = x.kind, x.text, m.item(v, x)
		if x.kind == "text" {
			m.probs = probsOf(c)
		}
		m.end()
	}
	m.why = c["finish_reason"]
	return m.response(v, m.status())
}

// probsOf are log-probabilities of a choice, nil for none.
func probsOf(c map[string]any) []any {
	all, _ := c["logprobs"].(map[string]any)
	out, _ := all["content"].([]any)
	return out
}

// part implements dialect.
func (m *responses) part(v map[string]any) (out []map[string]any) {
	tell := func(kind string, e map[string]any) {
		e["type"], e["sequence_number"] = kind, m.seq
		out, m.seq = append(out, e), m.seq+1
	}
	at := func(e map[string]any) map[string]any {
		if e["item_id"], e["output_index"] = m.open["id"], len(m.done); m.kind != "tool_use" {
			e["content_index"] = 0
		}
		return e
	}
	shut := func() {
		if m.open == nil {
			return
		}
		if k := itemKinds[m.kind]; m.kind == "tool_use" {
			tell(k.delta+".done", at(map[string]any{"arguments": m.text, "name": m.open["name"]}))
		} else {
			done := at(map[string]any{"text": m.text})
			if m.kind == "text" {
				done["logprobs"] = append([]any{}, m.probs...)
			}
			tell(k.delta+".done", done)
			tell("response.content_part.done", at(map[string]any{"part": m.content()}))
		}
		n := len(m.done)
		tell("response.output_item.done", map[string]any{"output_index": n, "item": m.end()})
	}
	if !m.begun {
		m.begun = true
		tell("response.created", map[string]any{"response": m.response(v, "in_progress")})
		tell("response.in_progress", map[string]any{"response": m.response(v, "in_progress")})
	}
	all := listOf(v["choices"])
	if len(all) == 0 { // the usage, behind all
		shut()
		tell("response."+m.status(), map[string]any{"response": m.response(v, m.status())})
		return out
	}
	m.why = all[0]["finish_reason"]
	m.probs = append(m.probs, probsOf(all[0])...) // of tokens too that have no text yet, or none
	for _, x := range saidIn(all[0]["delta"].(map[string]any)) {
		k := itemKinds[x.kind]
		if m.open == nil || m.kind != x.kind || x.kind == "tool_use" {
			shut()
			m.kind, m.open = x.kind, m.item(v, x)
			tell("response.output_item.added", map[string]any{"output_index": len(m.done), "item": maps.Clone(m.open)})
			if x.kind != "tool_use" {
				tell("response.content_part.added", at(map[string]any{"part": m.content()}))
			}
		}
		m.text += x.text
		e := at(map[string]any{"delta": x.text})
		if x.kind == "text" {
			e["logprobs"] = append([]any{}, m.probs[m.told:]...)
			m.told = len(m.probs)
		}
		tell(k.delta+".delta", e)
	}
	return out
}

// fault implements dialect.
func (*responses) fault(f fault) any { return f.chat() }
