package kernelstest

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// partPlaces are where the first queries of two sequences lie among their keys: before all, at the first,
// within, at the end and behind all of them.
var partPlaces = [][]int32{{0, 0}, {-3, -200}, {11, 300}, {-70, 64}, {1000, 1000}}

// partShapes: a part of the keys that is longer and shorter than the queries, windows within a block of
// keys and over several.
var partShapes = []attnShape{
	{q: []int{5, 9}, k: []int{7, 4}, h: 2, g: 1, d: 8, e: 8, causal: 1, extra: 2},
	{q: []int{64, 130}, k: []int{64, 66}, h: 4, g: 2, d: 16, e: 24, causal: 1},
	{q: []int{70, 33}, k: []int{90, 570}, h: 2, g: 2, d: 33, e: 17, causal: 1, window: 40},
	{q: []int{20, 0}, k: []int{30, 31}, h: 2, g: 1, d: 64, e: 64},
}

func partCases() []Case {
	var l []Case
	for _, c := range [][2][]int32{
		{{0, 12}, {0, 12}}, {{0, 4, 8, 12}, {0, 4, 8, 12}}, {{0, 1, 1, 7, 11}, {0, 1, 1, 7, 11}}, {{2, 5,
			9}, {2, 5, 9}}, {{0, 6}, {0, 20}}, {{0, 0}, {0, 0}},
	} {
		for _, at := range [][4]int{{0, 12, 0, 12}, {0, 4, 0, 4}, {4, 4, 0, 4}, {0, 4, 8, 4}, {8, 4, 8, 4},
			{3, 3, 6, 3}, {9, 3, 0, 12}, {11, 1, 2, 7}, {12, 4, 20, 4}} {
			l = append(
				l,
				Case{
					Op:    kernels.CutParts,
					Name:  fmt.Sprint(c[0], c[1], at),
					Types: onlyF32,
					Why:   "integers",
					Call: func(g *gen) *kernels.Call {
						n := len(c[0])
						return &kernels.Call{
							In:   tensors{g.i32(c[0]...), g.i32(c[1]...)},
							Attr: kernels.Attr{I: at},
							Out: tensors{
								g.raw(tensor.I32, n),
								g.raw(tensor.I32, n),
								g.raw(tensor.I32, n-1),
							},
						}
					},
				},
			)
		}
	}
	for i, s := range partShapes {
		for _, place := range partPlaces {
			for _, most := range []float64{0, 1.5} {
				if most > 0 && i != 1 {
					continue
				}
				name := fmt.Sprintf("part%d_q%vk%vat%vcap%g", i, s.q, s.k, place, most)
				l = append(l, partOf(attnForward(name, s, most), kernels.AttentionPart, place),
					partOf(attnBackward(name, s, most), kernels.AttentionPartBwd, place))
			}
		}
	}
	return append(l, mergeCases()...)
}

// partOf turns a case of attention into one of attention to a part of the keys. Its backward gets what a
// merge with a second part of as much weight gives.
func partOf(c Case, op kernels.Op, place []int32) Case {
	inner := c.Call
	c.Op = op
	c.Call = func(g *gen) *kernels.Call {
		call := inner(g)
		at := g.i32(place...)
		if op == kernels.AttentionPartBwd {
			q, k, v, o, lse, cuQ, cuK := call.In[1], call.In[2], call.In[3], call.In[4], call.In[5],
				call.In[6], call.In[7]
			do(kernels.AttentionPart, call.Attr, tensors{q, k, v, cuQ, cuK, at}, tensors{o, lse})
			for i := range lse.F32() {
				lse.F32()[i] += 0.7
			}
		}
		call.In = append(call.In, at)
		return call
	}
	return c
}

// mergeCases merges parts of which one, the other or neither has any key for some queries, into float32 and
// into the dtype of a part.
func mergeCases() []Case {
	var l []Case
	for _, wide := range []bool{false, true} {
		for _, s := range [][3]int{{1, 1, 4}, {5, 3, 17}, {0, 2, 8}, {130, 2, 64}} {
			l = append(
				l,
				Case{
					Op:   kernels.AttentionMerge,
					Name: fmt.Sprintf("%v_wide%v", s, wide),
					Tol:  1e-6,
					Half: 1,
					Why:  "a weighted mean of two rows, weights from float32 logarithms",
					Call: func(g *gen) *kernels.Call {
						rows, h, e := s[0], s[1], s[2]
						la, lb := g.f32(rows, h), g.f32(rows, h)
						for i := range la.F32() {
							if i%4 == 1 || i%4 == 3 {
								la.F32()[i] = float32(math.Inf(-1))
							}
							if i%4 >= 2 {
								lb.F32()[i] = float32(math.Inf(-1))
							}
						}
						a, out := g.act(rows, h, e), g.a
						if wide {
							a, out = g.f32(rows, h, e), tensor.F32
						}
						return &kernels.Call{
							In:  tensors{a, la, g.act(rows, h, e), lb},
							Out: tensors{g.raw(out, rows, h, e), g.raw(tensor.F32, rows, h)},
						}
					},
				},
			)
		}
	}
	return l
}

var _ = add(partCases()...)
