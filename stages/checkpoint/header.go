package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Bounds on what a file may make us allocate or loop over.
const (
	headerBytesMax = 64 << 20
	axesMax        = 32
)

// header is the decoded head of a safetensors file.
type header struct {
	tensors  []Info // sorted by offset; Offset counts from the beginning of the file
	metadata map[string]string
}

// readHeader reads and checks the head of a safetensors file of size bytes. Specification:
// https://github.com/huggingface/safetensors#format. As there, the tensors must fill the data part
// without a gap or an overlap.
func readHeader(r io.ReaderAt, path string, size int64) (*header, error) {
	bad := func(fault Fault, err error, format string, args ...any) error {
		return &Error{File: path, Fault: fault, Why: fmt.Sprintf(format, args...), Err: err}
	}
	var head [8]byte
	if size < 8 {
		return nil, bad(Truncated, nil, "%d bytes are too few for a safetensors file", size)
	}
	if err := readFull(r, head[:], 0); err != nil {
		return nil, bad(Truncated, err, "reading the header's length")
	}
	n := binary.LittleEndian.Uint64(head[:])
	switch {
	case string(head[:]) == "version ":
		return nil, bad(Malformed, nil, "is a pointer of Git LFS, and not the file: run `git lfs pull` where it was cloned, or bring the "+
			"repository by `lfactor hub get`")
	case n > headerBytesMax:
		return nil, bad(Malformed, nil, "header claims %d bytes, limit %d", n, headerBytesMax)
	case n > uint64(size-8):
		return nil, bad(Truncated, nil, "header claims %d bytes, the file has %d", n, size-8)
	}
	text := make([]byte, n)
	if err := readFull(r, text, 8); err != nil {
		return nil, bad(Truncated, err, "reading the header")
	}
	h, err := parseHeader(text)
	if err != nil {
		return nil, bad(Malformed, err, "header")
	}
	return h, h.place(path, 8+int64(n), size)
}

// parseHeader decodes the JSON of a header; offsets are still relative to the data part.
func parseHeader(text []byte) (*header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, fmt.Errorf("does not begin with '{'")
	}
	h := &header{}
	seen := map[string]bool{}
	err := EachKey(text, func(key string, d *json.Decoder) error {
		if seen[key] {
			return fmt.Errorf("key %s appears twice", quoteOdd(key))
		}
		seen[key] = true
		if key == "__metadata__" {
			return d.Decode(&h.metadata)
		}
		info, err := parseEntry(key, d)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quoteOdd(key), err)
		}
		h.tensors = append(h.tensors, info)
		return nil
	})
	return h, err
}

// EachKey walks the keys of one JSON object in order, which a map would not keep, nor tell of duplicates.
func EachKey(text []byte, f func(key string, d *json.Decoder) error) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("is not a JSON object (%v)", err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(key.(string), d); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("text after the JSON object")
	}
	return nil
}

// parseEntry decodes one tensor's entry; Offset and Bytes are those of the data part.
func parseEntry(name string, d *json.Decoder) (Info, error) {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return Info{}, err
	}
	info := Info{Name: name, Offset: -1, Shape: []int{}}
	var offsets []int64
	seen := map[string]bool{}
	err := EachKey(raw, func(key string, d *json.Decoder) error {
		if seen[key] {
			return fmt.Errorf("key %q appears twice", key)
		}
		seen[key] = true
		switch key {
		case "dtype":
			return d.Decode(&info.DType)
		case "shape":
			return d.Decode(&info.Shape)
		case "data_offsets":
			return d.Decode(&offsets)
		}
		return fmt.Errorf("unknown key %q", key)
	})
	switch {
	case err != nil:
		return info, err
	case len(seen) != 3 || len(offsets) != 2 || info.Shape == nil:
		return info, fmt.Errorf("wants dtype, shape and two data_offsets")
	case len(info.Shape) > axesMax:
		return info, fmt.Errorf("%d axes, limit %d", len(info.Shape), axesMax)
	}
	bytes, err := ByteSize(info.DType, info.Shape)
	if err != nil {
		return info, err
	}
	if offsets[0] < 0 || offsets[1] < offsets[0] || offsets[1]-offsets[0] != bytes {
		return info, fmt.Errorf("data_offsets %v do not span the %d bytes of %s %v", offsets, bytes,
			info.DType, info.Shape)
	}
	info.Offset, info.Bytes = offsets[0], bytes
	return info, nil
}

