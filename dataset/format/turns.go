package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// roleNames are what the roles of templates are called in data.
var roleNames = map[string]string{"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant",
	"model": "assistant", "observation": "tool", "function": "tool", "function_response": "tool",
	"tool_response": "tool", "function_call": "assistant", "tool_call": "assistant"}

// callRoles are roles whose text is a call of a function, or a list of calls, as JSON.
var callRoles = []string{"function_call", "tool_call"}

// flagKeys say whether an assistant's turn is learnt: OpenAI's weight, Axolotl's train or training, ms-swift's
// loss. Those of parts of a turn are known, and refused.
var flagKeys = []string{"weight", "train", "training", "loss", "loss_scale", "train_detail", "training_detail"}

// role returns the template's name of a role in the data.
func role(name string, tags dataset.Tags) string {
	switch name {
	case "":
	case tags.User:
		return "user"
	case tags.Assistant:
		return "assistant"
	case tags.System:
		return "system"
	case tags.Tool:
		return "tool"
	case tags.Function:
		return "assistant"
	}
	if tags.Only && tags.User != "" {
		return ""
	}
	return or(roleNames[name], name)
}

// listed returns the elements of a list under a key, which may be written as a text that holds it, as may each
// of its elements: tables have columns of JSON. ok is false where there is no list.
func (c chatRecord) listed(key string) (out []json.RawMessage, ok bool) {
	if json.Unmarshal(unquoted(c.members[key]), &out) != nil || out == nil {
		return nil, false
	}
	for i, o := range out {
		out[i] = unquoted(o)
	}
	return out, true
}

// unquoted is the JSON that a text holds, or raw itself where it is none.
func unquoted(raw json.RawMessage) json.RawMessage {
	var s string
	if !startsText(raw) || json.Unmarshal(raw, &s) != nil {
		return raw
	}
	if b := bytes.TrimSpace([]byte(s)); len(b) > 0 && (b[0] == '[' || b[0] == '{') && json.Valid(b) {
		return b
	}
	return raw
}

// listKey is the key that a list of turns is under: the usual one, or the one of the other shape.
func (c chatRecord) listKey(key string) string {
	other := map[string]string{"messages": "conversations", "conversations": "messages"}[key]
	if _, ok := c.members[key]; !ok && other != "" && c.members[other] != nil {
		return other
	}
	return key
}

// otherKeys are the names that keys of turns have in the other shape.
var otherKeys = map[string]string{"role": "from", "from": "role", "content": "value", "value": "content"}

// key is name, or its name in the other shape where only that is there.
func (c chatRecord) key(name string) string {
	if other := otherKeys[name]; c.members[name] == nil && other != "" && c.members[other] != nil {
		return other
	}
	return name
}

// turns reads a list of objects with a role and a content under the given keys. Objects that hold more, or
// content that is not text, are kept whole for the template, which token.Template gives its usual form.
func (c chatRecord) turns(list, roleKey, contentKey string, tags dataset.Tags) ([]dataset.Message, error) {
	list = c.listKey(list)
	if _, ok := c.members[list]; !ok {
		return nil, c.bad("it has no key %q", list)
	}
	objects, ok := c.listed(list)
	if !ok {
		return nil, c.bad("its %q is not a list", list)
	}
	var out []dataset.Message
	var calls toldCalls
	for i, o := range objects {
		m, err := object(o, c.place)
		if err != nil {
			return nil, c.bad("%s[%d] is not an object", list, i)
		}
		turn := chatRecord{m, c.place}
		one, err := turn.turn(fmt.Sprintf("%s[%d]", list, i), roleKey, contentKey, o, tags)
		if err != nil {
			return nil, err
		}
		name, _ := turn.text(turn.key(roleKey)) // turn refused what is no text
		if out, err = calls.add(out, one, name, tags); err != nil {
			return nil, c.bad("%s[%d] %v", list, i, err)
		}
	}
	return out, nil
}

