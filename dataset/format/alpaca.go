package format

import (
	"encoding/json"

	"github.com/lfactor/lfactor/dataset"
)

// Alpaca's shape: {"instruction": …, "input": …, "output": …, "system": …, "history": [[question, answer],
// …]}. The input follows the instruction on a line of its own.
var _ = registerChat("alpaca",
	`an instruction and its answer as {"instruction", "input", "output", "system", "history"}`, readAlpaca,
	func(d dataset.Document) any {
		m := d.Messages
		out := map[string]any{}
		if m[0].Role == "system" {
			out["system"] = m[0].Content
			m = m[1:]
		}
		history := [][2]string{}
		for ; len(m) > 2; m = m[2:] {
			history = append(history, [2]string{m[0].Content, m[1].Content})
		}
		out["history"], out["instruction"], out["input"], out["output"] = history, m[0].Content, "", m[1].Content
		if d.Tools != nil {
			out["tools"] = d.Tools
		}
		return out
	})

// readAlpaca reads an instruction with its input and output as one turn, after the turns of the
// history if there is one. The names of the fields may be configured.
func readAlpaca(c chatRecord, tags dataset.Tags) ([]dataset.Message, error) {
	turns, err := c.asked(tags)
	if err != nil {
		return nil, err
	}
	answer, err := member(c.members, or(tags.Output, "output"), c.place)
	if err != nil {
		return nil, err
	}
	return append(turns, dataset.Message{Role: "assistant", Content: answer}), nil
}

// asked reads all but the answer.
func (c chatRecord) asked(tags dataset.Tags) ([]dataset.Message, error) {
	var turns []dataset.Message
	if raw, ok := c.members[tags.Name(tags.History, "history")]; ok && !isNull(raw) {
		var history [][2]string
		if err := json.Unmarshal(raw, &history); err != nil {
			return nil, c.bad("its history is not a list of [question, answer]")
		}
		for _, h := range history {
			turns = append(turns, dataset.Message{Role: "user", Content: h[0]},
				dataset.Message{Role: "assistant", Content: h[1]})
		}
	}
	question, err := c.text(tags.Instruction)
	if tags.Factory == "" { // where LLaMA-Factory takes the input alone, it is a fault of others' data
		question, err = member(c.members, or(tags.Instruction, "instruction"), c.place)
	}
	if err != nil {
		return nil, err
	}
	input, err := c.text(tags.Name(tags.Input, "input"))
	if err != nil {
		return nil, err
	}
	switch {
	case question == "":
		question = input
	case input != "":
		question += "\n" + input
	}
	turns = append(turns, dataset.Message{Role: "user", Content: question})
	return c.withSystem(turns, tags.Name(or(tags.SystemKey, tags.System), "system"), tags)
}
