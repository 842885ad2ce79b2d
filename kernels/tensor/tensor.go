package tensor

import (
	"fmt"
	"slices"
	"unsafe"
)

// Tensor is a dense row-major array: a shape, a dtype and a reference to counted storage. A Tensor value
// that aliases another's storage holds a reference of its own.
type Tensor struct {
	Shape []int
	DType DType
	Buf   *Buffer // nil for storage owned by the Go heap
	data  []byte  // nil where the storage is not the host's
	at    int     // first byte within storage that is not the host's
}

// Of wraps storage of the Go heap without copying; it has no pool and Release does nothing.
func Of[T float32 | float64 | int32 | int64 | uint16 | byte](d DType, v []T, shape ...int) *Tensor {
	if len(v) != Len(shape) || len(v) > 0 && int(unsafe.Sizeof(v[0])) != d.Size() {
		panic(fmt.Sprintf("tensor: %d elements of %v for shape %v", len(v), d, shape))
	}
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*d.Size())
	return &Tensor{Shape: slices.Clone(shape), DType: d, data: data}
}

// Over wraps raw bytes of the Go heap, which hold elements of dtype d at an address that their size divides.
func Over(d DType, raw []byte, shape ...int) *Tensor {
	if len(raw) != Len(shape)*d.Size() {
		panic(fmt.Sprintf("tensor: %d bytes for %v%v", len(raw), d, shape))
	}
	return &Tensor{Shape: slices.Clone(shape), DType: d, data: raw}
}

// Make returns a zeroed tensor of the Go heap.
func Make(d DType, shape ...int) *Tensor {
	return &Tensor{Shape: slices.Clone(shape), DType: d, data: aligned(Len(shape) * d.Size())}
}

// Len is the number of elements of a shape; 1 for a scalar.
func Len(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}

// Len is the number of elements.
func (t *Tensor) Len() int { return Len(t.Shape) }

// Rows is the product of all dimensions but the last.
func (t *Tensor) Rows() int { return Len(t.Shape[:max(0, len(t.Shape)-1)]) }

// Size is the bytes of the elements.
func (t *Tensor) Size() int { return t.Len() * t.DType.Size() }

// OnHost reports whether the elements lie in memory that the host may read.
func (t *Tensor) OnHost() bool { return t.Buf == nil || t.Buf.handle == nil }

// Memory is the memory that the elements lie in, nil for the host's.
func (t *Tensor) Memory() Memory {
	if t.OnHost() {
		return nil
	}
	return t.Buf.pool.memory
}

// Storage is what the tensor's memory knows its buffer by, and the first byte of the tensor in it.
func (t *Tensor) Storage() (handle any, at int) { return t.Buf.handle, t.at }

// onHost panics for storage that the host cannot read: who asks has missed a crossing.
func (t *Tensor) onHost() {
	if !t.OnHost() {
		panic(fmt.Sprintf("tensor: the host reads %v, which lies in %s: only the device's Read and Write may", t, t.Memory().Space()))
	}
}

// Bytes is the storage of the elements, which must be the host's.
func (t *Tensor) Bytes() []byte { t.onHost(); return t.data }

// Alias returns a tensor over the same storage with another shape of as many elements; it holds its own reference.
func (t *Tensor) Alias(shape ...int) *Tensor {
	if Len(shape) != t.Len() {
		panic(fmt.Sprintf("tensor: alias of %v as %v", t.Shape, shape))
	}
	t.Retain()
	return &Tensor{Shape: slices.Clone(shape), DType: t.DType, Buf: t.Buf, data: t.data, at: t.at}
}

// RowSlice returns rows [from, to) of the first dimension over the same storage, with its own reference.
func (t *Tensor) RowSlice(from, to int) *Tensor {
	if from < 0 || to < from || to > t.Shape[0] {
		panic(fmt.Sprintf("tensor: rows %d:%d of %v", from, to, t.Shape))
	}
	w := Len(t.Shape[1:]) * t.DType.Size()
	t.Retain()
	s := slices.Clone(t.Shape)
	s[0] = to - from
	return t.part(from*w, to*w, t.DType, s)
}

// part is the tensor over bytes [from, to).
func (t *Tensor) part(from, to int, d DType, shape []int) *Tensor {
	out := &Tensor{Shape: shape, DType: d, Buf: t.Buf, at: t.at + from}
	if t.OnHost() {
		out.data, out.at = t.data[from:to], 0
	}
	return out
}

// Retain adds a reference to the storage and returns t.
func (t *Tensor) Retain() *Tensor {
	if t.Buf != nil {
		t.Buf.Retain()
	}
	return t
}

// Release drops this tensor's reference.
func (t *Tensor) Release() {
	if t.Buf != nil {
		t.Buf.Release()
	}
}

func view[T any](t *Tensor, want ...DType) []T {
	if !slices.Contains(want, t.DType) {
		panic(fmt.Sprintf("tensor: %v read as %v", t.DType, want[0]))
	}
	t.onHost()
	if len(t.data) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(t.data))), len(t.data)/t.DType.Size())
}

// F32 is the elements of an F32 tensor; any other dtype panics.
func (t *Tensor) F32() []float32 { return view[float32](t, F32) }

// F64 is the elements of an F64 tensor.
func (t *Tensor) F64() []float64 { return view[float64](t, F64) }

// Aligned reports whether the elements lie at multiples of their size, as every instruction may ask for.
func (t *Tensor) Aligned() bool {
	return len(t.data) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(t.data)))%uintptr(t.DType.Size()) == 0
}

// I32 is the elements of an I32 tensor.
func (t *Tensor) I32() []int32 { return view[int32](t, I32) }

// I64 is the elements of an I64 tensor.
func (t *Tensor) I64() []int64 { return view[int64](t, I64) }

// U16 is the raw bits of a BF16 or F16 tensor.
func (t *Tensor) U16() []uint16 { return view[uint16](t, BF16, F16) }

// String is the dtype and shape, for messages.
func (t *Tensor) String() string { return fmt.Sprintf("%v%v", t.DType, t.Shape) }

// View returns a tensor over part of t's bytes, from byte offset off, with its own reference to the storage.
// A view past the end or at an offset that is not a multiple of its elements' size panics.
func (t *Tensor) View(off int, d DType, shape ...int) *Tensor {
	n := Len(shape) * d.Size()
	if off < 0 || n < 0 || off+n > t.Size() || off%d.Size() != 0 {
		panic(fmt.Sprintf("tensor: view of %v, %d bytes, as %v%v at byte %d", t, t.Size(), d, shape, off))
	}
	t.Retain()
	return t.part(off, off+n, d, slices.Clone(shape))
}
