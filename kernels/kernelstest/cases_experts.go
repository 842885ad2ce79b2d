package kernelstest

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// routers have each score, divisor and form of groups that a family has.
var routers = []struct {
	name    string
	e, k    int
	bias    bool
	routing routing.Router
}{
	{"qwen3", 8, 3, false, routing.Router{Normalize: true}},
	{"qwen2", 7, 2, false, routing.Router{}},
	{"deepseek2", 12, 3, false, routing.Router{Groups: 4, Kept: 2, Best: 1, Scale: 16}},
	{"deepseek3", 16, 4, true, routing.Router{Score: routing.Sigmoid, Normalize: true, Eps: 1e-20,
		Scale: 2.5, Groups: 4, Kept: 2, Best: 2}},
	{"minimax", 5, 2, true, routing.Router{Score: routing.Sigmoid, Normalize: true}},
	{"ernie", 6, 6, true, routing.Router{Normalize: true, Floor: true, Eps: 1e-12}},
	{"floor", 6, 1, false, routing.Router{Normalize: true, Floor: true, Eps: 0.9}},
	{"deepseek4", 9, 2, true, routing.Router{Score: routing.SqrtSoftplus, Normalize: true, Eps: 1e-20, Scale: 1.5}},
	{"gptoss", 8, 4, false, routing.Router{Score: routing.SoftmaxChosen}},
	{"one", 1, 1, false, routing.Router{Normalize: true}},
}

const routeWhy = "both sides are the same float64 arithmetic, rounded once"

// tokensOf are shapes of a microbatch: none, one, few, many.
var tokensOf = []int{0, 1, 19, 300}

func routeCases() []Case {
	var l []Case
	for _, r := range routers {
		for _, t := range tokensOf {
			at := kernels.RouterAttr(r.routing)
			in := func(g *gen) tensors {
				l := tensors{g.f32(t, r.e), nil}
				if r.bias {
					l[1] = g.normal(tensor.F32, 0.1, r.e)
				}
				return l
			}
			name := fmt.Sprintf("%s/%d", r.name, t)
			l = append(l, Case{Op: kernels.Route, Name: name, Types: onlyF32, Why: routeWhy,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: in(g), Out: tensors{g.raw(tensor.F32, t, r.k),
						g.raw(tensor.I32, t, r.k)}, Attr: at}
				}}, Case{Op: kernels.RouteBwd, Name: name, Types: onlyF32, Tol: 1e-14, Terms: 1,
				Why: "float64 sums in another order, whose differences may vanish",
				Call: func(g *gen) *kernels.Call {
					logits, idx := in(g), g.raw(tensor.I32, t, r.k)
					do(kernels.Route, at, logits, tensors{g.raw(tensor.F32, t, r.k), idx})
					return &kernels.Call{In: tensors{g.f32(t, r.k), logits[0], idx},
						Out: tensors{g.raw(tensor.F32, t, r.e)}, Attr: at}
				}})
		}
	}
	return l
}

// limits of an expert's rows: none, by place, by weight.
var limits = []kernels.Attr{{}, {F: [2]float64{1}}, {F: [2]float64{1}, I: [4]int{1}},
	{F: [2]float64{1.5}, I: [4]int{1}}, {F: [2]float64{9}}}

// routed is idx [t, k] of distinct experts a token, some of them far more often than others.
func (g *gen) routed(t, k, e int) *tensor.Tensor {
	idx := g.raw(tensor.I32, t, k)
	for i := range t {
		for j, x := range g.Perm(e)[:k] {
			if x > 0 && g.IntN(3) == 0 && j == 0 {
				x = 0
				for _, y := range idx.I32()[i*k : i*k+j] {
					if y == 0 {
						x = 1
					}
				}
			}
			idx.I32()[i*k+j] = int32(x)
		}
	}
	return idx
}

// seated are the experts that lie at places: each of n, and some copies more, in any order.
func (g *gen) seated(n, copies int) *tensor.Tensor {
	p := g.raw(tensor.I32, n+copies)
	for i, x := range g.Perm(n + copies) {
		if p.I32()[i] = int32(x); x >= n { // of two experts only
			p.I32()[i] = int32(x-n) % 2
		}
	}
	return p
}

// ordered gives what route_order makes of idx.
func (g *gen) ordered(idx *tensor.Tensor, e int, at kernels.Attr) (from, slot *tensor.Tensor) {
	from, slot = g.raw(tensor.I32, idx.Len()), g.raw(tensor.I32, idx.Shape...)
	do(kernels.RouteOrder, at, tensors{idx, g.positive(idx.Shape...)}, tensors{from, slot, g.raw(tensor.I32, e)})
	return
}

