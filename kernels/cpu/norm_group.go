package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.GroupNorm], table[kernels.GroupNormDX] = groupNorm, groupNormDX
	table[kernels.GroupNormDW] = groupNormDW
	table[kernels.GroupMoments], table[kernels.GroupJoin] = groupMoments, groupJoin
	table[kernels.GroupScale], table[kernels.GroupScaleDX] = groupScale, groupScaleDX
	table[kernels.FrozenNorm], table[kernels.FrozenNormDX] = frozenNorm, frozenNormDX
}

// mapped is the channels of a tensor [n, …, c] by their groups. Several places of few channels are one of as
// many times the channels, since primitives are slow on short rows.
type mapped struct {
	n, places, c, g int
	channels        int // c is a multiple of them
	chunk           int // places whose sums are taken in one: what the order of sums depends on
}

const (
	mappedRow   = 512     // channels of a place, about
	mappedChunk = 1 << 15 // elements of a chunk, about
)

// mappedOf reads the shapes of a norm over groups of channels; statistics are [n, groups].
func mappedOf(x, stats *tensor.Tensor) mapped {
	s := mapped{n: x.Shape[0], c: lastDim(x), g: lastDim(stats), channels: lastDim(x)}
	s.places = x.Len() / max(1, s.n*s.c)
	for s.places > 0 && s.places%2 == 0 && 2*s.c <= mappedRow {
		s.places, s.c = s.places/2, 2*s.c
	}
	s.chunk = max(1, mappedChunk/max(1, s.c))
	return s
}

// vector is a vector of channels for all of a place, zeros without one.
func (b *Backend) vector(s mapped, t *tensor.Tensor) []float32 {
	v := b.shared.zero(s.c)
	if t != nil && s.channels > 0 {
		b.k.read(v[:s.channels], viewOf(t), 0)
		for j := s.channels; j < s.c; j += s.channels {
			copy(v[j:], v[:s.channels])
		}
	}
	return v
}

// chunks is the number of them in a sample.
func (s mapped) chunks() int { return ceilDiv(s.places, s.chunk) }

// group is the group of channel j, of sample n.
func (s mapped) group(n, j int) int { return n*s.g + j%s.channels/(s.channels/s.g) }

// size is the elements of a group, 1 of an empty one.
func (s mapped) size() float64 { return max(1, float64(s.places)*float64(s.c)/float64(s.g)) }

// channelSums lets f add each place's row of channels to sums [kinds, c] of its chunk, and gives those of
// each sample, chunks added up in order: [n, kinds, c].
func (b *Backend) channelSums(s mapped, kinds int, f func(w *worker, n, row int, sums []float32)) []float64 {
	chunks, width := s.chunks(), kinds*s.c
	part := b.shared.f32(s.n * chunks * width)
	b.shareWork(s.n*chunks, s.n*s.places*width*elementCost, func(w *worker, i int) {
		n, at := i/chunks, i%chunks*s.chunk
		sums := part[i*width : (i+1)*width]
		clear(sums)
		for p := at; p < min(at+s.chunk, s.places); p++ {
			m := w.arena.mark()
			f(w, n, n*s.places+p, sums)
			w.arena.release(m)
		}
	})
	all := make([]float64, s.n*width)
	for i := range s.n * chunks {
		for j, v := range part[i*width : (i+1)*width] {
			all[i/chunks*width+j] += float64(v)
		}
	}
	return all
}

// ofSamples are vectors of channels, one a sample: f of each one's group, times w if it is not nil.
func (b *Backend) ofSamples(s mapped, w []float32, f func(group int) float32) []float32 {
	v := b.shared.f32(s.n * s.c)
	if len(v) == 0 {
		return v
	}
	each := s.channels / s.g
	for n := range s.n {
		row := v[n*s.c : (n+1)*s.c]
		for g := range s.g {
			x := f(n*s.g + g)
			for j := range each {
				row[g*each+j] = x
			}
		}
		for j := s.channels; j < s.c; j += s.channels {
			copy(row[j:], row[:s.channels])
		}
		if w != nil {
			b.k.mul(row, row, w)
		}
	}
	return v
}

