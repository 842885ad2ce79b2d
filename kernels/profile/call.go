package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// dimsMax is how many dimensions of the first two operands tell products apart.
const dimsMax = 6

// key is what calls are grouped by: the operation, and of products also their epilogues, shapes and dtype.
type key struct {
	op    kernels.Op
	then  string // " + swiglu"
	dtype tensor.DType
	dims  [dimsMax]int32
	first uint8 // dimensions of the first operand
	n     uint8
}

func keyOf(c *kernels.Call) key {
	k := key{op: c.Op}
	if !product(c.Op) {
		return k
	}
	k.dtype = dtypeOf(c)
	for _, t := range c.Then {
		k.then += " + " + string(t.Op)
	}
	for i, t := range c.In[:2] {
		for _, d := range t.Shape {
			if k.n < dimsMax {
				k.dims[k.n] = int32(d)
				k.n++
			}
		}
		if i == 0 {
			k.first = k.n
		}
	}
	return k
}

// product reports whether an operation is bound by arithmetic: its contract counts multiplications.
func product(op kernels.Op) bool {
	s, ok := kernels.Lookup(op)
	return ok && s.Flops != nil
}

// dtypeOf is the dtype that a product is computed in: bfloat16 if an operand is.
func dtypeOf(c *kernels.Call) tensor.DType {
	for _, t := range c.In {
		if t != nil && t.DType != tensor.I32 && t.DType != tensor.F32 {
			return t.DType
		}
	}
	return tensor.F32
}

// String is the operation, and of a product the shapes of its first two operands and its epilogues.
func (k key) String() string {
	if k.n == 0 {
		return string(k.op)
	}
	shape := func(d []int32) string {
		return strings.Trim(strings.ReplaceAll(fmt.Sprint(d), " ", "×"), "[]")
	}
	return fmt.Sprintf("%s %s, %s%s", k.op, shape(k.dims[:k.first]), shape(k.dims[k.first:k.n]), k.then)
}

// Flops is the floating-point operations of a call that its contract counts, 0 for one that is bound by memory.
// Those of attention are of the pairs that see each other, in every sequence; a contract knows only the packed shape.
func Flops(c *kernels.Call) float64 {
	s, ok := kernels.Lookup(c.Op)
	if !ok || s.Flops == nil {
		return 0
	}
	switch c.Op {
	case kernels.Attention:
		return 2 * pairs(c, 3) * float64(heads(c.In[0])) * float64(lastDim(c.In[0])+lastDim(c.In[2]))
	case kernels.AttentionBwd: // scores, dp, dq and dk of width d or e, dv of width e
		return 2 * pairs(c, 6) * float64(heads(c.In[1])) * float64(3*lastDim(c.In[1])+2*lastDim(c.In[3]))
	}
	return float64(s.Flops(shapes(c.In), shapes(c.Out)))
}

// pairs is the number of queries and keys of one head that see each other; the borders are operands at and
// at+1. Masks of blocks or positions are not looked at: with one the number is an upper bound.
func pairs(c *kernels.Call, at int) float64 {
	n, window := 0, c.Attr.I[1]
	q, k := borders(c, at), borders(c, at+1)
	for i := range len(q) - 1 {
		lq, lk := int(q[i+1]-q[i]), int(k[i+1]-k[i])
		if c.Attr.I[0] != 1 {
			n += lq * lk
			continue
		}
		for a := range lq {
			sees := max(0, a+1+lk-lq)
			if window > 0 {
				sees = min(sees, window)
			}
			n += sees
		}
	}
	return float64(n)
}

// borders are those of sequences; of a device's, which the host cannot see here, they are of equal ones.
// Operand at of attention has the borders of queries and at+1 those of keys.
func borders(c *kernels.Call, at int) []int32 {
	if c.In[at].OnHost() {
		return c.In[at].I32()
	}
	of := c.In[at-3] // forward: q, k, v, and their borders
	if c.Op == kernels.AttentionBwd {
		of = c.In[at-5] // do, q, k, v, o, lse
	}
	b := make([]int32, c.In[at].Len())
	for i := range b {
		b[i] = int32(of.Shape[0] * i / (len(b) - 1))
	}
	return b
}

func heads(t *tensor.Tensor) int { return t.Shape[1] }

func lastDim(t *tensor.Tensor) int { return t.Shape[len(t.Shape)-1] }

// shapes are those of operands in their places, nil for an absent one.
func shapes(ts []*tensor.Tensor) [][]int {
	s := make([][]int, len(ts))
	for i, t := range ts {
		if t != nil {
			s[i] = t.Shape
		}
	}
	return s
}

// bytesOf is what a call and its epilogues must read and write at least once: what an epilogue has from the
// call, or passes on to the next, counts once.
func bytesOf(c *kernels.Call) (n float64) {
	var seen []*tensor.Tensor
	for _, x := range append([]*kernels.Call{c}, c.Then...) {
		for _, ts := range [][]*tensor.Tensor{x.In, x.Out} {
			for _, t := range ts {
				if t == nil || len(c.Then) > 0 && slices.Contains(seen, t) {
					continue
				}
				n += float64(t.Size())
				seen = append(seen, t)
			}
		}
	}
	return n
}