// placed is a call of route_order where experts do not lie in order, and some lie at several places.
func (g *gen) placed(t, k, e, copies int, at kernels.Attr) *kernels.Call {
	return &kernels.Call{In: tensors{g.routed(t, k, e), g.positive(t, k), g.seated(e, copies)}, Attr: at,
		Out: tensors{g.raw(tensor.I32, t*k), g.raw(tensor.I32, t, k), g.raw(tensor.I32, e+copies)}}
}

func expertRowCases() []Case {
	var l []Case
	const e, k = 6, 3
	for _, at := range limits {
		for _, t := range tokensOf {
			for _, d := range []int{1, 40, 67} {
				name := fmt.Sprintf("%dx%d limit %g by %d", t, d, at.F[0], at.I[0])
				width := kernels.Attr{I: [4]int{k}}
				l = append(l, Case{Op: kernels.RouteOrder, Name: name, Types: onlyF32, Why: "integers",
					Call: func(g *gen) *kernels.Call {
						return &kernels.Call{In: tensors{g.routed(t, k, e), g.positive(t, k)}, Attr: at,
							Out: tensors{g.raw(tensor.I32, t*k), g.raw(tensor.I32, t, k), g.raw(tensor.I32, e)}}
					}}, Case{Op: kernels.RouteOrder, Name: name + " placed", Types: onlyF32, Why: "integers",
					Call: func(g *gen) *kernels.Call { return g.placed(t, k, e, 0, at) }},
					Case{Op: kernels.RouteOrder, Name: name + " with copies", Types: onlyF32, Why: "integers",
						Call: func(g *gen) *kernels.Call { return g.placed(t, k, e, 4, at) }}, Case{Op: kernels.Spread, Name: name, Why: "copies", Call: func(g *gen) *kernels.Call {
						from, _ := g.ordered(g.routed(t, k, e), e, at)
						return &kernels.Call{In: tensors{g.act(t, d), from}, Out: tensors{g.raw(g.a, t*k, d)},
							Attr: width}
					}}, Case{Op: kernels.Spread, Name: name + " weighed", Tol: 1e-7, Why: "one product",
						Call: func(g *gen) *kernels.Call {
							from, _ := g.ordered(g.routed(t, k, e), e, at)
							return &kernels.Call{In: tensors{g.act(t, d), from, g.f32(t, k)},
								Out: tensors{g.raw(g.a, t*k, d)}, Attr: width}
						}}, Case{Op: kernels.Mix, Name: name, Tol: 4e-7, Why: "float32 sums of three",
						Call: func(g *gen) *kernels.Call {
							_, slot := g.ordered(g.routed(t, k, e), e, at)
							return &kernels.Call{In: tensors{g.act(t*k, d), slot}, Out: tensors{g.raw(g.a, t, d)}}
						}}, Case{Op: kernels.Mix, Name: name + " weighed", Tol: 6e-7,
						Why: "float32 sums of three products", Call: func(g *gen) *kernels.Call {
							_, slot := g.ordered(g.routed(t, k, e), e, at)
							return &kernels.Call{In: tensors{g.act(t*k, d), slot, g.f32(t, k)},
								Out: tensors{g.raw(g.a, t, d)}}
						}}, Case{Op: kernels.MixDW, Name: name, Tol: 4e-6, Why: sumWhy,
						Call: func(g *gen) *kernels.Call {
							_, slot := g.ordered(g.routed(t, k, e), e, at)
							return &kernels.Call{In: tensors{g.act(t, d), g.act(t*k, d), slot},
								Out: tensors{g.raw(tensor.F32, t, k)}}
						}})
			}
		}
	}
	return l
}

func balanceCases() []Case {
	var l []Case
	for _, score := range []routing.Score{routing.Softmax, routing.Sigmoid, routing.SqrtSoftplus} {
		for _, c := range []struct {
			t, e, k, first int
			cu             []int32
		}{{0, 4, 2, 0, []int32{0, 0}}, {1, 1, 1, 0, []int32{0, 1}}, {23, 7, 2, 0, []int32{0, 9, 20}},
			{11, 7, 2, 11, []int32{0, 9, 20}}, {10, 5, 3, 40, []int32{0, 20}}, {700, 6, 2, 0, []int32{3, 700}}} {
			at := kernels.Attr{I: [4]int{c.k, int(score), c.first}}
			name := fmt.Sprintf("%d %+v", score, c)
			l = append(l, Case{Op: kernels.BalanceSums, Name: name, Types: onlyF32, Tol: 1e-7,
				Why: "float64 sums in another order", Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.f32(c.t, c.e), g.i32(c.cu...)},
						Out: tensors{g.raw(tensor.F32, 2, c.e)}, Attr: at}
				}}, Case{Op: kernels.BalanceSumsBwd, Name: name, Types: onlyF32, Why: routeWhy,
				Call: func(g *gen) *kernels.Call {
					return &kernels.Call{In: tensors{g.f32(2, c.e), g.f32(c.t, c.e), g.i32(c.cu...)},
						Out: tensors{g.raw(tensor.F32, c.t, c.e)}, Attr: at}
				}})
			l = append(l, lossCases(name, c.t, c.e, at, c.cu)...)
		}
	}
	for _, e := range []int{1, 8, 131} {
		at := kernels.Attr{I: [4]int{2}, F: [2]float64{0.5}}
		l = append(l, Case{Op: kernels.BalanceLoss, Name: fmt.Sprint(e), Types: onlyF32, Tol: 1e-7,
			Why: "float64 sums in another order", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.positive(2, e)}, Out: tensors{g.raw(tensor.F32, 1)}, Attr: at}
			}}, Case{Op: kernels.BalanceLossBwd, Name: fmt.Sprint(e), Types: onlyF32, Tol: 1e-7,
			Why: "float64 sums in another order", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.f32(1), g.positive(2, e)},
					Out: tensors{g.raw(tensor.F32, 2, e)}, Attr: at}
			}}, Case{Op: kernels.BalanceLoss, Name: fmt.Sprint(e, " empty"), Types: onlyF32,
			Why: "nothing was counted", Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{tensor.Make(tensor.F32, 2, e)},
					Out: tensors{g.raw(tensor.F32, 1)}, Attr: at}
			}})
	}
	return l
}