// centredRow is row of x less the means of its channels, which are given negated.
func (w *worker) centredRow(x view, row, c int, minus []float32) []float32 {
	z := w.arena.f32(c)
	w.k.add(z, w.in(x, row*c, c), minus)
	return z
}

// groupNorm is the norm over each sample's groups of channels, in two passes for the statistics and one for the result.
func groupNorm(b *Backend, c *kernels.Call) {
	s, rstd, mean := mappedOf(c.In[0], c.Out[1]), c.Out[1].F32(), c.Out[2].F32()
	b.moments(s, viewOf(c.In[0]), mean, rstd)
	for i, v := range rstd {
		rstd[i] = float32(1 / math.Sqrt(float64(v)+c.Attr.F[0]))
	}
	b.scaleGroups(s, c, rstd, mean)
}

// moments sets the means of groups of channels, and those of squares about them.
func (b *Backend) moments(s mapped, x view, mean, square []float32) {
	sums := b.channelSums(s, 1, func(w *worker, _, row int, sums []float32) {
		w.k.add(sums, sums, w.in(x, row*s.c, s.c))
	})
	s.perGroup(mean, sums, 1)
	minus := b.ofSamples(s, nil, func(i int) float32 { return -mean[i] })
	squares := b.channelSums(s, 1, func(w *worker, n, row int, sums []float32) {
		z := w.centredRow(x, row, s.c, minus[n*s.c:][:s.c])
		w.k.mulAcc(sums, z, z, 1)
	})
	s.perGroup(square, squares, 1)
}

// scaleGroups sets y = (x - mean)·rstd·w + b, of which x, w and b are a call's first operands.
func (b *Backend) scaleGroups(s mapped, c *kernels.Call, rstd, mean []float32) {
	x, y := viewOf(c.In[0]), viewOf(c.Out[0])
	minus := b.ofSamples(s, nil, func(i int) float32 { return -mean[i] })
	weight, shift := b.vector(s, c.In[1]), b.vector(s, present(c.In, 2))
	by := b.ofSamples(s, weight, func(i int) float32 { return rstd[i] })
	b.rows(s.n*s.places, s.c, func(w *worker, from, to int) {
		for row := from; row < to; row++ {
			m := w.arena.mark()
			at := row / s.places * s.c
			out := w.out(y, row*s.c, s.c)
			w.k.add(out, w.in(x, row*s.c, s.c), minus[at:at+s.c])
			w.k.layer(out, out, by[at:at+s.c], shift, 0, 1)
			w.done(y, row*s.c, out)
			w.arena.release(m)
		}
	})
}

// groupMoments are the statistics of a part of the places.
func groupMoments(b *Backend, c *kernels.Call) {
	b.moments(mappedOf(c.In[0], c.Out[0]), viewOf(c.In[0]), c.Out[0].F32(), c.Out[1].F32())
}

// groupJoin makes the statistics of all places of those of parts, in the order of the parts.
func groupJoin(_ *Backend, c *kernels.Call) {
	part, square, rstd, mean := c.In[0].F32(), c.In[1].F32(), c.Out[0].F32(), c.Out[1].F32()
	n := len(mean)
	parts := float64(len(part)) / float64(max(1, n))
	for i := range mean {
		sum, var2 := 0.0, 0.0
		for k := i; k < len(part); k += n {
			sum += float64(part[k]) / parts
		}
		for k := i; k < len(part); k += n {
			d := float64(part[k]) - sum
			var2 += (float64(square[k]) + d*d) / parts
		}
		mean[i], rstd[i] = float32(sum), float32(1/math.Sqrt(var2+c.Attr.F[0]))
	}
}

// groupScale is the norm by given statistics.
func groupScale(b *Backend, c *kernels.Call) {
	b.scaleGroups(mappedOf(c.In[0], c.In[3]), c, c.In[3].F32(), c.In[4].F32())
}

