package format

import "github.com/lfactor/lfactor/dataset"

// OpenAI's shape: {"messages": [{"role": …, "content": …}], "tools": […]}.
var _ = registerChat("openai", `conversations as {"messages": [{"role", "content"}]}`,
	func(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
		return c.turns(or(tags.Messages, "messages"), or(tags.Role, "role"), or(tags.Content, "content"), tags)
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
