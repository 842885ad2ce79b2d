package wire

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Version is the schema metadata lf.schema; a reader refuses any other.
const Version = "message/2"

// column is one of the fixed columns; width is bytes of its fixed-width value, 0 for a list or text.
type column struct {
	name  string
	typ   arrow.DataType
	width int
}

var columns = []column{
	{"kind", arrow.PrimitiveTypes.Uint8, 1}, {"from", arrow.PrimitiveTypes.Int32, 4},
	{"to", arrow.PrimitiveTypes.Int32, 4},
	{"epoch", arrow.PrimitiveTypes.Uint32, 4}, {"seq", arrow.PrimitiveTypes.Uint64, 8},
	{"step", arrow.PrimitiveTypes.Int64, 8},
	{"verb", arrow.PrimitiveTypes.Uint8, 1}, {"stage", arrow.PrimitiveTypes.Int16, 2},
	{"chunk", arrow.PrimitiveTypes.Int16, 2},
	{"micro", arrow.PrimitiveTypes.Int32, 4}, {"segment", arrow.PrimitiveTypes.Int32, 4},
	{"comm", arrow.PrimitiveTypes.Int32, 4},
	{"member", arrow.PrimitiveTypes.Int32, 4}, {"port", arrow.PrimitiveTypes.Int32, 4},
	{"code", arrow.PrimitiveTypes.Int32, 4}, {"payload", arrow.PrimitiveTypes.Uint8, 1},
	{"values", arrow.ListOf(arrow.PrimitiveTypes.Float64), 0}, {"text", arrow.BinaryTypes.String, 0},
	{"error", arrow.BinaryTypes.String, 0}, {"stack", arrow.BinaryTypes.String, 0},
}

var storage = map[tensor.DType]arrow.DataType{
	tensor.F32: arrow.PrimitiveTypes.Float32, tensor.F64: arrow.PrimitiveTypes.Float64,
	tensor.BF16: arrow.PrimitiveTypes.Uint16,
	tensor.F16:  arrow.PrimitiveTypes.Uint16, tensor.I32: arrow.PrimitiveTypes.Int32,
	tensor.I64: arrow.PrimitiveTypes.Int64, tensor.U8: arrow.PrimitiveTypes.Uint8,
}

// field describes the column of one tensor.
type field struct {
	name  string
	dtype tensor.DType
	rank  int
}

// signature identifies a schema: messages with the same tensors' names, dtypes and ranks share a stream.
func signature(fs []field) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s:%v:%d;", f.name, f.dtype, f.rank)
	}
	return b.String()
}

func schemaOf(fs []field) *arrow.Schema {
	var out []arrow.Field
	for _, c := range columns {
		out = append(out, arrow.Field{Name: c.name, Type: c.typ})
	}
	for _, f := range fs {
		md := arrow.MetadataFrom(map[string]string{"lf.dtype": f.dtype.String(), "lf.rank": strconv.Itoa(f.rank)})
		out = append(out, arrow.Field{Name: f.name, Type: arrow.ListOf(storage[f.dtype]), Metadata: md},
			arrow.Field{Name: f.name + ".shape", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)})
	}
	md := arrow.MetadataFrom(map[string]string{"lf.schema": Version})
	return arrow.NewSchema(out, &md)
}

// schemaMessage is the encapsulated IPC message that opens a stream.
func schemaMessage(s *arrow.Schema) []byte {
	var b bytes.Buffer
	w := ipc.NewWriter(&b, ipc.WithSchema(s))
	if err := w.Close(); err != nil { // writes the schema and the end-of-stream mark
		panic(fmt.Sprintf("wire: schema: %v", err))
	}
	return b.Bytes()[:b.Len()-8] // without the mark
}

// parseSchema reads an encapsulated schema message.
func parseSchema(msg []byte) ([]field, error) {
	r, err := ipc.NewReader(bytes.NewReader(append(append([]byte(nil), msg...), 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)))
	if err != nil {
		return nil, fmt.Errorf("wire: schema: %w", err)
	}
	defer r.Release()
	s := r.Schema()
	if v, ok := s.Metadata().GetValue("lf.schema"); !ok || v != Version {
		return nil, fmt.Errorf("wire: schema version %q, want %q: the processes run different builds", v, Version)
	}
	n := len(columns)
	if s.NumFields() < n || (s.NumFields()-n)%2 != 0 || s.NumFields() > n+2*maxTensors {
		return nil, fmt.Errorf("wire: schema has %d columns", s.NumFields())
	}
	var fs []field
	for i := n; i < s.NumFields(); i += 2 {
		f := s.Field(i)
		name, _ := f.Metadata.GetValue("lf.dtype") // none is no dtype
		d, err := tensor.ParseDType(name)
		if err != nil {
			return nil, fmt.Errorf("wire: column %s: %w", f.Name, err)
		}
		rank, err := strconv.Atoi(first(f.Metadata.GetValue("lf.rank")))
		if err != nil || rank < 0 || rank > 8 {
			return nil, fmt.Errorf("wire: column %s: bad lf.rank", f.Name)
		}
		fs = append(fs, field{f.Name, d, rank})
	}
	for i, c := range columns {
		if s.Field(i).Name != c.name {
			return nil, fmt.Errorf("wire: column %d is %q, want %q", i, s.Field(i).Name, c.name)
		}
	}
	return fs, nil
}

func first(s string, _ bool) string { return s }

// Bounds of one message.
const (
	maxTensors = 1 << 16
	maxMeta    = 16 << 20 // bytes of flatbuffer metadata
	maxBody    = 64 << 30 // bytes of tensors
)