// perGroup sets the means over groups of sums of channels, which are kinds·c a sample, the first of them.
func (s mapped) perGroup(dst []float32, sums []float64, kinds int) {
	all := make([]float64, s.n*s.g)
	each := s.channels / max(1, s.g)
	for n := range s.n {
		for at := 0; at < s.c; at += s.channels {
			for j, v := range sums[n*kinds*s.c+at:][:each*s.g] {
				all[n*s.g+j/each] += v
			}
		}
	}
	for i, v := range all {
		dst[i] = float32(v / s.size())
	}
}

// groupNormDX is the gradient of that norm to its input: dy scaled, less what the mean and the deviation take back.
func groupNormDX(b *Backend, c *kernels.Call) {
	dy, x, s, mean := viewOf(c.In[0]), viewOf(c.In[1]), mappedOf(c.In[1], c.In[3]), c.In[4].F32()
	weight := b.vector(s, c.In[2])
	minus := b.ofSamples(s, nil, func(i int) float32 { return -mean[i] })
	sums := b.channelSums(s, 2, func(w *worker, n, row int, sums []float32) {
		g := w.in(dy, row*s.c, s.c)
		w.k.add(sums[:s.c], sums[:s.c], g)
		w.k.mulAcc(sums[s.c:], g, w.centredRow(x, row, s.c, minus[n*s.c:][:s.c]), 1)
	})
	for i := range sums {
		sums[i] *= float64(weight[i%s.c])
	}
	m1, m2 := b.shared.f32(s.n*s.g), b.shared.f32(s.n*s.g)
	s.perGroup(m1, sums, 2)
	s.perGroup(m2, sums[min(s.c, len(sums)):], 2)
	b.scaleGroupsDX(s, c, m1, m2)
}

// scaleGroupsDX sets dx = rstd·(dy·w - m1 - z·m2), of which dy, x, w, rstd and mean are a call's first
// operands; m2 is over rstd.
func (b *Backend) scaleGroupsDX(s mapped, c *kernels.Call, m1, m2 []float32) {
	dy, x, dx, weight := viewOf(c.In[0]), viewOf(c.In[1]), viewOf(c.Out[0]), b.vector(s, c.In[2])
	rstd, mean := c.In[3].F32(), c.In[4].F32()
	minus := b.ofSamples(s, nil, func(i int) float32 { return -mean[i] })
	by := b.ofSamples(s, weight, func(i int) float32 { return rstd[i] })
	k := b.ofSamples(s, nil, func(i int) float32 {
		r := flushed(rstd[i])
		return -flushed(r*r) * r * m2[i]
	})
	shift := b.ofSamples(s, nil, func(i int) float32 { return -rstd[i] * m1[i] })
	b.rows(s.n*s.places, 2*s.c, func(w *worker, from, to int) {
		for row := from; row < to; row++ {
			m := w.arena.mark()
			at := row / s.places * s.c
			out, z := w.out(dx, row*s.c, s.c), w.centredRow(x, row, s.c, minus[at:at+s.c])
			w.k.layer(out, z, k[at:at+s.c], shift[at:at+s.c], 0, 1)
			w.k.mulAcc(out, w.in(dy, row*s.c, s.c), by[at:at+s.c], 1)
			w.done(dx, row*s.c, out)
			w.arena.release(m)
		}
	})
}

// groupScaleDX is the gradient to a part of a sample's places, by sums over all of them.
func groupScaleDX(b *Backend, c *kernels.Call) {
	s, rstd := mappedOf(c.In[1], c.In[3]), c.In[3].F32()
	weight, dw, db := b.vector(s, c.In[2]), c.In[5].F32(), c.In[6].F32()
	all1, all2 := make([]float64, s.g), make([]float64, s.g)
	for j := range dw {
		g, v := s.group(0, j), float64(weight[j])
		all1[g], all2[g] = all1[g]+v*float64(db[j]), all2[g]+v*float64(dw[j])
	}
	m1, m2, size := make([]float32, s.g), make([]float32, s.g), float64(c.Attr.I[0])*float64(s.channels)/float64(s.g)
	for g := range m1 {
		m1[g], m2[g] = float32(all1[g]/size), float32(all2[g]/size/float64(rstd[g]))
	}
	b.scaleGroupsDX(s, c, m1, m2)
}

