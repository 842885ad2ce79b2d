package format

import (
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
)

// openIllustrated opens conversations in records with the images and videos that they name, relative to
// their own folder: samples of parts, as converting them to chat_mix would write.
func openIllustrated(path, shape string, o dataset.Options) (dataset.Source, error) {
	usual := map[string]string{"openai": "messages", "sharegpt": "conversations"}[shape]
	if usual == "" {
		return nil, fmt.Errorf("conversations in the shape %s name no images and videos; take data.kind: chat", shape)
	}
	dir := filepath.Dir(path)
	return OpenAnnotations(AnnotationOptions{JSONFile: path, ImageDir: dir, VideoDir: dir, Media: "mix",
		Messages: or(o.Tags.Messages, usual), SampleType: "chat_mix", MediaBytesMax: o.BytesMax, Tags: o.Tags})
}

// IsRecords says whether a path names a file of JSON or Parquet records.
func IsRecords(path string) bool { return isJSON(path) || HasSuffix(path, ".parquet") }

// withSystem puts the text of the system's own key in front of an entry's messages, in the words of its tags.
func (e *annotation) withSystem(messages json.RawMessage) (json.RawMessage, error) {
	t := e.w.Tags
	raw := e.members[t.SystemKey]
	var text string
	if t.SystemKey == "" || raw == nil || json.Unmarshal(raw, &text) != nil || text == "" {
		return messages, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(messages, &list); err != nil {
		return messages, nil // whoever reads it says so
	}
	first, err := json.Marshal(map[string]string{or(t.Role, "role"): or(t.System, "system"),
		or(t.Content, "content"): text})
	if err != nil {
		return nil, err
	}
	return json.Marshal(append([]json.RawMessage{first}, list...))
}

// tagged reads a message whose keys and roles are named by tags, as LoongForge's task encoder does: the role
// is one of four.
func (s *sampleJSON) tagged(i int, t map[string]json.RawMessage, raw json.RawMessage) (m dataset.Message, err error) {
	roleKey, contentKey := or(s.tags.Role, "role"), or(s.tags.Content, "content")
	content := t[contentKey]
	var name string
	switch {
	case t[roleKey] == nil && content != nil: // LoongForge's captions have only a content
		name = or(s.tags.Assistant, "assistant")
	case json.Unmarshal(t[roleKey], &name) != nil || name == "":
		return m, s.bad("its message %d has no text %q, which names its role", i, roleKey)
	}
	switch name {
	case or(s.tags.User, "user"):
		m.Role = "user"
	case or(s.tags.Assistant, "assistant"), s.tags.Function:
		m.Role = "assistant"
	case or(s.tags.System, "system"):
		m.Role = "system"
	case or(s.tags.Tool, "tool"):
		m.Role = "tool"
	default:
		return m, s.bad("its message %d has the role %q, which none is called here", i, Clip(name))
	}
	if json.Unmarshal(content, &m.Content) != nil || len(t) > 2 {
		turn := chatRecord{t, s.doc.Place}
		m.Raw = turn.raw(m, roleKey, contentKey, raw)
	}
	return m, nil
}
