package cpu

import (
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Convolutions with kernels of 3 by 3 and stride 1 in float32 by Winograd's F(2×2, 3×3) (arXiv:1509.09308):
// 4×4 inputs and the kernel are transformed, multiplied place by place, and each 2×2 outputs transformed
// back, which takes 16 products where 36 would be. Its sums and differences have the coefficients 0, 1 and ½
// only, so that errors are those of a few more roundings. Products go over channels as matrices do. A first
// axis of space, time, is summed over among the transformed. Larger transforms would save more and lose
// digits.

const (
	winoPlaces = 16
	winoTiles  = 48      // of 2 by 2 outputs, the least that a task multiplies with all weights
	winoWork   = 3 << 17 // elements of a task's transformed inputs and products
	winoSums   = 4 << 20 // of those of all tasks whose products are added up for the weights' gradient
	winoLeast  = 16      // channels on either side
	winoFewest = 48      // tiles, below which weights take longer to transform than is saved
)

// wino is one convolution, or its gradient to x: of c channels at the places of from to f at those of to.
type wino struct {
	src      view
	n, c, f  int
	from, to grid
	edge     [2]int                // padding before the last two axes
	frames   int                   // taps along the first axis
	frame    func(to, tap int) int // the place along it that a tap of a result's is, -1 for none
	minus    []float32             // -1 for each channel of a row
	down     int                   // tiles along the last but one axis
	across   int                   // and along the last
}

// widens tells whether numbers of a dtype are multiplied as float32s.
func (b *Backend) widens(d tensor.DType) bool { return d != tensor.BF16 || !b.k.amx }

// winograds tells whether a convolution is one for Winograd's way.
func (s *convShape) winograds() bool {
	for _, w := range s.win[1:] {
		if w.Size != 3 || w.Stride != 1 || w.Dilation != 1 {
			return false
		}
	}
	return s.groups == 1 && s.ch >= winoLeast && s.outs >= winoLeast && s.out[1] > 1 && s.out[2] > 1 &&
		s.n*s.out[0]*ceilDiv(s.out[1], 2)*ceilDiv(s.out[2], 2) >= winoFewest
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

// tiled counts the tiles of 2 by 2 outputs in each direction, and makes a row of -1 for subtracting
// by multiplication.
func (p *wino) tiled(b *Backend) *wino {
	p.down, p.across = ceilDiv(p.to[1], 2), ceilDiv(p.to[2], 2)
	p.minus = b.shared.f32(max(p.from[2]*p.c, p.to[2]*p.f))
	for i := range p.minus {
		p.minus[i] = -1
	}
	return p
}

// sub sets y = a - b; minus is as long as they are.
func (w *worker) sub(y, a, b, minus []float32) { w.k.layer(y, b, minus[:len(y)], a, 0, 1) }

// winoWeights transforms the kernels of one tap of the first axis, [16, f, c], in the order of weights w [f,
// c, …].
func (b *Backend) winoWeights(dst, w []float32, rows, cols, taps, at int) {
	size := rows * cols
	b.rows(rows, cols*9, func(k *worker, from, to int) {
		wide := roundUp(cols, 16)
		g, part, tmp := k.arena.zero(16*wide), k.arena.zero(16*16+16*taps), k.arena.f32(12*wide)
		for r := from; r < to; r++ {
			src := w[r*cols*taps:]
			for c := 0; c < cols; c += 16 {
				n := min(16, cols-c)
				have := part[:16*taps+16]
				copy(have, src[c*taps+at:min(len(src), (c+n-1)*taps+at+9)])
				k.k.transpose(g[c:], wide, have, taps, 1)
			}
			k.winoKernel(tmp, g, wide, cols)
			for p := range winoPlaces {
				k.winoKernelPlace(dst[p*size+r*cols:][:cols], tmp, p, wide)
			}
		}
	})
}

// winoKernel transforms columns of kernels: rows 3a+b of tmp from g's 3κ+b, for a = 0…3.
func (w *worker) winoKernel(tmp, g []float32, wide, cols int) {
	row := func(v []float32, i int) []float32 { return v[i*wide:][:cols] }
	for b := range 3 {
		g0, g1, g2 := row(g, b), row(g, 3+b), row(g, 6+b)
		copy(row(tmp, b), g0)
		w.half3(row(tmp, 3+b), g0, g1, g2, 1)
		w.half3(row(tmp, 6+b), g0, g1, g2, -1)
		copy(row(tmp, 9+b), g2)
	}
}

// half3 sets y = ½(a + sign·b + c).
func (w *worker) half3(y, a, b, c []float32, sign float32) {
	w.k.add(y, a, c)
	w.k.axpy(y, b, sign)
	w.k.scale(y, y, 0.5)
}

// winoKernelPlace transforms rows: place 4a+b from tmp's 3a….
func (w *worker) winoKernelPlace(y, tmp []float32, place, wide int) {
	row := func(i int) []float32 { return tmp[(place/4*3+i)*wide:][:len(y)] }
	switch place % 4 {
	case 0:
		copy(y, row(0))
	case 1:
		w.half3(y, row(0), row(1), row(2), 1)
	case 2:
		w.half3(y, row(0), row(1), row(2), -1)
	default:
		copy(y, row(2))
	}
}

// winoTurned is the place whose transform is that of a kernel turned round.
var winoTurned = [4]int{3, 1, 2, 0}

// wideWeights are weights as float32s.
func (b *Backend) wideWeights(w *tensor.Tensor) []float32 {
	if w.DType == tensor.F32 {
		return w.F32()
	}
	v := b.shared.f32(w.Len())
	b.rows(w.Shape[0], w.Len()/w.Shape[0], func(k *worker, from, to int) {
		n := w.Len() / w.Shape[0]
		k.k.read(v[from*n:to*n], viewOf(w), from*n)
	})
	return v
}

// winoPack packs the transformed kernels of all taps as right sides: [taps, 16] of panels, step apart.
// turned is for kernels that are turned round, whose sums go over their first axis.
func (b *Backend) winoPack(w []float32, f, c, frames int, turned bool) (packed []float32, step int) {
	n, sum, taps := f, c, 9*frames
	if turned {
		n, sum = c, f
	}
	next := panelLen(b.k.nr, sum)
	panels := ceilDiv(n, b.k.nr)
	step = panels * next
	packed = b.shared.f32(frames * winoPlaces * step)
	defer b.shared.release(b.shared.mark())
	plain := b.shared.f32(winoPlaces * f * c)
	for t := range frames {
		b.winoWeights(plain, w, f, c, taps, 9*t)
		b.shareWork(winoPlaces, winoPlaces*f*c*16, func(k *worker, p int) {
			from := p
			if turned {
				from = winoTurned[p/4]*4 + winoTurned[p%4]
			}
			m := matrix{v: view{f: plain[from*f*c : (from+1)*f*c]}, ld: c, trans: turned}
			k.panels(packed[(t*winoPlaces+p)*step:], next, b.k.nr, panels, m, 0, n, 0, sum)
		})
	}
	return packed, step
}

// winograd computes a result of rows r.ld apart from transformed kernels.
func (b *Backend) winograd(p *wino, r result, packed []float32, step int) {
	rows := max(1, max(winoTiles, winoWork/(winoPlaces*(p.c+p.f)))/p.across)
	rows = min(rows, max(1, ceilDiv(p.down*p.n*p.to[0], 3*len(b.team.workers))))
	blocks := ceilDiv(p.down, rows)
	work := p.n * p.to[0] * p.down * p.across * winoPlaces * p.c * p.f
	b.shareWork(p.n*p.to[0]*blocks, work, func(w *worker, task int) {
		at := task % blocks * rows
		w.winoTask(p, r, packed, step, task/blocks, at, min(rows, p.down-at))
	})
}

// winoTask computes some rows of tiles of one frame of a sample.
func (w *worker) winoTask(p *wino, r result, packed []float32, step, frame, first, rows int) {
	tiles, mr := rows*p.across, w.k.mr
	tall := roundUp(tiles, mr)
	v, m := w.arena.f32(winoPlaces*tall*p.c), w.arena.f32(winoPlaces*tiles*p.f)
	acc := false
	for t := range p.frames {
		from := p.frame(frame%p.to[0], t)
		if from < 0 {
			continue
		}
		w.winoInputs(p, v, tall*p.c, frame/p.to[0]*p.from[0]+from, first, rows)
		for k := range winoPlaces {
			x := operand{v: v[k*tall*p.c:][:tall*p.c], row: p.c, step: 1, next: mr * p.c}
			y := columns{v: packed[(t*winoPlaces+k)*step:][:step], step: w.k.nr, next: panelLen(w.k.nr, p.c)}
			w.product(m[k*tiles*p.f:][:tiles*p.f], p.f, tiles, p.f, p.c, x, y, acc)
		}
		acc = true
	}
	if !acc {
		clear(m)
	}
	w.winoOutputs(p, r, m, tiles*p.f, frame, first, rows)
}

// winoInputs transforms the inputs of some rows of tiles of a frame: place k of tile i at dst[k*step+i*c].
func (w *worker) winoInputs(p *wino, dst []float32, step, frame, first, rows int) {
	defer w.arena.release(w.arena.mark())
	line := (2*p.across + 2) * p.c
	pad := w.arena.zero(4 * line)
	lo, at := max(0, -p.edge[1]), max(0, p.edge[1])
	n := max(0, min(p.from[2]-lo, 2*p.across+2-at)) * p.c
	for i := range rows {
		m := w.arena.mark()
		var d [4][]float32
		for a := range d {
			if y := 2*(first+i) - p.edge[0] + a; y >= 0 && y < p.from[1] {
				d[a] = w.in(p.src, ((frame*p.from[1]+y)*p.from[2]+lo)*p.c, n)
			}
		}
		t := func(a int) []float32 { return pad[a*line+at*p.c:][:n] }
		w.difference(t(0), d[0], d[2], p.minus)
		w.total(t(1), d[1], d[2])
		w.difference(t(2), d[2], d[1], p.minus)
		w.difference(t(3), d[1], d[3], p.minus)
		w.arena.release(m)
		for j := range p.across {
			out := dst[(i*p.across+j)*p.c:]
			for a := range 4 {
				q, to := pad[a*line+2*j*p.c:], out[4*a*step:]
				q0, q1, q2, q3 := q[:p.c], q[p.c:2*p.c], q[2*p.c:3*p.c], q[3*p.c:4*p.c]
				w.sub(to[:p.c], q0, q2, p.minus)
				w.k.add(to[step:][:p.c], q1, q2)
				w.sub(to[2*step:][:p.c], q2, q1, p.minus)
				w.sub(to[3*step:][:p.c], q1, q3, p.minus)
			}
		}
	}
}

// difference is y = a - b, and total y = a + b, where a nil one counts as zeros.
func (w *worker) difference(y, a, b, minus []float32) {
	switch {
	case b == nil:
		w.total(y, a, nil)
	case a == nil:
		w.k.scale(y, b, -1)
	default:
		w.sub(y, a, b, minus)
	}
}

// total is the sum of two rows, of which nil stands for zeros.
func (w *worker) total(y, a, b []float32) {
	switch {
	case a == nil && b == nil:
		clear(y)
	case a == nil:
		copy(y, b)
	case b == nil:
		copy(y, a)
	default:
		w.k.add(y, a, b)
	}
}

// winoOutputs transforms products back and writes the outputs of some rows of tiles.
func (w *worker) winoOutputs(p *wino, r result, m []float32, step, frame, first, rows int) {
	at := func(a, b int) []float32 { return m[(4*a+b)*step:][:step] }
	for i := range 4 {
		w.winoSum(at(i, 0), at(i, 1), at(i, 2), at(i, 3))
	}
	for j := range 2 {
		w.winoSum(at(0, j), at(1, j), at(2, j), at(3, j))
	}
	for i := range rows {
		for j := range p.across {
			for q := range 4 {
				y, x := 2*(first+i)+q/2, 2*j+q%2
				if y >= p.to[1] || x >= p.to[2] {
					continue
				}
				row := at(q/2, q%2)[(i*p.across+j)*p.f:][:p.f]
				if r.bias != nil {
					w.k.add(row, row, r.bias)
				}
				w.k.write(r.v, ((frame*p.to[1]+y)*p.to[2]+x)*r.ld, row)
			}
		}
	}
}

// winoSum sets a += b + c and b -= c + d.
func (w *worker) winoSum(a, b, c, d []float32) {
	w.k.add(a, a, b)
	w.k.add(a, a, c)
	w.k.axpy(b, c, -1)
	w.k.axpy(b, d, -1)
}
