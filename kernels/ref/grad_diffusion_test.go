package ref_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// modulate is rows 0 and 4 of one sample, the others of another, and one of none.
func (m maker) modulate(kind int, plus float64) gradCase {
	x, s, b := m.normal(5, 6), m.normal(2, 6), m.normal(2, 6)
	at := tensor.Of(tensor.I32, []int32{1, 0, 0, -1, 1}, 5)
	a := kernels.Attr{I: [4]int{kind}, F: [2]float64{0.01, plus}}
	in, shapes := tensors{x, s, b, at}, [][]int{x.Shape, {5}, {5}}
	shapes = shapes[:[]int{kernels.PlainRows: 1, kernels.LayerRows: 3, kernels.RMSRows: 2}[kind]]
	forward := func() tensors { return append(run(kernels.Modulate, a, in, shapes...), nil, nil) }
	dy := m.normal(x.Shape...)
	return gradCase{fmt.Sprint("modulate ", kind), tensors{x, s, b},
		func() float64 { return inner(dy, forward()[0]) }, func() tensors {
			o := forward()
			dw := run(kernels.ModulateDW, a, tensors{dy, x, at, o[1], o[2]}, s.Shape, b.Shape)
			return append(run(kernels.ModulateDX, a, tensors{dy, x, s, at, o[1], o[2]}, x.Shape), dw...)
		}}
}

func (m maker) gate() gradCase {
	y, g, x := m.normal(5, 6), m.normal(2, 6), m.normal(5, 6)
	at := tensor.Of(tensor.I32, []int32{1, 0, 2, 0, 1}, 5)
	return m.of("gate", kernels.Gate, kernels.Attr{}, tensors{y, g, at, x}, tensors{y, g, x},
		func(dz *tensor.Tensor) tensors {
			return tensors{run(kernels.Gate, kernels.Attr{}, tensors{dz, g, at}, y.Shape)[0],
				run(kernels.ModulateDW, kernels.Attr{}, tensors{dz, y, at}, g.Shape)[0], dz}
		}, y.Shape)
}

func (m maker) pointLoss(kind int, masked bool) gradCase {
	x, y, weight, seed := m.normal(4, 5), m.normal(4, 5), m.normal(4), tensor.Of(tensor.F32, []float32{0.7},
		1)
	weight.F32()[2] = 0
	in := tensors{x, y, weight, nil}
	if masked {
		in[3] = m.normal(4, 5)
		in[3].F32()[3] = 0
	}
	a := kernels.Attr{I: [4]int{kind}, F: [2]float64{0.6}}
	return gradCase{fmt.Sprint("point_loss ", kind), tensors{x}, func() float64 {
		return float64(seed.F32()[0]) * float64(run(kernels.PointLoss, a, in, []int{1})[0].F32()[0])
	}, func() tensors { return run(kernels.PointLossDX, a, append(in[:4:4], seed), x.Shape) }}
}

// TestDiffusionGradients is TestGradients for the operations of diffusion models beside convolutions.
// Borders of the losses, where a difference says nothing, are not met by the numbers drawn.
func TestDiffusionGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(5, 6))}
	for _, c := range []gradCase{m.modulate(kernels.PlainRows, 0), m.modulate(kernels.LayerRows, 1),
		m.modulate(kernels.RMSRows, 1), m.gate(), m.act(kernels.Mish), m.act(kernels.Tanh),
		m.pointLoss(kernels.SquaredLoss, false), m.pointLoss(kernels.AbsoluteLoss, true),
		m.pointLoss(kernels.HuberLoss, true), m.pointLoss(kernels.LogisticLoss, true),
		m.pointLoss(kernels.VarianceLoss, true), m.act(kernels.Exp)} {
		checkGradients(t, c)
	}
}

func checkGradients(t *testing.T, c gradCase) {
	t.Helper()
	for i, g := range c.gradient() {
		require.Less(t, distance(g.F32(), differences(c.vary[i].F32(), c.forward)), 1e-3,
			"%s: gradient of operand %d", c.name, i)
	}
}

