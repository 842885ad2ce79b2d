package format

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// marks are what stands for a medium in a text.
var marks = map[dataset.MediaKind]string{dataset.Image: "<image>", dataset.Video: "<video>", dataset.Audio: "<audio>"}

// packedImage names image i of an offline-packed sample.
func packedImage(i int) string { return fmt.Sprintf("img%d.jpg", i) }

var shareRoles = map[string]string{"human": "user", "gpt": "assistant", "bot": "assistant",
	"observation": "tool", "function_call": "assistant"}

// conversation reads a list of messages and puts the media in their places.
func (s *sampleJSON) conversation(raw json.RawMessage, media []dataset.Media) (Conversation, error) {
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 {
		return Conversation{}, s.bad("it has no list of messages")
	}
	var messages []dataset.Message
	for i, raw := range list {
		m, err := s.message(i, raw)
		if err != nil {
			return Conversation{}, err
		}
		messages = append(messages, m)
	}
	return s.place(messages, media)
}

// message reads OpenAI's role and content, or ShareGPT's from and value.
func (s *sampleJSON) message(i int, raw json.RawMessage) (m dataset.Message, err error) {
	var t map[string]json.RawMessage // not a struct, whose keys would match in any case
	if err := json.Unmarshal(raw, &t); err != nil {
		return m, s.bad("its message %d is no message: %s", i, strings.TrimPrefix(err.Error(), "json: "))
	}
	if s.tags.Role != "" {
		return s.tagged(i, t, raw)
	}
	text := func(key string) (out string) {
		_ = json.Unmarshal(t[key], &out) // what is not text counts as missing
		return out
	}
	content := t["content"]
	if m.Role = text("role"); m.Role != "" {
		m.Raw = raw
	} else if m.Role = text("from"); shareRoles[m.Role] != "" {
		m.Role = shareRoles[m.Role]
	}
	if m.Role == "" && content != nil { // LoongForge's captions have only a content
		m.Role = "assistant"
	}
	if m.Role == "" {
		return m, s.bad("its message %d has no role", i)
	}
	if content == nil {
		content = t["value"]
	}
	if json.Unmarshal(content, &m.Content) != nil {
		m.Raw = raw // parts, or none as in a call of a tool
	}
	return m, nil
}

// place writes messages with media as parts. A text says where its media are by marks; where no mark is
// anywhere the media come before the first user's text.
func (s *sampleJSON) place(messages []dataset.Message, media []dataset.Media) (Conversation, error) {
	p := placer{s: s, left: media}
	for _, m := range media {
		p.kinds = append(p.kinds, m.Kind)
	}
	marked := 0
	for i := range messages {
		marked += p.count(&messages[i])
	}
	if marked == 0 && len(media) > 0 {
		if len(messages) == 1 && messages[0].Role == "assistant" {
			messages = append([]dataset.Message{{Role: "user"}}, messages...)
		}
		for i := range messages {
			if messages[i].Role == "user" {
				p.lead = i + 1
				break
			}
		}
		if p.lead == 0 {
			return Conversation{}, s.bad("it has media, and neither a mark in its text nor a message of " +
				"the user that they could stand before")
		}
	}
	c := Conversation{Messages: messages}
	for i := range messages {
		if err := p.message(&messages[i], p.lead == i+1); err != nil {
			return c, err
		}
	}
	if len(p.left) > 0 {
		return c, s.bad("it has %d media and %d marks for media in its text", len(media), len(media)-len(p.left))
	}
	c.Media = p.placed
	return c, nil
}

// placer gives each mark the next medium of its kind.
type placer struct {
	s      *sampleJSON
	kinds  []dataset.MediaKind // of all media
	left   []dataset.Media
	placed []dataset.Media
	lead   int // one more than the message that all media stand before; 0: none
}

// part is a stretch of a message's content.
type part struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
}

// count returns how many marks or parts for media a message has.
func (p *placer) count(m *dataset.Message) (n int) {
	if parts, ok := partsOf(m); ok {
		for _, q := range parts {
			if q.kind != "" {
				n++
			}
		}
		return n
	}
	for _, mark := range p.marksUsed() {
		n += strings.Count(m.Content, mark)
	}
	return n
}

// marksUsed lists the marks of the kinds that the sample has; of a sample without media all marks, since one
// is then a mark too many.
func (p *placer) marksUsed() (out []string) {
	for _, k := range []dataset.MediaKind{dataset.Image, dataset.Video, dataset.Audio} {
		out = append(out, marks[k])
	}
	return out
}

