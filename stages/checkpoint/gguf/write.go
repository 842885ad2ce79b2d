package gguf

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// pair is an entry of the metadata to write: uint32, float32, bool, string, []string, []int32 or []float32.
type pair struct {
	key   string
	value any
}

// head is the beginning of a file: metadata and where tensors lie, with the padding behind it. Tensors get
// their offsets, from the beginning of the file.
func head(meta []pair, tensors []Tensor) []byte {
	le := binary.LittleEndian
	out := le.AppendUint32([]byte(magic), 3)
	out = le.AppendUint64(le.AppendUint64(out, uint64(len(tensors))), uint64(len(meta)))
	for _, p := range meta {
		out = appendValue(appendText(out, p.key), p.value)
	}
	next := int64(0)
	for i := range tensors {
		t := &tensors[i]
		out = le.AppendUint32(appendText(out, t.Name), uint32(len(t.Shape)))
		for _, n := range slices.Backward(t.Shape) {
			out = le.AppendUint64(out, uint64(n))
		}
		out = le.AppendUint64(le.AppendUint32(out, uint32(t.Type)), uint64(next))
		t.Offset = next
		next += (t.Bytes + alignUsual - 1) / alignUsual * alignUsual
	}
	for len(out)%alignUsual != 0 {
		out = append(out, 0)
	}
	for i := range tensors {
		tensors[i].Offset += int64(len(out))
	}
	return out
}

func appendText(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// appendValue writes the kind of a value and the value.
func appendValue(b []byte, v any) []byte {
	le := binary.LittleEndian
	list := func(kind uint32, n int) {
		b = le.AppendUint32(b, kindArray)
		b = le.AppendUint64(le.AppendUint32(b, kind), uint64(n))
	}
	switch x := v.(type) {
	case uint32:
		return le.AppendUint32(le.AppendUint32(b, kindU32), x)
	case float32:
		return le.AppendUint32(le.AppendUint32(b, kindF32), math.Float32bits(x))
	case bool:
		b = le.AppendUint32(b, kindBool)
		if x {
			return append(b, 1)
		}
		return append(b, 0)
	case string:
		return appendText(le.AppendUint32(b, kindString), x)
	case []string:
		list(kindString, len(x))
		for _, s := range x {
			b = appendText(b, s)
		}
	case []int32:
		list(kindI32, len(x))
		for _, n := range x {
			b = le.AppendUint32(b, uint32(n))
		}
	case []float32:
		list(kindF32, len(x))
		for _, f := range x {
			b = le.AppendUint32(b, math.Float32bits(f))
		}
	default:
		panic(fmt.Sprintf("gguf: a value of type %T is not written", v))
	}
	return b
}

// writeFile writes a file under a temporary name, which it loses when all is there. fill gives a tensor's bytes to put,
// in order, of several tensors at a time. Of a conversion that was interrupted it writes what j has not.
func writeFile(j *checkpoint.Journal, path string, meta []pair, tensors []Tensor, fill func(t *Tensor,
	put func([]byte) error) error) error {
	f := checkpoint.FixedFile(path, head(meta, tensors))
	for i := range tensors {
		t := &tensors[i]
		f.Parts = append(f.Parts, checkpoint.Part{Name: t.Name, Offset: t.Offset, Bytes: t.Bytes,
			Fill: func(put func([]byte) error) error { return fill(t, put) }})
		f.Size = t.Offset + t.Bytes
	}
	f.Size = (f.Size + alignUsual - 1) / alignUsual * alignUsual
	return checkpoint.Build(j, []checkpoint.Planned{f}, nil)
}
