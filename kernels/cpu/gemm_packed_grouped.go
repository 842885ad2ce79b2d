package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.PackedGrouped], table[kernels.PackedGroupedDX] = packedGrouped, packedGroupedDX
}

// packedGrouped is groupedLinear with matrices [g n] that are unpacked tile by tile, to its bits.
func packedGrouped(b *Backend, c *kernels.Call) {
	x, n, k := c.In[0], c.In[1].Shape[1], lastDim(c.In[0])
	b.packedGroups(c, n, k, tileOf(n, k, x.DType.Size(), 1), func(g, at, cols int) (rows, columns [2]int, trans bool) {
		return [2]int{g*n + at, g*n + at + cols}, [2]int{0, k}, false
	}, k)
}

// packedGroupedDX is groupedLinearDX with such matrices.
func packedGroupedDX(b *Backend, c *kernels.Call) {
	n, k := c.In[1].Shape[1], lastDim(c.Out[0])
	step := tileOf(k, n, c.In[0].DType.Size(), kernels.PackingAt(c.Attr).Group)
	b.packedGroups(c, k, n, step, func(g, at, cols int) (rows, columns [2]int, trans bool) {
		return [2]int{g * n, (g + 1) * n}, [2]int{at, at + cols}, true
	}, k)
}

// packedGroups computes rows of wide columns, each a sum over depth, with the matrix of their group, of
// which tile says what step columns of the result need; k is the columns of a packed row. Large products
// are shared by all threads, one after the other, and of others each tile is a task.
func (b *Backend) packedGroups(c *kernels.Call, wide, depth, step int, tile func(g, at, cols int) (rows,
	columns [2]int, trans bool), k int) {
	off, x, y := c.In[2].I32(), rowMajor(c.In[0]), result{v: viewOf(c.Out[0]), ld: wide}
	b.clearRows(c.Out[0], 0, int(off[0]))
	b.clearRows(c.Out[0], int(off[len(off)-1]), c.Out[0].Shape[0])
	type task struct{ g, at, m, col int }
	var tasks []task
	work := 0
	for g := range len(off) - 1 {
		at, m := int(off[g]), int(off[g+1]-off[g])
		for col := 0; col < wide && m > 0; col += step {
			cols := min(step, wide-col)
			if all := m * cols * depth; all <= wholeMax && all > 0 {
				tasks, work = append(tasks, task{g, at, m, col}), work+all+cols*depth*elementCost
				continue
			}
			mark := b.shared.mark()
			rows, columns, trans := tile(g, col, cols)
			t := rowMajor(b.unpacked(c, c.In[0].DType, rows, columns, k))
			t.trans = trans
			r := y.from(at)
			r.v = r.v.from(col)
			b.blocked(r, x.from(at), t, m, cols, depth)
			b.shared.release(mark)
		}
	}
	p, raw, row := kernels.PackingAt(c.Attr), c.In[1].Bytes(), 4*lastDim(c.In[1])
	b.shareWork(len(tasks), work, func(w *worker, i int) {
		defer w.arena.release(w.arena.mark())
		t := tasks[i]
		cols := min(step, wide-t.col)
		rows, columns, trans := tile(t.g, t.col, cols)
		width := columns[1] - columns[0]
		m := matrix{ld: width, trans: trans}
		if x.v.d == tensor.F32 {
			m.v = view{f: w.arena.f32((rows[1] - rows[0]) * width)}
		} else {
			m.v = view{h: w.arena.u16((rows[1] - rows[0]) * width), d: x.v.d}
		}
		w.unpackRows(p, m.v, width, raw[rows[0]*row:rows[1]*row], row, k, columns[0])
		r := y.from(t.at)
		r.v = r.v.from(t.col)
		w.whole(product{r, x.from(t.at), m, t.m, cols, depth})
	})
}
