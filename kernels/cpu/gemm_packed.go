package cpu

import (
	"encoding/binary"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.PackedLinear], table[kernels.PackedLinearDX] = packedLinear, packedLinearDX
}

const (
	packedTileBytes = 8 << 20 // of a matrix that are unpacked at a time
	packedTileLeast = 256     // rows or columns of a tile, where there are so many
	packedTask      = 8       // rows that a task unpacks
)

// tileOf is how many of n rows, or columns in whole groups of unit, are unpacked at a time.
func tileOf(n, other, size, unit int) int {
	t := max(packedTileLeast, packedTileBytes/max(1, other*size))
	return min(n, roundUp(t, max(unit, 2*line)))
}

// fewBits are rows of a matrix in few bits.
type fewBits struct {
	p   kernels.Packing
	raw []byte
	row int // bytes of a row
	k   int // numbers of it
}

// read sets dst to the numbers from place p of row i on.
func (f *fewBits) read(w *worker, dst []float32, i, p int) {
	w.unpackRow(f.p, dst, f.raw[i*f.row:(i+1)*f.row], f.k, p)
}

// fewBitsOf is the call's packed matrix, of k columns, as an operand that is unpacked where it is packed into panels.
func fewBitsOf(c *kernels.Call, k int, trans bool) matrix {
	w := c.In[1]
	return matrix{v: view{d: tensor.F32}, ld: k, trans: trans,
		few: &fewBits{p: kernels.PackingAt(c.Attr), raw: w.Bytes(), row: 4 * lastDim(w), k: k}}
}

// unpacksToPanels tells whether a product with rows x in float32 packs its right operand. Rows of other
// dtypes are multiplied with numbers that are rounded to these.
func unpacksToPanels(x *tensor.Tensor) bool { return x.DType == tensor.F32 && x.Rows() > oneRow }

// packedLinear is linear with rows of w that are unpacked tile by tile.
func packedLinear(b *Backend, c *kernels.Call) {
	c = passed(c)
	x, w, y := c.In[0], c.In[1], c.Out[0]
	n, k := w.Shape[0], lastDim(x)
	if x.Rows() == 0 || n == 0 {
		return
	}
	var bias []float32
	defer b.shared.release(b.shared.mark())
	if len(c.In) > 2 && c.In[2] != nil {
		bias = b.shared.f32(n)
		b.k.read(bias, viewOf(c.In[2]), 0)
	}
	if unpacksToPanels(x) {
		b.productOf(c, result{v: viewOf(y), ld: n, bias: bias}, rowMajor(x), fewBitsOf(c, k, false), x.Rows(), n, k)
		return
	}
	b.tiled(c, product{result{v: viewOf(y), ld: n, bias: bias}, rowMajor(x), matrix{}, x.Rows(), n, k},
		tileOf(n, k, x.DType.Size(), 1), func(at, rows int) matrix {
			return rowMajor(b.unpacked(c, x.DType, [2]int{at, at + rows}, [2]int{0, k}, k))
		})
}

// tiled computes a product whose right operand is made for step columns of the result at a time, and then
// the call's epilogues, on parts of the result where tiles and their cut allow.
func (b *Backend) tiled(c *kernels.Call, p product, step int, right func(at, cols int) matrix) {
	then := b.epilogueOf(c)
	parts := then != nil && (step >= p.n || step%then.unit == 0)
	for _, cols := range []int{min(step, p.n), p.n % step} {
		if parts && cols > 0 {
			r := p.r
			r.then = then
			parts = b.parts(&r, p.x, matrix{v: view{d: p.x.v.d}}, p.m, cols, p.k)
		}
	}
	for at := 0; at < p.n; at += step {
		m := b.shared.mark()
		cols := min(step, p.n-at)
		r := p.r
		r.v = r.v.from(at)
		if r.bias != nil {
			r.bias = r.bias[at : at+cols]
		}
		if parts {
			r.then = &epilogue{then.products, then.pieces, then.unit, at}
		}
		b.gemm(r, p.x, right(at, cols), p.m, cols, p.k)
		b.shared.release(m)
	}
	if parts {
		return
	}
	for _, t := range c.Then {
		table[t.Op](b, t)
	}
}

