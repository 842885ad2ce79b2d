package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Norms over channels and space, and what changes the size or the order of [n, s…, c].
func init() {
	table[kernels.GroupNorm], table[kernels.GroupNormDX] = groupNorm, groupNormDX
	table[kernels.GroupNormDW] = groupNormDW
	table[kernels.GroupMoments], table[kernels.GroupJoin] = groupMoments, groupJoin
	table[kernels.GroupScale], table[kernels.GroupScaleDX] = groupScale, groupScaleDX
	table[kernels.FrozenNorm], table[kernels.FrozenNormDX] = frozenNorm, frozenNormDX
	table[kernels.Resize], table[kernels.ResizeBwd] = resize, resizeBwd
	table[kernels.Pool], table[kernels.PoolBwd] = pool, poolBwd
	table[kernels.Pad], table[kernels.Permute] = pad, permute
}

// grouped is the way from elements of x [n, …, c] to their groups of channels.
type grouped struct{ n, c, g, each int }

func channelGroups(x, stats *tensor.Tensor) grouped {
	n, c, g := x.Shape[0], lastDim(x), lastDim(stats)
	return grouped{n, c, g, x.Len() / max(1, n)}
}

// of is the group of element i, among those of all samples.
func (s grouped) of(i int) int { return i/s.each*s.g + i%s.c/(s.c/s.g) }

// size is the elements of a group, 1 of an empty one.
func (s grouped) size() float64 { return max(1, float64(s.each)/float64(s.g)) }

// moments are the mean of each group, and the mean of its squares about it.
func (s grouped) moments(x []float64) (mean, square []float64) {
	mean, square = make([]float64, s.n*s.g), make([]float64, s.n*s.g)
	for i, v := range x {
		mean[s.of(i)] += v / s.size()
	}
	for i, v := range x {
		square[s.of(i)] += (v - mean[s.of(i)]) * (v - mean[s.of(i)]) / s.size()
	}
	return mean, square
}

// scale sets x = (x − mean)·rstd·w + b.
func (s grouped) scale(x, w, b, rstd, mean []float64) {
	for i := range x {
		x[i] = (x[i]-mean[s.of(i)])*rstd[s.of(i)]*w[i%s.c] + orZero(b, i%s.c)
	}
}

// orZero is element i, 0 of none.
func orZero(v []float64, i int) float64 {
	if v == nil {
		return 0
	}
	return v[i]
}

// groupNorm sets y = (x − mean)·rstd·w + b, with statistics of groups of channels of each sample.
func groupNorm(c *kernels.Call) {
	x, w, b, s := load(c.In[0]), load(c.In[1]), optional(c.In, 2), channelGroups(c.In[0], c.Out[1])
	mean, rstd := s.moments(x)
	for i, v := range rstd {
		rstd[i] = 1 / math.Sqrt(v+c.Attr.F[0])
	}
	s.scale(x, w, b, rstd, mean)
	store(c.Out[0], x)
	store(c.Out[1], rstd)
	store(c.Out[2], mean)
}

// groupMoments are the statistics of a part of the places.
func groupMoments(c *kernels.Call) {
	mean, square := channelGroups(c.In[0], c.Out[0]).moments(load(c.In[0]))
	store(c.Out[0], mean)
	store(c.Out[1], square)
}

// groupJoin makes the statistics of all places of those of parts.
func groupJoin(c *kernels.Call) {
	part, square := load(c.In[0]), load(c.In[1])
	n := c.Out[0].Len()
	mean, rstd, parts := make([]float64, n), make([]float64, n), float64(len(part))/float64(max(1, n))
	for i, v := range part {
		mean[i%n] += v / parts
	}
	for i, v := range square {
		rstd[i%n] += (v + (part[i]-mean[i%n])*(part[i]-mean[i%n])) / parts
	}
	for i, v := range rstd {
		rstd[i] = 1 / math.Sqrt(v+c.Attr.F[0])
	}
	store(c.Out[0], rstd)
	store(c.Out[1], mean)
}

// groupScale is the norm by given statistics.
func groupScale(c *kernels.Call) {
	x, s := load(c.In[0]), channelGroups(c.In[0], c.In[3])
	s.scale(x, load(c.In[1]), optional(c.In, 2), load(c.In[3]), load(c.In[4]))
	store(c.Out[0], x)
}

