package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// shape turns an object into a conversation.
type shape func(c chatRecord, tags dataset.Tags) ([]dataset.Message, error)

// chatRecord is an object of chat data.
type chatRecord struct {
	members map[string]json.RawMessage
	place   dataset.Place
}

func (c chatRecord) bad(format string, args ...any) error {
	return &dataset.BadSample{Place: c.place, Reason: fmt.Sprintf(format, args...)}
}

// text returns a member that is a text, "" where it is missing or null.
func (c chatRecord) text(key string) (string, error) {
	raw, ok := c.members[key]
	if !ok || isNull(raw) {
		return "", nil
	}
	return member(c.members, key, c.place)
}

func isNull(raw json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(raw), []byte("null")) }

// or returns name, or otherwise where it is "".
func or(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}

// shapeOf names the chat format that objects with these keys have, "" for none.
func shapeOf(keys map[string]bool) string {
	switch {
	case keys["chosen"] && keys["rejected"], keys["preferred_output"] && keys["non_preferred_output"]:
		return "preference"
	case keys["prompt"] && keys["completion"] && keys["label"]:
		return "judged"
	case keys["prompt"] && keys["completion"]:
		return "completion"
	case (keys["query"] || keys["anchor"]) && keys["positive"]:
		return "similar"
	case keys["messages"]:
		return "openai"
	case keys["conversations"]:
		return "sharegpt"
	case keys["instruction"] && keys["output"]:
		return "alpaca"
	case keys["prompt"] && !keys["text"], (keys["question"] || keys["problem"]) && keys["answer"]:
		return "prompts"
	}
	return ""
}

// registerChat registers a chat format, which JSON lines, JSON arrays and Parquet files can hold.
func registerChat(name, doc string, read shape, write func(dataset.Document) any) bool {
	return dataset.Register(dataset.Format{
		Name: name,
		Doc:  doc,
		Kind: dataset.KindChat,
		Match: func(path string, head []byte) bool {
			return holdsObjects(path, head, name)
		},
		Reads: mayHoldObjects,
		Open: func(path string, o dataset.Options) (dataset.Source, error) {
			if o.Media {
				return openIllustrated(path, name, o)
			}
			r, err := openObjects(path, o)
			if err != nil {
				return nil, err
			}
			return &chats{Records: r, name: store.Redact(path), format: name, read: read, tags: o.Tags}, nil
		},
		Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
			lines := make([]any, len(docs))
			for i, d := range docs {
				lines[i] = write(d)
			}
			path := dir + "/chats.jsonl"
			return path, dataset.Options{}, WriteLines(path, lines)
		},
	})
}

// chats are conversations in records.
type chats struct {
	Records
	name, format string
	read         shape
	tags         dataset.Tags
}

func (c *chats) Name() string       { return c.name }
func (c *chats) Kind() dataset.Kind { return dataset.KindChat }

// Columns implements dataset.Columned.
func (c *chats) Columns(i int64) ([]byte, dataset.Place, error) { return c.Record(i) }

func (c *chats) Fingerprint() string { return HashOf(c.Records.Fingerprint(), c.format, c.tags) }

// Read reads a conversation and its tools. One without messages counts as a bad sample.
func (c *chats) Read(i int64) (dataset.Document, error) {
	b, place, err := c.Record(i)
	d := dataset.Document{Place: place}
	if err != nil {
		return d, err
	}
	m, err := object(b, place)
	if err != nil {
		return d, err
	}
	r := chatRecord{m, place}
	if d.Messages, err = c.read(r, c.tags); err != nil {
		return d, err
	}
	if len(d.Messages) == 0 {
		return d, r.bad("it has no messages")
	}
	d.Tools, d.Vars, err = r.offers(c.tags.Name(c.tags.Tools, "tools"))
	return d, err
}

// raw returns a turn as templates expect it: as it stands where its keys and role are the usual ones, else
// with role and content under their usual names in front.
func (c chatRecord) raw(m dataset.Message, roleKey, contentKey string, whole json.RawMessage) json.RawMessage {
	flagged := slices.ContainsFunc(flagKeys, func(k string) bool { return c.members[k] != nil })
	if name, _ := c.text("role"); name == m.Role && contentKey == "content" && !flagged { // none is no role
		return whole
	}
	members := map[string]json.RawMessage{}
	for k, v := range c.members {
		if k != roleKey && k != contentKey && !slices.Contains(flagKeys, k) {
			members[k] = v
		}
	}
	members["role"], _ = json.Marshal(m.Role) // a string always can be
	members["content"] = c.members[contentKey]
	if members["content"] == nil {
		members["content"] = json.RawMessage("null")
	}
	out, err := json.Marshal(members)
	if err != nil {
		panic(fmt.Sprintf("format: raw JSON does not marshal: %v", err))
	}
	return out
}
