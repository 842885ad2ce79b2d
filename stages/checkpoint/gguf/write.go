package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path/filepath"
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

// writeFile writes a file under a temporary name, which it loses when all is there. fill gives a tensor's
// bytes to put, in order.
func writeFile(path string, meta []pair, tensors []Tensor, fill func(t *Tensor,
	put func([]byte) error) error) (err error) {
	part := path + ".partial"
	if err := checkpoint.OS.MkdirAll(filepath.Dir(path)); err != nil {
		return err
	}
	if err := checkpoint.OS.RemoveAll(part); err != nil {
		return err
	}
	f, err := checkpoint.OS.Create(part)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, checkpoint.OS.RemoveAll(part))
		}
	}()
	at := int64(0)
	put := func(b []byte) error {
		n, err := f.WriteAt(b, at)
		at += int64(n)
		return err
	}
	err = put(head(meta, tensors))
	for i := 0; i < len(tensors) && err == nil; i++ {
		t := &tensors[i]
		if err = put(make([]byte, t.Offset-at)); err == nil {
			err = fill(t, put)
		}
		if err == nil && at != t.Offset+t.Bytes {
			err = fmt.Errorf("%s: tensor %s: %d bytes of %d came", path, t.Name, at-t.Offset, t.Bytes)
		}
	}
	if err == nil {
		err = put(make([]byte, (alignUsual-at%alignUsual)%alignUsual))
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := checkpoint.OS.Rename(part, path); err != nil {
		return err
	}
	return checkpoint.OS.SyncDir(filepath.Dir(path))
}
