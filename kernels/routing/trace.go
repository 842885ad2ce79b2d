package routing

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// Header says of which run a trace of routing is: the model, the mesh and the shape of its microbatches
// decide which choices fit.
type Header struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	Plan    string `json:"plan"`
	Experts int    `json:"experts"`
	Each    int    `json:"experts_per_token"`
	Rows    int    `json:"rows"` // tokens of a microbatch
	Rank    int    `json:"rank"`
}

// TraceVersion is that of traces that are written.
const TraceVersion = 1

// Fits says why choices of one run are none of another's, "" if they fit.
func (h Header) Fits(want Header) string {
	switch {
	case h.Version != TraceVersion:
		return fmt.Sprintf("has version %d, and version %d is read", h.Version, TraceVersion)
	case h.Model != want.Model:
		return fmt.Sprintf("is of the model %s, not of %s", h.Model, want.Model)
	case h.Experts != want.Experts || h.Each != want.Each:
		return fmt.Sprintf("has %d of %d experts a token, not %d of %d", h.Each, h.Experts, want.Each, want.Experts)
	case h.Plan != want.Plan || h.Rows != want.Rows:
		return fmt.Sprintf("is of %s of %d tokens, not of %s of %d", h.Plan, h.Rows, want.Plan, want.Rows)
	case h.Rank != want.Rank:
		return fmt.Sprintf("is of rank %d, not of rank %d", h.Rank, want.Rank)
	}
	return ""
}

// Place is where a choice was made: a step, a microbatch with its chunk, and a block of the model.
type Place struct {
	Step                int64
	Micro, Chunk, Block int32
}

// Writer writes a trace: a line of JSON, and then for each place its numbers, how many experts follow, and
// these in two bytes each.
type Writer struct {
	w   *bufio.Writer
	buf []byte
}

// NewWriter begins a trace, with its header unless it goes on with one.
func NewWriter(w io.Writer, h Header, goesOn bool) (*Writer, error) {
	t := &Writer{w: bufio.NewWriterSize(w, 1<<16)}
	if goesOn {
		return t, nil
	}
	h.Version = TraceVersion
	line, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	_, err = t.w.Write(append(line, '\n'))
	return t, err
}

// recordHead is the bytes of a record before its experts.
const recordHead = 8 + 4*4

// Write adds the experts of a rank's tokens, in order of tokens.
func (t *Writer) Write(p Place, experts []int32) error {
	b := binary.LittleEndian.AppendUint64(t.buf[:0], uint64(p.Step))
	for _, x := range []int32{p.Micro, p.Chunk, p.Block, int32(len(experts))} {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	for _, e := range experts {
		b = binary.LittleEndian.AppendUint16(b, uint16(e))
	}
	t.buf = b
	_, err := t.w.Write(b)
	return err
}

// Flush hands everything to the file.
func (t *Writer) Flush() error { return t.w.Flush() }

// Trace is a trace that is read. Of a place that was written twice, since a run went back, the later one counts.
type Trace struct {
	Header Header
	Places []Place // in the order in which they were written first
	at     map[Place]span
	r      io.ReaderAt
}

type span struct {
	from int64
	n    int
}

// traceMost bounds the experts of one record: what says more is not a trace.
const traceMost = 1 << 28

// OpenTrace reads where the choices of a trace of so many bytes lie.
func OpenTrace(r io.ReaderAt, size int64) (*Trace, error) {
	head := make([]byte, min(size, 1<<16))
	if _, err := r.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, err
	}
	line, _, ok := bytes.Cut(head, []byte{'\n'})
	t := &Trace{at: map[Place]span{}, r: r}
	if !ok || json.Unmarshal(line, &t.Header) != nil {
		return nil, fmt.Errorf("is not a trace of routing: its first line is no header")
	}
	rest := bufio.NewReaderSize(io.NewSectionReader(r, int64(len(line))+1, size-int64(len(line))-1), 1<<16)
	for at := int64(len(line)) + 1; at < size; {
		var b [recordHead]byte
		if _, err := io.ReadFull(rest, b[:]); err != nil {
			return nil, fmt.Errorf("ends in the middle of a record at byte %d: it was cut off", at)
		}
		word := func(i int) int32 { return int32(binary.LittleEndian.Uint32(b[8+4*i:])) }
		p, n := Place{int64(binary.LittleEndian.Uint64(b[:])), word(0), word(1), word(2)}, int(word(3))
		if n < 0 || n > traceMost || at+recordHead+2*int64(n) > size {
			return nil, fmt.Errorf("says that %d experts follow at byte %d of %d: it was cut off", n, at, size)
		}
		if _, twice := t.at[p]; !twice {
			t.Places = append(t.Places, p)
		}
		t.at[p] = span{at + recordHead, n}
		if _, err := rest.Discard(2 * n); err != nil {
			return nil, err
		}
		at += recordHead + 2*int64(n)
	}
	return t, nil
}

// Read gives the experts of a place; ok is false where nothing was recorded.
func (t *Trace) Read(p Place) (experts []int32, ok bool, err error) {
	s, ok := t.at[p]
	if !ok {
		return nil, false, nil
	}
	raw := make([]byte, 2*s.n)
	if _, err := t.r.ReadAt(raw, s.from); err != nil {
		return nil, false, err
	}
	experts = make([]int32, s.n)
	for i := range experts {
		experts[i] = int32(binary.LittleEndian.Uint16(raw[2*i:]))
		if int(experts[i]) >= t.Header.Experts {
			return nil, false, fmt.Errorf("has expert %d of %d at byte %d", experts[i], t.Header.Experts,
				s.from+int64(2*i))
		}
	}
	return experts, true, nil
}
