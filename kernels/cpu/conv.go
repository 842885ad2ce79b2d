package cpu

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.Conv], table[kernels.ConvDX], table[kernels.ConvDW] = convForward, convDX, convWeights
}

// grid is three axes of space, the outermost first; those that a tensor lacks have one place.
type grid [kernels.Space]int

func (g grid) places() int { return g[0] * g[1] * g[2] }

// at is the coordinates of place i.
func (g grid) at(i int) grid { return grid{i / (g[1] * g[2]), i / g[2] % g[1], i % g[2]} }

// spaceOf writes one to three spatial axes as three, with leading ones, so that all kernels know one form.
func spaceOf(shape []int) (g grid) {
	g = grid{1, 1, 1}
	copy(g[kernels.Space-len(shape):], shape)
	return g
}

// convShape is a convolution of n samples: x of ch channels at the places of in, y of outs at those of out,
// and weights of each channels a group.
type convShape struct {
	n                    int
	in, out, size        grid
	win                  [kernels.Space]kernels.Window
	ch, outs, each       int
	groups, outsPerGroup int
	across               int // samples, if they are the last axis; 0 if not
}

// shapeOfConv reads the shapes of a convolution of x [n,…,ch] by w [outs,each,…] to y [n,…,outs];
// axes that are not there have a window of 1.
func shapeOfConv(at kernels.Attr, x, w, y *tensor.Tensor) *convShape {
	rank := len(w.Shape) - 2
	s := &convShape{n: x.Shape[0], in: spaceOf(x.Shape[1 : 1+rank]), out: spaceOf(y.Shape[1 : 1+rank]),
		size: spaceOf(w.Shape[2:]), ch: lastDim(x), outs: lastDim(y), each: w.Shape[1]}
	s.groups = kernels.Groups(s.ch, w.Shape)
	s.outsPerGroup = s.outs / s.groups
	for i := range s.win {
		s.win[i] = kernels.Window{Size: 1, Stride: 1, Dilation: 1}
	}
	copy(s.win[kernels.Space-rank:], kernels.Windows(at, w.Shape))
	return s
}

// taps is the number of places of the kernel.
func (s *convShape) taps() int { return s.size.places() }

// gathered is a matrix whose rows are places of a result, and whose columns the channels [first, first+each)
// of the places of a tensor that are taps of them, tap by tap; places outside the tensor are zeros.
type gathered struct {
	v           view
	ch          int // from one place to the next
	first, each int
	n           int  // samples
	from        grid // the tensor's places
	rows        grid // the result's places
	step        grid // of the tensor's places for one of the result's
	offs        []grid
	// taps along the last axis that lie one behind the other, with all channels; 1 if there are none
	run    int
	across int // as of the convolution
}

// forward is what outputs are products of, for one group.
func (s *convShape) forward(x *tensor.Tensor, group int) *gathered {
	g := &gathered{v: viewOf(x), ch: s.ch, first: group * s.each, each: s.each, n: s.n, from: s.in,
		rows: s.out, across: s.across}
	for a, w := range s.win {
		g.step[a] = w.Stride
	}
	for k := range s.taps() {
		at := s.size.at(k)
		for a, w := range s.win {
			at[a] = at[a]*w.Dilation - w.Before
		}
		g.offs = append(g.offs, at)
	}
	if g.run = 1; s.groups == 1 && s.win[2].Dilation == 1 {
		g.run = s.size[2]
	}
	return g
}

// phase is the inputs at first + stride·m on each axis: those that meet the same taps.
type phase struct {
	*gathered
	first grid
	taps  []int // of the kernel, as its offs
}

// backward is what the inputs of each phase are products of, for one group.
func (s *convShape) backward(dy *tensor.Tensor, group int) (l []phase) {
	strides := grid{s.win[0].Stride, s.win[1].Stride, s.win[2].Stride}
	for i := range strides.places() {
		p := phase{first: strides.at(i), gathered: &gathered{v: viewOf(dy), ch: s.outs, first: group * s.outsPerGroup,
			each: s.outsPerGroup, n: s.n, from: s.out, step: grid{1, 1, 1}, run: 1, across: s.across}}
		for a := range p.rows {
			p.rows[a] = max(0, ceilDiv(s.in[a]-p.first[a], strides[a]))
		}
		for k := range s.taps() {
			off, meets := s.size.at(k), true
			for a, w := range s.win {
				d := p.first[a] + w.Before - off[a]*w.Dilation
				meets = meets && d%w.Stride == 0
				off[a] = d / w.Stride
			}
			if meets {
				p.offs, p.taps = append(p.offs, off), append(p.taps, k)
			}
		}
		if p.rows.places() > 0 {
			l = append(l, p)
		}
	}
	return l
}