// groupScaleDX is the gradient to a part of a sample's places, by sums over all of them.
func groupScaleDX(c *kernels.Call) {
	e, z, w, rstd, mean := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3]), load(c.In[4])
	dw, db, s := load(c.In[5]), load(c.In[6]), channelGroups(c.In[1], c.In[3])
	m1, m2 := make([]float64, len(rstd)), make([]float64, len(rstd))
	for j := range w {
		g, by := j/(s.c/s.g), w[j]*float64(s.g)/(float64(c.Attr.I[0])*float64(s.c))
		m1[g], m2[g] = m1[g]+by*db[j], m2[g]+by*dw[j]
	}
	for i := range e {
		g := s.of(i)
		e[i] = rstd[g] * (e[i]*w[i%s.c] - m1[g] - (z[i]-mean[g])*rstd[g]*m2[g])
	}
	store(c.Out[0], e)
}

// groupNormDX sets dx = rstd·(e − mean(e) − z·mean(e·z)) with e = dy·w and z the normed x.
func groupNormDX(c *kernels.Call) {
	e, z, w, rstd, mean := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3]), load(c.In[4])
	s := channelGroups(c.In[1], c.In[3])
	m1, m2 := make([]float64, len(rstd)), make([]float64, len(rstd))
	for i := range e {
		g := s.of(i)
		e[i] *= w[i%s.c]
		z[i] = (z[i] - mean[g]) * rstd[g]
		m1[g] += e[i] / s.size()
		m2[g] += e[i] * z[i] / s.size()
	}
	for i := range e {
		g := s.of(i)
		e[i] = rstd[g] * (e[i] - m1[g] - z[i]*m2[g])
	}
	store(c.Out[0], e)
}

// groupNormDW sets or adds dw = Σ dy·z.
func groupNormDW(c *kernels.Call) {
	dy, x, rstd, mean := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3])
	s, dw := channelGroups(c.In[1], c.In[2]), make([]float64, c.Out[0].Len())
	for i := range dy {
		dw[i%s.c] += dy[i] * (x[i] - mean[s.of(i)]) * rstd[s.of(i)]
	}
	storeOrAdd(c.Out[0], dw, c.Attr.I[0])
}

// frozenNorm sets y = (x − mean)·rstd·w + b with given statistics.
func frozenNorm(c *kernels.Call) {
	x, w, b, mean, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2]), load(c.In[3]), load(c.In[4])
	for i, v := range rstd {
		rstd[i] = 1 / math.Sqrt(v+c.Attr.F[0])
	}
	for i := range x {
		j := i % len(w)
		x[i] = (x[i]-mean[j])*rstd[j]*w[j] + b[j]
	}
	store(c.Out[0], x)
	store(c.Out[1], rstd)
	store(c.Out[2], mean)
}

// frozenNormDX is its gradient to x.
func frozenNormDX(c *kernels.Call) {
	dy, w, rstd := load(c.In[0]), load(c.In[1]), load(c.In[2])
	for i := range dy {
		dy[i] *= w[i%len(w)] * rstd[i%len(w)]
	}
	store(c.Out[0], dy)
}

// share is an input of an output along one axis, and its weight.
type share struct {
	i int
	w float64
}

// shares are those of each output along an axis.
func shares(kind, in, out int) [][]share {
	l := make([][]share, out)
	for o := range l {
		if in == 0 {
			continue
		}
		if kind == kernels.Nearest {
			l[o] = []share{{o * in / out, 1}}
			continue
		}
		s := max(0, (float64(o)+0.5)*float64(in)/float64(out)-0.5)
		i := min(int(s), in-1)
		l[o] = []share{{i, 1 - (s - float64(i))}, {min(i+1, in-1), s - float64(i)}}
	}
	return l
}

// eachShare calls f with every output and input, places of [n, s…], that meet in a resize of x to y.
func eachShare(kind int, x, y *tensor.Tensor, f func(o, i int, w float64)) {
	rank := len(x.Shape) - 2
	in, out := spaceOf(x.Shape[1:1+rank]), spaceOf(y.Shape[1:1+rank])
	var l [kernels.Space][][]share
	for a := range l {
		l[a] = shares(kind, in[a], out[a])
	}
	for n := range x.Shape[0] {
		for o := range out.places() {
			at := out.at(o)
			for _, p := range l[0][at[0]] {
				for _, q := range l[1][at[1]] {
					for _, r := range l[2][at[2]] {
						f(n*out.places()+o, n*in.places()+(p.i*in[1]+q.i)*in[2]+r.i, p.w*q.w*r.w)
					}
				}
			}
		}
	}
}

// resize sets y to weighted sums of x.
func resize(c *kernels.Call) {
	x, y, d := load(c.In[0]), make([]float64, c.Out[0].Len()), lastDim(c.In[0])
	eachShare(c.Attr.I[0], c.In[0], c.Out[0], func(o, i int, w float64) { axpy(y[o*d:(o+1)*d], w, x[i*d:]) })
	store(c.Out[0], y)
}

