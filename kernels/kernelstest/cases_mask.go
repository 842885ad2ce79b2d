package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// maskShape is a packed batch with a mask: visible tiles drawn with a chance of one in some, or a window
// over a grid of frames, rows and columns, or both.
type maskShape struct {
	attnShape
	tile, oneIn int      // 0 tiles for none
	grid        [3]int   // of positions, 0 for none
	near        [6]int32 // with grid
	shuffled    bool     // positions in no order
}

var none = int32(-1)

// maskShapes: single rows, tiles of one row (any mask at all), holes within and across blocks of keys,
// queries and whole blocks that see nothing, sequences that begin within a tile, windows that reach over nothing,
// over a frame and over everything, frames in causal order, and masks on top of causality and windows.
var maskShapes = []maskShape{
	{attnShape: attnShape{q: []int{1}, k: []int{1}, h: 1, g: 1, d: 4, e: 4}, tile: 1, oneIn: 1},
	{attnShape: attnShape{q: []int{}, k: []int{}, h: 1, g: 1, d: 4, e: 4, extra: 2}, tile: 8, oneIn: 1},
	{attnShape: attnShape{q: []int{23, 0, 40}, k: []int{31, 5, 40}, h: 4, g: 2, d: 16, e: 16, extra: 1},
		tile: 1, oneIn: 3},
	{attnShape: attnShape{q: []int{70, 33}, k: []int{70, 33}, h: 2, g: 1, d: 32, e: 24, causal: 1}, tile: 7, oneIn: 2},
	{attnShape: attnShape{q: []int{150}, k: []int{700}, h: 2, g: 2, d: 20, e: 20}, tile: 64, oneIn: 4},
	{attnShape: attnShape{q: []int{200, 131}, k: []int{200, 131}, h: 1, g: 1, d: 64, e: 64, causal: 1,
		window: 90}, tile: 16, oneIn: 2},
	{attnShape: attnShape{q: []int{40}, k: []int{40}, h: 2, g: 1, d: 8, e: 8}, tile: 8, oneIn: 1000},
	{attnShape: attnShape{q: []int{60, 60}, k: []int{60, 60}, h: 2, g: 1, d: 16, e: 16},
		grid: [3]int{3, 4, 5}, near: [6]int32{1, 0, 1, 1, 2, 2}},
	{attnShape: attnShape{q: []int{420}, k: []int{420}, h: 2, g: 1, d: 32, e: 32}, grid: [3]int{5, 7, 12},
		near: [6]int32{none, 0, none, none, 3, 3}},
	{attnShape: attnShape{q: []int{90}, k: []int{90}, h: 1, g: 1, d: 8, e: 8}, grid: [3]int{2, 5, 9},
		near: [6]int32{0, 0, 0, 0, 0, 0}, shuffled: true},
	{attnShape: attnShape{q: []int{90}, k: []int{170}, h: 3, g: 3, d: 33, e: 17, extra: 2},
		grid: [3]int{4, 5, 9}, near: [6]int32{none, none, none, none, none, none}},
	{attnShape: attnShape{q: []int{260}, k: []int{260}, h: 2, g: 2, d: 16, e: 16, causal: 1}, tile: 20,
		oneIn: 2, grid: [3]int{4, 5, 13}, near: [6]int32{1, 1, 2, 2, 2, none}, shuffled: true},
}

// operands are those of attention from blocks on.
func (s maskShape) mask(g *gen, t, n int) (l tensors, tile int) {
	l = make(tensors, 4)
	if tile = s.tile; tile > 0 {
		rows, cols := (t+tile-1)/tile, (n+tile-1)/tile
		l[0] = g.raw(tensor.I32, rows, (cols+31)/32)
		for i := range l[0].I32() {
			var bits uint32
			for b := range 32 {
				if g.IntN(s.oneIn) == 0 {
					bits |= 1 << b
				}
			}
			l[0].I32()[i] = int32(bits)
		}
	}
	if s.grid[0] > 0 {
		l[1], l[2], l[3] = s.positions(g, t), s.positions(g, n), g.i32(s.near[:]...)
	}
	return l, tile
}

func (s maskShape) positions(g *gen, rows int) *tensor.Tensor {
	p := g.raw(tensor.I32, rows, 3)
	for i := range rows {
		at := i
		if s.shuffled {
			at = g.IntN(s.grid[0] * s.grid[1] * s.grid[2])
		}
		copy(p.I32()[3*i:], []int32{int32(at / (s.grid[1] * s.grid[2])), int32(at / s.grid[2] % s.grid[1]),
			int32(at % s.grid[2])})
	}
	return p
}

func maskCases() []Case {
	var l []Case
	for i, s := range maskShapes {
		name := fmt.Sprintf("mask%d_q%vk%vh%dg%dd%de%d", i, s.q, s.k, s.h, s.g, s.d, s.e)
		operands := func(g *gen) (q, k, v *tensor.Tensor, more tensors, a kernels.Attr) {
			q, k, v, cuQ, cuK, a := s.operands(g)
			mask, tile := s.mask(g, q.Shape[0], k.Shape[0])
			a.I[2] = tile
			return q, k, v, append(tensors{cuQ, cuK}, mask...), a
		}
		l = append(l, Case{Op: kernels.Attention, Name: name, Tol: 5e-6, Half: 1, Terms: 1,
			Why:   "exponentials, and probabilities times values of unit variance rounded to the activation dtype",
			Leaky: true, Call: func(g *gen) *kernels.Call {
				q, k, v, more, a := operands(g)
				return &kernels.Call{In: append(tensors{q, k, v}, more...), Attr: a,
					Out: tensors{g.raw(g.a, q.Shape[0], s.h, s.e), g.raw(tensor.F32, q.Shape[0], s.h)}}
			}},
			Case{Op: kernels.AttentionBwd, Name: name, Tol: 1e-5, Half: 2, Terms: 1,
				Why: "differences of products of unit variance, rounded to the activation dtype", Leaky: true,
				Call: func(g *gen) *kernels.Call {
					q, k, v, more, a := operands(g)
					o, lse := g.raw(g.a, q.Shape[0], s.h, s.e), g.raw(tensor.F32, q.Shape[0], s.h)
					do(kernels.Attention, a, append(tensors{q, k, v}, more...), tensors{o, lse})
					return &kernels.Call{In: append(tensors{g.act(o.Shape...), q, k, v, o, lse}, more...), Attr: a,
						Out: tensors{g.raw(g.a, q.Shape...), g.raw(g.a, k.Shape...), g.raw(g.a, v.Shape...)}}
				}})
	}
	return l
}

var _ = add(maskCases()...)