// message rewrites a message's content as parts if it has media.
func (p *placer) message(m *dataset.Message, lead bool) error {
	var parts []part
	if listed, ok := partsOf(m); ok {
		return p.listed(m, listed)
	}
	if lead {
		for _, q := range p.left {
			parts = append(parts, part{Type: string(q.Kind)})
		}
		p.placed, p.left = p.left, nil
	}
	text := m.Content
	for {
		at, kind := p.nextMark(text)
		if at < 0 {
			break
		}
		if at > 0 {
			parts = append(parts, part{"text", text[:at]})
		}
		if err := p.take(kind); err != nil {
			return err
		}
		parts = append(parts, part{Type: string(kind)})
		text = text[at+len(marks[kind]):]
	}
	if parts == nil {
		return nil
	}
	if text != "" {
		parts = append(parts, part{"text", text})
	}
	return p.rewrite(m, parts)
}

// nextMark finds the first mark in a text, -1 for none.
func (p *placer) nextMark(text string) (at int, kind dataset.MediaKind) {
	at = -1
	for k, mark := range marks {
		if i := strings.Index(text, mark); i >= 0 && (at < 0 || i < at) {
			at, kind = i, k
		}
	}
	return at, kind
}

// take places the next medium of a kind.
func (p *placer) take(kind dataset.MediaKind) error {
	for i, m := range p.left {
		if m.Kind == kind {
			p.placed = append(p.placed, m)
			p.left = append(p.left[:i:i], p.left[i+1:]...)
			return nil
		}
	}
	have := 0
	for _, k := range p.kinds {
		if k == kind {
			have++
		}
	}
	return p.s.bad("its text has more marks %s than the %d files that it has of that kind", marks[kind], have)
}

// listed handles a content that is a list of parts already.
func (p *placer) listed(m *dataset.Message, list []listedPart) error {
	var parts []part
	media := false
	for _, q := range list {
		if q.kind == "" {
			parts = append(parts, part{"text", q.text})
			continue
		}
		media = true
		if err := p.take(q.kind); err != nil {
			return err
		}
		parts = append(parts, part{Type: string(q.kind)})
	}
	if !media {
		return nil
	}
	return p.rewrite(m, parts)
}

// rewrite gives a message a content of parts, and keeps its other keys.
func (p *placer) rewrite(m *dataset.Message, parts []part) error {
	keys := map[string]any{}
	if m.Raw != nil {
		if err := json.Unmarshal(m.Raw, &keys); err != nil {
			return p.s.bad("a message is not a JSON object")
		}
	}
	keys["role"], keys["content"] = m.Role, parts
	raw, err := json.Marshal(keys)
	m.Raw, m.Content = raw, ""
	return err
}

// listedPart is an element of a content that is a list: text, or a medium of a kind.
type listedPart struct {
	kind dataset.MediaKind
	text string
}

// partsOf reads a content that is a list of parts, as OpenAI's.
func partsOf(m *dataset.Message) (out []listedPart, ok bool) {
	if m.Raw == nil {
		return nil, false
	}
	var holder map[string]json.RawMessage
	var list []map[string]json.RawMessage
	if json.Unmarshal(m.Raw, &holder) != nil || json.Unmarshal(holder["content"], &list) != nil || list == nil {
		return nil, false
	}
	for _, q := range list {
		var kind, text string
		// what is not text counts as empty
		_, _ = json.Unmarshal(q["type"], &kind), json.Unmarshal(q["text"], &text)
		switch kind {
		case "image", "image_url":
			out = append(out, listedPart{kind: dataset.Image})
		case "video", "video_url":
			out = append(out, listedPart{kind: dataset.Video})
		case "audio", "audio_url", "input_audio":
			out = append(out, listedPart{kind: dataset.Audio})
		default:
			out = append(out, listedPart{text: text})
		}
	}
	return out, true
}

// MessagePart is a stretch of a message: text, or one of the conversation's media.
type MessagePart struct {
	Kind dataset.MediaKind // "" for text
	Text string
}

// PartsOf returns the parts of a message of a Conversation, in order.
func PartsOf(m *dataset.Message) []MessagePart {
	list, ok := partsOf(m)
	if !ok {
		text := m.Content
		if text == "" && m.Raw != nil {
			text = string(m.Raw)
		}
		return []MessagePart{{Text: text}}
	}
	var out []MessagePart
	for _, p := range list {
		out = append(out, MessagePart{p.kind, p.text})
	}
	return out
}
