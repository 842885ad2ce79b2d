package cpu

import (
	"runtime"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// The gradient of weights without gathering: for every tap the product of outputs, in panels of a tile's
// rows, and of inputs, in panels of its columns, in which a tap is an offset. Both are packed once for all
// taps. Pairs of bfloat16 are two rows of places: of outputs rows 2m and 2m+1, of inputs the rows that a tap
// meets there, which are packed for every distance of two rows that taps have to them.

// sumPlaces are the places of a row that a sum runs over in one call, about.
const sumPlaces = 512

// straightWork is the words of a panel of columns, a part of the second-level cache, up to which sums of all
// taps go to the weights before the next are taken: else those of a tap after the other.
const straightWork = 128 << 10

// sumArgs are the arguments of isa.sumTile, which uses up n. Strides and offsets are in bytes. The assembly
// knows the order.
type sumArgs struct {
	a          uintptr // of rows, aNext apart: outputs, say
	aStep      int     // from a place to the next
	aNext      int
	b          uintptr // a panel of columns: inputs, say
	half       int     // to the second one, if a tile has two
	bStep      int     // from a place to the next
	table, end uintptr // offsets of runs of places in a and in b, and the end of them
	k          int     // places of a run
	c          uintptr // tiles of float32s, cNext apart, of rows that are row apart
	row, cNext int
	acc        int // 1 to add
	n          int // tiles
}

// sums is a gradient of weights. Rows of tiles are outputs, and columns the channels of inputs; where these
// are few, the other way round: rows are then the inputs of all taps along the last axis, which lie one
// behind the other as they are.
type sums struct {
	*convShape
	pairs, raw bool
	sum        func(*sumArgs)
	mr, nr     int
	// outputs: rows of places of a frame; channels of a panel and panels; words of a packed row and of a panel
	down, width, outPanels, run, lefts int
	a                                  []float32
	// inputs: places of a row, rows of a frame, words of a row and of a panel
	wide, rows, line, right int
	b                       []float32
	period                  int   // rows of inputs from one row of outputs to the next
	kinds                   []int // the first rows of inputs that are packed, less than period
	each                    int   // rows of a kind
	low                     int   // the row before them
	// the sums: taps, of rows in panels of a tile's, of so many columns
	parts, tall, columns int
	c                    []float32
}

// sumsDirectly tells whether gradients of weights can be summed where they lie.
func (b *Backend) sumsDirectly(s *convShape, x *tensor.Tensor) bool {
	return b.k.sumTile != nil && s.groups == 1 && s.out.places() > 0 && s.ch > 0 && s.outs > 0 && s.n > 0 &&
		(b.k.sumPairs != nil || b.widens(x.DType))
}

// sumsOf plans the gradient of weights.
func (b *Backend) sumsOf(s *convShape, d tensor.DType) *sums {
	g := &sums{convShape: s, sum: b.k.sumTile, mr: b.k.mr, nr: b.k.nr, down: s.out[1]}
	t, across := s.win[1], s.win[2]
	g.period = t.Stride
	if d == tensor.BF16 && b.k.sumPairs != nil {
		g.pairs, g.sum, g.period = true, b.k.sumPairs, 2*t.Stride
		g.down = ceilDiv(g.down, 2)
	}
	g.raw = s.ch < fewChannels && across.Dilation == 1
	g.rowsOfTaps()
	g.wide = (s.out[2]-1)*across.Stride + (across.Size-1)*across.Dilation + 1
	if g.parts = s.taps(); g.raw {
		g.width, g.outPanels = halfPanel, roundUp(s.outs, g.nr)/halfPanel
		g.parts, g.tall, g.columns = g.parts/across.Size, ceilDiv(across.Size*s.ch, g.mr), roundUp(s.outs, g.nr)
		g.line = roundUp(g.wide*s.ch, 32) + 32
	} else {
		g.width, g.outPanels = g.mr, ceilDiv(s.outs, g.mr)
		g.tall, g.columns = g.outPanels, roundUp(s.ch, g.nr)
		g.line = g.wide * halfPanel
	}
	g.run = roundUp(s.out[2]*g.width, 16) + 16 // a vector may be written past the end
	g.lefts = s.n*s.out[0]*g.down*g.run + line
	g.right = s.n*s.in[0]*g.rows*g.line + line
	return g
}

// rowsOfTaps lists the kinds of rows that taps meet.
func (g *sums) rowsOfTaps() {
	high := 0
	for k := range g.size[1] {
		kind, at := g.kind(k)
		if k == 0 {
			g.low, high = at, at
		}
		g.low, high = min(g.low, at), max(high, at)
		if g.find(kind) < 0 {
			g.kinds = append(g.kinds, kind)
		}
	}
	g.each = g.down + high - g.low
	g.rows = len(g.kinds) * g.each
}

// kind is the remainder of the first row that a tap of the second axis meets, and how many periods come before it.
func (g *sums) kind(tap int) (kind, at int) {
	e := tap*g.win[1].Dilation - g.win[1].Before
	kind = ((e % g.period) + g.period) % g.period
	return kind, (e - kind) / g.period
}

func (g *sums) find(kind int) int {
	for i, v := range g.kinds {
		if v == kind {
			return i
		}
	}
	return -1
}

// row is the packed row of inputs that a tap of the second axis meets at row m of outputs.
func (g *sums) row(m, tap int) int {
	kind, at := g.kind(tap)
	return g.find(kind)*g.each + m + at - g.low
}

// sumDirectly sets or adds to dw the gradient of weights.
func (b *Backend) sumDirectly(s *convShape, dy, x, dw *tensor.Tensor, acc bool) {
	s = s.turnedSums()
	g := b.sumsOf(s, x.DType)
	b.packOutputs(g, viewOf(dy))
	b.packInputs(g, viewOf(x))
	tables := make([][]int, g.parts)
	for t := range tables {
		tables[t] = g.runsOf(t)
	}
	tiles, parts := g.columns/g.nr, 1
	if n := len(b.team.workers); n > 1 {
		parts = min(g.tall, ceilDiv(3*n, tiles))
	}
	each := ceilDiv(g.tall, parts)
	parts = ceilDiv(g.tall, each)
	work := s.n * s.out.places() * s.taps() * s.ch * s.outs
	straight := !g.raw && g.right*g.nr/halfPanel <= straightWork
	if !straight {
		g.c = b.shared.f32(g.parts * g.tall * g.mr * g.columns)
	}
	b.shareWork(tiles*parts, work, func(w *worker, i int) {
		from := i / tiles * each
		n := min(each, g.tall-from)
		if !straight {
			next := g.mr * g.columns
			to := sumsTo{g.c[from*next+i%tiles*g.nr:], g.columns, next, g.tall * next}
			g.tiles(to, tables, i%tiles, from, n)
			return
		}
		for p := from; p < from+n; p++ {
			w.sumStraight(g, tables, i%tiles, p, dw.F32(), acc)
		}
	})
	if !straight {
		b.sumsIntoWeights(g, dw.F32(), acc)
	}
	runtime.KeepAlive(tables)
}

// runsOf is the table of the runs of places of a tap.
func (g *sums) runsOf(tap int) (l []int) {
	x := 0
	if !g.raw {
		x = tap % g.size[2] * g.win[2].Dilation
		tap /= g.size[2]
	}
	t := g.win[0]
	for unit := range g.n * g.out[0] {
		f := unit%g.out[0]*t.Stride - t.Before + tap/g.size[1]*t.Dilation
		if f < 0 || f >= g.in[0] {
			continue
		}
		from := (unit/g.out[0]*g.in[0] + f) * g.rows
		for m := range g.down {
			out, in := 4*(unit*g.down+m)*g.run, 4*((from+g.row(m, tap%g.size[1]))*g.line+x*halfPanel)
			if g.raw {
				out, in = in, out
			}
			l = append(l, out, in)
		}
	}
	return l
}

// sumStraight sums a panel of rows by those of columns of a tile, and sets or adds them to weights while they
// are in cache.
func (w *worker) sumStraight(g *sums, tables [][]int, tile, panel int, dw []float32, acc bool) {
	defer w.arena.release(w.arena.mark())
	taps, size := g.taps(), g.mr*g.nr
	sums, turned := w.arena.f32(roundUp(taps, 16)*size), w.arena.f32(roundUp(taps, 16)*g.nr+16)
	g.tiles(sumsTo{sums, g.nr, size, size}, tables, tile, panel, 1)
	first := tile * g.nr
	n := min(g.nr, g.ch-first)
	for i := range min(g.mr, g.outs-panel*g.mr) {
		sum := w.turnTaps(turned, sums[i*g.nr:], size, g.nr/halfPanel, n, taps)
		if dst := dw[((panel*g.mr+i)*g.ch+first)*taps:][:n*taps]; acc {
			w.k.add(dst, dst, sum)
		} else {
			copy(dst, sum)
		}
	}
}

// sumsTo is where sums go: how far apart the rows of a tile are, the tiles, and those of taps.
type sumsTo struct {
	c              []float32
	row, next, tap int
}

// tiles sums some panels of rows by those of columns of a tile, for all taps.
func (g *sums) tiles(to sumsTo, tables [][]int, tile, from, n int) {
	args := sumArgs{k: g.out[2], row: 4 * to.row, cNext: 4 * to.next}
	rows, columns := address(g.a), address(g.b)
	args.aStep, args.aNext, args.half = 4*g.mr, 4*g.lefts, 4*g.right
	args.bStep = 4 * g.win[2].Stride * halfPanel
	if g.raw {
		rows, columns = columns, rows
		args.aStep, args.aNext, args.half = 4*g.win[2].Stride*g.ch, 4*g.mr, 4*g.lefts
		args.bStep = 4 * halfPanel
	}
	args.b = columns + uintptr(tile*g.nr/halfPanel*args.half)
	runs := 2 * max(1, sumPlaces/g.out[2])
	most := max(1, callMax/(g.mr*g.nr*runs/2*g.out[2]))
	for at := 0; at == 0 || at < g.longest(tables); at += runs {
		for t, table := range tables {
			if at > 0 && at >= len(table) {
				continue
			}
			some := table[at:min(at+runs, len(table))]
			for i := from; i < from+n; i += most {
				part := args
				part.a = rows + uintptr(i*args.aNext)
				part.c = address(to.c[t*to.tap+(i-from)*to.next:])
				part.table = address(some)
				part.end = part.table + uintptr(8*len(some))
				part.n, part.acc = min(most, from+n-i), min(at, 1)
				g.sum(&part)
			}
		}
	}
	runtime.KeepAlive(g)
}

func (g *sums) longest(tables [][]int) (n int) {
	for _, t := range tables {
		n = max(n, len(t))
	}
	return n
}

// packOutputs packs the cotangents in panels.
func (b *Backend) packOutputs(g *sums, dy view) {
	g.a = b.shared.f32(g.outPanels * g.lefts)
	n := g.out[2] * g.outs
	b.shareWork(g.n*g.out[0]*g.down, g.n*g.out.places()*g.outs*elementCost, func(w *worker, i int) {
		unit, m := i/g.down, i%g.down
		src := w.arena.f32(roundUp(n, 32) + g.width)
		if g.pairs {
			two := w.arena.u16(2 * roundUp(n, 32))
			w.outputRow(g, view{h: two, d: dy.d}, dy, unit, 2*m)
			if second := two[roundUp(n, 32):]; 2*m+1 < g.out[1] {
				w.outputRow(g, view{h: second, d: dy.d}, dy, unit, 2*m+1)
			} else {
				clear(second[:n])
			}
			h := halfWords(src)
			w.k.vnni(h, h[32:], 64, ceilDiv(n, 32), two, roundUp(n, 32), 1)
		} else {
			w.outputRow(g, view{f: src}, dy, unit, m)
		}
		w.k.spread(g.a[i*g.run:], g.lefts, g.width, ceilDiv(g.outs, g.width), src, g.outs, g.out[2])
	})
}

// outputRow copies row y of a frame of cotangents to dst.
func (w *worker) outputRow(g *sums, dst, dy view, frame, y int) {
	at, apart := lineOf(g.out, g.across, frame/g.out[0], frame%g.out[0], y)
	w.copyPlaces(dst, 0, g.outs, dy, at, apart, g.out[2], g.outs)
}

// packInputs packs rows of inputs with their padding, in panels of columns or as they lie.
func (b *Backend) packInputs(g *sums, x view) {
	panels := 1
	if !g.raw {
		panels = g.columns / halfPanel
	}
	g.b = b.shared.f32(panels * g.right)
	b.shareWork(g.n*g.in[0]*g.rows, panels*g.right*elementCost, func(w *worker, i int) {
		frame, kind := i/g.rows, g.kinds[i%g.rows/g.each]
		y := (i%g.rows%g.each+g.low)*g.period + kind
		channels := g.ch
		if !g.raw {
			channels = roundUp(g.ch, 32)
		}
		n := roundUp(g.wide*channels, 32)
		dst := g.b[i*g.line:]
		if !g.pairs {
			row := w.arena.zero(n)
			w.inputRow(g, view{f: row}, x, frame, y, channels)
			if g.raw {
				copy(dst[:n], row)
			} else {
				w.k.spread(dst, g.right, halfPanel, ceilDiv(g.ch, halfPanel), row, channels, g.wide)
			}
			return
		}
		two := w.arena.u16(2 * n)
		clear(two)
		w.inputRow(g, view{h: two[:n], d: tensor.BF16}, x, frame, y, channels)
		w.inputRow(g, view{h: two[n:], d: tensor.BF16}, x, frame, y+g.period/2, channels)
		if h := halfWords(dst); g.raw {
			w.k.vnni(h, h[32:], 64, n/32, two, n, 1)
		} else {
			for p := range g.wide {
				at := h[p*2*halfPanel:]
				w.k.vnni(at, at[2*g.right:], 4*g.right, channels/32, two[p*channels:], n, 1)
			}
		}
	})
}

// inputRow copies row y of a frame to dst, channels from one place to the next, if there is such a row.
func (w *worker) inputRow(g *sums, dst, x view, frame, y, channels int) {
	if y < 0 || y >= g.in[1] {
		return
	}
	lo := max(0, g.win[2].Before)
	first := lo - g.win[2].Before
	n := max(0, min(g.wide-lo, g.in[2]-first))
	from, apart := lineOf(g.in, g.across, frame/g.in[0], frame%g.in[0], y)
	w.copyPlaces(dst, lo*channels, channels, x, from+first*apart, apart, n, g.ch)
}

// sumsIntoWeights sets or adds sums to weights [outs, ch, taps].
func (b *Backend) sumsIntoWeights(g *sums, dw []float32, acc bool) {
	taps, rows := g.taps(), g.tall*g.mr
	b.rows(g.outs, g.ch*taps, func(w *worker, from, to int) {
		wide := roundUp(g.ch, 16)
		tall := roundUp(taps, 16)
		one, turned := w.arena.zero(tall*wide+16), w.arena.f32(tall*wide+16)
		for f := from; f < to; f++ {
			for t := range taps {
				if !g.raw {
					copy(one[t*wide:][:g.ch], g.c[(t*rows+f)*g.columns:])
					continue
				}
				at := t/g.size[2]*rows + t%g.size[2]*g.ch
				for c := range g.ch {
					one[t*wide+c] = g.c[(at+c)*g.columns+f]
				}
			}
			dst := dw[f*g.ch*taps : (f+1)*g.ch*taps]
			sum := w.turnTaps(turned, one, wide, wide/16, g.ch, taps)
			if acc {
				w.k.add(dst, dst, sum)
			} else {
				copy(dst, sum)
			}
		}
	})
}

// turnTaps turns rows of taps, ld apart and of so many blocks of 16 channels, to [ch, taps], in tmp.
func (w *worker) turnTaps(tmp, rows []float32, ld, blocks, ch, taps int) []float32 {
	tall := roundUp(taps, 16)
	if tall == 16 && w.k.lanes == 16 { // what is written past a column is overwritten by the next
		w.k.transpose(tmp, taps, rows, ld, blocks)
		return tmp[:ch*taps]
	}
	for t := 0; t < taps; t += 16 {
		w.k.transpose(tmp[t:], tall, rows[t*ld:], ld, blocks)
	}
	for c := range ch {
		copy(tmp[c*taps:(c+1)*taps], tmp[c*tall:])
	}
	return tmp[:ch*taps]
}