// place sorts the tensors by offset, moves offsets to count from the beginning of the file, and checks that
// they fill it exactly.
func (h *header) place(path string, data, size int64) error {
	slices.SortFunc(h.tensors, func(a, b Info) int {
		if a.Offset != b.Offset {
			return sign(a.Offset - b.Offset)
		}
		if a.Bytes != b.Bytes {
			return sign(a.Bytes - b.Bytes)
		}
		return strings.Compare(a.Name, b.Name)
	})
	next := int64(0)
	for i := range h.tensors {
		t := &h.tensors[i]
		fault, why := Malformed, ""
		switch {
		case t.Offset < next:
			why = fmt.Sprintf("overlaps the tensor before it by %d bytes", next-t.Offset)
		case t.Offset > next:
			why = fmt.Sprintf("leaves a gap of %d bytes before it", t.Offset-next)
		case t.Offset+t.Bytes > size-data:
			fault, why = Truncated, fmt.Sprintf("ends at byte %d of the data, the file has %d",
				t.Offset+t.Bytes, size-data)
		}
		if why != "" {
			return &Error{File: path, Tensor: t.Name, Fault: fault, Why: why, Try: "copy the file again"}
		}
		next = t.Offset + t.Bytes
		t.Offset += data
	}
	if next != size-data {
		return &Error{File: path, Fault: Malformed, Why: fmt.Sprintf("%d bytes after the last tensor", size-data-next)}
	}
	return nil
}

// sign turns a difference into the -1 or 1 of a comparison.
func sign(n int64) int {
	if n < 0 {
		return -1
	}
	return 1
}

// layout returns the head of a file that holds the tensors, byte for byte what the Python library writes,
// and the tensors in file order with their offsets. Order: widest type first, then by name, so that elements
// are aligned and the same tensors always give the same file.
func layout(tensors []Info, metadata map[string]string) ([]byte, []Info, error) {
	sorted := slices.Clone(tensors)
	slices.SortFunc(sorted, func(a, b Info) int {
		if a.DType != b.DType {
			return b.DType.rank() - a.DType.rank()
		}
		return strings.Compare(a.Name, b.Name)
	})
	var text bytes.Buffer
	text.WriteByte('{')
	if len(metadata) > 0 {
		text.WriteString(`"__metadata__":`)
		text.Write(plainJSON(metadata))
	}
	next := int64(0)
	for i := range sorted {
		t := &sorted[i]
		n, err := ByteSize(t.DType, t.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %s: %w", quoteOdd(t.Name), err)
		}
		if i > 0 && sorted[i-1].Name == t.Name || t.Name == "__metadata__" {
			return nil, nil, fmt.Errorf("tensor %s: the name is taken", quoteOdd(t.Name))
		}
		if text.Len() > 1 {
			text.WriteByte(',')
		}
		shape := t.Shape
		if shape == nil {
			shape = []int{}
		}
		fmt.Fprintf(&text, `%s:{"dtype":%s,"shape":%s,"data_offsets":[%d,%d]}`, plainJSON(t.Name),
			plainJSON(t.DType), plainJSON(shape), next, next+n)
		t.Offset, t.Bytes = next, n
		next += n
	}
	text.WriteByte('}')
	for text.Len()%8 != 0 {
		text.WriteByte(' ')
	}
	if text.Len() > headerBytesMax {
		return nil, nil, fmt.Errorf("%d tensors need a header of %d bytes, limit %d: use more shards",
			len(sorted), text.Len(), headerBytesMax)
	}
	head := binary.LittleEndian.AppendUint64(nil, uint64(text.Len()))
	head = append(head, text.Bytes()...)
	for i := range sorted {
		sorted[i].Offset += int64(len(head))
	}
	return head, sorted, nil
}

// plainJSON encodes without escaping <, > and &, as the Python and Rust libraries do.
func plainJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("checkpoint: %T cannot be JSON: %v", v, err))
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
