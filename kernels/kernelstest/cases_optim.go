package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// updateHyper are hyper-parameters of an update with what may differ: whether it is the first, and the
// share of an average.
func updateHyper(g *gen, first float64) *tensor.Tensor {
	return g.f64(1e-2, 0.9, 0.95, 1e-8, 0.1, first, 0.142625, 0.3, 0.7)
}

// eightCase has moments in eight bits: rows of n numbers in blocks of per. Arithmetic is the same float32
// on every backend, so that places in the map are equal.
func eightCase(rows, n, per int, overflow float64, noDecay int) Case {
	return Case{Op: kernels.AdamW8, Name: fmt.Sprint(rows, "x", n, "-", per, "-", overflow, noDecay), Tol: 1e-12,
		Why: "the same float32", Call: func(g *gen) *kernels.Call {
			p, scale := g.f32(rows, n), func() *tensor.Tensor { return g.positive(rows, n/per) }
			m, v := g.raw(tensor.U8, rows, n), g.raw(tensor.U8, rows, n)
			for i := range m.Bytes() {
				m.Bytes()[i], v.Bytes()[i] = byte(i*37), byte(i*91)
			}
			return &kernels.Call{In: tensors{g.f32(rows, n), updateHyper(g, 0.271), g.f64(3, 0.5, overflow)},
				Out: tensors{p, m, v, scale(), scale(), g.raw(g.a, rows, n)}, Attr: kernels.Attr{I: [4]int{noDecay}}}
		}}
}

// freeCase is an update by schedule-free AdamW.
func freeCase(name string, n int, first, overflow float64, noDecay int) Case {
	return Case{Op: kernels.ScheduleFree, Name: name, Tol: 1e-6, Terms: 1,
		Why: "a few float32 operations on terms of like size", Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(n), updateHyper(g, first), g.f64(3, 0.5, overflow)},
				Out:  tensors{g.f32(n), g.f32(n), g.positive(n), g.f32(n), g.raw(g.a, n)},
				Attr: kernels.Attr{I: [4]int{noDecay}}}
		}}
}

var _ = add(eightCase(1, 16, 16, 0, 0), eightCase(33, 512, 256, 0, 1), eightCase(4, 96, 32, 1, 0),
	eightCase(0, 32, 16, 0, 0), freeCase("1", 1, 0, 0, 0), freeCase("first", 4099, 1, 0, 0),
	freeCase("later", 4099, 0, 0, 1), freeCase("overflow", 100, 1, 1, 0), freeCase("none", 0, 1, 0, 0))
