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
	var turns []dataset.Message
	say := func(question, answer string) {
		turns = append(turns, dataset.Message{Role: "user", Content: question},
			dataset.Message{Role: "assistant", Content: answer})
	}
	if raw, ok := c.members[tags.Name(tags.History, "history")]; ok && !isNull(raw) {
		var history [][2]string
		if err := json.Unmarshal(raw, &history); err != nil {
			return nil, c.bad("its history is not a list of [question, answer]")
		}
		for _, h := range history {
			say(h[0], h[1])
		}
	}
	question, err := member(c.members, or(tags.Instruction, "instruction"), c.place)
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
	answer, err := member(c.members, or(tags.Output, "output"), c.place)
	if err != nil {
		return nil, err
	}
	say(question, answer)
	return c.withSystem(turns, tags.Name(or(tags.SystemKey, tags.System), "system"))
}