// lossCases are the other losses of logits [t, e], and the step that a surplus asks for.
func lossCases(name string, t, e int, at kernels.Attr, cu []int32) []Case {
	at.F[0] = 0.7
	at.I[0] = min(at.I[0], e)
	idx := kernels.Attr{I: [4]int{0, 0, at.I[2]}}
	one := func(op kernels.Op, tol float64, why string, call func(g *gen) *kernels.Call) Case {
		return Case{Op: op, Name: name, Types: onlyF32, Tol: tol, Why: why, Call: func(g *gen) *kernels.Call {
			c := call(g)
			if c.Attr == (kernels.Attr{}) {
				c.Attr = at
			}
			return c
		}}
	}
	l := []Case{
		one(kernels.ZLoss, 1e-7, "float64 sums", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(t, e), g.i32(cu...)}, Out: tensors{g.raw(tensor.F32, 1)}}
		}),
		one(kernels.ZLossBwd, 1e-7, routeWhy, func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(1), g.f32(t, e), g.i32(cu...)},
				Out: tensors{g.raw(tensor.F32, t, e)}}
		}),
		one(kernels.Surplus, 1e-7, "counts", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.routed(t, at.I[0], e), g.i32(cu...)},
				Out: tensors{g.raw(tensor.F32, e)}, Attr: idx}
		}),
		one(kernels.SignStep, 1e-7, "one sum", func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.f32(t, e), g.f64(1, 1, float64(t%2))}, Out: tensors{g.f32(t, e)}}
		}),
		{Op: kernels.GateRows, Name: name, Tol: 2e-7, Why: "one sigmoid and one product",
			Call: func(g *gen) *kernels.Call {
				return &kernels.Call{In: tensors{g.act(t, e), g.f32(t, 1)}, Out: tensors{g.raw(g.a, t, e)}}
			}},
		{Op: kernels.GateRowsBwd, Name: name, Tol: 4e-6, Why: sumWhy, Call: func(g *gen) *kernels.Call {
			return &kernels.Call{In: tensors{g.act(t, e), g.act(t, e), g.f32(t, 1)},
				Out: tensors{g.raw(g.a, t, e), g.raw(tensor.F32, t, 1)}}
		}},
		{Op: kernels.Jitter, Name: name, Tol: 1e-7, Why: "one product", Call: func(g *gen) *kernels.Call {
			key := g.raw(tensor.I64, t)
			for i, v := 0, key.I64(); i < len(v); i++ {
				v[i] = g.Int64()
			}
			return &kernels.Call{In: tensors{g.act(t, e), key}, Out: tensors{g.raw(g.a, t, e)},
				Attr: kernels.Attr{F: [2]float64{0.1}, I: [4]int{3}}}
		}},
	}
	if int(cu[len(cu)-1]) > t || at.I[2] > 0 {
		return l // sequences by themselves are whole
	}
	return append(l, one(kernels.BalanceEach, 1e-7, "float64 sums in another order", func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.f32(t, e), g.i32(cu...)}, Out: tensors{g.raw(tensor.F32, 1)}}
	}), one(kernels.BalanceEachBwd, 1e-7, routeWhy, func(g *gen) *kernels.Call {
		return &kernels.Call{In: tensors{g.f32(1), g.f32(t, e), g.i32(cu...)}, Out: tensors{g.raw(tensor.F32, t, e)}}
	}))
}

var (
	_ = add(routeCases()...)
	_ = add(expertRowCases()...)
	_ = add(kindCases()...)
	_ = add(balanceCases()...)
)
