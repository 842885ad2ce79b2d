package cpu

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LowLinear], table[kernels.LowLinearDX], table[kernels.LowLinearDW] = low(linear,
		kernels.OperandsForward), low(linearDX, kernels.OperandsDX), low(linearDW, kernels.OperandsDW)
}

// low is a product of operands that are rounded first, in the unit that multiplies those of the model's type.
func low(product func(b *Backend, c *kernels.Call), operands int) func(b *Backend, c *kernels.Call) {
	return func(b *Backend, c *kernels.Call) {
		defer b.shared.release(b.shared.mark())
		first, second := kernels.GrainsOf(c, operands, kernels.ChoiceOperand(c.Op))
		of := *c
		of.In = slices.Clone(c.In)
		if at := kernels.ChoiceOperand(c.Op); at < len(of.In) {
			of.In = of.In[:at]
		}
		if !kernels.Plainly(c, kernels.ChoiceOperand(c.Op)) {
			of.In[0], of.In[1] = b.rounded(c.In[0], first), b.rounded(c.In[1], second)
		}
		product(b, &of)
	}
}

func init() { table[kernels.Rounded] = roundMatrices }

// roundMatrices rounds each matrix of a call by itself.
func roundMatrices(b *Backend, c *kernels.Call) {
	defer b.shared.release(b.shared.mark())
	if kernels.Plainly(c, kernels.ChoiceOperand(c.Op)) {
		copy(c.Out[0].Bytes(), c.In[0].Bytes())
		return
	}
	rows, width, at := c.In[0].Rows(), lastDim(c.In[0]), 0
	x, y := c.In[0].Alias(rows, width), c.Out[0].Alias(rows, width)
	for _, m := range kernels.Matrices(c) {
		b.clearRows(y, at, m[0])
		in, out := x.RowSlice(m[0], m[1]), y.RowSlice(m[0], m[1])
		b.roundTo(out, in, kernels.OperandOf(c).From(m[0]))
		in.Release()
		out.Release()
		at = m[1]
	}
	b.clearRows(y, at, rows)
	x.Release()
	y.Release()
}

// rounded is a copy of a tensor, taken as the matrix of all its rows, in blocks that share a scale.
func (b *Backend) rounded(t *tensor.Tensor, g kernels.Grain) *tensor.Tensor {
	out := b.copyOf(t)
	b.roundTo(out, t, g)
	return out
}

// roundTo writes a tensor, taken as the matrix of all its rows, to one of its shape in blocks that share a scale.
func (b *Backend) roundTo(out, t *tensor.Tensor, g kernels.Grain) { b.roundPart(out, t, g, nil) }

// roundPart is roundTo of a part of a matrix, from its beginning, whose greatest magnitude is given; nil is
// that of the part.
func (b *Backend) roundPart(out, t *tensor.Tensor, g kernels.Grain, given *float32) {
	width, rows := lastDim(t), t.Rows()
	if t.Len() == 0 {
		return
	}
	from, to := viewOf(t), viewOf(out)
	high := g.Rows
	if g.Whole() {
		high = 1
	}
	groups := ceilDiv(rows, high)
	each := max(1, 64/high) // groups of a task
	if g.Mixed {
		each = ceilDiv(each, kernels.HadamardRun) * kernels.HadamardRun
	}
	tasks := ceilDiv(groups, each)
	all := float32(0)
	if given != nil {
		all = *given
	} else if g.Kept {
		all = g.Most
	} else if g.Global() {
		most := b.shared.f32(tasks)
		b.shareWork(tasks, rows*width*elementCost, func(w *worker, i int) {
			m := w.arena.mark()
			end := min((i+1)*each*high, rows)
			most[i] = w.k.absMax(w.rowsOf(from, i*each*high, end, width, g))
			w.arena.release(m)
		})
		all = b.k.absMax(most)
	}
	b.shareWork(tasks, rows*width*elementCost, func(w *worker, i int) {
		for at := i * each; at < min((i+1)*each, groups); at++ {
			m := w.arena.mark()
			w.round(from, to, at*high, min((at+1)*high, rows), width, all, g)
			w.arena.release(m)
		}
	})
}

