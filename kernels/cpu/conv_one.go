package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fewerTaps is a convolution of one output along its outermost axis, most of whose taps may lie outside the
// input: that of a picture by the weights of clips, which otherwise multiplies two frames of zeros for each of
// the picture. Taps [from, to) of all are left, at is the attributes with those, and w the shape of their
// weights [outs, each, to-from, …].
type fewerTaps struct {
	all, from, to int
	at            kernels.Attr
	w             []int
}

// fewer plans a convolution of x by w to y with fewer taps; ok is false where all of them meet the input.
func fewer(at kernels.Attr, x, w, y *tensor.Tensor) (f fewerTaps, ok bool) {
	if len(w.Shape) != kernels.Space+2 || y.Shape[1] != 1 || w.Shape[2] == 1 {
		return f, false
	}
	win := kernels.Windows(at, w.Shape)[0]
	f = fewerTaps{all: w.Shape[2], from: w.Shape[2], at: at, w: append([]int(nil), w.Shape...)}
	for k := range w.Shape[2] {
		if p := k*win.Dilation - win.Before; p >= 0 && p < x.Shape[1] {
			f.from, f.to = min(f.from, k), k+1
		}
	}
	if f.from >= f.to || f.to-f.from == f.all {
		return f, false
	}
	win.Before -= f.from * win.Dilation
	win.After -= (f.all - f.to) * win.Dilation
	win.Size = f.to - f.from
	f.at.I[1], f.w[2] = win.Pack(), win.Size
	return f, true
}

// runs calls do for each run of neighbouring weights that are left: n of them at i of the fewer, and at j of all.
func (f fewerTaps) runs(b *Backend, do func(i, j, n int)) {
	inner := f.w[3] * f.w[4]
	n := (f.to - f.from) * inner
	b.rows(f.w[0]*f.w[1], n, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			do(i*n, (i*f.all+f.from)*inner, n)
		}
	})
}

// weights are those that are left of w.
func (f fewerTaps) weights(b *Backend, w *tensor.Tensor) *tensor.Tensor {
	size := w.DType.Size()
	raw := b.shared.f32((tensor.Len(f.w)*size + 3) / 4)
	out := tensor.Over(w.DType, tensor.Of(tensor.F32, raw, len(raw)).Bytes()[:tensor.Len(f.w)*size], f.w...)
	f.runs(b, func(i, j, n int) { copy(out.Bytes()[i*size:(i+n)*size], w.Bytes()[j*size:]) })
	return out
}

// spread sets or adds gradients of the weights that are left to those of all; others are zeros.
func (f fewerTaps) spread(b *Backend, dw *tensor.Tensor, part []float32, acc bool) {
	to := dw.F32()
	if !acc {
		clear(to)
	}
	f.runs(b, func(i, j, n int) {
		for k, v := range part[i : i+n] {
			if acc {
				v += to[j+k]
			}
			to[j+k] = v
		}
	})
}
