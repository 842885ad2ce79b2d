//go:build cuda

package cuda

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Attention with a bias by distance, and the greatest scores of heads.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.AttentionBias: func(x *issue) {
		a := x.biased(x.in(0), x.in(1), x.in(2), 3)
		a.out, a.lseOut = x.out(0), x.out(1)
		width := x.biasWidth(a)
		if x.absent {
			return
		}
		shared := (attnOwn+attnOther)*(a.d+1) + attnOther*a.e + attnOwn*attnOther
		x.attend("attention_bias"+width, ownRows(a.t, a.h, shared), a)
	},
	kernels.AttentionBiasBwd: (*issue).biasBwd,
	kernels.AttentionPeak:    (*issue).peak,
	kernels.PeakClip: func(x *issue) {
		at, p := x.c.Attr, x.out(0)
		x.further("peak_clip", each(p.Len()), further{more: x.in(0), clip: x.in(1), p: p,
			q: x.out(1), n: p.Len(), width: max(1, p.Len()/max(1, p.Shape[0])), first: at.I[0],
			group: at.I[1], whole: at.I[2], heads: at.I[3], f0: at.F[0], f1: at.F[1]})
	},
})

// biased names the operands of attention with a bias, which lies behind the borders.
func (x *issue) biased(q, k, v *tensor.Tensor, more int) attention {
	b := x.in(more + 2)
	return attention{q: q, k: k, v: v, cuQ: x.in(more), cuK: x.in(more + 1), bias: b, far: (b.Shape[0] - 1) / 2,
		t: q.Shape[0], s: k.Shape[0], h: q.Shape[1], g: k.Shape[1], d: q.Shape[2], e: v.Shape[2]}
}

// biasWidth is the kernel for heads of this width: T5's are 64 wide.
func (x *issue) biasWidth(a attention) string {
	if width := x.attentionWidth(a.d, a.e); width == "_64" || x.absent {
		return width
	}
	return "_256"
}

// ownRows is a grid of blocks that own rows of each head, with so many numbers of shared memory.
func ownRows(rows, heads, shared int) grid {
	return grid{x: parts(rows, attnOwn), y: heads, threads: attnThreads, shared: 4 * shared}
}

// biasChunk are the queries of a block that adds up gradients of a bias, as attention_bwd.cu has it.
const biasChunk = 64

func (x *issue) biasBwd() {
	a := x.biased(x.in(1), x.in(2), x.in(3), 6)
	a.dout, a.o, a.lse, a.dq, a.dk, a.dv = x.in(0), x.in(4), x.in(5), x.out(0), x.out(1), x.out(2)
	width := x.biasWidth(a)
	if x.absent {
		return
	}
	shared := (attnOwn+attnOther)*(a.d+a.e+2) + attnOwn*attnOther
	a.delta = x.work(a.t*a.h, 4)
	a.deltaOut = a.delta
	x.attend("attention_delta", grid{x: parts(a.t*a.h, attnThreads/32), threads: attnThreads}, a)
	x.attend("attention_dq_bias"+width, ownRows(a.t, a.h, shared), a)
	x.attend("attention_dkv_bias"+width, ownRows(a.s, a.g, shared), a)
	a.dbias, a.chunks = x.out(3), parts(a.t, biasChunk)
	if n := a.bias.Len(); n > 0 {
		a.deltaOut = x.work(n*a.chunks, 4)
		if a.chunks > 0 {
			x.attend("attention_dbias", grid{x: a.bias.Shape[0], y: a.h, z: a.chunks, threads: 64}, a)
		}
		x.attendAs("attention_dbias_sum", each(n), a)
	}
}

func (x *issue) peak() {
	q, k, e := x.in(0), x.in(1), x.out(0)
	x.clear(e, 0)
	a := attention{q: q, k: k, v: k, cuQ: x.in(2), cuK: x.in(3), t: q.Shape[0], s: k.Shape[0],
		h: q.Shape[1], g: k.Shape[1], d: q.Shape[2]}
	if a.t == 0 || a.h == 0 {
		return
	}
	name, g := "attention_peak", ownRows(a.t, a.h, (attnOwn+attnOther)*(a.d+1))
	if q.DType.Size() == 2 {
		width := x.attentionWidth(a.d, 0)
		w := map[string]int{"_64": 64, "_128": 128, "_256": 256}[width]
		name, g = name+width, grid{x: parts(a.t, 64), y: a.h, threads: 128, shared: 2 * (64 + 2*32) * (w + 8)}
	}
	if x.absent {
		return
	}
	a.deltaOut = x.work(g.x*a.h, 4)
	x.attend(name, g, a)
	a.delta, a.chunks, a.lseOut = a.deltaOut, g.x, e
	x.attendAs("attention_peak_all", grid{x: a.h, threads: 32}, a)
}
