// Package curate has the steps that make a corpus clean: filters, changes of texts and removal of duplicates.
// A step is one file that registers itself with its settings, what it reads and writes, and where its rules come from.
// A step without state looks at one document at a time, so that it can stand on the way of training too;
// one with state signs documents, and what is to go is decided when all have been seen.
//
// The rules are Datatrove's where it has them, with its names of parameters and its defaults; words and
// sentences are those of English (package dataset/words).
package curate

import (
	"encoding/json"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/words"
)

// Doc is a document on its way through steps.
type Doc struct {
	Text   string
	Fields []Field       // the other columns, in the order of the record
	Input  string        // name of the input
	Number int64         // in the input
	Place  dataset.Place // for people
	// Derived says that the text was made of other columns, as that of a conversation: it is looked at
	// and not written, and no step may change it.
	Derived bool
	// Detail is what a step that drops the document notes beside its reason, as the path of a missing file.
	Detail string
	// Sample gives the files that the document was made of; nil where it is a record or a text.
	// They lie where they lay, and may be read anew for each call.
	Sample func() (*Sample, error)
	// Broken is why its sample could not be read, though it is not bad: whoever takes it through steps ends with this.
	Broken error
}

// Sample is the files of a document, and the text and columns that it had at first.
type Sample struct {
	*dataset.Document
	Text    string
	Columns []Field
	TextKey string // the member of its json that is its text; "" where that is its txt, or is made of others
}

// TextPart is the part of a sample that is its text.
const TextPart = "txt"

// Field is a column beside the text.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Set gives a column a value, in place of one that is there.
func (d *Doc) Set(name string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic("curate: a step writes what is no JSON into column " + name + ": " + err.Error())
	}
	for i := range d.Fields {
		if d.Fields[i].Name == name {
			d.Fields[i].Value = b
			return
		}
	}
	d.Fields = append(d.Fields, Field{name, b})
}

// Field returns the value of a column, nil where there is none.
func (d *Doc) Field(name string) json.RawMessage {
	for _, f := range d.Fields {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Talk is the text of a conversation: what is said in it, with empty lines between.
func Talk(list []dataset.Message) string {
	parts := make([]string, len(list))
	for i, m := range list {
		parts[i] = m.Content
	}
	return strings.Join(parts, "\n\n")
}

// Desk is what one worker has at hand for all steps: the words of the text that it looks at, which
// several steps count. It serves one goroutine.
type Desk struct {
	cutter *words.Cutter
	text   string
	words  []string
	cut    bool
}

// NewDesk returns a worker's Desk.
func NewDesk() *Desk { return &Desk{cutter: words.NewCutter()} }

// Words returns the words of a text, cut once for steps that ask one after the other. They must not be changed.
func (k *Desk) Words(text string) []string {
	if !k.cut || k.text != text {
		k.text, k.words, k.cut = text, k.cutter.Words(text), true
	}
	return k.words
}

// Sentences returns how many sentences a text has.
func (k *Desk) Sentences(text string) int { return k.cutter.Sentences(text) }
