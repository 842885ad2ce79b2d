package cpu

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// view is the elements of a float32, bf16 or f16 tensor: one of f and h is set.
type view struct {
	f []float32
	h []uint16
	d tensor.DType
}

// viewOf gives typed access to an activation: float32, or 16 bits with their type. Other types are a defect and panic.
func viewOf(t *tensor.Tensor) view {
	switch t.DType {
	case tensor.F32:
		return view{f: t.F32()}
	case tensor.BF16, tensor.F16:
		return view{h: t.U16(), d: t.DType}
	}
	panic(fmt.Sprintf("cpu: %v is not an activation", t))
}

// views are the views of several tensors.
func views(ts []*tensor.Tensor) []view {
	l := make([]view, len(ts))
	for i, t := range ts {
		l[i] = viewOf(t)
	}
	return l
}

// from is the view without its first n elements.
func (v view) from(n int) view {
	if v.f != nil {
		v.f = v.f[n:]
	} else if v.h != nil {
		v.h = v.h[n:]
	}
	return v
}

// bytes is the size of an element.
func (v view) bytes() int { return v.d.Size() }

// address is where the first element lies.
func (v view) address() uintptr {
	if v.d == tensor.F32 {
		return address(v.f)
	}
	return address(v.h)
}

// read copies the elements at and after i to dst.
func (k *isa) read(dst []float32, v view, i int) {
	switch v.d {
	case tensor.F32:
		copy(dst, v.f[i:i+len(dst)])
	case tensor.BF16:
		k.fromBF16(dst, v.h[i:i+len(dst)])
	default:
		k.fromF16(dst, v.h[i:i+len(dst)])
	}
}

// write rounds src to the elements at and after i.
func (k *isa) write(v view, i int, src []float32) {
	switch v.d {
	case tensor.F32:
		copy(v.f[i:i+len(src)], src)
	case tensor.BF16:
		k.toBF16(v.h[i:i+len(src)], src)
	default:
		k.toF16(v.h[i:i+len(src)], src)
	}
}

// in is n elements from i as float32: the tensor's own, or a copy in scratch.
func (w *worker) in(v view, i, n int) []float32 {
	if v.d == tensor.F32 {
		return v.f[i : i+n : i+n]
	}
	s := w.arena.f32(n)
	w.k.read(s, v, i)
	return s
}

// out is where n elements from i are to be computed; done writes them there.
func (w *worker) out(v view, i, n int) []float32 {
	if v.d == tensor.F32 {
		return v.f[i : i+n : i+n]
	}
	return w.arena.f32(n)
}

// done stores what was computed in scratch; float32 was computed in place already.
func (w *worker) done(v view, i int, s []float32) {
	if v.d != tensor.F32 {
		w.k.write(v, i, s)
	}
}

func lastDim(t *tensor.Tensor) int { return t.Shape[len(t.Shape)-1] }

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func roundUp(a, b int) int { return (a + b - 1) / b * b }