// packedLinearDX is linearDX with columns of w that are unpacked tile by tile, so that each sum is of one product.
func packedLinearDX(b *Backend, c *kernels.Call) {
	c = passed(c)
	dy, w, dx := c.In[0], c.In[1], c.Out[0]
	n, k := w.Shape[0], lastDim(dx)
	if dy.Rows() == 0 || k == 0 {
		return
	}
	if unpacksToPanels(dy) {
		b.productOf(c, result{v: viewOf(dx), ld: k}, rowMajor(dy), fewBitsOf(c, k, true), dy.Rows(), k, n)
		return
	}
	b.tiled(c, product{result{v: viewOf(dx), ld: k}, rowMajor(dy), matrix{}, dy.Rows(), k, n},
		tileOf(k, n, dy.DType.Size(), kernels.PackingAt(c.Attr).Group), func(at, cols int) matrix {
			return columnMajor(b.unpacked(c, dy.DType, [2]int{0, n}, [2]int{at, at + cols}, k))
		})
}

// unpacked is a part of the call's packed matrix, of k columns, in scratch.
func (b *Backend) unpacked(c *kernels.Call, d tensor.DType, rows, cols [2]int, k int) *tensor.Tensor {
	p, w := kernels.PackingAt(c.Attr), c.In[1]
	n, width := rows[1]-rows[0], cols[1]-cols[0]
	var t *tensor.Tensor
	if d == tensor.F32 {
		t = tensor.Of(d, b.shared.f32(n*width), n, width)
	} else {
		t = tensor.Of(d, b.shared.u16(n*width), n, width)
	}
	to, raw, row := viewOf(t), w.Bytes(), 4*lastDim(w)
	b.shareWork(ceilDiv(n, packedTask), n*width*elementCost, func(wk *worker, i int) {
		from, end := i*packedTask, min((i+1)*packedTask, n)
		wk.unpackRows(p, to.from(from*width), width, raw[(rows[0]+from)*row:(rows[0]+end)*row], row, k, cols[0])
	})
	return t
}

// unpackRows sets rows of so many columns, from one on, to the numbers of those of raw, which take row bytes each.
func (w *worker) unpackRows(p kernels.Packing, to view, width int, raw []byte, row, k, col int) {
	defer w.arena.release(w.arena.mark())
	buf := w.arena.f32(width)
	for r := 0; r*row < len(raw); r++ {
		out := buf
		if to.f != nil {
			out = to.f[r*width : (r+1)*width]
		}
		w.unpackRow(p, out, raw[r*row:(r+1)*row], k, col)
		if to.f == nil {
			w.k.write(to, r*width, out)
		}
	}
}

// unpackRow is Packing.Decode, with a group's numbers in a table for codes of four bits.
func (w *worker) unpackRow(p kernels.Packing, dst []float32, row []byte, k, from int) {
	f := &kernels.PackedForms[p.Form]
	size := p.Group
	if size == 0 {
		size = k
	}
	if len(dst) == 0 {
		return
	}
	if size%2 != 0 && size < k {
		p.Decode(dst, row, k, from)
		return
	}
	if from%2 != 0 { // the first code is the second of its byte
		p.Decode(dst[:1], row, k, from)
		dst, from = dst[1:], from+1
	}
	words, _ := p.Words(k)
	groups := p.Groups(k)
	defer w.arena.release(w.arena.mark())
	t := (*[16]float32)(w.arena.f32(16))
	for c := 0; c < len(dst); {
		g := (from + c) / size
		scale := math.Float32frombits(binary.LittleEndian.Uint32(row[4*(words+g):]))
		zero := float32(0)
		if f.Zeros {
			zero = float32(row[4*(words+groups)+g])
		}
		part := dst[c:min((g+1)*size-from, len(dst))]
		at := from + c
		c += len(part)
		if f.Bits == 8 {
			codes := row[at : at+len(part)]
			for i, code := range codes {
				part[i] = (f.Table[code] - zero) * scale
			}
			continue
		}
		if f.Zeros {
			for i, v := range f.Table[:16] {
				t[i] = (v - zero) * scale
			}
		} else {
			w.k.scale(t[:], f.Table[:16], scale)
		}
		w.k.nibbles(part, row[at/2:], t)
	}
}

// goNibbles sets y to the numbers of codes of four bits, the first of two in the low half of a byte.
func goNibbles(y []float32, codes []byte, table *[16]float32) {
	codes = codes[:(len(y)+1)/2]
	i := 0
	for ; i+1 < len(y); i += 2 {
		b := codes[i>>1]
		y[i], y[i+1] = table[b&15], table[b>>4]
	}
	if i < len(y) {
		y[i] = table[codes[i>>1]&15]
	}
}