// resizeBwd is its gradient.
func resizeBwd(c *kernels.Call) {
	dy, dx, d := load(c.In[0]), make([]float64, c.Out[0].Len()), lastDim(c.In[0])
	eachShare(c.Attr.I[0], c.Out[0], c.In[0], func(o, i int, w float64) {
		axpy(dx[i*d:(i+1)*d], w, dy[o*d:])
	})
	store(c.Out[0], dx)
}

// eachWindow calls f with each output, a place of [n, s…], and the inputs in its window.
func eachWindow(at kernels.Attr, x, y *tensor.Tensor, f func(o int, i []int)) {
	rank := len(x.Shape) - 2
	in, out, win := spaceOf(x.Shape[1:1+rank]), spaceOf(y.Shape[1:1+rank]), windowsOf(at, rank, nil)
	size := grid{win[0].Size, win[1].Size, win[2].Size}
	inside := make([][]int, out.places())
	eachTap(in, out, size, win, func(o, _, i int) { inside[o] = append(inside[o], i) })
	for n := range x.Shape[0] {
		for o, l := range inside {
			at := make([]int, len(l))
			for k, i := range l {
				at[k] = n*in.places() + i
			}
			f(n*out.places()+o, at)
		}
	}
}

// under is what a sum over n inputs of a window is divided by.
func under(at kernels.Attr, rank, n int) float64 {
	if at.I[0] == kernels.MeanIn {
		return float64(max(1, n))
	}
	size := 1
	for _, w := range windowsOf(at, rank, nil) {
		size *= w.Size
	}
	return float64(size)
}

// largest is the input of a window, of channel j, that has the largest number: the first of them, and a NaN before any.
func largest(x []float64, in []int, d, j int) (at int, v float64) {
	at, v = -1, math.Inf(-1)
	for _, i := range in {
		if u := x[i*d+j]; u > v || at < 0 || math.IsNaN(u) && !math.IsNaN(v) {
			at, v = i, u
		}
	}
	return at, v
}

// pool sets y to the largest or the mean of each window.
func pool(c *kernels.Call) {
	x, y, d := load(c.In[0]), make([]float64, c.Out[0].Len()), lastDim(c.In[0])
	eachWindow(c.Attr, c.In[0], c.Out[0], func(o int, in []int) {
		for j := range d {
			if c.Attr.I[0] == kernels.MaxPool {
				_, y[o*d+j] = largest(x, in, d, j)
				continue
			}
			for _, i := range in {
				y[o*d+j] += x[i*d+j]
			}
			y[o*d+j] /= under(c.Attr, len(c.In[0].Shape)-2, len(in))
		}
	})
	store(c.Out[0], y)
}

// poolBwd is its gradient.
func poolBwd(c *kernels.Call) {
	dy, x, dx, d := load(c.In[0]), optional(c.In, 1), make([]float64, c.Out[0].Len()), lastDim(c.In[0])
	eachWindow(c.Attr, c.Out[0], c.In[0], func(o int, in []int) {
		for j := range d {
			if x != nil {
				if len(in) > 0 {
					i, _ := largest(x, in, d, j)
					dx[i*d+j] += dy[o*d+j]
				}
				continue
			}
			for _, i := range in {
				dx[i*d+j] += dy[o*d+j] / under(c.Attr, len(c.In[0].Shape)-2, len(in))
			}
		}
	})
	store(c.Out[0], dx)
}

// pad puts x between zeros, or leaves places out.
func pad(c *kernels.Call) {
	x, y, rank := c.In[0], c.Out[0], len(c.In[0].Shape)-2
	in, out, win := spaceOf(x.Shape[1:1+rank]), spaceOf(y.Shape[1:1+rank]), windowsOf(c.Attr, rank, nil)
	for a := range win {
		win[a] = kernels.Window{Size: 1, Stride: 1, Dilation: 1, Before: win[a].Before, After: win[a].After}
	}
	clear(y.Bytes())
	row := lastDim(x) * x.DType.Size()
	for n := range x.Shape[0] {
		eachTap(in, out, grid{1, 1, 1}, win, func(o, _, i int) {
			copy(y.Bytes()[(n*out.places()+o)*row:][:row], x.Bytes()[(n*in.places()+i)*row:])
		})
	}
}

// permute writes the axes of x in another order.
func permute(c *kernels.Call) {
	x, y := c.In[0], c.Out[0]
	order, size := kernels.Order(c.Attr, len(x.Shape)), x.DType.Size()
	for i := range y.Len() {
		rest, at := i, make([]int, len(order))
		for a := len(order) - 1; a >= 0; a-- {
			at[order[a]] = rest % y.Shape[a]
			rest /= y.Shape[a]
		}
		from := 0
		for a, p := range at {
			from = from*x.Shape[a] + p
		}
		copy(y.Bytes()[i*size:(i+1)*size], x.Bytes()[from*size:])
	}
}