// count is the rows of all samples, and width the columns.
func (g *gathered) count() int { return g.n * g.rows.places() }
func (g *gathered) width() int { return len(g.offs) * g.each }

// view is room for n elements of a dtype.
func (s *scratch) view(d tensor.DType, n int) view {
	if d == tensor.F32 {
		return view{f: s.f32(n)}
	}
	return view{h: s.u16(n), d: d}
}

// move copies n elements of src from i on to dst from j on; a negative i sets zeros.
func (dst view) move(j int, src view, i, n int) {
	if dst.d == tensor.F32 {
		if i < 0 {
			clear(dst.f[j : j+n])
		} else {
			copy(dst.f[j:j+n], src.f[i:])
		}
		return
	}
	if i < 0 {
		clear(dst.h[j : j+n])
	} else {
		copy(dst.h[j:j+n], src.h[i:])
	}
}

// gather writes rows [from, to) of g to dst.
func (b *Backend) gather(dst view, g *gathered, from, to int) {
	width := g.width()
	b.rows(to-from, width, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			g.copyRow(dst, i*width, from+i)
		}
	})
}

// copyRow copies all taps of row r, those of a run at once; places outside the tensor are zeros.
func (g *gathered) copyRow(dst view, j, r int) {
	n := r / g.rows.places()
	at := g.rows.at(r - n*g.rows.places())
	for a, s := range g.step {
		at[a] *= s
	}
	wide := g.run * g.each
	for k := 0; k < len(g.offs); k, j = k+g.run, j+wide {
		o := &g.offs[k]
		y, z, x := at[0]+o[0], at[1]+o[1], at[2]+o[2]
		if y < 0 || y >= g.from[0] || z < 0 || z >= g.from[1] || x <= -g.run || x >= g.from[2] {
			dst.move(j, g.v, -1, wide)
			continue
		}
		i := (((n*g.from[0]+y)*g.from[1]+z)*g.from[2]+x)*g.ch + g.first
		if x >= 0 && x+g.run <= g.from[2] {
			dst.move(j, g.v, i, wide)
			continue
		}
		lo, hi := max(0, -x), min(g.run, g.from[2]-x)
		dst.move(j, g.v, -1, lo*g.each)
		dst.move(j+lo*g.each, g.v, i+lo*g.ch, (hi-lo)*g.each)
		dst.move(j+hi*g.each, g.v, -1, (g.run-hi)*g.each)
	}
}

// convChunk is the elements of rows that are gathered at a time.
const convChunk = 1 << 20

// weightsOf puts rows of weights in the order of gathered columns: [rows, taps, channels]. Element (i, c) of
// tap k is w[i*row + c*col + k]; the first is at.
func (b *Backend) weightsOf(w *tensor.Tensor, at, rows, row, each, col int, taps []int) matrix {
	v, width := viewOf(w), len(taps)*each
	if len(taps) == 1 && min(row, col) == 1 { // as they lie
		return matrix{v: v.from(min(at+taps[0], w.Len())), ld: max(row, col), trans: row < col}
	}
	var dst view
	if w.DType == tensor.F32 {
		first := -1
		if len(taps) > 0 { // it tells those of a phase from those of another
			first = taps[0]
		}
		of := packedOf{v.at(), 'o', [8]int{at, rows, row, each, col, len(taps), first}}
		room, made := b.lasting(of, rows*width)
		if dst.f = room; made {
			return matrix{v: dst, ld: width}
		}
		if b.kept.may[v.at()] { // what is made of it lasts too
			b.kept.may[dst.at()] = true
		}
	} else {
		dst = b.shared.view(w.DType, rows*width)
	}
	follow := len(taps) == col && slices.IsSorted(taps)
	b.rows(rows, width, func(k *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			if !follow || !k.turnRow(dst, i*width, v, at+i*row, each, col) {
				for q, tap := range taps {
					dst.pick(i*width+q*each, v, at+i*row+tap, col, each)
				}
			}
		}
	})
	return matrix{v: dst, ld: width}
}

// turnRow sets the numbers [taps, each] of dst from to on to those of v [each, taps] from at on, turned, if they are
// float32s in whole blocks.
func (w *worker) turnRow(dst view, to int, v view, at, each, taps int) bool {
	blocks := ceilDiv(taps, 16)
	if v.d != tensor.F32 || each%16 != 0 || at+(each-1)*taps+16*blocks > len(v.f) {
		return false
	}
	defer w.arena.release(w.arena.mark())
	turned := w.arena.f32(16*blocks*each + 16)
	for c := 0; c < each; c += 16 {
		w.k.transpose(turned[c:], each, v.f[at+c*taps:], taps, blocks)
	}
	copy(dst.f[to:to+taps*each], turned)
	return true
}

