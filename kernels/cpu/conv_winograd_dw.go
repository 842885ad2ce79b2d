package cpu

import (
	"runtime"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// winoSums are the gradients of the weights of some outputs and some taps of the first axis.
type winoSums struct {
	*winoPlan
	out, outs int // the first output, and how many
	tap, taps int
	tall      int // outputs in panels of a tile's rows
	c         []float32
}

// winoGradient is the gradient of the weights: sums over tiles of products of transformed inputs and
// cotangents, place by place, transformed back to kernels. The outputs, and taps of the first axis, of which
// the sums do not fit are done one part after the other.
func (b *Backend) winoGradient(p *wino, m *winoMaps, dy, dw *tensor.Tensor, acc bool) {
	g := b.winoPlanOf(p, m)
	tap := g.places * roundUp(p.c, b.k.nr)
	parts := winoParts(p.f * tap)
	if g.rows < g.down { // each part transforms all chunks again
		parts = ceilDiv(p.f*tap, winoRoom)
	}
	outs := min(p.f, roundUp(ceilDiv(p.f, parts), b.k.mr))
	taps := max(1, min(p.frames, winoRoom/tap/outs))
	s := &winoSums{winoPlan: g, tall: ceilDiv(outs, b.k.mr)}
	s.c = b.shared.f32(taps * tap * s.tall * b.k.mr)
	for s.out = 0; s.out < p.f; s.out += outs {
		for s.tap = 0; s.tap < p.frames; s.tap += taps {
			s.outs, s.taps = min(outs, p.f-s.out), min(taps, p.frames-s.tap)
			for first := 0; first < g.down; first += g.rows {
				if g.rows < g.down || s.out == 0 && s.tap == 0 { // else they are there
					b.winoInputs(g, first)
					b.winoCotangents(g, viewOf(dy), first)
				}
				b.winoSum(s, g.chunk(first), first > 0)
			}
			b.winoGradients(s, dw.F32(), acc)
		}
	}
}

// winoCotangents transforms the cotangents of a chunk, to where the products of outputs are in winograd.
func (b *Backend) winoCotangents(g *winoPlan, dy view, first int) {
	rows := g.chunk(first)
	b.shareWork(g.n*g.to[0]*rows, g.n*g.to.places()*g.f*elementCost, func(w *worker, i int) {
		long := g.side * g.across * g.f
		in := w.arena.f32(g.span * long)
		for a := range g.side {
			d, n := in[a*long:(a+1)*long], g.to[2]*g.f
			if y := g.side*(first+i%rows) + a; y < g.to[1] {
				w.k.read(d[:n], dy, (i/rows*g.to[1]+y)*n)
				clear(d[n:])
			} else {
				clear(d)
			}
		}
		g.maps.cotangent(in, long, in, long, long)
		for j := range g.across {
			for a := range g.span {
				g.maps.cotangent(g.m[g.span*a*g.stepM+(i*g.across+j)*g.ldf:], g.stepM, in[a*long+g.side*j*g.f:], g.f,
					g.f)
			}
		}
	})
}

// winoSum sets or adds the products of a chunk.
func (b *Backend) winoSum(s *winoSums, rows int, acc bool) {
	tiles := rows * s.across
	columns := roundUp(s.wino.c, b.k.nr)
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
	work := s.n * s.to[0] * tiles * s.places * s.outs * columns * s.taps
	b.shareWork(s.taps*s.places*panels, work, func(w *worker, i int) {
		tap, place, j := i/(s.places*panels), i/panels%s.places, i%panels*b.k.nr
		args := sumArgs{aStep: 4 * s.ldf, aNext: 4 * b.k.mr, b: address(s.v[place*s.stepV+j:]), half: 4 * halfPanel,
			bStep: 4 * s.ldc, table: address(tables[tap]), k: tiles, row: 4 * columns, cNext: 4 * b.k.mr * columns}
		args.end = args.table + uintptr(8*len(tables[tap]))
		if acc {
			args.acc = 1
		}
		for at := 0; at < ceilDiv(s.outs, b.k.mr); at += most {
			part := args
			part.a = address(s.m[place*s.stepM+s.out+at*b.k.mr:])
			part.c = address(s.c[(tap*s.places+place)*height+at*b.k.mr*columns+j:])
			part.n = min(most, ceilDiv(s.outs, b.k.mr)-at)
			w.k.sumTile(&part)
		}
	})
	runtime.KeepAlive(tables)
}

// winoGradients transforms sums back to kernels, and sets or adds them to weights [f, c, taps].
func (b *Backend) winoGradients(s *winoSums, dw []float32, acc bool) {
	c, columns := s.wino.c, roundUp(s.wino.c, b.k.nr)
	height, wide := s.tall*b.k.mr*columns, roundUp(c, 16)
	b.rows(s.outs, c*s.taps*s.places, func(w *worker, from, to int) {
		half, rows := w.arena.f32(3*s.span*c), w.arena.zero(roundUp(9*s.taps, 16)*wide+16)
		tmp := w.arena.f32(roundUp(9*s.taps, 16)*wide + 16)
		for f := from; f < to; f++ {
			for t := range s.taps {
				src := s.c[t*s.places*height+f*columns:]
				for x := range s.span {
					s.maps.gradient(half[x*c:], s.span*c, src[x*height:], s.span*height, c)
				}
				for y := range 3 {
					s.maps.gradient(rows[(9*t+3*y)*wide:], wide, half[s.span*y*c:], c, c)
				}
			}
			sum := w.turnTaps(tmp, rows, wide, wide/16, c, 9*s.taps)
			s.store(w, dw[(s.out+f)*c*9*s.frames:], sum, acc)
		}
	})
}

// store sets or adds gradients [c, taps] of an output to its weights, which may have more taps.
func (s *winoSums) store(w *worker, dw, sum []float32, acc bool) {
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
