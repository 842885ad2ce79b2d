//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Sparse attention and its indexer.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.VisibleKeys: func(x *issue) {
		see := x.out(0)
		a := attention{cuQ: x.in(0), cuK: x.in(1), out: see, lseOut: x.out(1), t: see.Shape[0]}
		x.launch("visible_keys", each(a.t), nil, nil, nil, nil, nil, nil, nil, a.cuQ, a.cuK, nil, nil, nil, nil, nil,
			see, nil, nil, nil, a.lseOut, nil, a.t, 0, 0, 0, 0, 0, a.cuQ.Len()-1, true, 0, 0, 0, 0.0, 0.0, nil, nil,
			0, 0, 0)
	},
	kernels.AttentionSparse: func(x *issue) {
		a := x.picks(x.in(0), x.in(1), x.in(2), x.in(3))
		a.out, a.lseOut = x.out(0), x.out(1)
		x.pick(typed("attention_sparse"+x.pickedWidth(a), a.q), pickers(a,
			(attnOwn+attnOther)*(a.d+1)+attnOther*a.e+attnOwn*attnOther), a)
	},
	kernels.AttentionSparseBwd: (*issue).sparseBwd,
	kernels.IndexTopK:          (*issue).indexTopK,
	kernels.IndexLoss: func(x *issue) {
		a := x.indexer(x.c.In)
		if x.absent {
			return
		}
		a.part = x.work(a.t, 8)
		x.indexChunks(&a, func() { x.index(typed("index_shares", a.iq), rowwise(a.count, a.n), a) })
		a.out, a.count = x.q.Addr(x.out(0)), a.t
		x.index("index_loss", single(256), a)
	},
	kernels.IndexLossBwd: (*issue).indexBwd,
})

// sparse are the fields of the struct Sparse.
type sparse struct {
	q, k, v, o, dout, idx, lse *tensor.Tensor
	delta, sorted              uint64
	out, dq, dk, dv, lseOut    *tensor.Tensor
	t, s, h, g, d, e, n        int
}

func (x *issue) picks(q, k, v, idx *tensor.Tensor) sparse {
	return sparse{q: q, k: k, v: v, idx: idx, t: q.Shape[0], s: k.Shape[0], h: q.Shape[1], g: k.Shape[1],
		d: q.Shape[2], e: v.Shape[2], n: idx.Shape[1]}
}

func (x *issue) pick(name string, g grid, a sparse) {
	if g.y == 0 {
		return
	}
	x.launch(name, g, a.q, a.k, a.v, a.o, a.dout, a.idx, a.lse, a.delta, a.sorted, a.out, a.dq, a.dk, a.dv,
		a.lseOut, a.delta, a.t, a.s, a.h, a.g, a.d, a.e, a.n, x.c.Attr.F[0])
}

// pickers is a grid of blocks that have up to sixteen heads of a query, with so many numbers of shared memory.
func pickers(a sparse, shared int) grid {
	return grid{x: a.t, y: a.g, z: parts(a.h/max(a.g, 1), attnOwn), threads: attnThreads, shared: 4 * shared}
}

// pickedWidth is the kernel for heads of this width: latents are up to 576 wide.
func (x *issue) pickedWidth(a sparse) string {
	switch w := max(a.d, a.e); {
	case w <= 128:
		return "_128"
	case w <= 256:
		return "_256"
	case w <= 576:
		return "_576"
	}
	x.absent = true
	return ""
}

func (x *issue) sparseBwd() {
	a := x.picks(x.in(1), x.in(2), x.in(3), x.in(6))
	a.dout, a.o, a.lse, a.dq, a.dk, a.dv = x.in(0), x.in(4), x.in(5), x.out(0), x.out(1), x.out(2)
	width := x.pickedWidth(a)
	rows := (attnOwn + attnOther) * (a.d + a.e + 2)
	queries := pickers(a, rows+attnOwn*attnOther)
	keys := grid{x: a.s, y: a.g, threads: attnThreads, shared: 4 * ((attnOther+1)*(a.d+a.e+2) + 2*attnOther)}
	if x.absent {
		return
	}
	a.delta = x.work(a.t*a.h, 4)
	a.sorted = x.sorted(a.idx, a.s, 0)
	x.pick(typed("sparse_delta", a.q), grid{x: parts(a.t*a.h, attnThreads/32), y: 1, threads: attnThreads}, a)
	x.pick(typed("sparse_dq"+width, a.q), queries, a)
	x.pick(typed("sparse_dkv", a.q), keys, a)
}

// indexer are the fields of the struct Indexer.
type indexer struct {
	iq, ik, iw, q, k, see, idx, mean, dloss *tensor.Tensor
	z, sorted, log, share, score, part, out uint64
	diq, diw                                *tensor.Tensor
	sum                                     uint64
	first, count, t, s, m, r, h, g, d, n    int
	again                                   bool
}

