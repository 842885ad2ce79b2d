package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

const groupWhy = "two float32 sums over groups of up to 3000 numbers, and a root"

func groupNormCases() []Case {
	var l []Case
	for _, s := range []struct {
		x []int
		g int
	}{{[]int{1, 1, 1}, 1}, {[]int{0, 4, 4}, 2}, {[]int{2, 0, 4}, 2}, {[]int{2, 5, 6}, 3}, {[]int{3, 4, 5, 40}, 8},
		{[]int{1, 300, 10}, 10}, {[]int{2, 3, 4, 5, 33}, 1}, {[]int{1, 9, 11, 330}, 10}} {
		n, c := s.x[0], s.x[len(s.x)-1]
		at := kernels.Attr{F: [2]float64{1e-5}}
		if tensor.Len(s.x) == 1 {
			at.F[0] = 0.5
		}
		one := func(op kernels.Op, more string, terms float64, call func(g *gen) *kernels.Call) {
			l = append(l, Case{Op: op, Name: fmt.Sprintf("%v_%d%s", s.x, s.g, more), Tol: 6e-6, Why: groupWhy,
				Terms: terms, Call: func(g *gen) *kernels.Call {
					k := call(g)
					k.Attr.F = at.F
					return k
				}})
		}
		stats := func(g *gen) (out tensors) {
			return tensors{g.raw(g.a, s.x...), g.raw(tensor.F32, n, s.g), g.raw(tensor.F32, n, s.g)}
		}
		one(kernels.GroupNorm, "", 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...), g.act(c), g.act(c)}, Out: stats(g)}
		})
		one(kernels.GroupNorm, "nobias", 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...), g.act(c)}, Out: stats(g)}
		})
		one(kernels.GroupNormDX, "", 3, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...), g.act(s.x...), g.act(c), g.positive(n, s.g),
				g.f32(n, s.g)}, Out: tensors{g.raw(g.a, s.x...)}}
		})
		one(kernels.GroupMoments, "", 1, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(s.x...)}, Out: stats(g)[1:]}
		})
		for _, bias := range []bool{false, true} {
			one(kernels.GroupScale, fmt.Sprint(bias), 1, func(g *gen) *kernels.Call {
				in := tensors{g.act(s.x...), g.act(c), nil, g.positive(n, s.g), g.f32(n, s.g)}
				if bias {
					in[2] = g.act(c)
				}
				return &kernels.Call{In: in, Out: tensors{g.raw(g.a, s.x...)}}
			})
		}
		if n == 1 {
			one(kernels.GroupJoin, "", 1, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.f32(3, s.g), g.positive(3, s.g)},
					Out: tensors{g.raw(tensor.F32, 1, s.g), g.raw(tensor.F32, 1, s.g)}}
			})
			one(kernels.GroupScaleDX, "", 3, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(s.x...), g.act(s.x...), g.act(c), g.positive(1, s.g),
					g.f32(1, s.g), g.f32(c), g.f32(c)}, Out: tensors{g.raw(g.a, s.x...)},
					Attr: kernels.Attr{I: [4]int{2 * max(1, tensor.Len(s.x)/c)}}}
			})
		}
		for _, acc := range []int{0, kernels.Accumulate} {
			one(kernels.GroupNormDW, fmt.Sprint("+", acc), 3, func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(s.x...), g.act(s.x...), g.positive(n, s.g), g.f32(n, s.g)},
					Out: tensors{g.f32(c)}, Attr: kernels.Attr{I: [4]int{acc}}}
			})
		}
	}
	return l
}

func frozenCases() []Case {
	var l []Case
	for _, s := range rowSizes {
		t, c := s[0], s[1]
		name := fmt.Sprintf("%dx%d", t, c)
		l = append(l, Case{Op: kernels.FrozenNorm, Name: name, Tol: 6e-7, Terms: 3,
			Why: "a difference, products and a sum", Call: func(g *gen) *kernels.Call {
				variance := g.positive(c)
				return &kernels.Call{In: tensors{g.act(t, c), g.act(c), g.act(c), g.f32(c), variance},
					Out:  tensors{g.raw(g.a, t, c), g.raw(tensor.F32, 1, c), g.raw(tensor.F32, 1, c)},
					Attr: kernels.Attr{F: [2]float64{1e-5}}}
			}}, Case{Op: kernels.FrozenNormDX, Name: name, Tol: 4e-7, Why: "two products", Call: func(
			g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, c), g.act(c), g.positive(1, c)}, Out: tensors{g.raw(g.a, t, c)}}
		}})
	}
	return l
}

