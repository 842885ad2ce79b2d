package format

import "github.com/lfactor/lfactor/dataset"

// ShareGPT's shape: {"system": …, "conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}.
var _ = registerChat("sharegpt", `conversations as {"conversations": [{"from", "value"}], "system": …}`,
	func(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
		turns, err := c.turns(or(tags.Messages, "conversations"), or(tags.Role, "from"), or(tags.Content, "value"), tags)
		if err != nil {
			return nil, err
		}
		return c.withSystem(turns, "system")
	},
	func(d dataset.Document) any {
		out := map[string]any{}
		turns := []map[string]string{}
		for i, m := range d.Messages {
			if i == 0 && m.Role == "system" {
				out["system"] = m.Content
				continue
			}
			turns = append(turns, map[string]string{"from": map[string]string{"user": "human", "assistant": "gpt", "tool": "observation", "system": "system"}[m.Role], "value": m.Content})
		}
		out["conversations"] = turns
		if d.Tools != nil {
			out["tools"] = string(d.Tools)
		}
		return out
	})

// withSystem puts the text under a key in front as the system's message, where there is one.
func (c chatRecord) withSystem(turns []dataset.Message, key string) ([]dataset.Message, error) {
	s, err := c.text(key)
	if err != nil || s == "" {
		return turns, err
	}
	return append([]dataset.Message{{Role: "system", Content: s}}, turns...), nil
}
