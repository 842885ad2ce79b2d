package format

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// toldCalls are the calls of functions in a conversation that are told by their turns' role,
// as ShareGPT's function_call.
type toldCalls struct {
	names    []string
	answered int
}

// callHead begins a turn that a call became.
const callHead = `{"role":"assistant","content":`

var errNoCall = errors.New("is a call of a function by its role, and its text is no JSON of {name, arguments}")

// add appends a turn. Where its role says that it is a call of functions, its text becomes one, together with
// those of a call right before it; what tools say then answers the calls in turn.
func (t *toldCalls) add(out []dataset.Message, m dataset.Message, name string,
	tags dataset.Tags) ([]dataset.Message, error) {
	isCall := slices.Contains(callRoles, name) || name == tags.Function && name != ""
	if tags.Only && tags.Factory == "" || m.Raw != nil || !isCall && (m.Role != "tool" || t.answered == len(t.names)) {
		return append(out, m), nil
	}
	if !isCall {
		answer, err := json.Marshal(map[string]string{"role": "tool", "content": m.Content,
			"name": t.names[t.answered], "tool_call_id": callID(t.answered)})
		t.answered++
		m.Raw = answer
		return append(out, m), err
	}
	thought, text := "", strings.TrimSpace(m.Content)
	if end := strings.LastIndex(text, "</think>"); end >= 0 { // LLaMA-Factory's thoughts in front of a call
		end += len("</think>")
		thought, text = text[:end], strings.TrimSpace(text[end:])
	}
	written, err := t.written(text)
	if err != nil {
		return nil, err
	}
	if n := len(out) - 1; n >= 0 && strings.HasPrefix(string(out[n].Raw), callHead) && thought == "" {
		before := strings.TrimSuffix(string(out[n].Raw), "]}")
		out[n].Raw = json.RawMessage(before + "," + written + "]}")
		return out, nil
	}
	said, err := json.Marshal(thought)
	m.Content = ""
	m.Raw = json.RawMessage(callHead + string(said) + `,"tool_calls":[` + written + "]}")
	return append(out, m), err
}

// callID is the identity of call i: nine letters and digits, as Mistral's templates want.
func callID(i int) string { return fmt.Sprintf("call%05d", i+1) }

// written are the calls of a text as templates read them.
func (t *toldCalls) written(text string) (string, error) {
	if !strings.HasPrefix(text, "[") {
		text = "[" + text + "]"
	}
	var list []struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if json.Unmarshal([]byte(text), &list) != nil || len(list) == 0 {
		return "", errNoCall
	}
	var out []string
	for _, f := range list {
		name, err := json.Marshal(f.Name)
		if err != nil || f.Name == "" {
			return "", errNoCall
		}
		out = append(out, fmt.Sprintf(`{"id":%q,"type":"function","function":{"name":%s,"arguments":%s}}`,
			callID(len(t.names)), name, or(string(f.Arguments), "{}")))
		t.names = append(t.names, f.Name)
	}
	return strings.Join(out, ","), nil
}
