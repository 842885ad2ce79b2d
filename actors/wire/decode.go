package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	fb "github.com/google/flatbuffers/go"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// Decoder reads one edge. The body of a record lands in one pooled buffer, and its tensors are views of it.
type Decoder struct {
	r       *bufio.Reader
	pool    *tensor.Pool
	streams map[uint32][]field
}

// NewDecoder reads from r and takes storage from pool.
func NewDecoder(r io.Reader, pool *tensor.Pool) *Decoder {
	return &Decoder{r: bufio.NewReaderSize(r, 1<<16), pool: pool, streams: map[uint32][]field{}}
}

// ErrMalformed is wrapped by every error about bytes that no encoder of this version writes.
var ErrMalformed = errors.New("wire: malformed message")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// Decode reads the next record; the caller owns a reference to each tensor. io.EOF ends an edge between two records.
func (d *Decoder) Decode() (*Record, error) {
	for {
		var h [16]byte
		if _, err := io.ReadFull(d.r, h[:]); err != nil {
			return nil, err
		}
		if binary.LittleEndian.Uint32(h[:]) != frameMagic || binary.LittleEndian.Uint32(h[8:]) != 0xffffffff {
			return nil, malformed("frame header % x", h)
		}
		stream, n := binary.LittleEndian.Uint32(h[4:]), binary.LittleEndian.Uint32(h[12:])
		if n > maxMeta {
			return nil, malformed("metadata of %d bytes", n)
		}
		meta := make([]byte, n)
		if _, err := io.ReadFull(d.r, meta); err != nil {
			return nil, unexpected(err)
		}
		m, err := parseMessage(meta)
		if err != nil {
			return nil, err
		}
		if m.typ == schemaType {
			fs, err := parseSchema(append(append([]byte(nil), h[8:]...), meta...))
			if err != nil {
				return nil, err
			}
			if _, dup := d.streams[stream]; dup || len(d.streams) > 1<<12 {
				return nil, malformed("stream %d opened twice", stream)
			}
			d.streams[stream] = fs
			continue
		}
		fs, ok := d.streams[stream]
		if !ok || m.typ != batchType {
			return nil, malformed("message type %d on stream %d", m.typ, stream)
		}
		return d.record(m, fs)
	}
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// message is a parsed Arrow message header.
type message struct {
	typ   byte
	body  int64
	nodes []int64
	bufs  []span
}

type span struct{ off, n int64 }

// parseMessage reads the flatbuffer; a table that points outside its bytes makes the library panic, which is
// an error here.
func parseMessage(meta []byte) (m message, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = malformed("%v", x)
		}
	}()
	t := fb.Table{Bytes: meta, Pos: fb.GetUOffsetT(meta)}
	if o := fb.UOffsetT(t.Offset(6)); o != 0 {
		m.typ = t.GetByte(t.Pos + o)
	}
	if o := fb.UOffsetT(t.Offset(10)); o != 0 {
		m.body = t.GetInt64(t.Pos + o)
	}
	if m.typ != batchType {
		return m, nil
	}
	var h fb.Table
	o := fb.UOffsetT(t.Offset(8))
	if o == 0 {
		return m, malformed("no header")
	}
	t.Union(&h, o)
	if fb.UOffsetT(h.Offset(10)) != 0 {
		return m, malformed("compressed body")
	}
	pairs := func(slot fb.VOffsetT, f func(a, b int64)) {
		o := fb.UOffsetT(h.Offset(slot))
		if o == 0 {
			return
		}
		n, v := h.VectorLen(o), int(h.Vector(o))
		raw := h.Bytes[v : v+16*n]
		for i := range n {
			f(int64(binary.LittleEndian.Uint64(raw[16*i:])), int64(binary.LittleEndian.Uint64(raw[16*i+8:])))
		}
	}
	pairs(6, func(a, _ int64) { m.nodes = append(m.nodes, a) })
	pairs(8, func(a, b int64) { m.bufs = append(m.bufs, span{a, b}) })
	return m, nil
}

