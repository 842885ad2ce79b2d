package format

import (
	"encoding/json"
	"slices"

	"github.com/lfactor/lfactor/dataset"
)

// TRL's prompts with completions: {"prompt": messages, "completion": messages}, of which completions are learnt.
var _ = registerChat("completion", `messages as {"prompt", "completion"}, of which the completion is learnt`,
	func(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
		c.members = withTurns(c.members)
		for _, key := range []string{"prompt", "completion"} {
			if startsText(c.members[key]) {
				return nil, c.bad("its %s is a text, and a chat template writes messages: give it as "+
					`[{"role", "content"}], or prompt and completion as one "text", which is learnt whole`, key)
			}
		}
		turns, err := c.turns("prompt", "role", "content", tags)
		if err != nil {
			return nil, err
		}
		for i := range turns {
			turns[i].Unlearnt = turns[i].Role == "assistant"
		}
		more, err := c.turns("completion", "role", "content", tags)
		return append(turns, more...), err
	}, func(d dataset.Document) any {
		n := slices.IndexFunc(d.Messages, func(m dataset.Message) bool {
			return m.Role == "assistant" && !m.Unlearnt
		})
		out := map[string]any{"prompt": written(d.Messages[:n]), "completion": written(d.Messages[n:])}
		if d.Tools != nil {
			out["tools"] = d.Tools
		}
		return out
	})

// written are messages as templates read them.
func written(l []dataset.Message) []any {
	out := make([]any, len(l))
	for i, m := range l {
		if out[i] = m.Raw; m.Raw == nil {
			out[i] = map[string]string{"role": m.Role, "content": m.Content}
		}
	}
	return out
}

// withTurns reads prompts and answers that are texts of lists of messages.
func withTurns(members map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for k, v := range members {
		if out[k] = v; !startsText(v) {
			continue
		}
		switch k {
		case "prompt", "completion", "chosen", "rejected":
			var turns []struct{ Role, From string }
			list := unquoted(v)
			if json.Unmarshal(list, &turns) == nil && len(turns) > 0 && turns[0].Role+turns[0].From != "" {
				out[k] = list
			}
		}
	}
	return out
}
