package format

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// mappedTypes are Energon's classes of samples that are conversations, with their fields. Source:
// megatron-energon 7.4.1, flavors.
var mappedTypes = map[string][]string{
	"VQASample":        {"image", "context", "answers", "answer_weights", "__key__"},
	"CaptioningSample": {"image", "caption", "__key__"},
}

func mappedClasses() []string { return slices.Sorted(maps.Keys(mappedTypes)) }

// readMapped makes a conversation of the fields of a sample: an image with a question and its first answer,
// or with its caption.
func readMapped(s *sampleJSON) ([]Conversation, error) {
	file, messages, err := s.mapped()
	if err != nil {
		return nil, err
	}
	media, err := s.media("image", []string{file})
	if err != nil {
		return nil, err
	}
	c, err := s.place(messages, media)
	return []Conversation{c}, err
}

// mapped returns the name of a sample's image, and its two turns.
func (s *sampleJSON) mapped() (file string, messages []dataset.Message, err error) {
	l := s.doc.Layout
	names := strings.Split(l.Fields["image"], ",")
	i := slices.IndexFunc(names, func(n string) bool { _, ok := s.doc.Part(n); return ok })
	if i < 0 {
		return "", nil, s.bad("it has no file %q, which field_map calls its image", Clip(l.Fields["image"]))
	}
	question, answer := "context", "answers"
	if l.Class == "CaptioningSample" {
		question, answer = "", "caption"
	}
	var texts [2]string
	for k, field := range []string{question, answer} {
		if field == "" {
			continue
		}
		if texts[k], err = s.field(field); err != nil {
			return "", nil, err
		}
	}
	return names[i], []dataset.Message{{Role: "user", Content: texts[0]}, {Role: "assistant", Content: texts[1]}}, nil
}

var fieldAccess = regexp.MustCompile(`^([^\[\]]+)((?:\[[^\[\]]+\])*)$`)

// field reads a field that is a text, or the first of a list of texts: of the places that field_map names,
// the first that is there.
func (s *sampleJSON) field(name string) (string, error) {
	at := s.doc.Layout.Fields[name]
	for _, option := range strings.Split(at, ",") {
		m := fieldAccess.FindStringSubmatch(option)
		if m == nil {
			m = []string{"", option, ""}
		}
		b, ok := s.doc.Part(m[1])
		if !ok {
			continue
		}
		if err := checkUTF8(b, s.doc.Place); err != nil {
			return "", err
		}
		if last := m[1][strings.LastIndex(m[1], ".")+1:]; last != "json" && last != "jsn" && m[2] == "" {
			return string(b), nil
		}
		if err := checkSurrogates(b, s.doc.Place); err != nil {
			return "", err
		}
		raw, ok := descend(b, strings.FieldsFunc(m[2], func(r rune) bool { return r == '[' || r == ']' }))
		if !ok {
			continue
		}
		texts, err := textOrList(raw)
		if err != nil || len(texts) == 0 {
			return "", s.bad("its %q (%s) is no text", name, Clip(at))
		}
		return texts[0], nil
	}
	return "", s.bad("it has no %q, which field_map takes from %s", name, Clip(at))
}

// descend follows keys and numbers into a JSON value.
func descend(raw json.RawMessage, path []string) (json.RawMessage, bool) {
	for _, key := range path {
		var members map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(raw, &members) == nil {
			raw = members[key]
		} else if i, err := strconv.Atoi(key); err == nil && json.Unmarshal(raw, &list) == nil {
			if i < 0 {
				i += len(list) // as Python counts
			}
			if i < 0 || i >= len(list) {
				return nil, false
			}
			raw = list[i]
		} else {
			return nil, false
		}
		if raw == nil {
			return nil, false
		}
	}
	return raw, json.Valid(raw)
}
