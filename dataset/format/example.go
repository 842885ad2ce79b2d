package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

// Records of TensorFlow: a file of them (TFRecord), and what tf.Example says in protocol buffers' wire form.
// Source: tensorflow/core/example/example.proto and feature.proto, tensorflow/core/lib/io/record_writer.cc.

// ExampleFeature is a feature of an example: one of its lists has values.
type ExampleFeature struct {
	Bytes  [][]byte
	Floats []float32
	Ints   []int64
}

// Numbers are those of a feature of floats or integers.
func (f *ExampleFeature) Numbers() []float64 {
	var out []float64
	for _, v := range f.Floats {
		out = append(out, float64(v))
	}
	for _, v := range f.Ints {
		out = append(out, float64(v))
	}
	return out
}

// errWire says that bytes are no protocol buffer.
var errWire = errors.New("it is no tf.Example")

// wire calls f for each field of a message: v is its number, or payload what a field of bytes has.
func wire(b []byte, f func(field int, payload []byte, v uint64) error) error {
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 || key>>3 > math.MaxInt32 {
			return errWire
		}
		b = b[n:]
		var payload []byte
		var v uint64
		size := uint64(0)
		switch key & 7 {
		case 0:
			if v, n = binary.Uvarint(b); n <= 0 {
				return errWire
			}
			size = uint64(n)
		case 1:
			size = 8
		case 2:
			length, n := binary.Uvarint(b)
			if n <= 0 || length > uint64(len(b)-n) {
				return errWire
			}
			payload, size = b[n:n+int(length)], uint64(n)+length
		case 5:
			size = 4
		default:
			return errWire
		}
		if size > uint64(len(b)) {
			return errWire
		}
		if key&7 == 5 {
			payload = b[:4]
		}
		if err := f(int(key>>3), payload, v); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// ParseExample reads an example's features by their names. Bytes are those of b.
func ParseExample(b []byte) (map[string]*ExampleFeature, error) {
	out := map[string]*ExampleFeature{}
	entry := func(_ int, b []byte, _ uint64) error {
		name, f := "", &ExampleFeature{}
		err := wire(b, func(field int, p []byte, _ uint64) error {
			switch field {
			case 1:
				name = string(p)
			case 2:
				return f.parse(p)
			}
			return nil
		})
		out[name] = f
		return err
	}
	return out, wire(b, func(field int, p []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		return wire(p, entry)
	})
}

// parse reads a feature: lists are packed or not.
func (f *ExampleFeature) parse(b []byte) error {
	return wire(b, func(kind int, list []byte, _ uint64) error {
		return wire(list, func(_ int, p []byte, v uint64) error {
			switch {
			case kind == 1:
				f.Bytes = append(f.Bytes, p)
			case kind == 2 && len(p)%4 == 0:
				for ; len(p) > 0; p = p[4:] {
					f.Floats = append(f.Floats, math.Float32frombits(binary.LittleEndian.Uint32(p)))
				}
			case kind == 3 && p == nil:
				f.Ints = append(f.Ints, int64(v))
			case kind == 3:
				for len(p) > 0 {
					v, n := binary.Uvarint(p)
					if n <= 0 {
						return errWire
					}
					f.Ints, p = append(f.Ints, int64(v)), p[n:]
				}
			default:
				return errWire
			}
			return nil
		})
	})
}

// RecordPlace is where a record of a file lies.
type RecordPlace struct{ At, Size int64 }

// castagnoli is the polynomial of records' sums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Masked is the sum of bytes as records have it.
func Masked(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// recordHead is the length of a record and its sum, recordTail the sum of its bytes.
const recordHead, recordTail = 12, 4

// RecordsIn lists the records of a file of so many bytes, by their lengths alone.
func RecordsIn(r io.ReaderAt, size int64) (out []RecordPlace, err error) {
	var head [recordHead]byte
	for at := int64(0); at < size; {
		if _, err := r.ReadAt(head[:], at); err != nil {
			return nil, fmt.Errorf("record %d at byte %d is cut off", len(out), at)
		}
		n := binary.LittleEndian.Uint64(head[:8])
		if Masked(head[:8]) != binary.LittleEndian.Uint32(head[8:]) {
			return nil, fmt.Errorf("record %d at byte %d: the sum of its length is another", len(out), at)
		}
		if n > uint64(size-at-recordHead-recordTail) || size-at < recordHead+recordTail {
			return nil, fmt.Errorf("record %d at byte %d is cut off", len(out), at)
		}
		out = append(out, RecordPlace{at + recordHead, int64(n)})
		at += recordHead + int64(n) + recordTail
	}
	return out, nil
}

// RecordAt reads a record and holds it to its sum.
func RecordAt(r io.ReaderAt, p RecordPlace) ([]byte, error) {
	b := make([]byte, p.Size+recordTail)
	if _, err := r.ReadAt(b, p.At); err != nil {
		return nil, err
	}
	if Masked(b[:p.Size]) != binary.LittleEndian.Uint32(b[p.Size:]) {
		return nil, errors.New("its sum is another: the file is damaged")
	}
	return b[:p.Size], nil
}
