package cpu

import (
	"runtime"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Winograd's F(m×m, 3×3) (arXiv:1509.09308) for kernels of 3 by 3 with stride 1, on float32s: m by m outputs take
// (m+2)² products where 9·m² would be. With m of 2 the transforms' coefficients are 0, 1 and ½, and errors are those of
// a few more roundings. With m of 4 they lose some digits of float32, about as many as bfloat16 has, so that it serves
// bfloat16 alone: four times the rate of float32 is more than processors without tiles give products of bfloat16.
//
// A chunk of rows of tiles is transformed, multiplied place by place, and transformed back, each for all samples
// and frames, so that the weights are read once. Sums run over the taps of the first axis and the channels in order,
// those of weights' gradients over tiles, chunk by chunk; chunks do not depend on threads.

const (
	winoLeast = 16      // channels on either side
	winoRoom  = 4 << 20 // float32s of a chunk's transforms, of such weights, and of sums of their gradients
	winoWhole = 2 << 20 // of the latter two, above which they are made in parts
	// tiles of a picture below which weights may take longer to transform than is saved, of the small and of the large
	// transforms: of one frame of one sample, so that no bit depends on how many are computed at once
	winoTiles, winoTilesLarge = 9, 16
)

// wino is one convolution, or its gradient to x: of c channels at the places of from to f at those of to.
type wino struct {
	src      view
	n, c, f  int
	from, to grid
	edge     [2]int                // padding before the last two axes
	frames   int                   // taps along the first axis
	frame    func(to, tap int) int // the place along it that a tap of a result's is, -1 for none
}

// widens tells whether numbers of a dtype are multiplied as float32s.
func (b *Backend) widens(d tensor.DType) bool { return d != tensor.BF16 || !b.k.amx }

// winoMaps are the transforms for a convolution of a dtype with results at the places of to, the larger ones
// if they serve; nil for none.
func (b *Backend) winoMaps(s *convShape, to grid, d tensor.DType) *winoMaps {
	for _, m := range b.k.wino {
		serves, least := b.widens(d), winoTiles
		if m.side > 2 { // of bfloat16 also where pairs are multiplied, but not where tiles are
			serves, least = d == tensor.BF16 && (serves || b.k.convPairs != nil), winoTilesLarge
		}
		if tiles := m.tiles(to); serves && s.winograds() && tiles >= least && m.saves(tiles, to) {
			return m
		}
	}
	return nil
}

// tiles is the number of them in a picture of the places of to.
func (m *winoMaps) tiles(to grid) int { return ceilDiv(to[1], m.side) * ceilDiv(to[2], m.side) }

// saves tells whether so many tiles take at most two thirds of the products of the picture's places, which
// they do not where it has few rows or columns and much of the last tiles is outside.
func (m *winoMaps) saves(tiles int, to grid) bool {
	return 3*tiles*(m.side+2)*(m.side+2) <= 2*9*to[1]*to[2]
}

// winograds tells whether a convolution is one for Winograd's way.
func (s *convShape) winograds() bool {
	for _, w := range s.win[1:] {
		if w.Size != 3 || w.Stride != 1 || w.Dilation != 1 {
			return false
		}
	}
	return s.groups == 1 && s.win[0].Stride == 1 && s.ch >= winoLeast && s.outs >= winoLeast && s.n > 0 &&
		s.in.places() > 0 && s.out.places() > 0
}

// winoForward is the way from x to y.
func winoForward(s *convShape, x *tensor.Tensor) *wino {
	w := &wino{src: viewOf(x), n: s.n, c: s.ch, f: s.outs, from: s.in, to: s.out, frames: s.size[0]}
	w.edge = [2]int{s.win[1].Before, s.win[2].Before}
	t := s.win[0]
	w.frame = func(to, tap int) int {
		if i := to*t.Stride - t.Before + tap*t.Dilation; i >= 0 && i < s.in[0] {
			return i
		}
		return -1
	}
	return w
}

// winoBackward is the way from dy to dx: the same with kernels turned round.
func winoBackward(s *convShape, dy *tensor.Tensor) *wino {
	w := &wino{src: viewOf(dy), n: s.n, c: s.outs, f: s.ch, from: s.out, to: s.in, frames: s.size[0]}
	w.edge = [2]int{2 - s.win[1].Before, 2 - s.win[2].Before}
	t := s.win[0]
	w.frame = func(to, tap int) int {
		i := to + t.Before - tap*t.Dilation
		if i < 0 || i%t.Stride != 0 || i/t.Stride >= s.out[0] {
			return -1
		}
		return i / t.Stride
	}
	return w
}

// winoPlan is such a convolution with its transforms.
type winoPlan struct {
	*wino
	maps         *winoMaps
	side, span   int // outputs, and inputs, of a tile along an axis
	places       int
	down, across int // tiles along the last two axes
	ldc, ldf     int // from a tile to the next among inputs and outputs
	rows         int // of tiles in a chunk, one after the other for each frame
	v, m         []float32
	stepV        int // from one place to the next
	stepM        int
	packed       []float32 // weights [taps, places] of panels
	next         int
	first        int // of all panels, the first that is packed
	panels       int
	runs         []frameRun
}

// frameRun is frames of the result, counted over all samples, that lie one behind the other and whose taps
// meet frames of the input that do.
type frameRun struct {
	to, n int
	taps  []int // of the first axis
	from  []int // frames that they meet at the first of these
}

// apart is a distance of rows of n float32s at which they do not fall into few sets of the first-level cache.
func apart(n int) int {
	if n = roundUp(n, line); n*4%fewPlaces == 0 {
		n += line
	}
	return n
}

// winoPlanOf plans one, with room for a chunk.
func (b *Backend) winoPlanOf(p *wino, m *winoMaps) *winoPlan {
	g := &winoPlan{wino: p, maps: m, side: m.side, span: m.side + 2, ldc: apart(p.c), ldf: apart(roundUp(p.f, b.k.nr))}
	g.places, g.down, g.across = g.span*g.span, ceilDiv(p.to[1], g.side), ceilDiv(p.to[2], g.side)
	row := g.places * p.n * g.across * (p.from[0]*g.ldc + p.to[0]*g.ldf)
	least := ceilDiv(b.k.mr/3, g.across) // one row may have fewer tiles than a group of the kernel
	g.rows = ceilDiv(g.down, ceilDiv(g.down, max(least, winoRoom/row)))
	for g.rows < g.down && g.down%g.rows > 0 && g.down%g.rows < least { // nor may the last chunk
		g.rows++
	}
	g.stepV = p.n*p.from[0]*g.rows*g.across*g.ldc + line
	g.stepM = p.n*p.to[0]*g.rows*g.across*g.ldf + line
	g.v, g.m = b.shared.f32(g.places*g.stepV), b.shared.f32(g.places*g.stepM)
	for to := range p.n * p.to[0] {
		r := frameRun{to: to, n: 1}
		for t := range p.frames {
			if from := p.frame(to%p.to[0], t); from >= 0 {
				r.taps, r.from = append(r.taps, t), append(r.from, to/p.to[0]*p.from[0]+from)
			}
		}
		if !g.joins(r) {
			g.runs = append(g.runs, r)
		}
	}
	return g
}

// joins makes a frame part of the last run if it goes on with it.
func (g *winoPlan) joins(r frameRun) bool {
	if len(g.runs) == 0 {
		return false
	}
	last := &g.runs[len(g.runs)-1]
	if !slices.Equal(last.taps, r.taps) {
		return false
	}
	for i, from := range r.from {
		if from != last.from[i]+last.n {
			return false
		}
	}
	last.n++
	return true
}

// chunk is the rows of tiles from first on that are done at a time.
func (g *winoPlan) chunk(first int) int { return min(g.rows, g.down-first) }

// packWino transforms the plan's panels of weights [f, c, taps], or [c, f, taps] turned round.
func (b *Backend) packWino(g *winoPlan, w *tensor.Tensor, turned bool) {
	made := false
	g.packed, made = b.lasting(packedOf{viewOf(w).at(), 'w',
		[8]int{g.f, g.c, g.frames, g.places, g.panels, g.next, b2i(turned)}}, g.frames*g.places*g.panels*g.next)
	if made {
		return
	}
	b.shareWork(g.panels, g.panels*halfPanel*g.c*g.frames*9*elementCost, func(k *worker, p int) {
		var rows []float32
		ld := g.c * halfPanel
		if turned {
			rows, ld = k.inputPanel(viewOf(w), g.first+p, g.f, g.c, 9*g.frames)
		} else {
			rows = k.arena.f32(16*roundUp(9*g.c*g.frames, 32) + 16)
			k.outputPanel(rows, viewOf(w), g.first+p, g.f, g.c, 9*g.frames)
		}
		for t := range g.frames {
			k.winoWeights(g, rows[t*9*ld:], ld, g.packed[(t*g.places*g.panels+p)*g.next:], turned)
		}
	})
}

// winoPiece is the float32s of a kernel's weights that are transformed at a time, in first-level cache.
const winoPiece = 512

// winoWeights transforms kernels [9, c, 16], ld from a tap to the next, to places of dst.
func (w *worker) winoWeights(g *winoPlan, src []float32, ld int, dst []float32, turned bool) {
	n := g.c * halfPanel
	tmp := w.arena.f32(3 * g.span * winoPiece)
	for at := 0; at < n; at += winoPiece {
		some := min(winoPiece, n-at)
		for x := range 3 {
			if turned {
				g.maps.kernel(tmp[x*winoPiece:], 3*winoPiece, src[(8-x)*ld+at:], -3*ld, some)
			} else {
				g.maps.kernel(tmp[x*winoPiece:], 3*winoPiece, src[x*ld+at:], 3*ld, some)
			}
		}
		for y := range g.span {
			g.maps.kernel(dst[g.span*y*g.panels*g.next+at:], g.panels*g.next, tmp[3*y*winoPiece:], winoPiece, some)
		}
	}
}

// winograd computes a result. Where a chunk is all of it, and weights do not last, these are transformed some
// outputs at a time.
func (b *Backend) winograd(p *wino, m *winoMaps, w *tensor.Tensor, turned bool, r result) {
	g := b.winoPlanOf(p, m)
	all, least := roundUp(g.f, b.k.nr)/halfPanel, max(1, b.k.nr/halfPanel)
	g.next, g.panels = g.c*halfPanel+line, all
	if g.rows >= g.down && !b.kept.may[viewOf(w).at()] {
		g.panels = min(all, roundUp(ceilDiv(all, winoParts(all*g.frames*g.places*g.next)), least))
	}
	part := g.panels
	bias := b.shared.zero(2 * roundUp(g.f, b.k.nr))
	copy(bias[roundUp(g.f, b.k.nr):], r.bias)
	if part == all {
		b.packWino(g, w, turned)
	}
	for first := 0; first < g.down; first += g.rows {
		b.winoInputs(g, first)
		rows := g.chunk(first)
		for g.first = 0; g.first < all; g.first += part {
			mark := b.shared.mark()
			if g.panels = min(part, all-g.first); part < all {
				b.packWino(g, w, turned)
			}
			b.winoProducts(g, rows, bias)
			b.shared.release(mark)
		}
		b.shareWork(g.n*g.to[0]*rows, g.n*g.to.places()*g.f*elementCost, func(k *worker, i int) {
			k.winoOutputs(g, r, i/rows, first, i%rows, rows)
		})
	}
}

// winoParts is in how many parts n float32s are made.
func winoParts(n int) int {
	if n <= winoWhole {
		return 1
	}
	return max(2, ceilDiv(n, winoRoom))
}

// winoInputs transforms the inputs of a chunk.
func (b *Backend) winoInputs(g *winoPlan, first int) {
	rows := g.chunk(first)
	b.shareWork(g.n*g.from[0]*rows, g.n*g.from.places()*g.c*elementCost, func(k *worker, i int) {
		k.winoInputRow(g, i/rows, first+i%rows, g.v[i*g.across*g.ldc:])
	})
}

// winoInputRow transforms the inputs of a row of tiles of a frame.
func (w *worker) winoInputRow(g *winoPlan, frame, row int, dst []float32) {
	long := (g.side*g.across + 2) * g.c
	in := w.arena.f32(g.span * long)
	lo, at := max(0, -g.edge[1]), max(0, g.edge[1])
	n := max(0, min(g.from[2]-lo, long/g.c-at))
	for a := range g.span {
		d := in[a*long : (a+1)*long]
		y := g.side*row - g.edge[0] + a
		if y < 0 || y >= g.from[1] {
			clear(d)
			continue
		}
		clear(d[:at*g.c])
		w.k.read(d[at*g.c:(at+n)*g.c], g.src, ((frame*g.from[1]+y)*g.from[2]+lo)*g.c)
		clear(d[(at+n)*g.c:])
	}
	g.maps.in(in, long, in, long, long)
	for j := range g.across {
		for a := range g.span {
			g.maps.in(dst[g.span*a*g.stepV+j*g.ldc:], g.stepV, in[a*long+g.side*j*g.c:], g.c, g.c)
		}
	}
}

// winoProducts multiplies all places of a chunk by the weights. The bias is added to the place whose share
// of all outputs of a tile is 1.
func (b *Backend) winoProducts(g *winoPlan, rows int, bias []float32) {
	tables := make([][2][]int, len(g.runs))
	tiles := rows * g.across
	work := 0
	for i, r := range g.runs {
		tables[i] = [2][]int{g.groups(b.k.mr, r.to*tiles, r.n*tiles), g.pieces(r, tiles)}
		work += r.n * tiles * len(r.taps) * g.places * g.c * g.panels * halfPanel
	}
	columns := g.panels * halfPanel / b.k.nr
	b.shareWork(g.places*columns, work, func(w *worker, i int) {
		place, j := i/columns, i%columns*b.k.nr
		at := g.first*halfPanel + j // among all outputs
		args := convArgs{a: address(g.v[place*g.stepV:]), k: g.c, step: 4 * g.ldc, half: 4 * g.next,
			b:    address(g.packed[(place*g.panels+j/halfPanel)*g.next:]),
			bias: address(bias[at:]), c: address(g.m[place*g.stepM+at:]), row: 4 * g.ldf}
		if place == g.span+1 {
			args.bias = address(bias[len(bias)/2+at:])
		}
		for _, t := range tables {
			args.taps = address(t[1])
			args.end = args.taps + uintptr(8*len(t[1]))
			w.convCalls(w.k.convTile, args, t[0], g.c*len(t[1])/2)
		}
	})
	runtime.KeepAlive(tables)
}

// groups is the table of the tiles of the micro-kernel for n rows of products from first on: as in places.
func (g *winoPlan) groups(mr, first, n int) []int {
	group := mr / 3
	count := roundUp(ceilDiv(n, group), 3)
	l := make([]int, 2*count)
	for i := range count {
		at := min(i*group, n-group)
		l[i/3*6+i%3], l[i/3*6+3+i%3] = 4*at*g.ldc, 4*(first+at)*g.ldf
	}
	return l
}

// pieces are the taps of a run: where their inputs and their weights begin.
func (g *winoPlan) pieces(r frameRun, tiles int) (l []int) {
	for i, t := range r.taps {
		l = append(l, 4*r.from[i]*tiles*g.ldc, 4*t*g.places*g.panels*g.next)
	}
	return l
}

// winoOutputs transforms the products of a row of tiles of a frame back and writes its outputs.
func (w *worker) winoOutputs(g *winoPlan, r result, frame, first, row, rows int) {
	half, out := w.arena.f32(g.side*g.span*g.f), w.arena.f32(g.side*g.side*g.f)
	for j := range g.across {
		m := g.m[((frame*rows+row)*g.across+j)*g.ldf:]
		for x := range g.span {
			g.maps.out(half[x*g.f:], g.span*g.f, m[x*g.stepM:], g.span*g.stepM, g.f)
		}
		for y := range g.side {
			g.maps.out(out[g.side*y*g.f:], g.f, half[g.span*y*g.f:], g.f, g.f)
		}
		n := min(g.side, g.to[2]-g.side*j)
		for y := range min(g.side, g.to[1]-g.side*(first+row)) {
			at := (frame*g.to[1]+g.side*(first+row)+y)*g.to[2] + g.side*j
			w.k.write(r.v, at*g.f, out[g.side*y*g.f:][:n*g.f])
		}
	}
}
