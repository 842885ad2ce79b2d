package policy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// Array is one of NumPy's, as openpi_client.msgpack_numpy writes it: a map with the binary keys
// __ndarray__, data, dtype and shape.
type Array struct {
	DType string // as NumPy names it: |u1, <f4 and their kin
	Shape []int
	Data  []byte // little-endian, the last axis varies fastest
}

// Bounds of an observation beside its bytes.
const (
	depthMost = 6     // maps in maps
	keysMost  = 256   // of a map
	listMost  = 65536 // numbers of a list
	axesMost  = 8     // of an array
)

// errDeep says that maps lie in maps too deeply.
var errDeep = fmt.Errorf("maps and lists lie in each other more than %d deep", depthMost)

// Unpack decodes one message: maps as map[string]any, arrays as Array, NumPy's scalars and all numbers as float64,
// lists as []any, texts as string, and nil. What is behind the message is an error. Arrays share the message's bytes.
func Unpack(b []byte) (any, error) {
	v, rest, err := unpack(b, 0)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes lie behind the message", len(rest))
	}
	return v, nil
}

func unpack(b []byte, depth int) (v any, rest []byte, err error) {
	if depth > depthMost {
		return nil, nil, errDeep
	}
	switch t := msgp.NextType(b); t {
	case msgp.MapType:
		return unpackMap(b, depth)
	case msgp.ArrayType:
		return unpackList(b, depth)
	case msgp.StrType:
		return taken(msgp.ReadStringBytes(b))
	case msgp.BinType:
		return taken(msgp.ReadBytesZC(b))
	case msgp.BoolType:
		return taken(msgp.ReadBoolBytes(b))
	case msgp.NilType:
		rest, err = msgp.ReadNilBytes(b)
		return nil, rest, err
	case msgp.Float32Type, msgp.Float64Type:
		return taken(msgp.ReadFloat64Bytes(b))
	case msgp.IntType:
		i, rest, err := msgp.ReadInt64Bytes(b)
		return float64(i), rest, err
	case msgp.UintType:
		u, rest, err := msgp.ReadUint64Bytes(b)
		return float64(u), rest, err
	default:
		return nil, nil, fmt.Errorf("a value of msgpack's type %v is of no observation", t)
	}
}

// taken widens a value that was read.
func taken[T any](v T, rest []byte, err error) (any, []byte, error) { return v, rest, err }

func unpackList(b []byte, depth int) (any, []byte, error) {
	n, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, nil, err
	}
	if n > listMost || int(n) > len(b) { // each value has a byte or more
		return nil, nil, fmt.Errorf("a list of %d values in %d bytes; %d are read at most", n, len(b), listMost)
	}
	out := make([]any, n)
	for i := range out {
		if out[i], b, err = unpack(b, depth+1); err != nil {
			return nil, nil, err
		}
	}
	return out, b, nil
}

func unpackMap(b []byte, depth int) (any, []byte, error) {
	n, b, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return nil, nil, err
	}
	if n > keysMost {
		return nil, nil, fmt.Errorf("a map of %d keys; %d are read at most", n, keysMost)
	}
	out := make(map[string]any, min(int(n), len(b)))
	for range n {
		var key []byte
		if key, b, err = msgp.ReadMapKeyZC(b); err != nil { // a text, or bytes as NumPy's maps have
			return nil, nil, err
		}
		name := string(key)
		if _, twice := out[name]; twice {
			return nil, nil, fmt.Errorf("the key %q comes twice", name)
		}
		if out[name], b, err = unpack(b, depth+1); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if _, ok := out["__ndarray__"]; ok {
		a, err := arrayOf(out)
		return a, b, err
	}
	if _, ok := out["__npgeneric__"]; ok {
		x, ok := number(out["data"])
		if !ok {
			return nil, nil, errors.New("a scalar of NumPy has no number")
		}
		return x, b, nil
	}
	return out, b, nil
}

// number reads a number, or a truth as 0 or 1.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case float64:
		return x, true
	case bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// arrayOf checks that an array's bytes are those of its shape.
func arrayOf(m map[string]any) (Array, error) {
	data, isBytes := m["data"].([]byte)
	dtype, isText := m["dtype"].(string)
	shape, isList := m["shape"].([]any)
	if !isBytes || !isText || !isList || len(shape) > axesMost {
		return Array{}, errors.New("an array wants bytes as data, a text as dtype and a list of at most " +
			fmt.Sprint(axesMost) + " numbers as shape")
	}
	a := Array{DType: dtype, Data: data}
	size := sizeOf(dtype)
	if size == 0 {
		return a, fmt.Errorf("an array of %.20q: numbers are read that are little-endian or have one byte", dtype)
	}
	n := size
	for _, s := range shape {
		x, ok := s.(float64)
		if !ok || x < 0 || x != math.Trunc(x) || x > math.MaxInt32 {
			return a, fmt.Errorf("an array's shape has %v", s)
		}
		a.Shape = append(a.Shape, int(x))
		if n *= int(x); n > len(data) {
			break
		}
	}
	if n != len(data) {
		return a, fmt.Errorf("an array of %s and shape %v has %d bytes", dtype, a.Shape, len(data))
	}
	return a, nil
}

