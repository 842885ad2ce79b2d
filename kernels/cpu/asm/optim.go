package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func hexName(x uint32) string { return fmt.Sprintf("%x", x) }

// fields broadcasts the first n float32s at parameter h.
func (e *emitter) fields(n int) []vec {
	p, l := load(Param("h")), make([]vec, n)
	for i := range l {
		l[i] = e.vec()
		VBROADCASTSS(Mem{Base: p, Disp: 4 * i}, l[i])
	}
	return l
}

// optimizers writes the optimizer steps; h points at adamConst or sgdConst.
func (e *emitter) optimizers() {
	e.adamW()
	e.sgd()
}

// adamW emits one step of AdamW, which reads and writes each of its arrays once.
func (e *emitter) adamW() {
	e.begin("adamW", "func(p, m, v, g []float32, h *float32)",
		"is one step of AdamW with the fields of adamConst at h.")
	f := e.fields(8)
	factor, keep, beta2, m1, m2, step, root, eps := f[0], f[1], f[2], f[3], f[4], f[5], f[6], f[7]
	e.each(1, []string{"p", "m", "v", "g"}, func(a []Mem, _ int, masked bool) {
		p, m, v, g := e.load(a[0], masked), e.load(a[1], masked), e.load(a[2], masked), e.load(a[3], masked)
		VMULPS(factor, g, g)
		t := e.vec()
		VSUBPS(m, g, t)
		VFMADD231PS(m1, t, m)
		e.store(m, a[1], masked)
		VMULPS(g, g, g)
		VMULPS(m2, g, g)
		VFMADD231PS(beta2, v, g)
		e.store(g, a[2], masked)
		VSQRTPS(g, g)
		VFMADD213PS(eps, root, g) // sqrt(v)·rootInv + ε
		VMULPS(step, m, m)
		VDIVPS(g, m, m)
		VFMSUB213PS(m, keep, p) // p·keep - step·m/…
		e.store(p, a[0], masked)
	})
	e.end()
}

// sgd emits one step of SGD with momentum.
func (e *emitter) sgd() {
	e.begin("sgd", "func(p, m, g []float32, h *float32)", "is one step of SGD with the fields of sgdConst at h.")
	f := e.fields(4)
	factor, decay, momentum, lr := f[0], f[1], f[2], f[3]
	e.each(1, []string{"p", "m", "g"}, func(a []Mem, _ int, masked bool) {
		p, m, g := e.load(a[0], masked), e.load(a[1], masked), e.load(a[2], masked)
		VMULPS(factor, g, g)
		VFMADD231PS(decay, p, g)
		VFMADD231PS(momentum, m, g)
		e.store(g, a[1], masked)
		VFNMADD231PS(lr, g, p)
		e.store(p, a[0], masked)
	})
	e.end()
}

// peak writes a loop of nothing but multiply-adds, the yardstick of the benchmarks.
func peak() {
	for _, e := range []*emitter{{wide: true, suffix: "Z"}, {suffix: "Y"}} {
		e.begin("peak", "func(n int, x []float32)", "runs 12 independent multiply-adds n times.")
		n, p := count4("n"), base("x")
		x, acc := e.vec(), make([]vec, 12)
		VMOVUPS(Mem{Base: p}, x)
		for i := range acc {
			acc[i] = e.zero()
		}
		Label("again")
		for _, a := range acc {
			VFMADD231PS(x, x, a)
		}
		DECQ(n)
		JNZ(LabelRef("again"))
		for _, a := range acc[1:] {
			VADDPS(a, acc[0], acc[0])
		}
		VMOVUPS(acc[0], Mem{Base: p})
		e.end()
	}
}
