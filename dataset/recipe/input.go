package recipe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
)

// A block has at most so many documents, and, where their sizes are known beforehand, about so many bytes.
const (
	blockDocs  = 1024
	blockBytes = 8 << 20
)

// span is a block of an input: documents of one of its files.
type span struct {
	file     int
	from, to int64
	bytes    int64 // 0 where sizes are not known
}

// opened is an input whose files are open.
type opened struct {
	Input
	files  []dataset.Source
	where  []string // of each file, its path
	first  []int64  // number of the first document of each file
	blocks []span
	docs   int64
	bytes  int64
	order  *dataset.Permutation // of all documents; nil leaves them as they lie
}

// openInputs opens all inputs and finds their blocks.
func (r *Recipe) openInputs() (out []*opened, err error) {
	for i := range r.Inputs {
		in := &opened{Input: r.Inputs[i]}
		out = append(out, in)
		for _, p := range in.Paths {
			if err = in.open(p); err != nil {
				closeInputs(out)
				return nil, &source.Error{File: r.file, Line: in.line, Key: fmt.Sprintf("inputs[%d]", i),
					Why: err.Error()}
			}
		}
		in.shuffle(int64(i))
		if err := r.kindFits(in); err != nil {
			closeInputs(out)
			return nil, &source.Error{File: r.file, Line: in.line, Key: fmt.Sprintf("inputs[%d]", i), Why: err.Error()}
		}
	}
	return out, nil
}

// shuffle gives the documents an order of their own, and blocks of places in it.
func (in *opened) shuffle(number int64) {
	if in.Shuffle == 0 || in.docs == 0 {
		return
	}
	p := dataset.NewPermutation(in.docs, uint64(in.Shuffle), 0, 0, number)
	in.order = &p
	bytes := in.means()
	in.blocks = nil
	b := span{}
	for at := range in.docs {
		size := int64(0)
		if bytes != nil {
			size = bytes(p.At(at))
		}
		if n := at - b.from; n == blockDocs/4 || n > 0 && b.bytes+size > blockBytes {
			in.blocks = append(in.blocks, b)
			b = span{from: at}
		}
		b.to, b.bytes = at+1, b.bytes+size
	}
	in.blocks = append(in.blocks, b)
}

// means tells how many bytes a document has, by the mean of the block that it lies in, and is nil where
// documents are so small that no blocks of blockDocs/4 are too large.
func (in *opened) means() func(number int64) int64 {
	starts, sizes := make([]int64, len(in.blocks)), make([]int64, len(in.blocks))
	large := false
	for i, b := range in.blocks {
		starts[i], sizes[i] = in.first[b.file]+b.from, b.bytes/(b.to-b.from)
		large = large || sizes[i] > blockBytes/(blockDocs/4)
	}
	if !large {
		return nil
	}
	return func(number int64) int64 {
		i, _ := slices.BinarySearch(starts, number+1)
		return sizes[i-1]
	}
}

// at is the file and the number in it of the document at a place of a block.
func (in *opened) at(b span, place int64) (file int, doc int64) {
	if in.order == nil {
		return b.file, place
	}
	n := in.order.At(place)
	file = in.fileOf(n)
	return file, n - in.first[file]
}

// closeInputs closes all files. They were only read.
func closeInputs(list []*opened) {
	for _, in := range list {
		for _, f := range in.files {
			_ = f.Close() // it was only read
		}
	}
}

// open opens the files of one path.
func (in *opened) open(path string) error {
	paths, err := dataset.ExpandPaths(path)
	if err != nil {
		return err
	}
	for _, p := range paths {
		s, err := dataset.Open(p, in.options())
		if err != nil {
			return err
		}
		in.files, in.where = append(in.files, s), append(in.where, p)
		in.first = append(in.first, in.docs)
		if err := in.divide(len(in.files)-1, s); err != nil {
			return err
		}
		in.docs += s.Len()
	}
	return nil
}

// Derived are the forms of documents whose text is made of others, which steps look at and do not change, with what
// such documents are called.
var Derived = map[dataset.Form]string{dataset.InMessages: "conversations", dataset.InParts: "samples"}

// kindFits refuses data without texts, and steps that change a text that is made of others.
func (r *Recipe) kindFits(in *opened) error {
	for _, f := range in.files {
		switch f.Kind().Form() {
		case dataset.InText, dataset.InParts:
		case dataset.InMessages:
			for _, s := range r.Steps {
				if s.step.Columns().Text {
					return fmt.Errorf("%s holds conversations, and step %q changes texts; leave the "+
						"step out", f.Name(), s.Name)
				}
			}
		default:
			return fmt.Errorf("%s holds %s, and the steps look at texts and images; give texts, conversations or "+
				"shards of samples", f.Name(), f.Kind())
		}
	}
	return nil
}