// rowsOf are rows [first, end) in float32, turned in runs where the grain wants it: first is a multiple of
// the length of a run.
func (w *worker) rowsOf(from view, first, end, width int, g kernels.Grain) []float32 {
	buf := w.arena.f32((end - first) * width)
	for r := range end - first {
		w.k.read(buf[r*width:(r+1)*width], from, (first+r)*width)
	}
	for r := 0; g.Mixed && r+kernels.HadamardRun <= end-first; r += kernels.HadamardRun {
		w.hadamard(buf[r*width:], width)
	}
	return buf
}

// hadamard is kernels.Hadamard, two stages at a time.
func (w *worker) hadamard(rows []float32, width int) {
	at := func(i int) []float32 { return rows[i*width : (i+1)*width] }
	for i := 0; i < kernels.HadamardRun; i += 4 {
		signs := [4]float32(kernels.HadamardSigns[i:])
		w.k.butterfly(at(i), at(i+1), at(i+2), at(i+3), &signs, 1)
	}
	for i := range 4 {
		w.k.butterfly(at(i), at(i+4), at(i+8), at(i+12), &[4]float32{1, 1, 1, 1}, 0.25)
	}
}

// copyOf is room for a tensor of the same type and shape.
func (b *Backend) copyOf(t *tensor.Tensor) *tensor.Tensor {
	if t.DType == tensor.F32 {
		return tensor.Of(tensor.F32, b.shared.f32(t.Len()), t.Shape...)
	}
	return tensor.Of(t.DType, b.shared.u16(t.Len()), t.Shape...)
}

// round rounds rows [first, end), which share scales by columns of the grain; all is the greatest magnitude
// of the matrix where scales depend on it.
func (w *worker) round(from, to view, first, end, width int, all float32, g kernels.Grain) {
	buf := w.rowsOf(from, first, end, width, g)
	var lost []int // places that no number is at, which a scale of steps before does not say
	if g.Kept && !(w.k.absMax(buf) <= math.MaxFloat32) {
		for i, v := range buf {
			if v != v {
				lost = append(lost, i)
			}
		}
	}
	places := w.arena.zero(width) // greatest magnitudes by column, where blocks have more than one row
	for r := range end - first {
		if g.Rows > 1 {
			w.k.absMaxes(places, buf[r*width:(r+1)*width])
		}
	}
	h, broad := newRoundConst(g.Number), g.Columns
	if g.Whole() {
		broad = width
	}
	if broad == 1 {
		back := w.arena.f32(width)
		g.Factors(places, 1, all, places, back)
		for r := range end - first {
			row := buf[r*width : (r+1)*width]
			if g.Chance {
				w.chances(row, places, back, g.Noise.Row(first+r), g.Number)
			} else {
				w.k.roundEach(row, row, places, back, h)
			}
			w.k.write(to, (first+r)*width, row)
		}
		return
	}
	if g.Rows <= 1 && broad%16 == 0 && width%broad == 0 && broad <= 64 {
		w.roundRuns(buf, width, first, broad, all, g, h)
	} else {
		w.roundBlocks(buf, width, first, broad, all, g, h, places)
	}
	for _, i := range lost {
		buf[i] = float32(math.NaN())
	}
	for r := range end - first {
		w.k.write(to, (first+r)*width, buf[r*width:(r+1)*width])
	}
}

// roundRuns rounds a row, in blocks of a few runs of sixteen.
func (w *worker) roundRuns(row []float32, width, first, broad int, all float32, g kernels.Grain, h *roundConst) {
	most := w.arena.f32(width / 16)
	w.k.runMaxes(most, row)
	by, back := w.arena.f32(len(most)), w.arena.f32(len(most))
	g.Factors(most, broad/16, all, by, back)
	eachBy, eachBack := w.arena.f32(width), w.arena.f32(width)
	w.k.runs(eachBy, by)
	w.k.runs(eachBack, back)
	if g.Chance {
		w.chances(row, eachBy, eachBack, g.Noise.Row(first), g.Number)
		return
	}
	w.k.roundEach(row, row, eachBy, eachBack, h)
}

