package cpu

import (
	"runtime"
	"unsafe"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Products of bfloat16 on AMX, or on vectors of pairs (AVX512_BF16): blocks of 32 by 32 in four tiles,
// 32 elements of the sum at a time. Both operands are packed in panels of 32 rows or columns, each as two
// halves of 16 and those as tiles of 1 KiB along the sum; the left one is read in place where its layout allows.
// A task keeps its block of the result, in float32 tiles, in second-level cache while it runs along the sum.
const (
	amxSide  = 32
	tileHalf = 512 // elements of a tile
	amxRows  = 384 // rows and columns of a task's block of the result
	amxCols  = 512
	// part of the sum that is done at a time; bits do not depend on it, since all sums run in order
	amxSum    = 512
	amxPanels = 8 // panels that one task packs
	// inPlaceMax is the longest row in bytes that is read in place: longer strides waste the first-level cache.
	inPlaceMax = 6 << 10
	// pastCaches is the size in bytes from which on results are written past the caches.
	pastCaches = 4 << 20
)

// amxArgs are the arguments of amxBlocks; strides are in bytes. The assembly knows the order.
type amxArgs struct {
	cfg                          *tileConfig
	n, ks                        int // blocks, steps of 32 along the sum
	a                            uintptr
	aStride, aHalf, aStep, aNext int // between rows, to the 16 lower rows, along the sum, to the next block
	b                            uintptr
	bHalf                        int
	c                            uintptr // n blocks of float32 tiles, cNext apart; acc = 1 to add to them
	cNext, acc                   int
	mode                         int // what to do with a finished block, one of the constants below
	dst                          uintptr
	ldd                          int
	next                         uintptr // the panel of b that comes next
}

const (
	amxHold = iota // leave it in tiles
	amxBF16        // round to rows of bf16
	amxPast        // the same, past the caches; rows are aligned to a cache line
	amxF32         // rows of float32
	amxAdd         // added to rows of float32
)

// tileConfig is the operand of LDTILECFG: eight tiles of 16 rows by 64 bytes.
type tileConfig struct {
	palette uint8
	_       [15]uint8 // the row to begin with, and reserved bytes
	bytes   [16]uint16
	rows    [16]uint8
}

var allTiles = func() *tileConfig {
	c := &tileConfig{palette: 1}
	for i := range 8 {
		c.bytes[i], c.rows[i] = 64, 16
	}
	return c
}()

func address[T any](s []T) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// amxPlan is one product on tiles.
type amxPlan struct {
	r       result
	m, n, k int
	ks      int // steps along the sum
	a       matrix
	pa, pb  []uint16 // packed panels; pa is nil if a is read in place
}

// panel is the elements of a packed panel.
func (g *amxPlan) panel() int { return 2 * halfLen(g.ks) }

// halfLen is the elements of half a packed panel of ks tiles. Lengths of tiles alone are powers of two for
// most models: the panels that are written in turns would then lie in one set of each cache.
func halfLen(ks int) int { return ks*tileHalf + amxSide }

// amxGemm is gemm for two operands of bfloat16.
func (b *Backend) amxGemm(r result, x, y matrix, m, n, k int) {
	defer b.shared.release(b.shared.mark())
	g := &amxPlan{r: r, m: m, n: n, k: k, ks: ceilDiv(k, amxSide), a: x}
	nb, mb := ceilDiv(n, amxSide), ceilDiv(m, amxSide)
	g.pb = b.shared.u16(nb * g.panel())
	if g.inPlace() {
		mb = 0
	} else {
		g.pa = b.shared.u16(mb * g.panel())
	}
	ta := ceilDiv(mb, amxPanels)
	b.shareWork(ta+ceilDiv(nb, amxPanels), (m+n)*k*4, func(w *worker, i int) {
		if p := i * amxPanels; i < ta {
			w.amxLeft(g.pa[p*g.panel():], min(amxPanels, mb-p), x, p*amxSide, m, k)
		} else {
			p = (i - ta) * amxPanels
			w.amxRight(g.pb[p*g.panel():], min(amxPanels, nb-p), y, p*amxSide, n, k)
		}
	})
	rows, cols := b.amxGrid(m, n, g.r.then != nil)
	b.shareWork(ceilDiv(m, rows)*ceilDiv(n, cols), m*n*k/8, func(w *worker, i int) {
		i0, j0 := i/ceilDiv(n, cols)*rows, i%ceilDiv(n, cols)*cols
		w.amxBlock(g, i0, min(i0+rows, m), j0, min(j0+cols, n))
	})
	runtime.KeepAlive(g)
}

// amxWhole is amxGemm on this worker alone, to the same bits.
func (w *worker) amxWhole(p product) {
	g := &amxPlan{r: p.r, m: p.m, n: p.n, k: p.k, ks: ceilDiv(p.k, amxSide), a: p.x}
	nb, mb := ceilDiv(p.n, amxSide), ceilDiv(p.m, amxSide)
	g.pb = w.arena.u16(nb * g.panel())
	w.amxRight(g.pb, nb, p.y, 0, p.n, p.k)
	if !g.inPlace() {
		g.pa = w.arena.u16(mb * g.panel())
		w.amxLeft(g.pa, mb, p.x, 0, p.m, p.k)
	}
	for i := 0; i < p.m; i += amxRows {
		for j := 0; j < p.n; j += amxCols {
			mark := w.arena.mark()
			w.amxBlock(g, i, min(i+amxRows, p.m), j, min(j+amxCols, p.n))
			w.arena.release(mark)
		}
	}
	runtime.KeepAlive(g)
}

// amxGrid cuts the result into tasks of like size, at least a few for each thread and as many for one as for another.
func (b *Backend) amxGrid(m, n int, then bool) (rows, cols int) {
	t := len(b.team.workers)
	if then {
		cols = partCols(n, amxSide)
		return b.even(m, min(partSize/cols, roundUp(ceilDiv(m, 3*t), amxSide)), ceilDiv(n, cols)), cols
	}
	rows, cols = min(amxRows, roundUp(m, amxSide)), min(amxCols, roundUp(n, amxSide))
	for t > 1 && ceilDiv(m, rows)*ceilDiv(n, cols) < 3*t && (rows > 64 || cols > 64) {
		if rows >= cols {
			rows = max(64, roundUp(rows/2, amxSide))
		} else {
			cols = max(64, roundUp(cols/2, amxSide))
		}
	}
	return b.even(m, rows, ceilDiv(n, cols)), roundUp(ceilDiv(n, ceilDiv(n, cols)), amxSide)
}

// even is about the given rows of m for a task, so that the tasks, beside others on each row, can be shared
// evenly among the threads.
func (b *Backend) even(m, rows, beside int) int {
	blocks := ceilDiv(m, rows)
	for t := len(b.team.workers); blocks*beside%t != 0 && blocks*amxSide < m; {
		blocks++
	}
	return roundUp(ceilDiv(m, blocks), amxSide)
}

// inPlace tells whether tiles can be loaded from the left operand's own rows.
func (g *amxPlan) inPlace() bool {
	return !g.a.trans && g.k%amxSide == 0 && g.m%amxSide == 0 && g.a.ld*2 < inPlaceMax &&
		g.a.ld%amxSide == 0 && address(g.a.v.h)%tensor.Align == 0
}

// left sets the strides of the left operand and gives the address of row i.
func (g *amxPlan) left(args *amxArgs, i int) uintptr {
	if g.pa != nil {
		args.aStride, args.aHalf, args.aStep, args.aNext = 64, 2*halfLen(g.ks), 1024, 2*g.panel()
		return address(g.pa) + uintptr(i/amxSide*g.panel()*2)
	}
	ld := g.a.ld * 2
	args.aStride, args.aHalf, args.aStep, args.aNext = ld, 16*ld, 64, 32*ld
	return address(g.a.v.h) + uintptr(i*ld)
}

// amxBlock computes rows [i0, i1) and columns [j0, j1) of the result.
func (w *worker) amxBlock(g *amxPlan, i0, i1, j0, j1 int) {
	blocks, panels := ceilDiv(i1-i0, amxSide), ceilDiv(j1-j0, amxSide)
	c := w.arena.f32(blocks * panels * 1024)
	args := amxArgs{cfg: allTiles, cNext: 4096, bHalf: 2 * halfLen(g.ks), ldd: g.r.ld * g.size()}
	left := g.left(&args, i0)
	if g.ks == 0 || g.r.bias != nil {
		w.amxStart(g, c, i0, j0, j1, blocks)
	}
	step := max(1, ceilDiv(g.ks, max(1, ceilDiv(g.ks*amxSide, amxSum))))
	for s := 0; s < max(1, g.ks); s += step {
		args.ks, args.acc = min(step, g.ks-s), 0
		if s > 0 || g.r.bias != nil {
			args.acc = 1
		}
		for p := range panels {
			tiles := c[p*blocks*1024:]
			right := address(g.pb) + uintptr((j0/amxSide+p)*g.panel()*2+s*1024)
			args.a, args.b, args.c, args.next = left+uintptr(s*args.aStep), right, address(tiles),
				right+uintptr(g.panel()*2)
			w.amxPanel(g, &args, tiles, i0, i1, j0+p*amxSide, s+step >= g.ks)
		}
	}
	if g.r.then != nil {
		g.r.then.rows(w, g.r.ld, i0, i1, j0, j1)
	}
}

// size is the bytes of an element of the result.
func (g *amxPlan) size() int {
	if g.r.v.d == tensor.F32 {
		return 4
	}
	return 2
}

// amxPanel runs the blocks of one panel of b. The last part of the sum is also written to the result:
// directly for whole blocks, through plain code at the border.
func (w *worker) amxPanel(g *amxPlan, args *amxArgs, tiles []float32, i0, i1, j int, last bool) {
	n, whole := ceilDiv(i1-i0, amxSide), 0
	if last && g.ks > 0 && g.n-j >= amxSide {
		whole = (i1 - i0) / amxSide
	}
	if whole > 0 {
		args.n, args.mode, args.dst = whole, g.mode(), g.target(i0, j)
		w.k.blocks(args)
	}
	if args.n, args.mode = n-whole, amxHold; args.n > 0 && g.ks > 0 {
		args.a += uintptr(whole * args.aNext)
		args.c += uintptr(whole * args.cNext)
		w.k.blocks(args)
	}
	if last && whole < n {
		w.amxBorder(g, tiles[whole*1024:], i0+whole*amxSide, i1, j)
	}
}

// target is the address of element i, j of the result, whichever type it has.
func (g *amxPlan) target(i, j int) uintptr {
	if at := i*g.r.ld + j; g.r.v.d == tensor.F32 {
		return address(g.r.v.f[at:])
	} else {
		return address(g.r.v.h[at:])
	}
}

// mode chooses how tiles are stored: added to float32, as float32, as bfloat16, or as bfloat16 past the caches.
// The last is for results larger than these, which nobody reads before they would be evicted.
func (g *amxPlan) mode() int {
	switch {
	case g.r.v.d == tensor.F32 && g.r.acc:
		return amxAdd
	case g.r.v.d == tensor.F32:
		return amxF32
	case g.r.then == nil && g.m*g.n*2 >= pastCaches && g.r.ld%amxSide == 0 && address(g.r.v.h)%tensor.Align == 0:
		return amxPast
	}
	return amxBF16
}

// amxBorder writes blocks of one panel that reach over the border, from tiles: quarters of 16 by 16.
func (w *worker) amxBorder(g *amxPlan, tiles []float32, i0, i1, j int) {
	width := min(amxSide, g.n-j)
	var row [amxSide]float32
	for i := i0; i < i1; i++ {
		t := tiles[(i-i0)/amxSide*1024+(i-i0)%amxSide/16*512+(i-i0)%16*16:]
		copy(row[:16], t[:16])
		copy(row[16:], t[256:272])
		if at := i*g.r.ld + j; g.r.acc {
			d := g.r.v.f[at : at+width]
			for q := range d {
				d[q] += row[q]
			}
		} else {
			w.k.write(g.r.v, at, row[:width])
		}
	}
}

// amxStart fills the tiles with the bias or 0, to which the products are then added. All blocks of a panel
// begin alike, but where the bias is one of rows.
func (w *worker) amxStart(g *amxPlan, tiles []float32, i0, j0, j1, blocks int) {
	for p := 0; p*blocks*1024 < len(tiles); p++ {
		all := tiles[p*blocks*1024:][:blocks*1024]
		one := all[:1024]
		clear(one)
		if g.r.bias != nil && !g.r.rowBias {
			for at := 0; at < 512; at += 16 {
				if j := j0 + p*amxSide + at/256*16; j < j1 {
					copy(one[at:at+16], g.r.bias[j:j1])
				}
			}
			copy(one[512:], one[:512])
		}
		for b := 1; b < blocks; b++ {
			copy(all[b*1024:], one)
		}
		if g.r.rowBias {
			g.startRows(all, i0)
		}
	}
}

// startRows fills the tiles of a panel with the bias of their rows, from row i0 on.
func (g *amxPlan) startRows(tiles []float32, i0 int) {
	for at := 0; at < len(tiles); at += 16 {
		row := i0 + at/1024*amxSide + at%1024/512*16 + at%256/16
		if row >= g.m {
			continue
		}
		for i := range tiles[at : at+16] {
			tiles[at+i] = g.r.bias[row]
		}
	}
}
