package cpu

import "github.com/lfactor/lfactor/kernels/tensor"

// Convolutions in float32 whose gathered inputs are multiplied where they were gathered, instead of being packed,
// and those of few channels, as pictures have: products with three columns would take longer than the sums.

const (
	fewWork     = 1 << 16 // elements of the gathered rows of a task, some of the second-level cache
	longRows    = 96      // of long rows, the least that a task multiplies with all weights
	fewChannels = 16      // below which the gradient to the input is scattered instead of gathered
)

// whole tells whether rows of g are those of the tensor, and where they begin.
func (g *gathered) whole() (m matrix, is bool) {
	is = len(g.offs) == 1 && g.offs[0] == grid{} && g.step == grid{1, 1, 1} && g.from == g.rows
	if is {
		m = matrix{v: g.v.from(min(g.first, g.count()*g.ch)), ld: g.ch}
	}
	return m, is
}

// isWhole tells whether rows of g are those of the tensor: a plain product.
func (g *gathered) isWhole() bool {
	_, is := g.whole()
	return is
}

// gatheredRows is gatheredProduct in float32: each task gathers some rows and multiplies them as they lie, a
// part of their sums after the other.
func (b *Backend) gatheredRows(r result, g *gathered, right matrix, n int) {
	width, mr := g.width(), b.k.mr
	ld := roundUp(width, line) + line // no power of two apart
	kc := ceilDiv(width, ceilDiv(width, kcMax))
	next := panelLen(b.k.nr, kc)
	panels, parts := ceilDiv(n, b.k.nr), ceilDiv(width, kc)
	of := packedOf{right.v.at(), 'g', [8]int{right.ld, n, width, next, b2i(right.trans)}}
	packed, made := b.lasting(of, parts*panels*next)
	if !made {
		b.shareWork(parts*panels, n*width*16, func(w *worker, i int) {
			p, j := i/panels*kc, i%panels*b.k.nr
			w.panels(packed[i*next:], next, b.k.nr, 1, right, j, n, p, min(kc, width-p))
		})
	}
	rows := max(mr, fewWork/ld/mr*mr)
	if rows < longRows {
		rows = roundUp(min(longRows, ceilDiv(g.count(), 2*len(b.team.workers))), mr)
	}
	b.shareWork(ceilDiv(g.count(), rows), g.count()*n*width, func(w *worker, task int) {
		at := task * rows
		m := min(rows, g.count()-at)
		left := w.arena.f32(roundUp(m, mr) * ld)
		for i := range m {
			g.copyRow(view{f: left}, i*ld, at+i)
			if r.bias != nil {
				copy(r.v.f[(at+i)*r.ld:], r.bias)
			}
		}
		for k := range parts {
			x := operand{v: left[k*kc:], row: ld, step: 1, next: mr * ld}
			y := columns{v: packed[k*panels*next:], step: b.k.nr, next: next}
			w.product(r.v.f[at*r.ld:], r.ld, m, n, min(kc, width-k*kc), x, y, k > 0 || r.bias != nil)
		}
	})
}

// scatters tells whether the gradient to the input is the product of cotangents and weights, whose rows are
// then added to the places that they were gathered from.
func (s *convShape) scatters() bool {
	return s.groups == 1 && s.ch < fewChannels && s.win[2].Dilation == 1 && s.taps() > 1 && s.outs > 0
}

// apart is how many outputs are from one whose taps along the last axis begin behind those of another.
func (s *convShape) apart() int { return ceilDiv(s.size[2], s.win[2].Stride) }

// placesTimes sets products to those of the places of a sample's cotangents and right, where they lie if there
// is a kernel for it.
func (b *Backend) placesTimes(s *convShape, products []float32, dy view, right matrix) {
	width, g := right.ld, &gathered{v: dy, ch: s.outs, each: s.outs, n: 1, from: s.out, rows: s.out,
		step: grid{1, 1, 1}, offs: make([]grid, 1)}
	defer b.shared.release(b.shared.mark())
	if !b.directs(s, g, dy.d) {
		left := matrix{v: dy, ld: s.outs}
		b.blocked(result{v: view{f: products}, ld: width}, left, right, s.out.places(), width, s.outs)
		return
	}
	d := b.directOf(g, width)
	d.makeRoom(b)
	b.packColumns([]*direct{d}, right.v, 1, [][]int{{0}})
	b.multiplyDirectly(d, result{v: view{f: products}, ld: width})
}

