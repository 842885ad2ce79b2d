package format

import (
	"encoding/json"

	"github.com/lfactor/lfactor/dataset"
)

// factory are pairs of answers and judged answers of LLaMA-Factory's, alpaca's, ShareGPT's or OpenAI's shape with the
// names of an entry of its dataset_info.json. Their records read as {prompt, chosen, rejected} or {prompt, completion,
// label}. Source: its src/llamafactory/data/converter.py.
type factory struct {
	Records
	tags dataset.Tags
}

func (f factory) Fingerprint() string { return HashOf(f.Records.Fingerprint(), f.tags) }

// Record implements Records.
func (f factory) Record(i int64) ([]byte, dataset.Place, error) {
	b, at, err := f.Records.Record(i)
	if err != nil {
		return nil, at, err
	}
	m, err := object(b, at)
	c := chatRecord{m, at}
	var out map[string]any
	if err == nil {
		out, err = c.answers(f.tags)
	}
	if err == nil {
		out["tools"], err = c.tools(f.tags.Tools) // null is none
	}
	if err == nil {
		b, err = json.Marshal(out)
	}
	return b, at, err
}

// answers reads the prompt and its answers.
func (c chatRecord) answers(tags dataset.Tags) (map[string]any, error) {
	read := map[string]shape{"alpaca": readAlpaca, "sharegpt": readShareGPT, "openai": readOpenAI}[tags.Factory]
	if tags.Factory == "alpaca" && tags.Label == "" {
		read = chatRecord.asked
	}
	turns, err := read(c, tags)
	if err != nil {
		return nil, err
	}
	if n := len(turns) - 1; tags.Label != "" && n > 0 {
		return map[string]any{"prompt": written(turns[:n]), "completion": written(turns[n:]),
			"label": c.members[tags.Label]}, nil
	}
	out := map[string]any{"prompt": written(turns)}
	for _, names := range [][2]string{{"chosen", tags.Chosen}, {"rejected", tags.Rejected}} {
		key, name := names[0], names[1]
		one := dataset.Message{Role: "assistant"}
		if raw := c.members[name]; tags.Factory == "alpaca" {
			one.Content, err = member(c.members, name, c.place)
		} else if turn, fault := object(raw, c.place); fault != nil {
			err = c.bad("its %q is no message", name)
		} else {
			one, err = chatRecord{turn, c.place}.turn(name, or(tags.Role, "from"), or(tags.Content, "value"), raw, tags)
		}
		switch {
		case err != nil:
			return nil, err
		case one.Role != "assistant":
			return nil, c.bad("its %q is the %s's", name, one.Role)
		}
		out[key] = written([]dataset.Message{one})
	}
	return out, nil
}
