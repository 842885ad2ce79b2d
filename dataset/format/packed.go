package format

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// PackedPart is a sample's conversation as it stands in its JSON.
type PackedPart struct {
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools"`
	Files    []string        `json:"-"` // names of parts
}

// Packable reads a sample that can be packed: one conversation and the files it names.
func Packable(d *dataset.Document, sampleType string) (PackedPart, error) {
	s := &sampleJSON{doc: d}
	if sampleType == "" && d.Layout != nil {
		if sampleType = d.Layout.Type; sampleType == "" {
			return s.packableFields()
		}
	}
	if sampleType == "" {
		sampleType = GuessSampleType(d)
	}
	b, _ := d.Part("json")
	out := PackedPart{Messages: b, Tools: json.RawMessage("null")}
	if strings.HasPrefix(sampleType, "packed_") {
		return out, s.bad("it is packed already")
	}
	if sampleType == "vqa" || sampleType == "caption" {
		for _, part := range d.Parts {
			if part.Name != "json" {
				out.Files = append(out.Files, part.Name)
			}
		}
		return out, nil
	}
	var err error
	if s.members, err = object(b, d.Place); err != nil {
		return out, err
	}
	out.Messages = s.members["texts"]
	if raw := s.members["messages"]; raw != nil {
		out.Messages = raw
	}
	if raw := s.members["tools"]; raw != nil {
		out.Tools = raw
	}
	return out, s.get("name", &out.Files)
}

// packableFields is Packable for a sample whose data set names its fields.
func (s *sampleJSON) packableFields() (PackedPart, error) {
	out := PackedPart{Tools: json.RawMessage("null")}
	file, messages, err := s.mapped()
	if err != nil {
		return out, err
	}
	out.Files = []string{file}
	var turns []map[string]string
	for _, m := range messages {
		turns = append(turns, map[string]string{"role": m.Role, "content": m.Content})
	}
	out.Messages, err = json.Marshal(turns)
	return out, err
}

// PackedJSON writes the JSON part of a packed sample: conversations of one kind of media, with the names of
// the files of each. packedType is packed_chat_mix or packed_multi_mix_qa.
func PackedJSON(packedType, media string, list []PackedPart, files [][]string) ([]byte, error) {
	content := map[string]any{"media_files": files, "media_type": media}
	if packedType == "packed_chat_mix" {
		content["messages"] = list
		return json.Marshal(content)
	}
	texts, err := promptsOf(list)
	if err != nil {
		return nil, err
	}
	content["texts"] = texts
	return json.Marshal(content)
}

// promptsOf writes conversations as questions and answers.
func promptsOf(list []PackedPart) (any, error) {
	prompts, captions := [][]string{}, [][]string{}
	for i, one := range list {
		s := &sampleJSON{doc: &dataset.Document{}}
		var raw []json.RawMessage
		if err := json.Unmarshal(one.Messages, &raw); err != nil {
			return nil, err
		}
		var q, a []string
		for k, r := range raw {
			m, err := s.message(k, r)
			if err != nil {
				return nil, err
			}
			switch m.Role {
			case "user":
				q = append(q, m.Content)
			case "assistant":
				a = append(a, m.Content)
			default:
				return nil, fmt.Errorf("conversation %d has a turn of %q, which packed_multi_mix_qa "+
					"cannot hold; use packed_chat_mix", i, m.Role)
			}
		}
		if len(q) != len(a) {
			return nil, fmt.Errorf("conversation %d has %d questions and %d answers, which "+
				"packed_multi_mix_qa cannot hold; use packed_chat_mix", i, len(q), len(a))
		}
		prompts, captions = append(prompts, q), append(captions, a)
	}
	return map[string]any{"prompts": prompts, "captions": captions}, nil
}