// divide finds the blocks of a file.
func (in *opened) divide(file int, s dataset.Source) error {
	sized, ok := s.(dataset.Sized)
	n := s.Len()
	sizes := make([]int64, blockDocs)
	for at := int64(0); at < n; {
		b := span{file: file, from: at, to: min(at+blockDocs, n)}
		if ok {
			list := sizes[:b.to-at]
			err := sized.Sizes(at, list)
			if ok = !errors.Is(err, dataset.ErrNoSizes); ok && err != nil {
				return err
			}
			for i, size := range list {
				if !ok || i > 0 && b.bytes+size > blockBytes {
					b.to = min(b.to, at+int64(max(i, 1)))
					break
				}
				b.bytes += size
			}
		}
		if !ok {
			b.to = min(at+blockDocs/4, n)
		}
		in.blocks = append(in.blocks, b)
		in.bytes += b.bytes
		at = b.to
	}
	return nil
}

// read reads document i of a file, with its columns where the file has records.
func (in *opened) read(file int, i int64) (*curate.Doc, error) {
	s := in.files[file]
	if s.Kind().Form() == dataset.InParts {
		return in.sample(file, i)
	}
	d := &curate.Doc{Input: in.Name, Number: in.first[file] + i}
	if r, ok := s.(dataset.Columned); ok {
		b, place, err := r.Columns(i)
		d.Place = place
		if err != nil {
			return d, err
		}
		if s.Kind().Form() == dataset.InText && in.quick(d, b) {
			return d, nil
		}
		if d.Fields, err = members(b); err != nil {
			return d, &dataset.BadSample{Place: place, Reason: "it is not a JSON object"}
		}
	}
	doc, err := s.Read(i)
	d.Place = doc.Place
	if err != nil {
		return d, err
	}
	d.Text = doc.Text
	if s.Kind().Form() == dataset.InMessages {
		d.Derived = true
		d.Text = curate.Talk(doc.Messages)
	}
	key := format.TextKey(in.TextKey)
	for k, f := range d.Fields {
		if !d.Derived && f.Name == key {
			d.Fields = append(d.Fields[:k], d.Fields[k+1:]...)
			break
		}
	}
	return d, nil
}

// quick takes text and columns from a record without escapes beyond the usual ones; others go the long way.
func (in *opened) quick(d *curate.Doc, b []byte) bool {
	if bytes.Contains(b, []byte(`\u`)) || !json.Valid(b) {
		return false
	}
	fields, err := members(b)
	if err != nil {
		return false
	}
	key := format.TextKey(in.TextKey)
	found := false
	kept := fields[:0]
	for _, f := range fields {
		if f.Name != key || found {
			kept = append(kept, f)
			continue
		}
		if found = len(f.Value) > 0 && f.Value[0] == '"' && json.Unmarshal(f.Value, &d.Text) == nil; !found {
			return false
		}
	}
	d.Fields = kept
	return found
}

// members are the keys and values of a JSON object, in their order.
func members(b []byte) (out []curate.Field, err error) {
	if !json.Valid(b) {
		return nil, errors.New("it is not JSON")
	}
	b = bytes.TrimSpace(b)
	if len(b) < 2 || b[0] != '{' {
		return nil, errors.New("it is no object")
	}
	for at := 1; ; {
		at = skipBlank(b, at)
		if b[at] == '}' {
			return out, nil
		}
		if b[at] == ',' {
			at = skipBlank(b, at+1)
		}
		end := valueEnd(b, at)
		var name string
		if err := json.Unmarshal(b[at:end], &name); err != nil {
			return nil, err
		}
		at = skipBlank(b, end)
		at = skipBlank(b, at+1) // behind the colon
		end = valueEnd(b, at)
		out = append(out, curate.Field{Name: name, Value: bytes.Clone(b[at:end])})
		at = end
	}
}

// skipBlank moves on to what is no space.
func skipBlank(b []byte, at int) int {
	for b[at] == ' ' || b[at] == '\t' || b[at] == '\n' || b[at] == '\r' {
		at++
	}
	return at
}

// valueEnd returns where the value that begins at a byte of valid JSON ends.
func valueEnd(b []byte, at int) int {
	depth := 0
	for ; at < len(b); at++ {
		switch b[at] {
		case '"':
			for at++; b[at] != '"'; at++ {
				if b[at] == '\\' {
					at++
				}
			}
			if depth == 0 {
				return at + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
			if depth < 0 {
				return at
			}
		case ',', ' ', '\t', '\n', '\r', ':':
			if depth == 0 {
				return at
			}
		}
	}
	return at
}