// indexBytes is what a chunk of queries may take.
const indexBytes = 256 << 20

// indexWidth is how wide a key of an indexer is at most.
const indexWidth = 512

// indexer names the operands that the operations of the indexer share.
func (x *issue) indexer(in []*tensor.Tensor) indexer {
	a := indexer{iq: in[0], ik: in[1], iw: in[2], q: in[3], k: in[4], see: in[5], mean: in[6], idx: optional(in, 7),
		t: in[0].Shape[0], s: in[1].Shape[0], m: in[0].Shape[1], r: in[0].Shape[2], h: in[3].Shape[1],
		g: in[4].Shape[1], d: in[3].Shape[2]}
	a.n = a.s
	if a.idx != nil {
		a.n = a.idx.Shape[1]
	}
	if a.r > indexWidth {
		x.absent = true
	}
	return a
}

func (x *issue) index(name string, g grid, a indexer) {
	x.launch(name, g, a.iq, a.ik, a.iw, a.q, a.k, a.see, a.idx, a.mean, a.dloss, a.z, a.sorted, a.log, a.share, a.score,
		a.part, a.out, a.diq, a.diw, a.sum, a.first, a.count, a.s, a.m, a.r, a.h, a.g, a.d, a.n, a.idx != nil, a.again,
		x.c.Attr.F[0], x.c.Attr.F[1])
}

// indexChunks calls f for chunks of queries, with room for three numbers of each query and key.
func (x *issue) indexChunks(a *indexer, f func()) {
	step := max(1, min(a.t, indexBytes/(12*max(a.n, 1))))
	a.log, a.share, a.score = x.work(step*a.n, 4), x.work(step*a.n, 4), x.work(step*a.n, 4)
	for a.first = 0; a.first < a.t; a.first += step {
		a.count = min(step, a.t-a.first)
		f()
	}
	a.first = 0
}

func (x *issue) indexBwd() {
	a := x.indexer(x.c.In[1:])
	if x.absent {
		return
	}
	dik := x.out(1)
	a.dloss, a.diq, a.diw = x.in(0), x.out(0), x.out(2)
	a.sum = x.work(dik.Len(), 4)
	if a.t == 0 {
		x.clear(dik, 0)
		return
	}
	x.indexChunks(&a, func() {
		a.again = true
		x.index(typed("index_shares", a.iq), rowwise(a.count, a.n), a)
		if a.m > 0 {
			x.index(typed("index_dq", a.iq), grid{x: a.count, y: a.m, threads: 128}, a)
		}
		if a.idx != nil {
			a.sorted = x.sortedRows(a.idx, a.first, a.count, a.s)
		}
		a.again = a.first > 0 // dik has the gradients of the chunks before
		x.index(typed("index_dk", a.iq), grid{x: a.s, threads: 128, shared: 4 * attnOther * (a.r + 1)}, a)
	})
	x.rounded(dik, a.sum)
}

// rounded stores float32 numbers at an address in the dtype of a tensor.
func (x *issue) rounded(y *tensor.Tensor, from uint64) {
	if y.DType == tensor.F32 {
		if x.err == nil && y.Len() > 0 {
			x.err = x.d.Copy(x.q.Addr(y), from, y.Size())
		}
		return
	}
	x.launch(typed("narrow_all", y), eachEight(y.Len()), from, y, y.Len(), 0, 0, 0.0)
}

// indexTopK computes scores of a chunk of queries as products, and chooses by them.
func (x *issue) indexTopK() {
	q, k, out := x.in(0), x.in(1), x.out(0)
	a := indexer{iq: q, ik: k, iw: x.in(2), see: x.in(3), out: x.q.Addr(out), t: q.Shape[0], s: k.Shape[0],
		m: q.Shape[1], r: q.Shape[2], n: out.Shape[1]}
	if a.t == 0 {
		return
	}
	row := max(1, a.m) * max(1, a.s)
	step := max(1, min(a.t, indexBytes/(4*row)))
	a.z, a.score = x.work(step*row, 4), x.work(step*max(1, a.s), 4)
	for a.first = 0; a.first < a.t; a.first += step {
		a.count = min(step, a.t-a.first)
		if a.m > 0 {
			x.product(q.DType, product{a: x.q.Addr(q) + uint64(a.first*a.m*a.r*q.DType.Size()), b: k, y: a.z,
				m: a.count * a.m, n: a.s, k: a.r, aRow: a.r, aCol: 1, bRow: a.r, bCol: 1, yRow: a.s, wide: true})
		}
		x.index("index_topk", grid{x: a.count, threads: 256}, a)
	}
}