func resizeCases() []Case {
	var l []Case
	for _, s := range [][2][]int{{{1, 1, 1}, {1, 1, 1}}, {{2, 3, 4}, {2, 7, 4}}, {{0, 2, 3}, {0, 4, 3}},
		{{1, 0, 3}, {1, 4, 3}}, {{2, 5, 3, 33}, {2, 10, 6, 33}}, {{1, 9, 7, 5}, {1, 4, 3, 5}},
		{{2, 2, 3, 4, 6}, {2, 4, 3, 9, 6}}} {
		x, y := s[0], s[1]
		for kind := kernels.Nearest; kind <= kernels.Bilinear; kind++ {
			name, at := fmt.Sprintf("%v-%v-%d", x, y, kind), kernels.Attr{I: [4]int{kind}}
			why := "float32 sums of some weighted rows"
			l = append(l, Case{Op: kernels.Resize, Name: name, Tol: 1e-6, Why: why, Leaky: true,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.act(x...)}, Out: tensors{g.raw(g.a, y...)}, Attr: at}
				}}, Case{Op: kernels.ResizeBwd, Name: name, Tol: 1e-6, Why: why, Leaky: true, Call: func(
				g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(y...)}, Out: tensors{g.raw(g.a, x...)}, Attr: at}
			}})
		}
	}
	return l
}

// pooled are inputs and windows: overlapping, apart, padded, dilated, with nothing but padding.
var pooled = []struct {
	x    []int
	wins []kernels.Window
}{
	{[]int{1, 1, 1}, []kernels.Window{{Size: 1, Stride: 1, Dilation: 1}}},
	{[]int{0, 4, 3}, []kernels.Window{{Size: 2, Stride: 2, Dilation: 1}}},
	{[]int{2, 9, 5}, []kernels.Window{{Size: 3, Stride: 2, Dilation: 1, Before: 1, After: 1}}},
	{[]int{1, 2, 3}, []kernels.Window{{Size: 2, Stride: 1, Dilation: 1, Before: 3, After: 0}}},
	{[]int{2, 7, 8, 70}, []kernels.Window{{Size: 3, Stride: 2, Dilation: 1, Before: 1, After: 1},
		{Size: 2, Stride: 1, Dilation: 2, Before: 0, After: 1}}},
	{[]int{1, 4, 5, 6, 8}, []kernels.Window{{Size: 4, Stride: 1, Dilation: 1},
		{Size: 2, Stride: 2, Dilation: 1, After: 1}, {Size: 3, Stride: 3, Dilation: 1}}},
}

func poolCases() []Case {
	var l []Case
	for _, s := range pooled {
		y := []int{s.x[0]}
		var at kernels.Attr
		for i, w := range s.wins {
			at.I[1+i] = w.Pack()
			y = append(y, w.Out(s.x[1+i]))
		}
		y = append(y, s.x[len(s.x)-1])
		for kind := kernels.MaxPool; kind <= kernels.MeanIn; kind++ {
			at := at
			at.I[0] = kind
			name := fmt.Sprintf("%v-%d", s.x, kind)
			l = append(l, Case{Op: kernels.Pool, Name: name, Tol: 1e-6, Why: "a float32 sum of some rows", Leaky: true,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.act(s.x...)}, Out: tensors{g.raw(g.a, y...)}, Attr: at}
				}},
				Case{Op: kernels.PoolBwd, Name: name, Tol: 1e-6, Why: "a float32 sum of some rows",
					Leaky: true,
					Call: func(g *gen) *kernels.Call {
						c := &kernels.Call{In: tensors{g.act(y...)}, Out: tensors{g.raw(g.a, s.x...)}, Attr: at}
						if kind == kernels.MaxPool {
							c.In = append(c.In, g.act(s.x...))
						}
						return c
					}})
		}
	}
	return l
}

func orderCases() []Case {
	l := []Case{}
	for _, s := range []struct {
		x    []int
		wins []int // before and after of each axis
	}{{[]int{1, 1, 1}, []int{1, 2}}, {[]int{2, 5, 7}, []int{-2, 3}}, {[]int{2, 3, 4, 33}, []int{0, 1, 2, -1}},
		{[]int{1, 3, 2, 2, 3}, []int{2, 0, 0, 0, -1, 1}}, {[]int{0, 3, 2}, []int{1, 1}}} {
		y := append([]int(nil), s.x...)
		var at kernels.Attr
		for i := 0; i < len(s.wins); i += 2 {
			w := kernels.Window{Stride: 1, Dilation: 1, Before: s.wins[i], After: s.wins[i+1]}
			at.I[1+i/2] = w.Pack()
			y[1+i/2] += w.Before + w.After
		}
		l = append(l, Case{Op: kernels.Pad, Name: fmt.Sprintf("%v-%v", s.x, s.wins), Why: "a copy",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(s.x...)}, Out: tensors{g.raw(g.a, y...)}, Attr: at}
			}})
	}
	for _, s := range [][2][]int{{{3}, {0}}, {{4, 7}, {1, 0}}, {{2, 3, 5}, {2, 0, 1}}, {{2, 3, 40}, {1, 0, 2}},
		{{2, 3, 2, 4, 2, 5}, {0, 1, 3, 5, 2, 4}}, {{0, 3}, {1, 0}}} {
		var y []int
		for _, p := range s[1] {
			y = append(y, s[0][p])
		}
		l = append(l, Case{Op: kernels.Permute, Name: fmt.Sprintf("%v-%v", s[0], s[1]), Why: "a copy",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(s[0]...)}, Out: tensors{g.raw(g.a, y...)},
					Attr: kernels.PermuteAttr(s[1])}
			}})
	}
	return l
}

var _ = add(groupNormCases()...)
var _ = add(frozenCases()...)
var _ = add(resizeCases()...)
var _ = add(poolCases()...)
var _ = add(orderCases()...)
