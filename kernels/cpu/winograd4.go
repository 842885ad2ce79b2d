package cpu

import (
	"runtime"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Winograd's F(4×4, 3×3): 36 products where 144 would be, on float32s. Its transforms lose some digits of
// float32, about as many as bfloat16 has, so that it serves bfloat16 alone: four times the rate of float32 is
// more than processors without tiles give products of bfloat16.
//
// A chunk of rows of tiles is transformed, multiplied place by place, and transformed back, each for all
// samples and frames, so that the weights are read once. Sums run over the taps of the first axis and the
// channels in order, those of weights' gradients over tiles, chunk by chunk; chunks do not depend on threads.

const (
	fourPlaces = 36
	fourSide   = 4       // outputs of a tile along an axis
	fourRoom   = 4 << 20 // float32s of a chunk's transforms, and of sums of weights' gradients
	fourTiles  = 48      // below which weights take longer to transform than is saved
)

// four is a convolution, or its gradient to x, by F(4×4, 3×3).
type four struct {
	*wino
	ldc, ldf int // from a tile to the next among inputs and outputs
	rows     int // of tiles in a chunk, one after the other for each frame
	v, m     []float32
	stepV    int // from one place to the next
	stepM    int
	packed   []float32 // weights [taps, 36] of panels
	next     int
	panels   int
	runs     []frameRun
}

// frameRun is frames of the result, counted over all samples, that lie one behind the other and whose taps
// meet frames of the input that do.
type frameRun struct {
	to, n int
	taps  []int // of the first axis
	from  []int // frames that they meet at the first of these
}

// winogradsBy4 tells whether a convolution of a dtype is one for F(4×4, 3×3).
func (b *Backend) winogradsBy4(s *convShape, d tensor.DType) bool {
	across, down := ceilDiv(s.out[2], fourSide), ceilDiv(s.out[1], fourSide)
	return d == tensor.BF16 && b.k.wino != nil && (b.k.convPairs != nil || b.widens(d)) && s.winograds() &&
		s.win[0].Stride == 1 && across >= b.k.mr/3 && s.n*s.out[0]*across*down >= fourTiles
}

// apart is a distance of rows of n float32s at which they do not fall into few sets of the first-level
// cache.
func apart(n int) int {
	if n = roundUp(n, line); n*4%fewPlaces == 0 {
		n += line
	}
	return n
}

// fourOf plans one, with room for a chunk.
func (b *Backend) fourOf(p *wino) *four {
	p.down, p.across = ceilDiv(p.to[1], fourSide), ceilDiv(p.to[2], fourSide)
	g := &four{wino: p, ldc: apart(p.c), ldf: apart(roundUp(p.f, b.k.nr))}
	row := fourPlaces * p.n * p.across * (p.from[0]*g.ldc + p.to[0]*g.ldf)
	g.rows = ceilDiv(p.down, ceilDiv(p.down, max(1, fourRoom/row)))
	g.stepV = p.n*p.from[0]*g.rows*p.across*g.ldc + line
	g.stepM = p.n*p.to[0]*g.rows*p.across*g.ldf + line
	g.v, g.m = b.shared.f32(fourPlaces*g.stepV), b.shared.f32(fourPlaces*g.stepM)
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
func (g *four) joins(r frameRun) bool {
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
func (g *four) chunk(first int) int { return min(g.rows, g.down-first) }

// packFour transforms weights [f, c, taps], or [c, f, taps] turned round.
func (b *Backend) packFour(g *four, w *tensor.Tensor, turned bool) {
	g.panels = roundUp(g.f, b.k.nr) / halfPanel
	g.next = g.c*halfPanel + line
	g.packed = b.shared.f32(g.frames * fourPlaces * g.panels * g.next)
	b.shareWork(g.panels, g.f*g.c*g.frames*9*elementCost, func(k *worker, p int) {
		var rows []float32
		if turned {
			rows = k.inputPanel(viewOf(w), p, g.f, g.c, 9*g.frames)
		} else {
			rows = k.arena.f32(16*roundUp(9*g.c*g.frames, 32) + 16)
			k.outputPanel(rows, viewOf(w), p, g.f, g.c, 9*g.frames, false)
		}
		for t := range g.frames {
			k.fourWeights(g, rows[t*9*g.c*halfPanel:], g.packed[(t*fourPlaces*g.panels+p)*g.next:], turned)
		}
	})
}

// fourPiece is the float32s of a kernel's weights that are transformed at a time, in first-level cache.
const fourPiece = 512

// fourWeights transforms kernels [9, c, 16] to places of dst.
func (w *worker) fourWeights(g *four, src, dst []float32, turned bool) {
	n := g.c * halfPanel
	tmp := w.arena.f32(18 * fourPiece)
	for at := 0; at < n; at += fourPiece {
		some := min(fourPiece, n-at)
		for x := range 3 {
			if turned {
				w.k.wino.kernel(tmp[x*fourPiece:], 3*fourPiece, src[(8-x)*n+at:], -3*n, some)
			} else {
				w.k.wino.kernel(tmp[x*fourPiece:], 3*fourPiece, src[x*n+at:], 3*n, some)
			}
		}
		for y := range 6 {
			w.k.wino.kernel(dst[6*y*g.panels*g.next+at:], g.panels*g.next, tmp[3*y*fourPiece:], fourPiece, some)
		}
	}
}

// winogradBy4 computes a result.
func (b *Backend) winogradBy4(p *wino, w *tensor.Tensor, turned bool, r result) {
	g := b.fourOf(p)
	b.packFour(g, w, turned)
	bias := b.shared.zero(2 * roundUp(g.f, b.k.nr))
	copy(bias[roundUp(g.f, b.k.nr):], r.bias)
	for first := 0; first < g.down; first += g.rows {
		b.fourInputs(g, first)
		b.fourProducts(g, g.chunk(first), bias)
		rows := g.chunk(first)
		b.shareWork(g.n*g.to[0]*rows, g.n*g.to.places()*g.f*elementCost, func(k *worker, i int) {
			k.fourOutputs(g, r, i/rows, first, i%rows, rows)
		})
	}
}

// fourInputs transforms the inputs of a chunk.
func (b *Backend) fourInputs(g *four, first int) {
	rows := g.chunk(first)
	b.shareWork(g.n*g.from[0]*rows, g.n*g.from.places()*g.c*elementCost, func(k *worker, i int) {
		k.fourInputRow(g, i/rows, first+i%rows, g.v[i*g.across*g.ldc:])
	})
}

// fourInputRow transforms the inputs of a row of tiles of a frame.
func (w *worker) fourInputRow(g *four, frame, row int, dst []float32) {
	long := (fourSide*g.across + 2) * g.c
	six := w.arena.f32(6 * long)
	lo, at := max(0, -g.edge[1]), max(0, g.edge[1])
	n := max(0, min(g.from[2]-lo, long/g.c-at))
	for a := range 6 {
		d := six[a*long : (a+1)*long]
		y := fourSide*row - g.edge[0] + a
		if y < 0 || y >= g.from[1] {
			clear(d)
			continue
		}
		clear(d[:at*g.c])
		w.k.read(d[at*g.c:(at+n)*g.c], g.src, ((frame*g.from[1]+y)*g.from[2]+lo)*g.c)
		clear(d[(at+n)*g.c:])
	}
	w.k.wino.in(six, long, six, long, long)
	for j := range g.across {
		for a := range 6 {
			w.k.wino.in(dst[6*a*g.stepV+j*g.ldc:], g.stepV, six[a*long+fourSide*j*g.c:], g.c, g.c)
		}
	}
}

// fourProducts multiplies all places of a chunk by the weights. The bias is added to the place whose share of
// all outputs of a tile is 1.
func (b *Backend) fourProducts(g *four, rows int, bias []float32) {
	tables := make([][2][]int, len(g.runs))
	tiles := rows * g.across
	work := 0
	for i, r := range g.runs {
		tables[i] = [2][]int{g.groups(b.k.mr, r.to*tiles, r.n*tiles), g.pieces(r, tiles)}
		work += r.n * tiles * len(r.taps) * fourPlaces * g.c * g.f
	}
	columns := g.panels * halfPanel / b.k.nr
	b.shareWork(fourPlaces*columns, work, func(w *worker, i int) {
		place, j := i/columns, i%columns*b.k.nr
		args := convArgs{a: address(g.v[place*g.stepV:]), k: g.c, step: 4 * g.ldc, half: 4 * g.next,
			b:    address(g.packed[(place*g.panels+j/halfPanel)*g.next:]),
			bias: address(bias[j:]), c: address(g.m[place*g.stepM+j:]), row: 4 * g.ldf}
		if place == 7 {
			args.bias = address(bias[len(bias)/2+j:])
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
func (g *four) groups(mr, first, n int) []int {
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
func (g *four) pieces(r frameRun, tiles int) (l []int) {
	for i, t := range r.taps {
		l = append(l, 4*r.from[i]*tiles*g.ldc, 4*t*fourPlaces*g.panels*g.next)
	}
	return l
}

// fourOutputs transforms the products of a row of tiles of a frame back and writes its outputs.
func (w *worker) fourOutputs(g *four, r result, frame, first, row, rows int) {
	half, out := w.arena.f32(24*g.f), w.arena.f32(16*g.f)
	for j := range g.across {
		m := g.m[((frame*rows+row)*g.across+j)*g.ldf:]
		for x := range 6 {
			w.k.wino.out(half[x*g.f:], 6*g.f, m[x*g.stepM:], 6*g.stepM, g.f)
		}
		for y := range fourSide {
			w.k.wino.out(out[fourSide*y*g.f:], g.f, half[6*y*g.f:], g.f, g.f)
		}
		n := min(fourSide, g.to[2]-fourSide*j)
		for y := range min(fourSide, g.to[1]-fourSide*(first+row)) {
			at := (frame*g.to[1]+fourSide*(first+row)+y)*g.to[2] + fourSide*j
			w.k.write(r.v, at*g.f, out[fourSide*y*g.f:][:n*g.f])
		}
	}
}
