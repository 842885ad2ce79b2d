package ref_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func (m maker) layerNorm() gradCase {
	x, w, b := m.normal(3, 6), m.normal(6), m.normal(6)
	a := kernels.Attr{F: [2]float64{0.01}}
	in, shapes := tensors{x, w, b}, [][]int{x.Shape, {3}, {3}}
	return m.of("layernorm", kernels.LayerNorm, a, in, in, func(dy *tensor.Tensor) tensors {
		o := run(kernels.LayerNorm, a, in, shapes...)
		return tensors{run(kernels.LayerNormDX, a, tensors{dy, x, w, o[1], o[2]}, x.Shape)[0],
			run(kernels.LayerNormDW, a, tensors{dy, x, o[1], o[2]}, w.Shape)[0],
			run(kernels.ColSum, a, tensors{dy}, b.Shape)[0]}
	}, shapes...)
}

func (m maker) act(kind int) gradCase {
	x := m.normal(4, 5)
	a := kernels.Attr{I: [4]int{kind}}
	return m.of(fmt.Sprint("act ", kind), kernels.Act, a, tensors{x}, tensors{x},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.ActBwd, a, tensors{dy, x}, x.Shape)
		}, x.Shape)
}

func (m maker) take() gradCase {
	x, idx := m.normal(4, 3), tensor.Of(tensor.I32, []int32{3, 1, 3, -1, 4, 3}, 6)
	return m.of("take", kernels.Take, kernels.Attr{}, tensors{x, idx}, tensors{x},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.TakeBwd, kernels.Attr{}, tensors{dy, idx}, x.Shape)
		}, []int{6, 3})
}

func (m maker) scaleRows() gradCase {
	x, s := m.normal(4, 3), m.normal(4)
	return m.of("scale_rows", kernels.ScaleRows, kernels.Attr{}, tensors{x, s}, tensors{x},
		func(dy *tensor.Tensor) tensors {
			return run(kernels.ScaleRows, kernels.Attr{}, tensors{dy, s}, x.Shape)
		}, x.Shape)
}

func (m maker) mulCols() gradCase {
	x, w := m.normal(4, 3), m.normal(3)
	return m.of("mul_cols", kernels.MulCols, kernels.Attr{}, tensors{x, w}, tensors{x, w},
		func(dy *tensor.Tensor) tensors {
			return tensors{run(kernels.MulCols, kernels.Attr{}, tensors{dy, w}, x.Shape)[0],
				run(kernels.MulColsDW, kernels.Attr{}, tensors{dy, x}, w.Shape)[0]}
		}, x.Shape)
}

func (m maker) turn() gradCase {
	x, angle, mark := m.normal(3, 2, 6), m.normal(3), tensor.Of(tensor.I32, []int32{1, 0, 1}, 3)
	a := kernels.Attr{I: [4]int{1}}
	in := tensors{x, angle, mark}
	return m.of("turn", kernels.Turn, a, in, tensors{x, angle}, func(dy *tensor.Tensor) tensors {
		y := run(kernels.Turn, a, in, x.Shape)[0]
		return tensors{run(kernels.Turn, kernels.Attr{I: [4]int{-1}}, tensors{dy, angle, mark}, x.Shape)[0],
			run(kernels.TurnDW, kernels.Attr{}, tensors{dy, y, mark}, angle.Shape)[0]}
	}, x.Shape)
}

// TestVisionGradients is TestGradients for the operations of image encoders.
func TestVisionGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(3, 4))}
	for _, c := range []gradCase{m.layerNorm(), m.act(kernels.GELU), m.act(kernels.GELUTanh),
		m.act(kernels.QuickGELU), m.act(kernels.SiLU),
		m.act(kernels.ReLU), m.take(), m.scaleRows(), m.mulCols(), m.turn()} {
		for i, g := range c.gradient() {
			require.Less(t, distance(g.F32(), differences(c.vary[i].F32(), c.forward)), 1e-3,
				"%s: gradient of operand %d", c.name, i)
		}
	}
}