// turn reads one object; at names it.
func (c chatRecord) turn(at, roleKey, contentKey string, whole json.RawMessage,
	tags dataset.Tags) (m dataset.Message, err error) {
	name, err := c.text(c.key(roleKey))
	if err != nil || name == "" {
		return m, c.bad("%s has no text %q", at, roleKey)
	}
	if m.Role = role(name, tags); m.Role == "" {
		return m, c.bad("%s has the role %q, which none is called here", at, Clip(name))
	}
	if m.Unlearnt, err = c.unlearnt(m.Role); err != nil {
		return m, c.bad("%s %v", at, err)
	}
	roleKey, contentKey = c.key(roleKey), c.key(contentKey)
	silent := c.members[contentKey] == nil || isNull(c.members[contentKey])
	if silent && !c.saysElse(roleKey, contentKey) {
		return m, c.bad("%s (%s) says nothing: its %s is null", at, m.Role, contentKey)
	}
	more := 0
	for k := range c.members {
		if !slices.Contains(flagKeys, k) {
			more++
		}
	}
	if m.Content, err = c.text(contentKey); err != nil || more > 2 || silent {
		m.Raw = c.raw(m, roleKey, contentKey, whole)
	}
	return m, nil
}

// saysElse tells whether a turn without a content has something else to say.
func (c chatRecord) saysElse(roleKey, contentKey string) bool {
	for k, v := range c.members {
		if k != roleKey && k != contentKey && k != "name" && !slices.Contains(flagKeys, k) && !isNull(v) &&
			string(v) != "[]" {
			return true
		}
	}
	return false
}

// unlearnt tells whether a turn's flags say that it is not learnt.
func (c chatRecord) unlearnt(role string) (bool, error) {
	for _, k := range flagKeys {
		raw := bytes.TrimSpace(c.members[k])
		switch s := string(raw); {
		case len(raw) == 0 || isNull(raw):
		case strings.HasSuffix(k, "_detail"):
			return false, fmt.Errorf("has %q, which marks parts of a turn; a turn is learnt whole or not at all", k)
		case s == "false" || s == "0" || s == "0.0":
			if role == "assistant" {
				return true, nil
			}
		case s != "true" && s != "1" && s != "1.0":
			return false, fmt.Errorf("has %q = %s, and a turn is learnt (1, true) or not (0, false)", k, Clip(s))
		case role != "assistant" && k != "weight" && k != "loss_scale":
			return false, fmt.Errorf("has %q = %s, and what the %s says is learnt with data.train_on_prompt alone",
				k, s, role)
		}
	}
	return false, nil
}

// offers returns the functions that are offered, which may be written as a text that holds the list, and the
// further variables of the template, under TRL's key.
func (c chatRecord) offers(key string) (tools, vars json.RawMessage, err error) {
	if tools, err = c.tools(key); err != nil {
		return nil, nil, err
	}
	if tools == nil && c.members[key] == nil && key == "tools" {
		if tools, err = c.functions(); err != nil {
			return nil, nil, err
		}
	}
	raw := unquoted(c.members["chat_template_kwargs"])
	switch b := bytes.TrimSpace(raw); {
	case len(b) == 0 || isNull(b):
		return tools, nil, nil
	case b[0] != '{':
		return nil, nil, c.bad("its \"chat_template_kwargs\" is no object")
	}
	return tools, raw, nil
}

// functions are OpenAI's older list of functions, as tools.
func (c chatRecord) functions() (json.RawMessage, error) {
	list, ok := c.listed("functions")
	if !ok {
		if raw := c.members["functions"]; raw != nil && !isNull(raw) {
			return nil, c.bad("its \"functions\" is not a list")
		}
		return nil, nil
	}
	if len(list) == 0 {
		return nil, nil
	}
	var out []string
	for _, f := range list {
		out = append(out, `{"type":"function","function":`+string(f)+`}`)
	}
	return json.RawMessage("[" + strings.Join(out, ",") + "]"), nil
}

// tools returns a list of functions, which may be written as a text that holds the list.
func (c chatRecord) tools(key string) (json.RawMessage, error) {
	raw := bytes.TrimSpace(c.members[key])
	if startsText(raw) {
		s, err := member(c.members, key, c.place)
		if err != nil {
			return nil, err
		}
		if raw = bytes.TrimSpace([]byte(s)); len(raw) > 0 && !json.Valid(raw) {
			return nil, c.bad("its %q is a text that is not JSON", key)
		}
	}
	if len(raw) == 0 || isNull(raw) || bytes.Equal(raw, []byte("[]")) {
		return nil, nil
	}
	list, ok := chatRecord{map[string]json.RawMessage{key: raw}, c.place}.listed(key)
	if !ok {
		return nil, c.bad("its %q is not a list", key)
	}
	if bytes.Contains(raw, []byte(`"{`)) { // of texts, maybe
		return json.Marshal(list)
	}
	return json.RawMessage(raw), nil
}
