//go:build cuda

package cuda

import (
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Products of matrices, and attention.
var _ = register(map[kernels.Op]func(x *issue){
	kernels.Linear: func(x *issue) {
		if x.absent = kernels.Parts(x.c) > 1; x.absent {
			return
		}
		a, w, y := x.in(0), x.in(1), x.out(0)
		n, k := w.Shape[0], w.Shape[1]
		x.product(a.DType, product{a: a, b: w, bias: x.in(2), y: y, m: a.Rows(), n: n, k: k, aRow: k,
			aCol: 1, bRow: k, bCol: 1, yRow: n, wide: wide(y, a)})
	},
	kernels.LinearDX: func(x *issue) {
		dy, w, dx := x.in(0), x.in(1), x.out(0)
		n, k := w.Shape[0], w.Shape[1]
		x.product(dy.DType, product{a: dy, b: w, y: dx, m: dy.Rows(), n: k, k: n, aRow: n, aCol: 1,
			bRow: 1, bCol: k, yRow: k})
	},
	kernels.LinearDW: func(x *issue) {
		dy, a, dw := x.in(0), x.in(1), x.out(0)
		n, k := lastDim(dy), lastDim(a)
		p := product{a: dy, b: a, y: dw, m: n, n: k, k: a.Rows(), aRow: 1, aCol: n, bRow: 1, bCol: k, yRow: k,
			wide: true, add: x.accumulates(0)}
		if !x.splitTerms(dy.DType, p) {
			x.product(dy.DType, p)
		}
	},
	kernels.GroupedLinear: func(x *issue) {
		if x.absent = kernels.Parts(x.c) > 1; x.absent {
			return
		}
		a, w, y := x.in(0), x.in(1), x.out(0)
		g, n, k := w.Shape[0], w.Shape[1], w.Shape[2]
		if x.in(2) == nil {
			x.heads(g, k, n*k, n, product{a: a, b: w, y: y, m: a.Shape[0], n: n, k: k, aRow: g * k, aCol: 1,
				bRow: k, bCol: 1, yRow: g * n, wide: wide(y, a)})
			return
		}
		x.grouped(y, n, product{a: a, b: w, y: y, m: a.Shape[0], n: n, k: k, aRow: k, aCol: 1, bRow: k,
			bCol: 1, yRow: n, groups: g, bGroup: n * k, wide: wide(y, a)})
	},
	kernels.GroupedLinearDX: func(x *issue) {
		dy, w, dx := x.in(0), x.in(1), x.out(0)
		g, n, k := w.Shape[0], w.Shape[1], w.Shape[2]
		if x.in(2) == nil {
			x.heads(g, n, n*k, k, product{a: dy, b: w, y: dx, m: dy.Shape[0], n: k, k: n, aRow: g * n, aCol: 1, bRow: 1,
				bCol: k, yRow: g * k})
			return
		}
		x.grouped(dx, k, product{a: dy, b: w, y: dx, m: dy.Shape[0], n: k, k: n, aRow: n, aCol: 1,
			bRow: 1, bCol: k, yRow: k, groups: g, bGroup: n * k})
	},
	kernels.GroupedLinearDW: func(x *issue) {
		dy, a, dw := x.in(0), x.in(1), x.out(0)
		g, n, k := dw.Shape[0], dw.Shape[1], dw.Shape[2]
		if x.in(2) == nil {
			x.heads(g, n, k, n*k, product{a: dy, b: a, y: dw, m: n, n: k, k: dy.Shape[0], aRow: 1,
				aCol: g * n, bRow: 1, bCol: g * k, yRow: k, wide: true, add: x.accumulates(0)})
			return
		}
		x.terms(dy.DType, product{a: dy, b: a, y: dw, off: x.in(2), m: n, n: k, aRow: 1, aCol: n, bRow: 1,
			bCol: k, yRow: k, groups: g, yGroup: n * k, wide: true, add: x.accumulates(0)})
	},
	kernels.Attention: func(x *issue) {
		x.attention(x.attentionOf(x.in(0), x.in(1), x.in(2), 3))
	},
	kernels.AttentionBwd: func(x *issue) {
		x.attentionBwd(x.attentionOf(x.in(1), x.in(2), x.in(3), 6))
	},
	kernels.AttentionPart: func(x *issue) {
		x.attention(x.partOf(x.in(0), x.in(1), x.in(2), 3))
	},
	kernels.AttentionPartBwd: func(x *issue) {
		x.attentionBwd(x.partOf(x.in(1), x.in(2), x.in(3), 6))
	},
	kernels.AttentionMerge: func(x *issue) {
		a, b, o := x.in(0), x.in(2), x.out(0)
		if lastDim(o) == 0 { // no element has a thread
			x.absent = true
			return
		}
		x.launch("attention_merge", each(o.Len()), a, b, x.in(1), x.in(3), o, x.out(1), o.Rows(), lastDim(o),
			int(a.DType), int(b.DType), int(o.DType))
	},
	kernels.CutParts: func(x *issue) {
		at, n := x.c.Attr.I, x.in(0).Len()
		x.launch("cut_parts", each(n), x.in(0), x.in(1), x.out(0), x.out(1), x.out(2), n-1, at[0],
			at[0]+at[1], at[2], at[2]+at[3])
	},
	kernels.JoinHeads: func(x *issue) {
		y, r := x.out(0), lastDim(x.in(0))
		x.launch(typed("join_heads", y), each(y.Len()), x.in(0), x.in(1), nil, y, nil, nil, y.Shape[0],
			y.Shape[1], r, lastDim(y)-r)
	},
	kernels.JoinHeadsBwd: func(x *issue) {
		dy, r := x.in(0), lastDim(x.out(0))
		t, h, n := dy.Shape[0], dy.Shape[1], lastDim(dy)-r
		x.launch(typed("join_heads_bwd", dy), each(t*(r+h*n)), nil, nil, dy, nil, x.out(0), x.out(1), t, h, r, n)
	},
})

// tiles is a grid for the m rows and n columns of a product with operands of a dtype, as products.cu has it:
// a block has 64 of each, or 128 with 16-bit operands, and then three stages of 32 terms in shared memory.
func tiles(d tensor.DType, m, n int) grid {
	if d.Size() != 2 {
		return grid{x: parts(m, 64), y: parts(n, 64), threads: 256}
	}
	const stages = 3 * 2 * 128 * (32 + 8) * 2
	return grid{x: parts(m, 128), y: parts(n, 128), threads: 256, shared: stages}
}

// wide tells whether a result is float32 where its operands are not.
func wide(y, a *tensor.Tensor) bool { return y.DType == tensor.F32 && a.DType != tensor.F32 }

// product are the fields of the struct Product. Operands are tensors or addresses.
type product struct {
	a, b, bias, y, off                    any
	m, n, k, aRow, aCol, bRow, bCol, yRow int
	groups, bGroup, yGroup                int
	wide, add                             bool
}

func (p product) fields() []any {
	return []any{p.a, p.b, orNil(p.bias), p.y, p.off, p.m, p.n, p.k, p.aRow, p.aCol, p.bRow, p.bCol,
		p.yRow, p.groups, p.bGroup, p.yGroup, p.wide, p.add}
}

// orNil makes an absent tensor an absent argument.
func orNil(a any) any {
	if t, ok := a.(*tensor.Tensor); ok && t == nil {
		return nil
	}
	return a
}

// hopperColumns are the fewest columns of a product that Hopper's kernels take, whose tiles have 256 of them. What
// decides is the shape of weights and not how many rows there are, so that the bits of a row do not depend on others.
var hopperColumns = 128

// hopper is the kernel of the device's own tensor cores for a product, and its grid; "" where they do not have one.
func (x *issue) hopper(d tensor.DType, p product, grouped string) (string, grid) {
	if x.d.info.Major != 9 || d.Size() != 2 || p.n < hopperColumns {
		return "", grid{}
	}
	name := "product_wg" + grouped
	switch {
	case p.aCol == 1 && p.bCol == 1 && grouped != "_terms":
	case p.aCol == 1 && p.bRow == 1 && grouped != "_terms":
		name += "_dx"
	case p.aRow == 1 && p.bRow == 1 && grouped == "":
		name += "_dw"
	case p.aRow == 1 && p.bRow == 1 && grouped == "_terms":
	default:
		return "", grid{}
	}
	const stages = 4*(128+256)*64*2 + 1024
	return name + "_" + d.String(), grid{x: parts(p.m, 128), y: parts(p.n, 256), threads: 256, shared: stages}
}

// product launches y = a·bᵀ for operands of a dtype.
func (x *issue) product(d tensor.DType, p product) {
	if p.n == 0 || x.byLibrary(d, p) {
		return
	}
	if name, g := x.hopper(d, p, ""); name != "" {
		x.launch(name, g, p.fields()...)
		return
	}
	x.launch("product_"+d.String(), tiles(d, p.m, p.n), p.fields()...)
}

// terms launches products of groups of terms, each with a result of its own.
func (x *issue) terms(d tensor.DType, p product) {
	if p.n == 0 {
		return
	}
	name, at := x.hopper(d, p, "_terms")
	if name == "" {
		name, at = "product_terms_"+d.String(), tiles(d, p.m, p.n)
	}
	at.z = p.groups
	x.launch(name, at, p.fields()...)
}

// Gradients of weights that have fewer results than keep a device busy are added up in chunks of terms, side
// by side, and then in order: of a weight with fewer blocks of 128 by 128 numbers, or of 64 by 64 in
// float32, and two chunks or more. Shapes alone decide.
var (
	splitChunk  = 2048
	splitBlocks = 64
)

// splitTerms launches the gradient of a weight in chunks, and reports whether it has.
func (x *issue) splitTerms(d tensor.DType, p product) bool {
	side := 64
	if d.Size() == 2 {
		side = 128
	}
	if p.n == 0 || p.k < 2*splitChunk || parts(p.m, side)*parts(p.n, side) >= splitBlocks {
		return false
	}
	if d.Size() == 2 && x.byLibrary(d, p) {
		return true
	}
	chunks := parts(p.k, splitChunk)
	off, part := x.work(chunks+1, 4), x.work(chunks*p.m*p.n, 4)
	x.launch("product_chunks", each(chunks+1), product{y: off, m: splitChunk, k: p.k, groups: chunks}.fields()...)
	p.y, p.off, p.groups, p.yGroup, p.add = part, off, chunks, p.m*p.n, false
	x.terms(d, p)
	x.join(part, chunks, p.m*p.n)
	return true
}

// grouped launches a product of rows in groups; rows of no group become zeros.
func (x *issue) grouped(y *tensor.Tensor, width int, p product) {
	off := x.in(2)
	p.off = off
	if p.n == 0 {
		return
	}
	x.launch("outside", each(y.Len()), off, y, p.groups, p.m, width*y.DType.Size())
	name, g := x.hopper(x.in(0).DType, p, "_rows")
	if name == "" {
		name, g = typed("product_rows", x.in(0)), tiles(x.in(0).DType, p.m, p.n)
	}
	g.x += p.groups
	if p.m > 0 && p.groups > 0 {
		x.launch(name, g, p.fields()...)
	}
}

// heads launches a product for each of some heads, which lie so many elements apart in a, b and y.
func (x *issue) heads(n, a, b, y int, p product) {
	if p.n == 0 {
		return
	}
	d := x.in(0).DType
	for i := range n {
		q := p
		q.a, q.b = x.address(p.a)+uint64(i*a*d.Size()), x.address(p.b)+uint64(i*b*d.Size())
		q.y = x.address(p.y) + uint64(i*y*x.out(0).DType.Size())
		x.product(d, q)
	}
}

// Rows of a block of attention: its own, and those of the other side that it has at once; as attention.cuh has them.
const (
	attnOwn     = 16
	attnOther   = 32
	attnThreads = 128
)

// attention are the fields of the struct Attention.
type attention struct {
	q, k, v, o, dout, lse                     *tensor.Tensor
	delta                                     uint64
	cuQ, cuK, blocks, posQ, posK, near, place *tensor.Tensor
	out, dq, dk, dv, lseOut                   *tensor.Tensor
	deltaOut                                  uint64
	t, s, h, g, d, e                          int

	bias, dbias *tensor.Tensor
	far, chunks int
}

// attentionOf names the operands that both directions have; more are those from cu_q on.
func (x *issue) attentionOf(q, k, v *tensor.Tensor, more int) attention {
	return attention{q: q, k: k, v: v, cuQ: x.in(more), cuK: x.in(more + 1), blocks: x.in(more + 2),
		posQ: x.in(more + 3), posK: x.in(more + 4), near: x.in(more + 5),
		t: q.Shape[0], s: k.Shape[0], h: q.Shape[1], g: k.Shape[1], d: q.Shape[2], e: v.Shape[2]}
}

// partOf is attentionOf for a part of the keys: the operand behind the borders is a place and no mask.
func (x *issue) partOf(q, k, v *tensor.Tensor, more int) attention {
	a := x.attentionOf(q, k, v, more)
	a.place, a.blocks = a.blocks, nil
	return a
}

// attend launches a kernel of attention.
func (x *issue) attend(name string, g grid, a attention) {
	x.attendAs(typed(name, a.q), g, a)
}

// attendAs is attend by the whole name.
func (x *issue) attendAs(name string, g grid, a attention) {
	at, words, code := x.c.Attr, 0, 0
	if a.blocks != nil {
		words = a.blocks.Shape[1]
	}
	if a.bias != nil {
		code = int(a.bias.DType)
	}
	x.launch(name, g, a.q, a.k, a.v, a.o, a.dout, a.lse, a.delta, a.cuQ, a.cuK, a.blocks, a.posQ, a.posK, a.near,
		a.place, a.out, a.dq, a.dk, a.dv, a.lseOut, a.deltaOut, a.t, a.s, a.h, a.g, a.d, a.e, a.cuQ.Len()-1,
		at.I[0] == 1, at.I[1], at.I[2], words, at.F[0], at.F[1], a.bias, a.dbias, code, a.far, a.chunks)
}

// attentionWidth is the kernel for heads of this width; more than 256 it does not have.
func (x *issue) attentionWidth(d, e int) string {
	switch w := max(d, e); {
	case w <= 64:
		return "_64"
	case w <= 128:
		return "_128"
	case w <= 256:
		return "_256"
	}
	x.absent = true
	return ""
}

func (x *issue) attention(a attention) {
	a.out, a.lseOut = x.out(0), x.out(1)
	if x.attendByLibrary(a, false, map[int64]*tensor.Tensor{idQ: a.q, idK: a.k, idV: a.v, idO: a.out,
		idStats: a.lseOut, idBordersQ: a.cuQ, idBordersK: a.cuK}, idO, idStats) {
		return
	}
	width := x.attentionWidth(a.d, a.e)
	switch {
	case x.absent:
	case a.q.DType.Size() == 2:
		x.attendTensorCores("attention_tc", width, a)
	default:
		shared := (attnOwn+attnOther)*(a.d+1) + attnOther*a.e + attnOwn*attnOther
		x.attend("attention"+width, ownRows(a.t, a.h, shared), a)
	}
}

// tensorTile is how a kernel of attention by tensor cores goes over its operands: sixteens of own rows of
// each of four warps, and rows of a tile; as attention_tc.cu has it.
type tensorTile struct{ sixteens, tile int }

// tensorTiles are the kernels for scores that are products times a positive number, of all keys in a range.
// Those for other scores and masks have one sixteen and tiles of 32.
var tensorTiles = map[string]tensorTile{
	"attention_tc_64": {2, 32}, "attention_tc_128": {2, 48}, "attention_tc_256": {1, 32},
	"attention_dq_tc_64": {2, 64}, "attention_dq_tc_128": {2, 16}, "attention_dq_tc_256": {1, 32},
	"attention_dkv_tc_64": {1, 64}, "attention_dkv_tc_128": {1, 48},
	"attention_dk_tc_256": {1, 32}, "attention_dv_tc_256": {1, 32},
}

// lean are the tiles of kernels for heads of more than 128 on devices whose blocks have too little shared memory for
// those above: masks or not, and in the backward a tile at a time.
var lean = tensorTile{1, 16}

// attendTensorCores launches one of these kernels. A block holds own rows of one operand, in the backward of
// two, and two tiles of two operands on their way; where own rows are keys also what each query has once.
func (x *issue) attendTensorCores(name, width string, a attention) {
	name += width
	tile := tensorTiles[name]
	if at := x.c.Attr; a.blocks != nil || a.near != nil || at.F[1] != 0 || at.F[0] <= 0 {
		name, tile = name+"_masked", tensorTile{1, 32}
	}
	g := tensorGrid(name, width, tile, a)
	if width == "_256" && !x.fits(typed(name, a.q), g.shared) {
		name = strings.Replace(name, width, width+"_lean", 1)
		g = tensorGrid(name, width, lean, a)
	}
	x.attend(name, g, a)
}

// tensorGrid is the grid of one of these kernels.
func tensorGrid(name, width string, tile tensorTile, a attention) grid {
	w := map[string]int{"_64": 64, "_128": 128, "_256": 256}[width]
	own, held, tiles, once := 64*tile.sixteens, 64*tile.sixteens, 4, 0
	g := grid{x: parts(a.t, own), y: a.h, threads: 128}
	if a.dout != nil {
		held *= 2
		if tile == lean {
			tiles = 2
		}
		if !strings.HasPrefix(name, "attention_dq") {
			g.x, g.y, once = parts(a.s, own), a.g, tiles*tile.tile
		}
	}
	g.shared = 2*(held+tiles*tile.tile)*(w+8) + 4*once
	return g
}

func (x *issue) attentionBwd(a attention) {
	a.dout, a.o, a.lse, a.dq, a.dk, a.dv = x.in(0), x.in(4), x.in(5), x.out(0), x.out(1), x.out(2)
	if x.attendByLibrary(a, true, map[int64]*tensor.Tensor{idQ: a.q, idK: a.k, idV: a.v, idO: a.o, idStats: a.lse,
		idDO: a.dout, idDQ: a.dq, idDK: a.dk, idDV: a.dv, idBordersQ: a.cuQ, idBordersK: a.cuK}, idDQ, idDK, idDV) {
		return
	}
	width := x.attentionWidth(a.d, a.e)
	if x.absent {
		return
	}
	of := grid{x: parts(a.t*a.h, attnThreads/32), threads: attnThreads}
	if a.q.DType.Size() == 2 {
		// numbers by heads and queries, four side by side, and what the last tile reads behind them
		a.delta = x.work(2*a.h*((a.t+3)/4*4)+64, 4)
		a.deltaOut = a.delta
		lanes := 8 // of a row and head, which have eight elements each
		for 8*lanes < a.e {
			lanes *= 2
		}
		of.x = parts(a.t*a.h*lanes, attnThreads)
		x.attend("attention_delta_tc", of, a)
		x.attendTensorCores("attention_dq_tc", width, a)
		if width != "_256" {
			x.attendTensorCores("attention_dkv_tc", width, a)
			return
		}
		x.attendTensorCores("attention_dk_tc", width, a)
		x.attendTensorCores("attention_dv_tc", width, a)
		return
	}
	a.delta = x.work(a.t*a.h, 4)
	a.deltaOut = a.delta
	x.attend("attention_delta", of, a)
	shared := (attnOwn+attnOther)*(a.d+a.e+2) + attnOwn*attnOther
	x.attend("attention_dq"+width, ownRows(a.t, a.h, shared), a)
	x.attend("attention_dkv"+width, ownRows(a.s, a.g, shared), a)
}

// ceilOf is ⌈f·n/e⌉: the most rows of an expert.
func ceilOf(f float64, n, e int) int { return int(math.Ceil(f * float64(n) / float64(e))) }