// pick sets n numbers of v from to on to those of src that lie step apart from at on.
func (v view) pick(to int, src view, at, step, n int) {
	if src.h != nil {
		for i := range v.h[to : to+n] {
			v.h[to+i] = src.h[at+i*step]
		}
		return
	}
	dst := v.f[to : to+n]
	for i := range dst {
		dst[i] = src.f[at]
		at += step
	}
}

// all lists the numbers below n.
func all(n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = i
	}
	return l
}

// biasOf is operand 2 as float32, nil where it is absent.
func (b *Backend) biasOf(c *kernels.Call) []float32 {
	if len(c.In) < 3 || c.In[2] == nil {
		return nil
	}
	v := b.shared.f32(c.In[2].Len())
	b.k.read(v, viewOf(c.In[2]), 0)
	return v
}

// biasPart is the bias of the outputs from at on, nil if there is none.
func biasPart(bias []float32, at, n int) []float32 {
	if bias == nil {
		return nil
	}
	return bias[at : at+n]
}

// convForward is the convolution. Small windows of stride 1 take Winograd's way; the others are
// products of gathered patches and weights, group by group.
func convForward(b *Backend, c *kernels.Call) {
	x, w, y, at := c.In[0], c.In[1], c.Out[0], c.Attr
	bias := b.biasOf(c)
	if f, ok := fewer(at, x, w, y); ok {
		w, at = f.weights(b, w), f.at
	}
	s := shapeOfConv(at, x, w, y)
	if m := b.winoMaps(s, s.out, x.DType); m != nil {
		b.winograd(winoForward(s, x), m, w, false, result{v: viewOf(y), ld: s.outs, bias: bias})
		return
	}
	if g := s.forward(x, 0); !g.isWhole() && b.directs(s, g, x.DType) {
		if t := b.turnedFor(s, s.in, s.out, s.ch, [kernels.Space]int{1, 1, 1}); t != s {
			s, g = t, t.forward(x, 0)
		}
		d := b.directOf(g, s.outs)
		b.packRows(d, w, s.taps(), all(s.taps()))
		b.multiplyDirectly(d, result{v: viewOf(y), ld: s.outs, bias: bias})
		return
	}
	for group := range s.groups {
		g, n := s.forward(x, group), s.outsPerGroup
		mark := b.shared.mark()
		row := s.each * s.taps()
		right := b.weightsOf(w, group*n*row, n, row, s.each, s.taps(), all(s.taps()))
		r := result{v: viewOf(y).from(group * n), ld: s.outs, bias: biasPart(bias, group*n, n)}
		b.gatheredProduct(r, g, right, n)
		b.shared.release(mark)
	}
}

// gatheredProduct is r = g·rightᵀ, of n columns.
func (b *Backend) gatheredProduct(r result, g *gathered, right matrix, n int) {
	defer b.shared.release(b.shared.mark())
	if left, is := g.whole(); is {
		b.blocked(r, left, right, g.count(), n, g.width())
		return
	}
	if r.v.d == tensor.F32 && g.width() > 0 && g.count() > 0 && n > 0 {
		b.gatheredRows(r, g, right, n)
		return
	}
	step := max(1, convChunk/max(1, g.width()))
	left := matrix{v: b.shared.view(g.v.d, min(step, g.count())*g.width()), ld: g.width()}
	for i := 0; i < g.count() && n > 0; i += step {
		m := min(step, g.count()-i)
		b.gather(left.v, g, i, i+m)
		part := r
		part.v = r.v.from(i * r.ld)
		b.blocked(part, left, right, m, n, g.width())
	}
}

