package ref

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// sum adds in float32 in operand order, as the contract says, so that every backend gives the same bits.
func sum(c *kernels.Call) {
	if len(c.In) == 1 {
		copy(c.Out[0].Bytes(), c.In[0].Bytes())
		return
	}
	y := load(c.In[0])
	for _, t := range c.In[1:] {
		for i, x := range load(t) {
			if y[i] += x; t.DType != tensor.F64 {
				y[i] = float64(float32(y[i]))
			}
		}
	}
	store(c.Out[0], y)
}

// mul sets y = a·b, element by element.
func mul(c *kernels.Call) {
	a := load(c.In[0])
	for i, x := range load(c.In[1]) {
		a[i] *= x
	}
	store(c.Out[0], a)
}

// scale sets y = F[0]·x.
func scale(c *kernels.Call) {
	x := load(c.In[0])
	for i := range x {
		x[i] *= c.Attr.F[0]
	}
	store(c.Out[0], x)
}

// cast sets y = x in the dtype of y, rounded once; equal dtypes are copied byte by byte.
func cast(c *kernels.Call) {
	if c.In[0].DType == c.Out[0].DType {
		copy(c.Out[0].Bytes(), c.In[0].Bytes())
		return
	}
	store(c.Out[0], load(c.In[0]))
}

// fill sets every element of y to F[0].
func fill(c *kernels.Call) {
	y := make([]float64, c.Out[0].Len())
	for i := range y {
		y[i] = c.Attr.F[0]
	}
	store(c.Out[0], y)
}

func addTo(c *kernels.Call) { storeOrAdd(c.Out[0], load(c.In[0]), c.Attr.I[0]) }

// dropout sets y[i,e] = 0 with probability p = F[0], and x[i,e]/(1−p) otherwise. The chance is a hash of the row's key,
// the site I[0] and the element's place in its row, so that it depends on the sample and on nothing else.
func dropout(c *kernels.Call) {
	p := c.Attr.F[0]
	x, key := load(c.In[0]), c.In[1].I64()
	for i, k := range key {
		row := x[i*len(x)/len(key) : (i+1)*len(x)/len(key)]
		seed := kernels.SplitMix(uint64(k) + (uint64(c.Attr.I[0])+1)*kernels.Golden)
		for e := range row {
			if u := float64(kernels.SplitMix(seed+uint64(e)*kernels.Golden)>>40) / (1 << 24); u >= p {
				row[e] /= 1 - p
			} else {
				row[e] = 0
			}
		}
	}
	store(c.Out[0], x)
}

// window copies len bytes of each of the outer rows between two arrays of different row length.
//
//lfvet:params two arrays of rows, each with the same three numbers
func window(dst, src []byte, outer, dstRow, dstAt, srcRow, srcAt, n int) {
	for i := range outer {
		copy(dst[i*dstRow+dstAt:][:n], src[i*srcRow+srcAt:][:n])
	}
}

// spans gives the number of rows before axis and the bytes of one index of it.
func spans(t *tensor.Tensor, axis int) (outer, inner int) {
	return tensor.Len(t.Shape[:axis]), tensor.Len(t.Shape[axis+1:]) * t.DType.Size()
}

// slice copies the indices I[1] … of axis I[0] of x, as many as y has.
func slice(c *kernels.Call) {
	x, y, axis := c.In[0], c.Out[0], c.Attr.I[0]
	outer, inner := spans(x, axis)
	n := y.Shape[axis] * inner
	window(y.Bytes(), x.Bytes(), outer, n, 0, x.Shape[axis]*inner, c.Attr.I[1]*inner, n)
}

// concat lays its operands one behind the other along axis I[0].
func concat(c *kernels.Call) {
	y, axis, at := c.Out[0], c.Attr.I[0], 0
	outer, inner := spans(y, axis)
	for _, x := range c.In {
		n := x.Shape[axis] * inner
		window(y.Bytes(), x.Bytes(), outer, y.Shape[axis]*inner, at, n, 0, n)
		at += n
	}
}
