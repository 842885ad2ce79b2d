package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"

	fb "github.com/google/flatbuffers/go"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Record is a message as it crosses processes: the message's own fields, where it goes, and the tensors of its payload.
type Record struct {
	actors.Message
	To      actors.Ref
	Seq     uint64
	Code    int32    // exit code of Err
	Fault   string   // text of Err
	Stack   string   // where Err is a panic
	Payload bool     // there is one, which may be of no tensors
	Names   []string // of the tensors; nil for unnamed
	Tensors []*tensor.Tensor
}

// Encoder writes one edge. Streams of different schemas are told apart by their number.
type Encoder struct {
	streams map[string]uint32
	b       *fb.Builder
}

// NewEncoder returns an encoder for a fresh connection.
func NewEncoder() *Encoder { return &Encoder{streams: map[string]uint32{}, b: fb.NewBuilder(4096)} }

const (
	frameMagic = 0x3145464c // "LFE1"
	batchType  = 3
	schemaType = 1
)

var zeros [64]byte

func (r *Record) fields() []field {
	fs := make([]field, len(r.Tensors))
	for i, t := range r.Tensors {
		name := fmt.Sprintf("t%d", i)
		if r.Names != nil {
			name = r.Names[i]
		}
		fs[i] = field{name, t.DType, len(t.Shape)}
	}
	return fs
}

// Encode returns the bytes to write, gathered: tensors are not copied, so they must stay retained until the
// write ends. The second result is the stream number, the third whether a schema message opens the stream.
func (e *Encoder) Encode(r *Record) (net.Buffers, uint32, bool) {
	fs := r.fields()
	sig := signature(fs)
	id, known := e.streams[sig]
	var out net.Buffers
	if !known {
		id = uint32(len(e.streams))
		e.streams[sig] = id
		out = append(out, frameHeader(id), schemaMessage(schemaOf(fs)))
	}
	nodes, bufs := r.columns()
	out = append(out, frameHeader(id))
	return append(out, e.batch(nodes, bufs)...), id, !known
}

func frameHeader(id uint32) []byte {
	h := make([]byte, 8)
	binary.LittleEndian.PutUint32(h, frameMagic)
	binary.LittleEndian.PutUint32(h[4:], id)
	return h
}

// columns lays the record out as Arrow arrays of one row: lengths of the nodes, and the buffers in order.
func (r *Record) columns() (nodes []int64, bufs [][]byte) {
	fixed := []uint64{uint64(r.Kind), uint64(r.From), uint64(r.To), uint64(r.Epoch), r.Seq, uint64(r.Step),
		uint64(r.Action.Kind), uint64(r.Action.Stage), uint64(r.Action.Chunk), uint64(r.Action.Micro),
		uint64(r.Segment), uint64(r.Comm), uint64(r.Member), uint64(r.Port), uint64(r.Code), 0}
	if r.Payload {
		fixed[len(fixed)-1] = 1
	}
	for i, v := range fixed {
		b := make([]byte, 8)
		binary.LittleEndian.PutUint64(b, v)
		nodes, bufs = append(nodes, 1), append(bufs, nil, b[:columns[i].width])
	}
	list := func(n int, data []byte) {
		nodes, bufs = append(nodes, 1, int64(n)), append(bufs, nil, offsets(n), nil, data)
	}
	values := make([]byte, 0, 8*len(r.Values))
	for _, v := range r.Values {
		values = binary.LittleEndian.AppendUint64(values, math.Float64bits(v))
	}
	list(len(r.Values), values)
	for _, s := range []string{r.Text, r.Fault, r.Stack} {
		nodes, bufs = append(nodes, 1), append(bufs, nil, offsets(len(s)), []byte(s))
	}
	for _, t := range r.Tensors {
		list(t.Len(), t.Bytes())
		shape := make([]byte, 0, 8*len(t.Shape))
		for _, d := range t.Shape {
			shape = binary.LittleEndian.AppendUint64(shape, uint64(d))
		}
		list(len(t.Shape), shape)
	}
	return
}

func offsets(n int) []byte {
	if n > math.MaxInt32 {
		panic(fmt.Sprintf("wire: a list of %d elements needs large offsets", n))
	}
	b := make([]byte, 8)
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	return b
}

// batch builds the RecordBatch message of the Arrow columnar specification (Message.fbs) over the buffers.
func (e *Encoder) batch(nodes []int64, bufs [][]byte) net.Buffers {
	b := e.b
	b.Reset()
	var total int64
	for _, x := range bufs {
		total += pad(len(x))
	}
	b.StartVector(16, len(bufs), 8)
	at := total
	for i := len(bufs) - 1; i >= 0; i-- {
		at -= pad(len(bufs[i]))
		b.Prep(8, 16)
		b.PrependInt64(int64(len(bufs[i])))
		b.PrependInt64(at)
	}
	vbufs := b.EndVector(len(bufs))
	b.StartVector(16, len(nodes), 8)
	for i := len(nodes) - 1; i >= 0; i-- {
		b.Prep(8, 16)
		b.PrependInt64(0) // null count
		b.PrependInt64(nodes[i])
	}
	vnodes := b.EndVector(len(nodes))
	b.StartObject(4)
	b.PrependInt64Slot(0, 1, 0) // rows
	b.PrependUOffsetTSlot(1, vnodes, 0)
	b.PrependUOffsetTSlot(2, vbufs, 0)
	rb := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0) // metadata version V5
	b.PrependByteSlot(1, batchType, 0)
	b.PrependUOffsetTSlot(2, rb, 0)
	b.PrependInt64Slot(3, total, 0)
	b.Finish(b.EndObject())
	meta := b.FinishedBytes()
	size := pad(len(meta) + 8)
	h := make([]byte, size)
	binary.LittleEndian.PutUint32(h, 0xffffffff)
	binary.LittleEndian.PutUint32(h[4:], uint32(size-8))
	copy(h[8:], meta)
	out := net.Buffers{h}
	for _, x := range bufs {
		if len(x) > 0 {
			out = append(out, x)
			if p := pad(len(x)) - int64(len(x)); p > 0 {
				out = append(out, zeros[:p])
			}
		}
	}
	return out
}

func pad(n int) int64 { return (int64(n) + 63) &^ 63 }
