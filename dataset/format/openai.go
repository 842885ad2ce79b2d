package format

import (
	"encoding/json"

	"github.com/lfactor/lfactor/dataset"
)

// OpenAI's shape: {"messages": [{"role": …, "content": …}], "tools": […]}, with a system's text beside it in other tools' data.
var _ = registerChat("openai", `conversations as {"messages": [{"role", "content"}]}`, readOpenAI,
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

// readOpenAI reads messages under their names.
func readOpenAI(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
	turns, err := c.turns(or(tags.Messages, "messages"), or(tags.Role, "role"), or(tags.Content, "content"), tags)
	for i := range turns {
		if err == nil && turns[i].Raw != nil {
			err = c.modern(&turns[i], i)
		}
	}
	if err != nil {
		return nil, err
	}
	return c.inTurns(turns, tags)
}

// modern writes an older turn as templates know it: a function's answer names its call. Its function_call is
// left to the template's messages (token.Template), which write it as tool_calls.
func (c chatRecord) modern(m *dataset.Message, i int) error {
	t, err := object(m.Raw, c.place)
	if err != nil {
		return err
	}
	call := t["function_call"]
	_, named := t["tool_call_id"]
	was, _ := chatRecord{t, c.place}.text("name") // a name of another type is refused where it is used
	switch {
	case call != nil && !isNull(call) && json.Unmarshal(call, &struct{ Name string }{}) != nil:
		return c.bad("the function_call of turn %d is not an object with a name and arguments", i)
	case m.Role == "tool" && !named && was != "":
		if t["tool_call_id"], err = json.Marshal(was); err == nil {
			m.Raw, err = json.Marshal(t)
		}
	}
	return err
}