// scatterDX sets dx of one sample after the other from rows of products. Those of outputs whose taps overlap are added
// up apart, in the order of taps, since an addition to what was just stored in part would wait for it.
func (b *Backend) scatterDX(s *convShape, dy, w, dx *tensor.Tensor, bias []float32) {
	width, rows := s.taps()*s.ch, s.out.places()
	right := b.weightsOf(w, 0, s.outs, width, s.ch, s.taps(), all(s.taps()))
	right.trans = true
	products := b.shared.f32(rows * width)
	line, apart := s.in[2]*s.ch, s.apart()
	for n := range s.n {
		b.placesTimes(s, products, viewOf(dy).from(n*rows*s.outs), right)
		b.rows(s.in[0]*s.in[1], line*s.size[0]*s.size[1], func(k *worker, from, to int) {
			for i := from; i < to; i++ {
				m := k.arena.mark()
				sums := k.arena.zero(apart * line)
				k.scatterLine(s, sums, products, i/s.in[1], i%s.in[1])
				sum := sums[:line]
				for j := line; j < len(sums); j += line {
					k.k.add(sum, sum, sums[j:j+line])
				}
				if bias != nil {
					for j := range sum {
						sum[j] += bias[j%s.ch]
					}
				}
				k.k.write(viewOf(dx), (n*s.in[0]*s.in[1]+i)*line, sum)
				k.arena.release(m)
			}
		})
	}
}

// scatterLine adds the products of all taps that meet one line of the input, in turns to as many sums
// as outputs overlap.
func (w *worker) scatterLine(s *convShape, sums, products []float32, i0, i1 int) {
	width, run, t := s.taps()*s.ch, s.size[2]*s.ch, s.win[2]
	line, apart := s.in[2]*s.ch, s.apart()
	for k := range s.size[0] * s.size[1] {
		o0, meets0 := s.output(0, i0, k/s.size[1])
		o1, meets1 := s.output(1, i1, k%s.size[1])
		if !meets0 || !meets1 {
			continue
		}
		tap := products[(o0*s.out[1]+o1)*s.out[2]*width+k*run:]
		some := func(o, n int) { // every apart-th output from o on, each with all of its run
			w.k.addRuns(sums[o%apart*line+(o*t.Stride-t.Before)*s.ch:], apart*t.Stride*s.ch, tap[o*width:],
				apart*width, n, run)
		}
		lo, hi := s.inside()
		for o := lo; o < min(lo+apart, hi); o++ {
			some(o, ceilDiv(hi-o, apart))
		}
		for o := range s.out[2] {
			if o >= lo && o < hi {
				continue
			}
			at := (o*t.Stride - t.Before) * s.ch
			if from, to := max(0, -at), min(run, line-at); from < to {
				w.k.addRuns(sums[o%apart*line+at+from:], 0, tap[o*width+from:], 0, 1, to-from)
			}
		}
	}
}

// inside are the outputs of a line all of whose taps lie on it: from lo on, before hi.
func (s *convShape) inside() (lo, hi int) {
	t := s.win[2]
	lo = min(max(0, ceilDiv(t.Before, t.Stride)), s.out[2])
	if last := s.in[2] - s.size[2] + t.Before; last >= 0 {
		hi = min(last/t.Stride+1, s.out[2])
	}
	return lo, max(lo, hi)
}

// output is the output along an axis that meets an input by a tap.
func (s *convShape) output(axis, in, tap int) (o int, meets bool) {
	t := s.win[axis]
	d := in + t.Before - tap*t.Dilation
	o = d / t.Stride
	return o, d >= 0 && d%t.Stride == 0 && o < s.out[axis]
}
