package cpu

import "github.com/lfactor/lfactor/kernels/tensor"

// winoGradient is the gradient of the weights: sums over tiles of products of transformed inputs and
// outputs, place by place, transformed back to kernels.
func (b *Backend) winoGradient(s *convShape, dy, x *tensor.Tensor, dw []float32, acc bool) {
	p, ys := winoForward(s, x).tiled(b), viewOf(dy)
	taps, size := s.taps(), p.f*p.c
	sums := b.shared.f32(winoPlaces * size)
	lines := max(1, winoSums/(winoPlaces*(p.c+p.f)*p.across)) // rows of tiles whose transforms are held
	lines = min(lines, p.n*p.to[0]*p.down)
	tiles := lines * p.across
	v, m := b.shared.f32(winoPlaces*tiles*p.c), b.shared.f32(winoPlaces*tiles*p.f)
	for t := range p.frames {
		clear(sums)
		units := p.units(t)
		for at := 0; at < len(units); at += lines {
			some := units[at:min(at+lines, len(units))]
			b.shareWork(len(some), len(some)*p.across*winoPlaces*(p.c+p.f)*4, func(w *worker, i int) {
				u := some[i]
				w.winoInputs(p, v[i*p.across*p.c:], tiles*p.c, u.from, u.row, 1)
				w.winoCotangents(p, ys, m[i*p.across*p.f:], tiles*p.f, u.to, u.row)
			})
			for k := range winoPlaces {
				left := matrix{v: view{f: m[k*tiles*p.f:][:tiles*p.f]}, ld: p.f, trans: true}
				right := matrix{v: view{f: v[k*tiles*p.c:][:tiles*p.c]}, ld: p.c, trans: true}
				r := result{v: view{f: sums[k*size:][:size]}, ld: p.c, acc: true}
				b.blocked(r, left, right, p.f, p.c, len(some)*p.across)
			}
		}
		b.winoKernels(dw, sums, p.f, p.c, taps, 9*t, acc)
	}
}

// winoUnit is a row of tiles of a frame of the result, and the frame of the input that a tap meets there;
// both are counted over all samples.
type winoUnit struct{ from, to, row int }

// units are those of one tap of the first axis.
func (p *wino) units(tap int) (l []winoUnit) {
	for to := range p.n * p.to[0] {
		if from := p.frame(to%p.to[0], tap); from >= 0 {
			for row := range p.down {
				l = append(l, winoUnit{to/p.to[0]*p.from[0] + from, to, row})
			}
		}
	}
	return l
}

// winoCotangents transforms the cotangents of a row of tiles: place k of tile j at dst[k*step+j*f].
func (w *worker) winoCotangents(p *wino, dy view, dst []float32, step, frame, row int) {
	defer w.arena.release(w.arena.mark())
	n, line := p.to[2]*p.f, 2*p.across*p.f
	pad := w.arena.zero(4 * line)
	var d [2][]float32
	for a := range d {
		if y := 2*row + a; y < p.to[1] {
			d[a] = w.in(dy, (frame*p.to[1]+y)*n, n)
		}
	}
	t := func(a int) []float32 { return pad[a*line:][:n] }
	w.total(t(0), d[0], nil)
	w.total(t(1), d[0], d[1])
	w.difference(t(2), d[0], d[1], p.minus)
	w.difference(t(3), nil, d[1], p.minus)
	for j := range p.across {
		out := dst[j*p.f:]
		for a := range 4 {
			q, to := pad[a*line+2*j*p.f:], out[4*a*step:]
			q0, q1 := q[:p.f], q[p.f:2*p.f]
			copy(to[:p.f], q0)
			w.k.add(to[step:][:p.f], q0, q1)
			w.sub(to[2*step:][:p.f], q0, q1, p.minus)
			w.k.scale(to[3*step:][:p.f], q1, -1)
		}
	}
}

// winoKernels transforms sums of products [16, f, c] back to kernels of 3 by 3, and sets or adds those of
// one tap of the first axis, from at on, to weights [f, c, taps].
func (b *Backend) winoKernels(dw, sums []float32, f, c, taps, at int, acc bool) {
	b.rows(f, c*winoPlaces, func(w *worker, from, to int) {
		wide := roundUp(c, 16)
		g, tmp, turned := w.arena.zero(16*wide), w.arena.f32(c), w.arena.f32(16*wide+16)
		for r := from; r < to; r++ {
			row := func(a, b int) []float32 { return sums[((4*a+b)*f+r)*c:][:c] }
			for a := range 4 {
				w.winoFold(row(a, 0), row(a, 1), row(a, 2), row(a, 3), tmp)
			}
			for j := range 3 {
				w.winoFold(row(0, j), row(1, j), row(2, j), row(3, j), tmp)
			}
			for k := range 9 {
				copy(g[k*wide:][:c], row(k/3, k%3))
			}
			w.k.transpose(turned, 16, g, wide, wide/16)
			dst := dw[r*c*taps:]
			for q := range c {
				for k, v := range turned[q*16 : q*16+9] {
					if acc {
						v += dst[q*taps+at+k]
					}
					dst[q*taps+at+k] = v
				}
			}
		}
	})
}

// winoFold sets (a, b, c) to (a + ½(b + c), ½(b - c), ½(b + c) + d); tmp is as long.
func (w *worker) winoFold(a, b, c, d, tmp []float32) {
	w.k.add(tmp, b, c)
	w.k.axpy(b, c, -1)
	w.k.scale(b, b, 0.5)
	w.k.scale(c, tmp, 0.5)
	w.k.add(a, a, c)
	w.k.add(c, c, d)
}
