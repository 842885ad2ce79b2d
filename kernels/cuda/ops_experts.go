//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// What experts need: routers, rows in order of experts, losses that balance.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.Route: func(x *issue) {
		l := x.in(0)
		x.router("route", router{logits: l, bias: x.in(1), w: x.out(0), idx: x.out(1), t: l.Shape[0],
			e: lastDim(l), k: lastDim(x.out(0))})
	},
	kernels.RouteBwd: func(x *issue) {
		l := x.in(1)
		x.router("route_bwd", router{logits: l, dw: x.in(0), idxIn: x.in(2), dlogits: x.out(0),
			t: l.Shape[0], e: lastDim(l), k: lastDim(x.in(0))})
	},
	kernels.RouteOrder: func(x *issue) {
		idx, counts := x.in(0), x.out(2)
		n, e := idx.Len(), counts.Len()
		most := n
		if f := x.c.Attr.F[0]; f > 0 {
			most = ceilOf(f, n, e)
		}
		x.clear(x.out(0), 0xff)
		x.clear(x.out(1), 0xff)
		for _, name := range []string{"route_counts", "route_places", "route_limit"} {
			g := rowwise(e, 256)
			if name == "route_limit" {
				g = each(e)
			}
			x.launch(name, g, idx, x.in(1), x.in(2), x.out(0), x.out(1), counts, n, e, lastDim(idx),
				most, x.c.Attr.I[0] == 1)
		}
	},
	kernels.Spread: func(x *issue) {
		a, from := x.in(0), x.in(1)
		x.launch(typed("spread", a), eachEight(x.out(0).Len()), a, nil, from, x.in(2), x.out(0), from.Len(),
			a.Shape[0], lastDim(a), x.c.Attr.I[0], 0, false)
	},
	kernels.Mix: func(x *issue) {
		a, slot := x.in(0), x.in(1)
		x.launch(typed("mix", a), eachEight(x.out(0).Len()), a, nil, slot, x.in(2), x.out(0), slot.Shape[0],
			a.Shape[0], lastDim(a), lastDim(slot), 0, false)
	},
	kernels.MixDW: func(x *issue) {
		dy, a, slot := x.in(0), x.in(1), x.in(2)
		x.launch(typed("mix_dw", dy), rowwise(slot.Len(), lastDim(dy)), a, dy, slot, nil, x.out(0),
			slot.Len(), a.Shape[0], lastDim(dy), lastDim(slot), 0, false)
	},
	kernels.BalanceSums: func(x *issue) {
		b := x.balance(x.in(0), x.in(1))
		b.sums = x.out(0)
		x.shares(&b)
		x.balanced("balance_sums", rowwise(b.e, b.t), b)
	},
	kernels.BalanceSumsBwd: func(x *issue) {
		b := x.balance(x.in(1), x.in(2))
		b.dsums, b.dlogits = x.in(0), x.out(0)
		x.balanced("balance_sums_bwd", b.tokens(2), b)
	},
	kernels.BalanceLoss: func(x *issue) {
		b := balance{sumsIn: x.in(0), loss: x.out(0), e: lastDim(x.in(0)), k: x.c.Attr.I[0]}
		x.balanced("balance_loss", single(b.e), b)
	},
	kernels.BalanceLossBwd: func(x *issue) {
		b := balance{seed: x.in(0), sumsIn: x.in(1), sums: x.out(0), e: lastDim(x.in(1)), k: x.c.Attr.I[0]}
		x.balanced("balance_loss_bwd", single(b.e), b)
	},
	kernels.BalanceEach: func(x *issue) {
		b := x.balance(x.in(0), x.in(1))
		b.loss = x.out(0)
		x.eachSequence(&b)
		x.balanced("balance_each", single(b.c), b)
	},
	kernels.BalanceEachBwd: func(x *issue) {
		b := x.balance(x.in(1), x.in(2))
		b.seed, b.dlogits = x.in(0), x.out(0)
		x.eachSequence(&b)
		x.balanced("balance_each_bwd", b.tokens(2), b)
	},
	kernels.Surplus: func(x *issue) {
		idx := x.in(0)
		b := balance{cu: x.in(1), idx: idx, sums: x.out(0), t: idx.Shape[0], e: x.out(0).Len(),
			k: lastDim(idx), c: x.in(1).Len() - 1, add: x.accumulates(0)}
		x.balanced("surplus", rowwise(b.e, b.t*b.k), b)
	},
	kernels.ZLoss: func(x *issue) {
		b := x.balance(x.in(0), x.in(1))
		b.share, b.loss = x.work(b.t, 8), x.out(0)
		x.balanced("z_rows", b.tokens(1), b)
		x.balanced("z_loss", single(b.t), b)
	},
	kernels.ZLossBwd: func(x *issue) {
		b := x.balance(x.in(1), x.in(2))
		b.seed, b.dlogits = x.in(0), x.out(0)
		x.balanced("z_loss_bwd", b.tokens(1), b)
	},
})

// router are the fields of the struct Router.
type router struct {
	logits, bias, dw, idxIn, w, dlogits, idx *tensor.Tensor
	t, e, k                                  int
}

func (x *issue) router(name string, r router) {
	at := x.c.Attr
	g := grid{x: r.t, threads: 32, shared: 8 * (2*r.e + max(1, at.I[1]))}
	x.launch(name, g, r.logits, r.bias, r.dw, r.idxIn, r.w, r.dlogits, r.idx, r.e, r.k, at.I[0], at.I[1],
		at.I[2], at.I[3], at.F[0], at.F[1])
}

// balance are the fields of the struct Balance but those that are attributes of the call.
type balance struct {
	logits, dsums, seed, sumsIn, cu, idx *tensor.Tensor
	share, each, top                     uint64
	sums, loss, dlogits                  *tensor.Tensor
	t, e, k, c                           int
	add                                  bool
}

func (x *issue) balance(logits, cu *tensor.Tensor) balance {
	return balance{logits: logits, cu: cu, t: logits.Shape[0], e: lastDim(logits), k: x.c.Attr.I[0], c: cu.Len() - 1}
}

// tokens is a warp for each token with room for so many float64 an expert.
func (b balance) tokens(n int) grid { return grid{x: b.t, threads: 32, shared: 8 * n * b.e} }

func (x *issue) balanced(name string, g grid, b balance) {
	at := x.c.Attr
	x.launch(name, g, b.logits, b.dsums, b.seed, b.sumsIn, b.cu, b.idx, b.share, b.each, b.top, b.sums, b.loss,
		b.dlogits, b.t, b.e, b.k, at.I[1], at.I[2], b.c, b.add, at.F[0])
}

// shares computes each token's shares and its best experts.
func (x *issue) shares(b *balance) {
	b.share, b.top = x.work(b.t*b.e, 8), x.work(b.t*b.e, 4)
	x.balanced("balance_rows", b.tokens(1), *b)
}

// eachSequence computes the sums of every sequence.
func (x *issue) eachSequence(b *balance) {
	x.shares(b)
	b.each = x.work(2*b.c*b.e, 8)
	if g := rowwise(b.c, b.t); b.e > 0 {
		g.y = b.e
		x.balanced("balance_each_sums", g, *b)
	}
}
