package torch

import (
	"fmt"
	"io"
	"math"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// types are torch's types of elements.
var types = map[global]checkpoint.DType{
	{"torch", "float32"}: checkpoint.F32, {"torch", "float64"}: checkpoint.F64,
	{"torch", "float16"}:  checkpoint.F16,
	{"torch", "bfloat16"}: checkpoint.BF16, {"torch", "int64"}: checkpoint.I64,
	{"torch", "int32"}: checkpoint.I32,
	{"torch", "int16"}: checkpoint.I16, {"torch", "int8"}: checkpoint.I8, {"torch", "uint8"}: checkpoint.U8,
	{"torch", "bool"}: checkpoint.Bool, {"torch", "uint16"}: checkpoint.U16,
	{"torch", "uint32"}: checkpoint.U32,
	{"torch", "uint64"}: checkpoint.U64, {"torch", "float8_e4m3fn"}: checkpoint.F8E4M3,
	{"torch", "float8_e5m2"}: checkpoint.F8E5M2, {"torch", "float8_e8m0fnu"}: checkpoint.F8E8M0,
	{"torch", "complex64"}: checkpoint.C64,
}

// storages are torch's classes of storages.
var storages = map[global]checkpoint.DType{
	{"torch", "FloatStorage"}: checkpoint.F32, {"torch", "DoubleStorage"}: checkpoint.F64,
	{"torch", "HalfStorage"}: checkpoint.F16, {"torch", "BFloat16Storage"}: checkpoint.BF16,
	{"torch", "LongStorage"}: checkpoint.I64, {"torch", "IntStorage"}: checkpoint.I32,
	{"torch", "ShortStorage"}: checkpoint.I16, {"torch", "CharStorage"}: checkpoint.I8,
	{"torch", "ByteStorage"}: checkpoint.U8, {"torch", "BoolStorage"}: checkpoint.Bool,
	{"torch", "ComplexFloatStorage"}: checkpoint.C64,
}

// view is a tensor of an archive: a shape over a storage, in elements.
type view struct {
	dtype  checkpoint.DType
	shape  []int
	stride []int64
	key    string // of the storage
	place         // of the first element, and the bytes from there to the end of the storage
	sum    *summed
}

const axesMax = 16

// view reads the call that makes a tensor; ok is false for a value that is none.
func (a *archive) view(v any) (t *view, ok bool, err error) {
	o, is := v.(*object)
	if is && o.class == (global{"torch._tensor", "_rebuild_from_type_v2"}) && len(o.args) > 2 {
		of, ok := o.args[0].(global) // a tensor of a class of its own
		args, ok2 := o.args[2].(tuple)
		if !ok || !ok2 {
			return nil, false, nil
		}
		o = &object{class: of, args: args}
	}
	if !is || o.class.module != "torch._utils" {
		return nil, false, nil
	}
	switch o.class.name {
	case "_rebuild_parameter":
		if len(o.args) > 0 {
			return a.view(o.args[0])
		}
	case "_rebuild_tensor_v2", "_rebuild_tensor_v3":
		t, err := a.rebuild(o)
		return t, true, err
	}
	return nil, false, nil
}

// rebuild reads (storage, offset, size, stride, requires_grad, hooks, …).
func (a *archive) rebuild(o *object) (*view, error) {
	bad := func(format string, x ...any) (*view, error) {
		return nil, fmt.Errorf("%s: "+format, append([]any{o.class}, x...)...)
	}
	if len(o.args) < 4 {
		return bad("%d arguments", len(o.args))
	}
	p, _ := o.args[0].(persistent)
	id, _ := p.id.(tuple)
	if len(id) != 5 || id[0] != any("storage") {
		return bad("no storage")
	}
	class, _ := id[1].(global)
	key, isKey := id[2].(string)
	count, isCount := id[4].(int64)
	t := &view{key: key, dtype: storages[class], sum: a.sums[key]}
	if o.class.name == "_rebuild_tensor_v3" {
		if len(o.args) < 7 {
			return bad("%d arguments", len(o.args))
		}
		g, _ := o.args[6].(global)
		t.dtype = types[g]
	}
	where, here := a.entries[key]
	switch {
	case !isKey || !isCount || count < 0 || t.dtype == "":
		return bad("a storage of %s %s", show(id[1]), show(id[4]))
	case !here:
		return bad("its storage %q is not in the archive", key)
	}
	each := int64(t.dtype.Bits() / 8)
	held := where.bytes / each
	if class.name != "UntypedStorage" && count > held || class.name == "UntypedStorage" && count > where.bytes {
		return bad("storage %q has %d bytes, %d elements are said", key, where.bytes, count)
	}
	offset, ok := o.args[1].(int64)
	if !ok || offset < 0 || offset > held {
		return bad("offset %s in a storage of %d", show(o.args[1]), held)
	}
	size, ok1 := ints(o.args[2])
	stride, ok2 := ints(o.args[3])
	if !ok1 || !ok2 || len(size) != len(stride) || len(size) > axesMax {
		return bad("size %s, stride %s", show(o.args[2]), show(o.args[3]))
	}
	return t, t.fit(size, stride, offset, held, where, each)
}

// fit holds shape and strides to the storage.
func (t *view) fit(size, stride []int64, offset, held int64, where place, each int64) error {
	last, n := int64(0), int64(1)
	for i, s := range size {
		if s < 0 || s > math.MaxInt32*int64(1024) || stride[i] < 0 || stride[i] > held && s > 1 {
			return fmt.Errorf("size %v, stride %v over %d elements", size, stride, held)
		}
		if s > 0 && n > held/s {
			return fmt.Errorf("size %v has more elements than the %d of its storage", size, held)
		}
		n *= s
		if s > 1 && stride[i] > held/(s-1) {
			return fmt.Errorf("size %v, stride %v over %d elements", size, stride, held)
		}
		last += max(0, s-1) * stride[i]
		t.shape = append(t.shape, int(s))
	}
	if n > 0 && offset+last >= held {
		return fmt.Errorf("size %v, stride %v from %d end behind the %d elements of the storage", size,
			stride, offset, held)
	}
	t.stride = stride
	t.place = place{where.offset + offset*each, where.bytes - offset*each}
	return nil
}

// ints are the whole numbers of a tuple, or of torch.Size.
func ints(v any) ([]int64, bool) {
	if o, is := v.(*object); is && o.class == (global{"torch", "Size"}) && len(o.args) == 1 {
		v = o.args[0]
	}
	items, ok := v.(tuple)
	if l, is := v.(*list); is {
		items, ok = l.items, true
	}
	out := make([]int64, len(items))
	for i, x := range items {
		n, is := x.(int64)
		out[i], ok = n, ok && is
	}
	return out, ok
}

// bytes is the size of the whole tensor.
func (t *view) size() int64 {
	n := int64(t.dtype.Bits() / 8)
	for _, s := range t.shape {
		n *= int64(s)
	}
	return n
}

// spanMax bounds what is read at once to gather a box of it.
const spanMax = 16 << 20

// read copies a box to dst, row-major.
func (t *view) read(r io.ReaderAt, box [][2]int, dst []byte) error {
	each := int64(t.dtype.Bits() / 8)
	if len(dst) == 0 {
		return nil
	}
	if t.sum != nil {
		if err := t.sum.hold(r); err != nil {
			return err
		}
	}
	first, span := int64(0), int64(1)
	for i, b := range box {
		first += int64(b[0]) * t.stride[i]
		span += int64(b[1]-b[0]-1) * t.stride[i]
	}
	n := int64(len(dst)) / each
	if span == n && t.dense(box) {
		_, err := r.ReadAt(dst, t.offset+first*each)
		return whole(err)
	}
	if axis := t.longest(box); span*each > spanMax && axis >= 0 && axis == t.outer(box) {
		return t.halves(r, box, dst, axis)
	}
	raw := make([]byte, span*each)
	if _, err := r.ReadAt(raw, t.offset+first*each); err != nil {
		return whole(err)
	}
	t.gather(box, dst, raw, each)
	return nil
}

// dense reports whether a box lies in the storage as it is wanted.
func (t *view) dense(box [][2]int) bool {
	step := int64(1)
	for i := len(box) - 1; i >= 0; i-- {
		if n := int64(box[i][1] - box[i][0]); n > 1 {
			if t.stride[i] != step {
				return false
			}
			step *= n
		}
	}
	return true
}

// longest is the axis along which a box reaches farthest in the storage, -1 for none.
func (t *view) longest(box [][2]int) int {
	best, at := int64(0), -1
	for i, b := range box {
		if reach := int64(b[1]-b[0]-1) * t.stride[i]; reach > best {
			best, at = reach, i
		}
	}
	return at
}

// outer is the first axis of a box with more than one element.
func (t *view) outer(box [][2]int) int {
	for i, b := range box {
		if b[1]-b[0] > 1 {
			return i
		}
	}
	return -1
}

// halves reads a box in two parts along its outer axis.
func (t *view) halves(r io.ReaderAt, box [][2]int, dst []byte, axis int) error {
	n := box[axis][1] - box[axis][0]
	row := len(dst) / n
	mid := box[axis][0] + n/2
	a, b := append([][2]int(nil), box...), append([][2]int(nil), box...)
	a[axis][1], b[axis][0] = mid, mid
	if err := t.read(r, a, dst[:row*(n/2)]); err != nil {
		return err
	}
	return t.read(r, b, dst[row*(n/2):])
}

// gather copies the elements of a box out of the part of the storage that begins with its first.
func (t *view) gather(box [][2]int, dst, raw []byte, each int64) {
	at := make([]int, len(box))
	for k := int64(0); k < int64(len(dst)); k += each {
		from := int64(0)
		for i := range box {
			from += int64(at[i]) * t.stride[i]
		}
		copy(dst[k:k+each], raw[from*each:])
		for i := len(at) - 1; i >= 0; i-- {
			if at[i]++; at[i] < box[i][1]-box[i][0] {
				break
			}
			at[i] = 0
		}
	}
}

// whole makes an end of the file an error that says so.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