// roundBlocks rounds blocks of rows, whose greatest magnitudes by column are given where they are more than one.
func (w *worker) roundBlocks(buf []float32, width, first, broad int, all float32, g kernels.Grain, h *roundConst,
	places []float32) {
	rows := len(buf) / width
	for c := 0; c < width; c += broad {
		n := min(broad, width-c)
		of := places[c : c+n]
		if g.Rows <= 1 {
			of = buf[c : c+n]
		}
		by, back := g.Factor(w.k.absMax(of), all)
		for r := range rows {
			part := buf[r*width+c : r*width+c+n]
			if g.Chance {
				seed := g.Noise.Row(first + r)
				for i, v := range part {
					part[i] = g.Number.StochasticRound(v*by, kernels.NoiseAt(seed, c+i)) * back
				}
			} else {
				w.k.roundBits(part, part, by, back, h)
			}
		}
	}
}

// chances rounds the numbers of a row by its noise.
func (w *worker) chances(x, by, back []float32, seed uint32, n kernels.Number) {
	if n == kernels.E2M1 {
		w.k.chances(x, x, by, back, int(seed))
		return
	}
	for i, v := range x {
		x[i] = n.StochasticRound(v*by[i], kernels.NoiseAt(seed, i)) * back[i]
	}
}

func goRunMaxes(y, x []float32) {
	for i := range y {
		y[i] = goAbsMax(x[16*i : 16*i+16])
	}
}

func goRuns(y, x []float32) {
	for i := range y {
		y[i] = x[i/16]
	}
}

func goChances(y, x, f, back []float32, seed int) {
	for i, v := range x[:len(y)] {
		y[i] = kernels.E2M1.StochasticRound(v*f[i], kernels.NoiseAt(uint32(seed), i)) * back[i]
	}
}

func goButterfly(a, b, c, d []float32, signs *[4]float32, by float32) {
	for i := range a {
		p, q, r, s := a[i]*signs[0], b[i]*signs[1], c[i]*signs[2], d[i]*signs[3]
		p, q, r, s = p+q, p-q, r+s, r-s
		a[i], b[i], c[i], d[i] = (p+r)*by, (q+s)*by, (p-r)*by, (q-s)*by
	}
}

// roundConst are the constants of a format, with integers as the bits of a float32.
type roundConst struct {
	half, keep, shift, least float32 // of bits behind the mantissa: half of the last kept one less 1, the kept, how many
	magic                    float32 // pushes what is behind the last bit of a subnormal number out of a float32
	most                     float32 // the greatest number
}

func newRoundConst(n kernels.Number) *roundConst {
	shift := 23 - n.Mantissa
	return &roundConst{half: math.Float32frombits(1<<(shift-1) - 1), keep: math.Float32frombits(^uint32(1<<shift - 1)),
		shift: math.Float32frombits(uint32(shift)), least: float32(math.Ldexp(1, n.Least)),
		magic: float32(math.Ldexp(1.5, 23+n.Least-n.Mantissa)), most: n.Most}
}

// nearest is the number of the format that is nearest to x, of two the even one.
func (q *roundConst) nearest(x float32) float32 {
	u := math.Float32bits(x)
	a := u &^ (1 << 31)
	if a < math.Float32bits(q.least) {
		s := float32(math.Float32frombits(a)+q.magic) - q.magic
		return math.Float32frombits(math.Float32bits(s) | u&(1<<31))
	}
	a = min((a+math.Float32bits(q.half)+a>>math.Float32bits(q.shift)&1)&math.Float32bits(q.keep),
		math.Float32bits(q.most))
	return math.Float32frombits(a | u&(1<<31))
}

func goAbsMax(x []float32) float32 {
	m := uint32(0)
	for _, v := range x {
		m = max(m, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(m)
}

func goAbsMaxes(y, x []float32) {
	for i, v := range x[:len(y)] {
		y[i] = math.Float32frombits(max(math.Float32bits(y[i]), math.Float32bits(v)&^(1<<31)))
	}
}

func goRoundBits(y, x []float32, f, back float32, h *roundConst) {
	for i, v := range x[:len(y)] {
		y[i] = h.nearest(v*f) * back
	}
}

func goRoundEach(y, x, f, back []float32, h *roundConst) {
	for i, v := range x[:len(y)] {
		y[i] = h.nearest(v*f[i]) * back[i]
	}
}
