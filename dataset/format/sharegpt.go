package format

import (
	"slices"

	"github.com/lfactor/lfactor/dataset"
)

// ShareGPT's shape: {"system": …, "conversations": [{"from": "human", "value": …}, {"from": "gpt", "value": …}]}.
var _ = registerChat("sharegpt", `conversations as {"conversations": [{"from", "value"}], "system": …}`, readShareGPT,
	func(d dataset.Document) any {
		out := map[string]any{}
		turns := []map[string]string{}
		for i, m := range d.Messages {
			if i == 0 && m.Role == "system" {
				out["system"] = m.Content
				continue
			}
			turns = append(turns, map[string]string{"from": map[string]string{"user": "human",
				"assistant": "gpt", "tool": "observation", "system": "system"}[m.Role], "value": m.Content})
		}
		out["conversations"] = turns
		if d.Tools != nil {
			out["tools"] = string(d.Tools)
		}
		return out
	})

// readShareGPT reads messages under their names.
func readShareGPT(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
	turns, err := c.turns(or(tags.Messages, "conversations"), or(tags.Role, "from"),
		or(tags.Content, "value"), tags)
	if err != nil {
		return nil, err
	}
	return c.inTurns(turns, tags)
}

// inTurns holds a conversation to what LoongForge takes of data whose roles are named: a system's message,
// which goes in front, and then the user, or a tool, and the assistant in turn. LLaMA-Factory takes the system's in
// front alone, and of pairs a last turn that is the user's; several answers of tools are one turn of OpenAI's.
func (c chatRecord) inTurns(turns []dataset.Message, tags dataset.Tags) ([]dataset.Message, error) {
	key := tags.Name(tags.SystemKey, "system")
	if !tags.Only || tags.User == "" {
		return c.withSystem(turns, key, tags)
	}
	i := slices.IndexFunc(turns, func(m dataset.Message) bool { return m.Role == "system" })
	if i > 0 && tags.Factory == "" {
		system := turns[i]
		copy(turns[1:i+1], turns[:i])
		turns[0] = system
	}
	rest := turns
	if len(rest) > 0 && rest[0].Role == "system" {
		rest = rest[1:]
	}
	if tags.Factory == "openai" {
		rest = slices.CompactFunc(slices.Clone(rest), func(a, b dataset.Message) bool { return a.Role+b.Role == "tooltool" })
	}
	for i, m := range rest {
		if asks := m.Role == "user" || m.Role == "tool"; asks == (i%2 == 1) || m.Role == "system" {
			return nil, c.bad("its turn %d is the %s's, and roles do not alternate", i+1, m.Role)
		}
	}
	switch odd := len(rest)%2 != 0; {
	case tags.Chosen != "" && !odd:
		return nil, c.bad("it has %d turns before its two answers, and the last is no question", len(rest))
	case tags.Chosen == "" && odd:
		return nil, c.bad("it has %d turns, and the last has no answer", len(rest))
	}
	return c.withSystem(turns, key, tags)
}

// withSystem puts the text under a key in front as the system's message, where there is one and no turn
// is the system's.
func (c chatRecord) withSystem(turns []dataset.Message, key string, tags dataset.Tags) ([]dataset.Message, error) {
	if key == "" || len(turns) > 0 && turns[0].Role == "system" {
		return turns, nil
	}
	s, err := c.text(key)
	if err == nil && s == "" && key == "system" && !tags.Only {
		s, err = c.text("system_prompt") // ms-swift's other name of it
	}
	if err != nil || s == "" {
		return turns, err
	}
	return append([]dataset.Message{{Role: "system", Content: s}}, turns...), nil
}
