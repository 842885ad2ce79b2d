package cpu

import (
	"runtime"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// fourSums are the gradients of the weights of some outputs and some taps of the first axis.
type fourSums struct {
	*four
	out, outs int // the first output, and how many
	tap, taps int
	tall      int // outputs in panels of a tile's rows
	c         []float32
}

// gradientBy4 is the gradient of the weights: sums over tiles of products of transformed inputs and
// cotangents, place by place, transformed back to kernels. The outputs, and taps of the first axis, of which
// the sums do not fit are done one part after the other.
func (b *Backend) gradientBy4(p *wino, dy, dw *tensor.Tensor, acc bool) {
	g := b.fourOf(p)
	tap := fourPlaces * roundUp(p.c, b.k.nr)
	outs := min(p.f, max(b.k.mr, fourRoom/tap/b.k.mr*b.k.mr))
	taps := max(1, min(p.frames, fourRoom/tap/outs))
	s := &fourSums{four: g, tall: ceilDiv(outs, b.k.mr)}
	s.c = b.shared.f32(taps * tap * s.tall * b.k.mr)
	for s.out = 0; s.out < p.f; s.out += outs {
		for s.tap = 0; s.tap < p.frames; s.tap += taps {
			s.outs, s.taps = min(outs, p.f-s.out), min(taps, p.frames-s.tap)
			for first := 0; first < g.down; first += g.rows {
				if g.rows < g.down || s.out == 0 && s.tap == 0 { // else they are there
					b.fourInputs(g, first)
					b.fourCotangents(g, viewOf(dy), first)
				}
				b.fourSum(s, g.chunk(first), first > 0)
			}
			b.fourGradients(s, dw.F32(), acc)
		}
	}
}

// fourCotangents transforms the cotangents of a chunk, to where the products of outputs are in winogradBy4.
func (b *Backend) fourCotangents(g *four, dy view, first int) {
	rows := g.chunk(first)
	b.shareWork(g.n*g.to[0]*rows, g.n*g.to.places()*g.f*elementCost, func(w *worker, i int) {
		long := fourSide * g.across * g.f
		six := w.arena.f32(6 * long)
		for a := range fourSide {
			d, n := six[a*long:(a+1)*long], g.to[2]*g.f
			if y := fourSide*(first+i%rows) + a; y < g.to[1] {
				w.k.read(d[:n], dy, (i/rows*g.to[1]+y)*n)
				clear(d[n:])
			} else {
				clear(d)
			}
		}
		w.k.wino.cotangent(six, long, six, long, long)
		for j := range g.across {
			for a := range 6 {
				w.k.wino.cotangent(g.m[6*a*g.stepM+(i*g.across+j)*g.ldf:], g.stepM, six[a*long+fourSide*j*g.f:],
					g.f, g.f)
			}
		}
	})
}

// fourSum sets or adds the products of a chunk.
func (b *Backend) fourSum(s *fourSums, rows int, acc bool) {
	tiles := rows * s.across
	columns := roundUp(s.four.wino.c, b.k.nr)
	tables := make([][]int, s.taps)
	for t := range tables {
		for to := range s.n * s.to[0] {
			if from := s.frame(to%s.to[0], s.tap+t); from >= 0 {
				tables[t] = append(tables[t], 4*to*tiles*s.ldf, 4*(to/s.to[0]*s.from[0]+from)*tiles*s.ldc)
			}
		}
	}
	panels := columns / b.k.nr
	height := s.tall * b.k.mr * columns
	most := max(1, callMax/(b.k.mr*b.k.nr*tiles*max(1, s.n*s.to[0])))
	work := s.n * s.to[0] * tiles * fourPlaces * s.outs * columns * s.taps
	b.shareWork(s.taps*fourPlaces*panels, work, func(w *worker, i int) {
		tap, place, j := i/(fourPlaces*panels), i/panels%fourPlaces, i%panels*b.k.nr
		args := sumArgs{aStep: 4 * s.ldf, aNext: 4 * b.k.mr, b: address(s.v[place*s.stepV+j:]), half: 4 * halfPanel,
			bStep: 4 * s.ldc, table: address(tables[tap]), k: tiles, row: 4 * columns, cNext: 4 * b.k.mr * columns}
		args.end = args.table + uintptr(8*len(tables[tap]))
		if acc {
			args.acc = 1
		}
		for at := 0; at < ceilDiv(s.outs, b.k.mr); at += most {
			part := args
			part.a = address(s.m[place*s.stepM+s.out+at*b.k.mr:])
			part.c = address(s.c[(tap*fourPlaces+place)*height+at*b.k.mr*columns+j:])
			part.n = min(most, ceilDiv(s.outs, b.k.mr)-at)
			w.k.sumTile(&part)
		}
	})
	runtime.KeepAlive(tables)
}

// fourGradients transforms sums back to kernels, and sets or adds them to weights [f, c, taps].
func (b *Backend) fourGradients(s *fourSums, dw []float32, acc bool) {
	c, columns := s.four.wino.c, roundUp(s.four.wino.c, b.k.nr)
	height, wide := s.tall*b.k.mr*columns, roundUp(c, 16)
	b.rows(s.outs, c*s.taps*fourPlaces, func(w *worker, from, to int) {
		half, rows := w.arena.f32(18*c), w.arena.zero(roundUp(9*s.taps, 16)*wide+16)
		tmp := w.arena.f32(roundUp(9*s.taps, 16)*wide + 16)
		for f := from; f < to; f++ {
			for t := range s.taps {
				src := s.c[t*fourPlaces*height+f*columns:]
				for x := range 6 {
					w.k.wino.gradient(half[x*c:], 6*c, src[x*height:], 6*height, c)
				}
				for y := range 3 {
					w.k.wino.gradient(rows[(9*t+3*y)*wide:], wide, half[6*y*c:], c, c)
				}
			}
			sum := w.turnTaps(tmp, rows, wide, c, 9*s.taps)
			s.store(w, dw[(s.out+f)*c*9*s.frames:], sum, acc)
		}
	})
}

// store sets or adds gradients [c, taps] of an output to its weights, which may have more taps.
func (s *fourSums) store(w *worker, dw, sum []float32, acc bool) {
	n, all := 9*s.taps, 9*s.frames
	if n == all {
		n, all = len(sum), len(sum)
	}
	for i := 0; i < len(sum)/n; i++ {
		if dst := dw[i*all+9*s.tap:][:n]; acc {
			w.k.add(dst, dst, sum[i*n:(i+1)*n])
		} else {
			copy(dst, sum[i*n:])
		}
	}
}