// record checks every length and offset against the body before anything is read, then takes the columns apart.
func (d *Decoder) record(m message, fs []field) (*Record, error) {
	fixed := len(columns) - 4
	if len(m.nodes) != fixed+5+4*len(fs) || len(m.bufs) != 2*fixed+13+8*len(fs) {
		return nil, malformed("%d nodes and %d buffers for %d tensors", len(m.nodes), len(m.bufs), len(fs))
	}
	if m.body < 0 || m.body > maxBody {
		return nil, malformed("body of %d bytes", m.body)
	}
	for _, b := range m.bufs {
		if b.off < 0 || b.n < 0 || b.off > m.body || b.n > m.body-b.off || b.off&63 != 0 {
			return nil, malformed("buffer %d+%d of a body of %d bytes", b.off, b.n, m.body)
		}
	}
	body, err := d.pool.New("message body", tensor.U8, int(m.body))
	if err != nil {
		return nil, err
	}
	defer body.Release()
	if _, err := io.ReadFull(d.r, body.Bytes()); err != nil {
		return nil, unexpected(err)
	}
	c := &cutter{m: m, body: body}
	r := c.header(fixed)
	for _, f := range fs {
		if err := c.tensor(r, f); err != nil {
			for _, t := range r.Tensors {
				t.Release()
			}
			return nil, err
		}
	}
	if c.err != nil {
		for _, t := range r.Tensors {
			t.Release()
		}
		return nil, c.err
	}
	return r, nil
}

// cutter walks the columns of a record.
type cutter struct {
	m         message
	body      *tensor.Tensor
	node, buf int
	err       error
}

func (c *cutter) bytes() []byte {
	b := c.m.bufs[c.buf]
	c.buf++
	return c.body.Bytes()[b.off : b.off+b.n]
}

func (c *cutter) fixed(width int) (v int64) {
	c.buf++
	b := c.bytes()
	c.node++
	if len(b) < width {
		c.err = malformed("column %d has %d bytes", c.node-1, len(b))
		return 0
	}
	switch width {
	case 1:
		return int64(b[0])
	case 2:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// list returns the bytes of a list column's only row, which must hold n elements of width bytes; n < 0 takes any.
func (c *cutter) list(width int) []byte {
	c.buf++
	off := c.bytes()
	n := c.m.nodes[c.node+1]
	c.node += 2
	c.buf++
	data := c.bytes()
	if n < 0 || n > int64(len(data))/int64(width) || len(off) < 8 || binary.LittleEndian.Uint32(off) != 0 ||
		int64(binary.LittleEndian.Uint32(off[4:])) != n {
		c.err = malformed("list of %d elements in %d bytes", n, len(data))
		return nil
	}
	return data[:n*int64(width)]
}

func (c *cutter) text() string {
	c.buf++
	off, data := c.bytes(), c.bytes()
	c.node++
	if len(off) < 8 || int(binary.LittleEndian.Uint32(off[4:])) > len(data) || binary.LittleEndian.Uint32(off) != 0 {
		c.err = malformed("text of %d bytes", len(data))
		return ""
	}
	return string(data[:binary.LittleEndian.Uint32(off[4:])])
}

func (c *cutter) header(fixed int) *Record {
	v := make([]int64, fixed)
	for i := range v {
		v[i] = c.fixed(columns[i].width)
	}
	r := &Record{To: actors.Ref(v[2]), Seq: uint64(v[4]), Code: int32(v[14]), Payload: v[15] != 0}
	r.Message = actors.Message{Kind: actors.Kind(v[0]), From: actors.Ref(v[1]), Epoch: uint32(v[3]), Step: v[5],
		Action:  plan.Action{Kind: plan.Kind(v[6]), Stage: int16(v[7]), Chunk: int16(v[8]), Micro: int32(v[9])},
		Segment: int32(v[10]), Comm: int32(v[11]), Member: int32(v[12]), Port: int32(v[13])}
	raw := c.list(8)
	for i := 0; i+8 <= len(raw); i += 8 {
		r.Values = append(r.Values, math.Float64frombits(binary.LittleEndian.Uint64(raw[i:])))
	}
	r.Text, r.Fault, r.Stack = c.text(), c.text(), c.text()
	return r
}

func (c *cutter) tensor(r *Record, f field) error {
	data := c.m.bufs[c.buf+3]
	raw := c.list(f.dtype.Size())
	dims := c.list(8)
	if c.err != nil {
		return c.err
	}
	shape, n := make([]int, 0, f.rank), int64(1)
	for i := 0; i+8 <= len(dims); i += 8 {
		d := int64(binary.LittleEndian.Uint64(dims[i:]))
		if d < 0 || d > 0 && n > maxBody/d {
			return malformed("tensor %s has a dimension of %d", f.name, d)
		}
		shape, n = append(shape, int(d)), n*d
	}
	if len(shape) != f.rank || n*int64(f.dtype.Size()) != int64(len(raw)) {
		return malformed("tensor %s of shape %v in %d bytes", f.name, shape, len(raw))
	}
	r.Names = append(r.Names, f.name)
	r.Tensors = append(r.Tensors, c.body.View(int(data.off), f.dtype, shape...))
	return nil
}