// window is a window without a size: that of a convolution.
func window(stride, dilation, before, after int) int {
	return kernels.Window{Stride: stride, Dilation: dilation, Before: before, After: after}.Pack()
}

func (m maker) conv(name string, x, w []int, wins ...int) gradCase {
	var a kernels.Attr
	copy(a.I[1:], wins)
	shape := []int{x[0]}
	for i, win := range kernels.Windows(a, w) {
		shape = append(shape, win.Out(x[1+i]))
	}
	shape = append(shape, w[0])
	xs, ws, bias := m.normal(x...), m.normal(w...), m.normal(w[0])
	return m.of("conv "+name, kernels.Conv, a, tensors{xs, ws, bias}, tensors{xs, ws, bias},
		func(dy *tensor.Tensor) tensors {
			return tensors{run(kernels.ConvDX, a, tensors{dy, ws}, x)[0], run(kernels.ConvDW, a, tensors{dy,
				xs}, w)[0],
				run(kernels.ColSum, kernels.Attr{}, tensors{dy}, bias.Shape)[0]}
		}, shape)
}

// TestConvGradients is TestGradients for convolutions of one, two and three axes of space.
func TestConvGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(7, 8))}
	for _, c := range []gradCase{
		m.conv("1-D", []int{2, 7, 3}, []int{4, 3, 3}, window(1, 1, 1, 1)),
		m.conv("strided, uneven", []int{1, 8, 4}, []int{6, 2, 3}, window(2, 2, 3, 0)),
		m.conv("2-D", []int{2, 4, 5, 2}, []int{3, 2, 3, 2}, window(1, 1, 1, 1), window(2, 1, 0, 1)),
		m.conv("depthwise", []int{1, 5, 5, 4}, []int{4, 1, 3, 3}, window(1, 1, 1, 1), window(1, 2, 2, 2)),
		m.conv("3-D, causal", []int{1, 3, 4, 3, 2}, []int{2, 2, 3, 2, 3}, window(1, 1, 2, 0), window(2, 1, 0,
			1),
			window(1, 1, 1, 1)),
		m.conv("cropped", []int{1, 9, 2}, []int{2, 2, 3}, window(1, 1, -1, -2)),
	} {
		checkGradients(t, c)
	}
}

func (m maker) attentionBias(causal int, cuQ, cuK []int32) gradCase {
	t, s := int(cuQ[len(cuQ)-1]), int(cuK[len(cuK)-1])
	q, k, v, bias := m.normal(t, 2, 5), m.normal(s, 1, 5), m.normal(s, 1, 4), m.normal(7, 2)
	a := kernels.Attr{I: [4]int{causal}, F: [2]float64{0.6}}
	more := tensors{tensor.Of(tensor.I32, cuQ, len(cuQ)), tensor.Of(tensor.I32, cuK, len(cuK)), bias}
	in, shapes := append(tensors{q, k, v}, more...), [][]int{{t, 2, 4}, {t, 2}}
	return m.of("attention_bias", kernels.AttentionBias, a, in, tensors{q, k, v, bias},
		func(dy *tensor.Tensor) tensors {
			o := run(kernels.AttentionBias, a, in, shapes...)
			return run(kernels.AttentionBiasBwd, a, append(tensors{dy, q, k, v, o[0], o[1]}, more...),
				q.Shape,
				k.Shape, v.Shape, bias.Shape)
		}, shapes...)
}

// TestBiasGradients is TestGradients for attention with a bias, of distances within its reach and beyond.
func TestBiasGradients(t *testing.T) {
	m := maker{rand.New(rand.NewPCG(11, 12))}
	checkGradients(t, m.attentionBias(0, []int32{0, 2, 8}, []int32{0, 2, 8}))
	checkGradients(t, m.attentionBias(1, []int32{0, 3, 3, 7}, []int32{0, 5, 6, 10}))
}
