package format

import (
	"encoding/json"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// OpenAI's shape: {"messages": [{"role": …, "content": …}], "tools": […]}.
var _ = registerChat("openai", `conversations as {"messages": [{"role", "content"}]}`,
	func(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
		turns, err := c.turns(or(tags.Messages, "messages"), or(tags.Role, "role"),
			or(tags.Content, "content"), tags)
		for i := range turns {
			if err == nil && turns[i].Raw != nil {
				err = c.modern(&turns[i], i)
			}
		}
		return turns, err
	},
	func(d dataset.Document) any {
		turns := make([]any, len(d.Messages))
		for i, m := range d.Messages {
			turns[i] = map[string]string{"role": m.Role, "content": m.Content}
			if m.Raw != nil {
				turns[i] = m.Raw
			}
		}
		out := map[string]any{"messages": turns}
		if d.Tools != nil {
			out["tools"] = d.Tools
		}
		return out
	})

// modern writes an older turn as templates know it: a function_call is the one of the tool_calls, and a
// function's answer names its call.
func (c chatRecord) modern(m *dataset.Message, i int) error {
	t, err := object(m.Raw, c.place)
	if err != nil {
		return err
	}
	call, hasCall := t["function_call"]
	_, hasCalls := t["tool_calls"]
	_, named := t["tool_call_id"]
	was, _ := chatRecord{t, c.place}.text("name") // a name of another type is refused where it is used
	switch {
	case hasCall && !hasCalls && !isNull(call):
		var f struct {
			ID, Name  string
			Arguments json.RawMessage
		}
		if json.Unmarshal(call, &f) != nil {
			return c.bad("the function_call of turn %d is not an object with a name and arguments", i)
		}
		if f.Arguments == nil {
			f.Arguments = json.RawMessage(`"{}"`)
		}
		t["tool_calls"], err = json.Marshal([]any{map[string]any{"id": or(f.ID, fmt.Sprintf("call_%d", i)),
			"type": "function", "function": map[string]any{"name": f.Name, "arguments": f.Arguments}}})
		delete(t, "function_call")
	case m.Role == "tool" && !named && was != "":
		t["tool_call_id"], err = json.Marshal(was)
	default:
		return nil
	}
	if err == nil {
		m.Raw, err = json.Marshal(t)
	}
	return err
}
