package recipe

import (
	"io"
	"strings"

	"github.com/lfactor/lfactor/dataset/curate"
)

// jsonl: an object a line, the text under "text" and then the other columns in their order.
var _ = RegisterWriter(Writer{Name: "jsonl", Doc: "JSON objects, one a line", Compress: []string{"gzip", "zstd"},
	Ext: func(c string) string { return ".jsonl" + ending(c) }, Create: func(w io.Writer, c string, _ *Table) (DocWriter, error) {
		out, end, err := compressed(w, c)
		return &jsonlWriter{out: out, end: end}, err
	}})

type jsonlWriter struct {
	out  io.Writer
	end  func() error
	line []byte
}

func (j *jsonlWriter) Add(d *curate.Doc) error {
	j.line = append(appendRecord(j.line[:0], d, "text"), '\n')
	_, err := j.out.Write(j.line)
	return err
}

func (j *jsonlWriter) Close() error { return j.end() }

// appendRecord writes a document as a JSON object, its text under a key unless it is made of other columns.
func appendRecord(b []byte, d *curate.Doc, key string) []byte {
	b = append(b, '{')
	if !d.Derived && key != "" {
		b = appendString(b, key)
		b = appendString(append(b, ':'), d.Text)
	}
	for _, f := range d.Fields {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = appendString(b, f.Name)
		b = append(append(b, ':'), f.Value...)
	}
	return append(b, '}')
}

// appendString writes a text as JSON, with no more escapes than it needs.
func appendString(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\uFFFD") // no input gives other text, but a step may cut a character
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			const hex = "0123456789abcdef"
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
