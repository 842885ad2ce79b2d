package kernelstest

import (
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// gen makes the operands of one case from a seed that is the case's name.
type gen struct {
	*rand.Rand
	a      tensor.DType // the activation dtype of the case
	cap    float64      // soft cap of a loss's logits, 0 for none
	large  larger       // what is multiplied, if anything
	guards []guard
}

// guard is the storage around one operand, filled with 0xff (NaN): it must stay so, and what is read from it shows.
type guard struct{ before, after []byte }

const guardBytes = 192

func newGen(name string, a tensor.DType) *gen {
	h := fnv.New64a()
	h.Write([]byte(name))
	return &gen{Rand: rand.New(rand.NewPCG(h.Sum64(), uint64(a))), a: a}
}

// raw returns a tensor between guards, every bit set. Every other one lies off the alignment of the pool by
// an element, as a slice of rows may.
func (g *gen) raw(d tensor.DType, shape ...int) *tensor.Tensor {
	n := tensor.Len(shape) * d.Size()
	buf := tensor.Make(tensor.U8, n+2*guardBytes).Bytes()
	for i := range buf {
		buf[i] = 0xff
	}
	at := guardBytes/tensor.Align*tensor.Align - g.IntN(2)*d.Size()
	g.guards = append(g.guards, guard{buf[:at], buf[at+n:]})
	return wrap(d, buf[at:at+n], shape)
}

// wrap makes a tensor over bytes.
func wrap(d tensor.DType, b []byte, shape []int) *tensor.Tensor {
	t := tensor.Of(tensor.U8, b, len(b))
	t.DType, t.Shape = d, shape
	return t
}

func (g *gen) intact() bool {
	for _, w := range g.guards {
		for _, b := range [2][]byte{w.before, w.after} {
			for _, x := range b {
				if x != 0xff {
					return false
				}
			}
		}
	}
	return true
}

// normal fills a new tensor with draws from a normal distribution of the given deviation.
func (g *gen) normal(d tensor.DType, dev float64, shape ...int) *tensor.Tensor {
	t := g.raw(d, shape...)
	v := make([]float64, t.Len())
	for i := range v {
		v[i] = dev * g.NormFloat64()
	}
	g.large.next(v)
	put(t, v)
	return t
}

// act is an activation, f32 a float32 operand, both of unit variance.
func (g *gen) act(shape ...int) *tensor.Tensor { return g.normal(g.a, 1, shape...) }
func (g *gen) f32(shape ...int) *tensor.Tensor { return g.normal(tensor.F32, 1, shape...) }

// scaled is a weight matrix whose products have unit variance.
func (g *gen) scaled(n, k int) *tensor.Tensor {
	return g.normal(g.a, 1/math.Sqrt(float64(max(k, 1))), n, k)
}

// positive is a float32 operand in [0.1, 1.1).
func (g *gen) positive(shape ...int) *tensor.Tensor {
	t := g.raw(tensor.F32, shape...)
	v := make([]float64, t.Len())
	for i := range v {
		v[i] = float64(0.1 + g.Float32())
	}
	g.large.next(v)
	put(t, v)
	return t
}

// ids are integers in [lo, hi).
func (g *gen) ids(n, lo, hi int) *tensor.Tensor {
	t := g.raw(tensor.I32, n)
	for i, v := 0, t.I32(); i < len(v); i++ {
		v[i] = int32(lo + g.IntN(hi-lo))
	}
	return t
}

func (g *gen) i32(v ...int32) *tensor.Tensor {
	t := g.raw(tensor.I32, len(v))
	copy(t.I32(), v)
	return t
}

func (g *gen) f64(v ...float64) *tensor.Tensor {
	t := g.raw(tensor.F64, len(v))
	copy(t.F64(), v)
	return t
}

// do runs a call on the reference backend: operands such as lse come from a forward pass.
func do(op kernels.Op, a kernels.Attr, in, out []*tensor.Tensor) {
	ref.New().Run(&kernels.Call{Op: op, Attr: a, In: in, Out: out})
}

// put rounds v to the dtype of t.
func put(t *tensor.Tensor, v []float64) {
	if len(v) == 0 {
		return
	}
	do(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{tensor.Of(tensor.F64, v, len(v))}, []*tensor.Tensor{t})
}

// values are the elements of t as float64; integers too.
func values(t *tensor.Tensor) []float64 {
	v := make([]float64, t.Len())
	switch {
	case t.DType.Float():
		y := tensor.Of(tensor.F64, v, len(v))
		do(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{t}, []*tensor.Tensor{y})
	default:
		for i, w := 0, t.DType.Size(); i < len(v); i++ {
			for j, b := range t.Bytes()[i*w : (i+1)*w] {
				v[i] += float64(b) * math.Pow(256, float64(j))
			}
		}
	}
	return v
}

// clone copies a tensor to the Go heap.
func clone(t *tensor.Tensor) *tensor.Tensor {
	if t == nil {
		return nil
	}
	c := tensor.Make(t.DType, t.Shape...)
	copy(c.Bytes(), t.Bytes())
	return c
}