// sizeOf is the bytes of a number of a type, 0 for one that is not read.
func sizeOf(dtype string) int {
	switch dtype {
	case "|u1", "|i1", "|b1":
		return 1
	case "<f2", "<i2", "<u2":
		return 2
	case "<f4", "<i4", "<u4":
		return 4
	case "<f8", "<i8", "<u8":
		return 8
	}
	return 0
}

// Floats are the numbers of an array.
func (a Array) Floats() []float64 {
	size := sizeOf(a.DType)
	out := make([]float64, len(a.Data)/max(1, size))
	for i := range out {
		b := a.Data[i*size:]
		switch a.DType {
		case "|u1", "|b1":
			out[i] = float64(b[0])
		case "|i1":
			out[i] = float64(int8(b[0]))
		case "<i2":
			out[i] = float64(int16(binary.LittleEndian.Uint16(b)))
		case "<u2":
			out[i] = float64(binary.LittleEndian.Uint16(b))
		case "<f2":
			out[i] = half(binary.LittleEndian.Uint16(b))
		case "<f4":
			out[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		case "<i4":
			out[i] = float64(int32(binary.LittleEndian.Uint32(b)))
		case "<u4":
			out[i] = float64(binary.LittleEndian.Uint32(b))
		case "<f8":
			out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b))
		case "<i8":
			out[i] = float64(int64(binary.LittleEndian.Uint64(b)))
		case "<u8":
			out[i] = float64(binary.LittleEndian.Uint64(b))
		}
	}
	return out
}

// half is a number of sixteen bits, as IEEE 754 has it.
func half(x uint16) float64 {
	exp, frac := int(x>>10&31), float64(x&1023)/1024
	v := math.Ldexp(1+frac, exp-15)
	switch {
	case exp == 0:
		v = math.Ldexp(frac, -14)
	case exp == 31 && frac == 0:
		v = math.Inf(1)
	case exp == 31:
		v = math.NaN()
	}
	if x>>15 == 1 {
		v = -v
	}
	return v
}

// floating reports whether an array's numbers are no integers.
func (a Array) floating() bool { return strings.HasPrefix(a.DType, "<f") }

// FloatsOf makes an array of float32.
func FloatsOf(v []float32, shape ...int) Array {
	a := Array{DType: "<f4", Shape: shape, Data: make([]byte, 0, 4*len(v))}
	for _, x := range v {
		a.Data = binary.LittleEndian.AppendUint32(a.Data, math.Float32bits(x))
	}
	return a
}

// Pair is a key of a map that is written, whose order is that of the pairs.
type Pair struct {
	Key   string
	Value any // what Pack takes
}

// Pack appends a value as msgpack: a map as []Pair, a list of texts or of ints, Array, string, float64, int or bool.
func Pack(b []byte, v any) []byte {
	switch x := v.(type) {
	case []Pair:
		b = msgp.AppendMapHeader(b, uint32(len(x)))
		for _, p := range x {
			b = Pack(msgp.AppendString(b, p.Key), p.Value)
		}
		return b
	case []string:
		b = msgp.AppendArrayHeader(b, uint32(len(x)))
		for _, s := range x {
			b = msgp.AppendString(b, s)
		}
		return b
	case []int:
		b = msgp.AppendArrayHeader(b, uint32(len(x)))
		for _, n := range x {
			b = msgp.AppendInt(b, n)
		}
		return b
	case Array:
		return packArray(b, x)
	case string:
		return msgp.AppendString(b, x)
	case float64:
		return msgp.AppendFloat64(b, x)
	case int:
		if x >= 0 { // as Python's msgpack has them
			return msgp.AppendUint64(b, uint64(x))
		}
		return msgp.AppendInt(b, x)
	case bool:
		return msgp.AppendBool(b, x)
	case nil:
		return msgp.AppendNil(b)
	}
	panic(fmt.Sprintf("policy: %T is not written", v))
}

func packArray(b []byte, a Array) []byte {
	key := func(name string) { b = msgp.AppendBytes(b, []byte(name)) }
	b = msgp.AppendMapHeader(b, 4)
	key("__ndarray__")
	b = msgp.AppendBool(b, true)
	key("data")
	b = msgp.AppendBytes(b, a.Data)
	key("dtype")
	b = msgp.AppendString(b, a.DType)
	key("shape")
	b = msgp.AppendArrayHeader(b, uint32(len(a.Shape)))
	for _, n := range a.Shape {
		b = msgp.AppendInt(b, n)
	}
	return b
}
