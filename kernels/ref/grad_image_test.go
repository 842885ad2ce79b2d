package ref_test

import (
	"math/rand/v2"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func (m maker) groupNorm(groups int, x ...int) gradCase {
	c := x[len(x)-1]
	xs, w, b := m.normal(x...), m.normal(c), m.normal(c)
	a, in := kernels.Attr{F: [2]float64{0.01}}, tensors{xs, w, b}
	shapes := [][]int{x, {x[0], groups}, {x[0], groups}}
	return m.of("group_norm", kernels.GroupNorm, a, in, in, func(dy *tensor.Tensor) tensors {
		o := run(kernels.GroupNorm, a, in, shapes...)
		return tensors{run(kernels.GroupNormDX, a, tensors{dy, xs, w, o[1], o[2]}, x)[0],
			run(kernels.GroupNormDW, a, tensors{dy, xs, o[1], o[2]}, w.Shape)[0],
			run(kernels.ColSum, a, tensors{dy}, b.Shape)[0]}
	}, shapes...)
}

func (m maker) frozenNorm() gradCase {
	x, w, b, mean, variance := m.normal(3, 4), m.normal(4), m.normal(4), m.normal(4),
		tensor.Of(tensor.F32, []float32{0.3, 1, 2, 0.7}, 4)
	a, in, shapes := kernels.Attr{F: [2]float64{0.01}}, tensors{x, w, b, mean, variance},
		[][]int{{3, 4}, {1, 4}, {1, 4}}
	return m.of("frozen_norm", kernels.FrozenNorm, a, in, tensors{x, w, b}, func(dy *tensor.Tensor) tensors {
		o := run(kernels.FrozenNorm, a, in, shapes...)
		one := func(t *tensor.Tensor) *tensor.Tensor { return t.Alias(1, 3, 4) }
		return tensors{run(kernels.FrozenNormDX, a, tensors{dy, w, o[1]}, x.Shape)[0],
			run(kernels.GroupNormDW, kernels.Attr{}, tensors{one(dy), one(x), o[1], o[2]}, w.Shape)[0],
			run(kernels.ColSum, a, tensors{dy}, b.Shape)[0]}
	}, shapes...)
}

// bySize is an operation whose gradient is another one, of the cotangent and of x if that is wanted.
func (m maker) bySize(op, bwd kernels.Op, a, back kernels.Attr, again bool, x, y []int) gradCase {
	xs := m.normal(x...)
	return m.of(string(op), op, a, tensors{xs}, tensors{xs}, func(dy *tensor.Tensor) tensors {
		in := tensors{dy}
		if again {
			in = append(in, xs)
		}
		return run(bwd, back, in, x)
	}, y)
}

// TestImageGradients is TestGradients for norms over space and for what changes its size or order. A
// difference at a largest number that changes is not met by the numbers drawn.
func TestImageGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(9, 12))}
	resize := func(kind int, x, y []int) gradCase {
		a := kernels.Attr{I: [4]int{kind}}
		return m.bySize(kernels.Resize, kernels.ResizeBwd, a, a, false, x, y)
	}
	pool := func(kind int) gradCase {
		a := kernels.Attr{I: [4]int{kind, kernels.Window{Size: 3, Stride: 2, Dilation: 1, Before: 1,
			After: 1}.Pack(),
			kernels.Window{Size: 2, Stride: 1, Dilation: 2, After: 1}.Pack()}}
		return m.bySize(kernels.Pool, kernels.PoolBwd, a, a, kind == kernels.MaxPool, []int{2, 5, 4, 3},
			[]int{2, 3, 3, 3})
	}
	pad, back := kernels.Attr{I: [4]int{0, window(1, 1, 2, 1), window(1, 1, -1, 0)}},
		kernels.Attr{I: [4]int{0, window(1, 1, -2, -1), window(1, 1, 1, 0)}}
	for _, c := range []gradCase{m.groupNorm(2, 2, 3, 2, 4), m.groupNorm(4, 1, 5, 4), m.frozenNorm(),
		resize(kernels.Nearest, []int{1, 3, 2, 2}, []int{1, 5, 4, 2}), resize(kernels.Nearest, []int{2, 5,
			1}, []int{2, 3, 1}),
		resize(kernels.Bilinear, []int{1, 3, 2, 2}, []int{1, 5, 4, 2}), resize(kernels.Bilinear, []int{2, 5,
			2}, []int{2, 3, 2}),
		pool(kernels.MaxPool), pool(kernels.MeanPool), pool(kernels.MeanIn),
		m.bySize(kernels.Pad, kernels.Pad, pad, back, false, []int{2, 3, 4, 2}, []int{2, 6, 3, 2}),
		m.bySize(kernels.Permute, kernels.Permute, kernels.PermuteAttr([]int{2, 0, 1}),
			kernels.PermuteAttr([]int{1, 2, 0}), false, []int{2, 3, 4}, []int{4, 2, 3})} {
		checkGradients(t, c)
	}
}
