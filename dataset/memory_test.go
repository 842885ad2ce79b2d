package dataset

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
)

// memory is a source of documents in memory. Some may be bad, and reading may fail now and then.
type memory struct {
	name  string
	kind  Kind
	docs  []Document
	bad   map[int64]string
	sized bool  // it knows the sizes of its documents
	flaky int64 // of each flaky reads, the first 2·readsMax fail; 0: none
	reads atomic.Int64
}

var errFlaky = errors.New("the disk was busy")

func (m *memory) Name() string        { return m.name }
func (m *memory) Kind() Kind          { return m.kind }
func (m *memory) Len() int64          { return int64(len(m.docs)) }
func (m *memory) Fingerprint() string { return fingerprintOf(m.name, len(m.docs)) }
func (m *memory) Close() error        { return nil }

func (m *memory) Sizes(from int64, out []int64) error {
	if !m.sized {
		return ErrNoSizes
	}
	for k := range out {
		d := m.docs[from+int64(k)]
		out[k] = int64(len(d.Text) + len(d.Tokens))
	}
	return nil
}

func (m *memory) Read(i int64) (Document, error) {
	if n := m.reads.Add(1); m.flaky > 0 && n%m.flaky < 2*readsMax {
		return Document{}, errFlaky
	}
	if why, ok := m.bad[i]; ok {
		return Document{}, &BadSample{Place{m.name, i}, why}
	}
	return m.docs[i], nil
}

// textSource has documents "s0", "s1", ….
func textSource(name string, n int) *memory {
	m := &memory{name: name, kind: KindText}
	for i := range n {
		m.docs = append(m.docs, Document{Text: fmt.Sprintf("%s%d", name, i), Place: Place{name, int64(i)}})
	}
	return m
}

// longSource has documents of 0 to 40 bytes, whose bytes tell the document.
func longSource(name string, n int) *memory {
	m := textSource(name, n)
	for i := range m.docs {
		m.docs[i].Text = strings.Repeat(string(rune('a'+i%26)), int(Draw(1, 0, int64(i), 0, 0)%41))
	}
	return m
}

// sizedSource is longSource with a document of some 500 bytes among ten, which knows its sizes.
func sizedSource(name string, n int) *memory {
	m := longSource(name, n)
	m.sized = true
	for i := 3; i < n; i += 10 {
		m.docs[i].Text = strings.Repeat(string(rune('a'+i%26))+"b c\n", 100+i%40)
	}
	return m
}

// idSource has documents of 0 to most tokens, which all differ.
func idSource(name string, n, most int) *memory {
	m := &memory{name: name, kind: KindTokens, sized: true}
	next := int32(1)
	for i := range n {
		d := Document{Place: Place{name, int64(i)}}
		for range Draw(1, 0, int64(i), 0, 0) % uint64(most+1) {
			d.Tokens = append(d.Tokens, next)
			next++
		}
		m.docs = append(m.docs, d)
	}
	return m
}

// byteEncoder makes an id of each byte.
type byteEncoder struct{ calls atomic.Int64 }

func (e *byteEncoder) Fingerprint() string { return "bytes" }
func (e *byteEncoder) Encode(text string, addSpecial bool) []int32 {
	e.calls.Add(1)
	var out []int32
	if addSpecial {
		out = append(out, 1)
	}
	for i := range len(text) {
		out = append(out, int32(text[i]))
	}
	return out
}

// chatSource has conversations of one question and one answer.
func chatSource(name string, n int) *memory {
	m := &memory{name: name, kind: KindChat}
	for i := range n {
		long := int(Draw(2, 0, int64(i), 0, 0) % 20)
		m.docs = append(m.docs, Document{Place: Place{name, int64(i)},
			Messages: []Message{{Role: "user", Content: strings.Repeat("q", 1+long/2)},
				{Role: "assistant", Content: fmt.Sprintf("%s%d", name, i)}}})
	}
	return m
}

// chatEncoder writes the turns one after the other and learns the assistant's.
type chatEncoder struct{ byteEncoder }

func (e *chatEncoder) EncodeMessages(messages []Message, _, _ []byte) (ids []int32, loss []bool, err error) {
	for _, m := range messages {
		if m.Role == "fail" {
			return nil, nil, errors.New("roles must alternate")
		}
		for _, id := range e.Encode(m.Content, false) {
			ids, loss = append(ids, id), append(loss, m.Role == "assistant")
		}
	}
	return ids, loss, nil
}
