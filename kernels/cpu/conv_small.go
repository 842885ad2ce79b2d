package cpu

import "github.com/lfactor/lfactor/kernels"

// Convolutions of small pictures. Groups of a tile's rows are neighbouring places along the last axis, and a
// sum runs over as many of them at a time; where that axis is short, both are cut badly. So samples take its
// place: a group is one place of several samples. Of the axes before it the outer one leaves taps outside the
// tensor out of its sums, where the others multiply zeros. Each result is the same sum in the same order.

// acrossWork is the words of a task's inputs, most of the second-level cache: the weights, which it reads
// once, are many times as many.
const acrossWork = 160 << 10

// acrossBy are what an axis of samples costs at most of what the last axis would, for it to be taken.
const acrossBy = 0.9

// runCost is what begins a run of a sum, in places of it.
const runCost = 2

// turnsTo tells whether samples can be the last axis, and gives the axes of the picture, the outer one first.
func (s *convShape) turnsTo() (outer, inner int, can bool) {
	can = s.groups == 1 && min(s.ch, s.outs) >= fewChannels && s.in[0] == 1 && s.out[0] == 1 &&
		s.win[0] == kernels.Window{Size: 1, Stride: 1, Dilation: 1}
	if s.in[1] == 1 && s.out[1] == 1 && s.size[1] == 1 { // there is one axis
		return 2, 1, can
	}
	return 1, 2, can
}

// turned is the convolution of so many samples at a time as the last axis. The last of several times are as
// many, some of them again.
func (s *convShape) turned(samples int) *convShape {
	o, i, _ := s.turnsTo()
	t := *s
	t.n, t.across = ceilDiv(s.n, samples), s.n
	t.in, t.out = grid{s.in[o], s.in[i], samples}, grid{s.out[o], s.out[i], samples}
	t.size = grid{s.size[o], s.size[i], 1}
	t.win = [kernels.Space]kernels.Window{s.win[o], s.win[i], {Size: 1, Stride: 1, Dilation: 1}}
	return &t
}

// meets is the share of the taps along an axis that meet the input.
func (s *convShape) meets(axis int) float64 {
	n, w := 0, s.win[axis]
	for o := range s.out[axis] {
		for k := range s.size[axis] {
			n += b2i(uint(o*w.Stride-w.Before+k*w.Dilation) < uint(s.in[axis]))
		}
	}
	return float64(n) / float64(max(1, s.out[axis]*s.size[axis]))
}

// turnedFor is the convolution from the places of from, of c channels, to those of to, of which those at
// strides are computed at a time: turned if that serves, and as it is where not.
func (b *Backend) turnedFor(s *convShape, from, to grid, c int, strides [kernels.Space]int) *convShape {
	outer, inner, can := s.turnsTo()
	group := b.k.mr / 3
	if !can || s.n < group || to[2] == 0 {
		return s
	}
	grouped := func(n int) float64 { return float64(roundUp(n, group)) / float64(n) }
	if grouped(s.n)*s.meets(outer) > acrossBy*grouped(ceilDiv(to[2], strides[2])) {
		return s
	}
	words := from[outer] * (from[inner] + (s.size[inner]-1)*s.win[inner].Dilation) * (c + line)
	times := ceilDiv(s.n, max(3*group, acrossWork/max(1, words)))
	return s.turned(min(s.n, roundUp(ceilDiv(s.n, times), group)))
}

// turnedSums is the convolution whose gradient of weights is summed over samples first, if that serves.
func (s *convShape) turnedSums() *convShape {
	outer, _, can := s.turnsTo()
	if !can || s.n == 0 || s.out[2] == 0 {
		return s
	}
	runs := func(n int) float64 { return 1 + runCost/float64(n) }
	if runs(s.n)*s.meets(outer) > acrossBy*runs(s.out[2]) {
		return s
	}
	return s.turned(s.n)
}

// lineOf is the first of a line of places of a grid, and how far the others are apart. With samples as the
// last axis across tells how many there are of them.
func lineOf(of grid, across, n, z, y int) (at, apart int) {
	if across > 0 {
		return (min(n*of[2], across-of[2])*of[0]+z)*of[1] + y, of[0] * of[1]
	}
	return ((n*of[0]+z)*of[1] + y) * of[2], 1
}

// copyPlaces copies n places of ch channels, apart in the source and room elements in dst.
func (w *worker) copyPlaces(dst view, to, room int, src view, at, apart, n, ch int) {
	if room == ch && apart == 1 {
		w.copyIn(dst, to, src, at*ch, n*ch)
		return
	}
	for i := range n {
		w.copyIn(dst, to+i*room, src, (at+i*apart)*ch, ch)
	}
}
