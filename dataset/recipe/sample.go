package recipe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
)

// SampleDoc is a sample of several files as steps see it. Its text is that of its txt, or else of a key of its json;
// a sample with neither is looked at by what is said in its conversations or captions, which is not written.
// With a key that is named the json goes first. Columns are the other members of the json, where that is an object.
// What cannot be used is a *dataset.BadSample.
// Keys and roles of conversations have the names that tags gives; with names of their own, turns of which none
// is understood cannot be used either.
func SampleDoc(d *dataset.Document, textKey string, tags dataset.Tags) (*curate.Doc, error) {
	bad := func(what string, args ...any) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("sample %q: ",
			d.Key) + fmt.Sprintf(what, args...)}
	}
	s := &curate.Sample{Document: d}
	c := &curate.Doc{Place: d.Place, Sample: func() (*curate.Sample, error) { return s, nil }}
	defer func() { s.Text, s.Columns = c.Text, slices.Clone(c.Fields) }()
	if raw, ok := d.Part("json"); ok {
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return c, bad("its json is not JSON")
		}
		c.Fields, _ = members(raw) // a list has none
	}
	fromJSON := func() bool {
		key := format.TextKey(textKey)
		i := slices.IndexFunc(c.Fields, func(f curate.Field) bool { return f.Name == key })
		if i < 0 || json.Unmarshal(c.Fields[i].Value, &c.Text) != nil {
			return false
		}
		c.Fields = slices.Delete(c.Fields, i, i+1)
		s.TextKey = key
		return true
	}
	if textKey != "" && fromJSON() {
		return c, nil
	}
	if text, ok := d.Part(curate.TextPart); ok {
		if !utf8.Valid(text) {
			return c, bad("its txt is not UTF-8")
		}
		c.Text = string(text)
		return c, nil
	}
	if fromJSON() {
		return c, nil
	}
	text, err := said(d, tags)
	c.Derived, c.Text = true, text
	return c, err
}

// said is what a sample's conversations say, "" for a sample without.
func said(d *dataset.Document, tags dataset.Tags) (string, error) {
	list, err := format.Converse(d, "", tags)
	if err != nil { // it is none that a model learns, or does not name its files
		turns, read := messagesOf(d, tags)
		if len(turns) == 0 && read > 0 && tags != (dataset.Tags{}) {
			return "", err
		}
		list = []format.Conversation{{Messages: turns}}
	}
	var parts []string
	for _, c := range list {
		for i := range c.Messages {
			for _, p := range format.PartsOf(&c.Messages[i]) {
				if p.Kind == "" && strings.TrimSpace(p.Text) != "" {
					parts = append(parts, p.Text)
				}
			}
		}
	}
	return strings.Join(parts, "\n\n"), nil
}

// messagesOf are the turns in the json of a sample, none where it has no list of them, and how many there are
// with those that hold nothing under the name of a turn's content.
func messagesOf(d *dataset.Document, tags dataset.Tags) (out []dataset.Message, all int) {
	raw, _ := d.Part("json")
	name := func(given, usual string) string {
		if given == "" {
			return usual
		}
		return given
	}
	var v map[string]json.RawMessage
	var turns []map[string]json.RawMessage
	if json.Unmarshal(raw, &v) != nil || json.Unmarshal(v[name(tags.Messages, "messages")], &turns) != nil {
		return nil, 0
	}
	for _, m := range turns {
		content, ok := m[name(tags.Content, "content")]
		if !ok {
			continue
		}
		var turn struct{ Role, Content string }
		_ = json.Unmarshal(m[name(tags.Role, "role")], &turn.Role) // none is one without a name
		if json.Unmarshal(content, &turn.Content) != nil {         // it is a list of parts
			b, err := json.Marshal(map[string]json.RawMessage{"content": content})
			if err == nil {
				out = append(out, dataset.Message{Raw: b})
			}
			continue
		}
		out = append(out, dataset.Message{Role: turn.Role, Content: turn.Content})
	}
	return out, len(turns)
}

// sample reads document i of a file of samples.
func (in *opened) sample(file int, i int64) (*curate.Doc, error) {
	s, err := in.files[file].Read(i)
	d := &curate.Doc{Place: s.Place}
	if err == nil {
		d, err = SampleDoc(&s, in.TextKey, dataset.Tags{})
	}
	d.Input, d.Number = in.Name, in.first[file]+i
	return d, err
}

// again reads the files of a document's sample anew when they are asked for: blocks have none of them.
func (in *opened) again(d *curate.Doc) {
	file := in.fileOf(d.Number)
	if file < 0 || in.files[file].Kind().Form() != dataset.InParts {
		return
	}
	d.Sample = func() (*curate.Sample, error) {
		was, err := in.sample(file, d.Number-in.first[file])
		for try := 1; err != nil && try < readsMax && !isBad(err); try++ {
			was, err = in.sample(file, d.Number-in.first[file])
		}
		if err != nil {
			return nil, err
		}
		return was.Sample()
	}
}

// fileOf is the file that a document of the input lies in.
func (in *opened) fileOf(number int64) int {
	file, _ := slices.BinarySearch(in.first, number+1)
	return file - 1
}

// decode reads the documents of a block, one after the other, with their samples.
func (f *flow) decode(docs []byte, each func(d *curate.Doc, input int) error) error {
	return decodeDocs(docs, f.Inputs, func(d *curate.Doc, input int) error {
		f.inputs[input].again(d)
		return each(d, input)
	})
}

// unwritable is the reason of samples whose text is a conversation, and which a step would have changed, and of
// documents that the format of an output cannot hold.
const unwritable = "unwritable"
