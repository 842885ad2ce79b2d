// Package dataset orders, reads and packs training data.
//
// Sources give documents by number. One seeded global order over all sources says which document or window
// comes at which place; a place in it is a sample's identity, independent of ranks, readers and runs.
// Windows and packs are cut from that order, so a position in it is all a run must remember to go on exactly where it
// was, the ledger of places tells which samples a step saw, and quarantine names what could not be read.
//
// The package knows no file format and no tokenizer: formats register themselves (package dataset/format),
// and a tokenizer comes as an Encoder.
//
// # Where to begin
//
// By subject:
//
//	order.go, blend.go     which document or window comes at which place of the global order
//	draw.go                random numbers that depend on the sample, not on the plan
//	windows.go             how running text is cut into sequences
//	packs.go, pack.go      how samples are chosen and put beside each other in rows
//	feed.go, loader.go     what a replica reads ahead, and where it stands
//	ledger.go, quarantine.go  which samples a step saw; what could not be read
//
// The rules of packing and balancing themselves, on numbers alone, are in dataset/pack.
package dataset

import (
	"encoding/json"
	"fmt"
)

// Message is one turn of a conversation.
type Message struct {
	Role    string // "system", "user", "assistant", "tool", or what the template knows
	Content string // the text; "" where Raw has content that is not text
	// Raw is the message as it stood in the file, a JSON object with all its keys (tool calls, reasoning, parts).
	// A chat template sees it in place of Role and Content. It is nil for messages that have only these.
	Raw      json.RawMessage
	Unlearnt bool // an assistant's turn that is there to be read: the loss leaves it out
}

// Part is one file of a sample: an image, its caption, a record.
type Part struct {
	// what follows the sample's key and a dot in the file's name, in lower case: "jpg", "0.png", "json"
	Name  string
	Bytes []byte // the file's content; it must not be changed
}

// Document is one unit of a source: a text, tokens, a conversation, or files of one sample. Exactly one of
// Text, Tokens, Messages and Parts is used, as the source's Kind says.
type Document struct {
	Text     string
	Tokens   []int32
	Messages []Message
	Tools    json.RawMessage // functions offered to the model in Messages, a JSON array, or nil
	Vars     json.RawMessage // further variables of the chat template, a JSON object, or nil
	Key      string          // of a sample with Parts, as the shard gives it: no path to write to
	Parts    []Part          // in the order of the shard, each name once
	Place    Place
	Left     string  // why a filter leaves it out, if so: nothing of it is learnt, and it is not bad
	Layout   *Layout // of parts; nil where they tell
}

// Part returns the content of the part of a name, and whether there is one.
func (d *Document) Part(name string) ([]byte, bool) {
	for _, p := range d.Parts {
		if p.Name == name {
			return p.Bytes, true
		}
	}
	return nil, false
}

// Layout says what the parts of a sample are, where its data set says so and not the sample.
type Layout struct {
	Type   string            // a type of samples, "" where Class is given
	Class  string            // Energon's class of a sample
	Fields map[string]string // of the class: where each lies, as "jpg" or "json[0][content]"
}

// String is for fingerprints.
func (l *Layout) String() string {
	if l == nil {
		return ""
	}
	return fmt.Sprint(l.Type, l.Class, l.Fields)
}

// Place is where a document lies.
type Place struct {
	File   string `json:"file"`
	Offset int64  `json:"offset"` // bytes from the start of the file; a row number in columnar files
}

func (p Place) String() string { return fmt.Sprintf("%s at byte %d", p.File, p.Offset) }

// Kind is what the documents of a source hold.
type Kind string

// The kinds of documents.
const (
	KindText   Kind = "text"   // Document.Text
	KindTokens Kind = "tokens" // Document.Tokens
	KindChat   Kind = "chat"   // Document.Messages
	KindParts  Kind = "parts"  // Document.Key and Document.Parts

	// KindEpisodes is recordings of robots: Document.Key, and Parts with one "json" of an episode's frames.
	KindEpisodes Kind = "episodes"

	// KindPairs is pairs of answers of which one is preferred: Document.Parts with one "json", as the file has it.
	KindPairs Kind = "pairs"

	// KindJudged is single answers, each good or bad: Document.Parts with one "json", as the file has it, and one
	// "other" of a record whose answer is one to another prompt.
	KindJudged Kind = "judged"

	// KindSimilar is queries with texts that belong to them: Document.Parts with one "json", likewise.
	KindSimilar Kind = "similar"

	// KindPrompts is prompts to which a run draws answers itself: Document.Parts with one "json", likewise.
	KindPrompts Kind = "prompts"
)

// Form is in which fields of a Document what it holds lies.
type Form uint8

// Forms. A new kind has one of them, and whoever reads documents asks for the form, not for the kind.
const (
	InText     Form = iota + 1 // Document.Text
	InTokens                   // Document.Tokens
	InMessages                 // Document.Messages
	InParts                    // Document.Key, and the files of a sample in Document.Parts
	InRecord                   // Document.Key, and Document.Parts with one "json", as the file has it
)

// forms are those of the kinds.
var forms = map[Kind]Form{KindText: InText, KindTokens: InTokens, KindChat: InMessages, KindParts: InParts,
	KindEpisodes: InRecord, KindPairs: InRecord, KindJudged: InRecord, KindSimilar: InRecord, KindPrompts: InRecord}

// Form is that of a kind's documents, 0 for no kind.
func (k Kind) Form() Form { return forms[k] }

// sampled says that an encoder of samples makes tokens of a kind's documents.
func (k Kind) sampled() bool { return k.Form() == InParts || k.Form() == InRecord }

// With is the kind of a run's data when it reads another kind beside this one, which texts and ids alone allow: they
// are texts together. No kind goes with every other.
func (k Kind) With(other Kind) (_ Kind, ok bool) {
	plain := func(k Kind) bool { return k == KindText || k == KindTokens }
	switch {
	case k == other || other == "":
		return k, true
	case k == "":
		return other, true
	case plain(k) && plain(other):
		return KindText, true
	}
	return k, false
}

// Source gives documents by number. Reading the same number twice gives the same document. All methods may
// be called by several goroutines at once.
type Source interface {
	// Name says what it is, for people: usually the path.
	Name() string
	// Kind is what its documents hold.
	Kind() Kind
	// Len is the number of documents.
	Len() int64
	// Read returns document i, 0 <= i < Len. A document that is broken, and will be broken next time too,
	// gives a *BadSample; any other error is one of the moment, and reading again may succeed.
	Read(i int64) (Document, error)
	// Fingerprint identifies the content, so that a resumed run can tell whether it reads the same data.
	Fingerprint() string
	// Close releases files. No method may be called afterwards.
	Close() error
}

// BadSample is the error of a document that cannot be used, however often it is read.
type BadSample struct {
	Place  Place
	Reason string
}

func (e *BadSample) Error() string { return fmt.Sprintf("%s: %s", e.Place, e.Reason) }