// convDX is the gradient to the input. With strides, inputs fall into phases that meet different
// taps; each phase is a dense product of its own.
func convDX(b *Backend, c *kernels.Call) {
	dy, w, dx, at := c.In[0], c.In[1], c.Out[0], c.Attr
	if f, ok := fewer(at, dx, w, dy); ok {
		w, at = f.weights(b, w), f.at
	}
	s := shapeOfConv(at, dx, w, dy)
	bias, row := b.biasOf(c), s.each*s.taps()
	if m := b.winoMaps(s, s.in, dy.DType); m != nil {
		b.winograd(winoBackward(s, dy), m, w, true, result{v: viewOf(dx), ld: s.ch, bias: bias})
		return
	}
	if s.scatters() {
		b.scatterDX(s, dy, w, dx, bias)
		return
	}
	if ps := s.backward(dy, 0); b.phasesDirect(s, ps, dy.DType) {
		strides := [kernels.Space]int{s.win[0].Stride, s.win[1].Stride, s.win[2].Stride}
		if t := b.turnedFor(s, s.out, s.in, s.outs, strides); t != s {
			s, ps = t, t.backward(dy, 0)
		}
		b.phasesDirectly(s, ps, w, result{v: viewOf(dx), ld: s.ch, bias: bias})
		return
	}
	for group := range s.groups {
		first := group * s.each
		for _, p := range s.backward(dy, group) {
			mark := b.shared.mark()
			right := b.weightsOf(w, group*s.outsPerGroup*row, s.each, s.taps(), s.outsPerGroup, row, p.taps)
			r := result{v: viewOf(dx).from(first), ld: s.ch, bias: biasPart(bias, first, s.each)}
			if p.rows == s.in {
				b.gatheredProduct(r, p.gathered, right, s.each)
			} else {
				r.v, r.ld = b.shared.view(dx.DType, p.count()*s.each), s.each
				b.gatheredProduct(r, p.gathered, right, s.each)
				b.spreadPhase(viewOf(dx).from(first), r.v, s, p)
			}
			b.shared.release(mark)
		}
	}
}

// spreadPhase puts the rows of a phase at their places of dx.
func (b *Backend) spreadPhase(dx, v view, s *convShape, p phase) {
	b.rows(p.count(), s.each, func(_ *worker, lo, hi int) {
		for i := lo; i < hi; i++ {
			at, to := p.rows.at(i%p.rows.places()), i/p.rows.places()
			for a, first := range p.first {
				to = to*s.in[a] + first + at[a]*s.win[a].Stride
			}
			dx.move(to*s.ch, v, i*s.each, s.each)
		}
	})
}

// convWeights is the gradient to the weights, a product of outputs and gathered patches. Patches
// are gathered in chunks, because all of them would be many times the input.
func convWeights(b *Backend, c *kernels.Call) {
	dy, x, dw := c.In[0], c.In[1], c.Out[0]
	if f, ok := fewer(c.Attr, x, dw, dy); ok {
		part := *c
		sum := b.shared.f32(tensor.Len(f.w))
		part.Attr, part.Out = f.at, []*tensor.Tensor{tensor.Of(tensor.F32, sum, f.w...)}
		part.Attr.I[0] = 0
		convWeights(b, &part)
		f.spread(b, dw, sum, c.Attr.I[0] == kernels.Accumulate)
		return
	}
	s := shapeOfConv(c.Attr, x, dw, dy)
	taps, n, acc := s.taps(), s.outsPerGroup, c.Attr.I[0] == kernels.Accumulate
	if m := b.winoMaps(s, s.out, x.DType); m != nil {
		b.winoGradient(winoForward(s, x), m, dy, dw, acc)
		return
	}
	if b.sumsDirectly(s, x) {
		b.sumDirectly(s, dy, x, dw, acc)
		return
	}
	for group := range s.groups {
		g := s.forward(x, group)
		mark := b.shared.mark()
		width := g.width()
		sum := b.shared.zero(n * width)
		if right, is := g.whole(); is && n > 0 {
			right.trans = true
			left := matrix{v: viewOf(dy).from(group * n), ld: s.outs, trans: true}
			r := result{v: view{f: dw.F32()[group*n*width:]}, ld: width, acc: acc}
			b.blocked(r, left, right, n, width, g.count())
			b.shared.release(mark)
			continue
		}
		step := max(1, convChunk/max(1, width))
		right := matrix{v: b.shared.view(x.DType, min(step, g.count())*width), ld: width, trans: true}
		for i := 0; i < g.count() && n > 0; i += step {
			m := min(step, g.count()-i)
			b.gather(right.v, g, i, i+m)
			left := matrix{v: viewOf(dy).from(i*s.outs + group*n), ld: s.outs, trans: true}
			b.blocked(result{v: view{f: sum}, ld: width, acc: true}, left, right, n, width, m)
		}
		b.intoWeights(dw.F32()[group*n*width:], sum, n, s.each, taps, acc)
		b.shared.release(mark)
	}
}

// intoWeights sets or adds rows in the order of gathered columns to weights.
func (b *Backend) intoWeights(dw, sum []float32, rows, each, taps int, acc bool) {
	width := each * taps
	b.rows(rows, width, func(_ *worker, lo, hi int) {
		for i := lo * width; i < hi*width; i += width {
			for k := range taps {
				for c := range each {
					v := sum[i+k*each+c]
					if acc {
						v += dw[i+c*taps+k]
					}
					dw[i+c*taps+k] = v
				}
			}
		}
	})
}