// groupNormDW is the gradient to the weights, summed over samples and places.
func groupNormDW(b *Backend, c *kernels.Call) {
	dy, x, s := viewOf(c.In[0]), viewOf(c.In[1]), mappedOf(c.In[1], c.In[2])
	rstd, mean, dw := c.In[2].F32(), c.In[3].F32(), c.Out[0].F32()
	minus := b.ofSamples(s, nil, func(i int) float32 { return -mean[i] })
	sums := b.channelSums(s, 1, func(w *worker, n, row int, sums []float32) {
		w.k.mulAcc(sums, w.in(dy, row*s.c, s.c), w.centredRow(x, row, s.c, minus[n*s.c:][:s.c]), 1)
	})
	for j := range dw {
		v := 0.0
		g := s.group(0, j)
		for i := j; i < min(len(sums), len(sums)*s.places); i += s.channels { // none of no place
			v += sums[i] * float64(rstd[i/s.c*s.g+g])
		}
		if c.Attr.I[0] == kernels.Accumulate {
			v += float64(dw[j])
		}
		dw[j] = float32(v)
	}
}

// frozenNorm scales and shifts by statistics that are parameters and do not change.
func frozenNorm(b *Backend, c *kernels.Call) {
	x, y, d := viewOf(c.In[0]), viewOf(c.Out[0]), lastDim(c.In[0])
	rstd, mean := c.Out[1].F32(), c.Out[2].F32()
	weight, shift := b.shared.f32(d), b.shared.f32(d)
	b.k.read(weight, viewOf(c.In[1]), 0)
	b.k.read(shift, viewOf(c.In[2]), 0)
	b.k.read(mean, viewOf(c.In[3]), 0)
	b.k.read(rstd, viewOf(c.In[4]), 0)
	minus := b.shared.f32(d)
	for j, v := range rstd {
		rstd[j] = float32(1 / math.Sqrt(float64(v)+c.Attr.F[0]))
		weight[j] *= rstd[j]
		minus[j] = -mean[j]
	}
	rows, vs := b.widened(c.In[0].Rows(), weight, shift, minus)
	weight, shift, minus = vs[0], vs[1], vs[2]
	d = len(weight)
	b.rows(rows, d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(y, i*d, d)
			w.k.add(out, w.in(x, i*d, d), minus)
			w.k.layer(out, out, weight, shift, 0, 1)
			w.done(y, i*d, out)
			w.arena.release(m)
		}
	})
}

// widened makes longer rows of rows, an even number of them of one again and again, and gives vectors of such
// a row: primitives are slow on short ones.
func (b *Backend) widened(rows int, vectors ...[]float32) (int, [][]float32) {
	times, n := 1, len(vectors[0])
	for rows > 0 && rows%2 == 0 && 2*times*n <= mappedRow {
		rows, times = rows/2, 2*times
	}
	for i, v := range vectors {
		vectors[i] = b.shared.f32(times * n)
		for t := range times {
			copy(vectors[i][t*n:], v)
		}
	}
	return rows, vectors
}

// frozenNormDX is dy·w·rstd, since the statistics do not depend on the input.
func frozenNormDX(b *Backend, c *kernels.Call) {
	dy, dx, d, rstd := viewOf(c.In[0]), viewOf(c.Out[0]), lastDim(c.In[0]), c.In[2].F32()
	weight := b.shared.f32(d)
	b.k.read(weight, viewOf(c.In[1]), 0)
	b.k.mul(weight, weight, rstd)
	rows, vs := b.widened(c.In[0].Rows(), weight)
	weight, d = vs[0], len(vs[0])
	b.rows(rows, d, func(w *worker, from, to int) {
		for i := from; i < to; i++ {
			m := w.arena.mark()
			out := w.out(dx, i*d, d)
			w.k.mul(out, w.in(dy, i*d, d), weight)
			w.done(dx, i*d, out)
			w.arena.release(m)
		}
	})
}
