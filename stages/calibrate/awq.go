package calibrate

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var _ = register(Method{Name: "awq", Source: "arXiv:2306.00978, llm-awq", Doc: "4-bit integers with a scale and " +
	"a zero for a group of columns; columns that read much are made larger, and what gives them smaller (AWQ's layout)",
	block: awqBlock})

// Of the search: powers of magnitudes that are tried for columns, and clips for groups, each the next
// twentieth of the greatest and the least down to a half of them.
const (
	awqPowers = 20
	awqClips  = 10
)

func awqBlock(b *blockOf) error {
	for _, in := range b.inputs {
		names := b.tensors(in)
		for _, name := range names {
			if _, err := b.matrix(name); err != nil {
				return err
			}
		}
		back := b.behind(in)
		k := len(in.mags)
		sums := append([]float32(nil), in.sums.F32()...)
		if back != nil {
			by, err := b.search(in, names)
			if err != nil {
				return err
			}
			for _, name := range names {
				if m := b.loaded[name]; m != nil {
					m.multiply(by)
				}
			}
			for i := range sums {
				sums[i] /= float32(by[i/k] * by[i%k])
			}
			if err := back(by); err != nil {
				return err
			}
		}
		b.scaled[in] = sums
	}
	// a matrix may have been made smaller for a layer behind it, so that codes come last
	for _, in := range b.inputs {
		for _, name := range b.tensors(in) {
			if m := b.loaded[name]; m != nil {
				m.awq(b.scaled[in], !b.turns(name))
			}
		}
	}
	return nil
}

// multiply multiplies columns.
func (m *matrix) multiply(by []float64) {
	for r := range m.coded.Rows {
		for j, row := 0, m.w.RawRowView(r); j < len(row); j++ {
			row[j] *= by[j]
		}
	}
}

// search finds the factors of columns for which rounded weights give what is nearest to what whole ones do,
// over all rows that were read: powers of the columns' mean magnitudes, so that the greatest and the least
// factor are each other's inverse.
func (b *blockOf) search(in *inputs, names []string) ([]float64, error) {
	k := len(in.mags)
	best, least := make([]float64, k), math.Inf(1)
	by := make([]float64, k)
	for p := range awqPowers {
		low, high := math.Inf(1), 0.0
		for j, m := range in.mags {
			by[j] = max(math.Pow(m/float64(in.rows), float64(p)/awqPowers), 1e-4)
			low, high = min(low, by[j]), max(high, by[j])
		}
		for j := range by {
			by[j] /= math.Sqrt(low * high)
		}
		sum := 0.0
		for _, name := range names {
			if m := b.loaded[name]; m != nil {
				e, err := b.off(m, by, in.sums)
				if err != nil {
					return nil, err
				}
				sum += e
			}
		}
		if sum < least {
			least = sum
			copy(best, by)
		}
	}
	if math.IsInf(least, 1) {
		return nil, fmt.Errorf("%s: what it gives of the text is not finite", in.names[0])
	}
	return best, nil
}

// off is the sum of squares by which a matrix that is multiplied by factors of columns, rounded, and
// divided by them again gives something else, over rows with the sums xᵀx.
func (b *blockOf) off(m *matrix, by []float64, sums *tensor.Tensor) (float64, error) {
	n, k := m.w.Dims()
	d, err := b.run.Pool.New("error", tensor.F32, n, k)
	if err != nil {
		return 0, err
	}
	defer d.Release()
	p, err := b.run.Pool.New("error of sums", tensor.F32, n, k)
	if err != nil {
		return 0, err
	}
	defer p.Release()
	e, g := d.F32(), m.coded.Group
	forRows(n, func(r int) {
		row, part := m.w.RawRowView(r), make([]float64, g)
		for at := 0; at < k; at += g {
			for j := range part {
				part[j] = row[at+j] * by[at+j]
			}
			scale, zero := awqGrid(part, 1)
			for j, x := range part {
				y := (awqCode(x, scale, zero) - zero) * scale
				e[r*k+at+j] = float32((y - x) / by[at+j])
			}
		}
	})
	b.run.Backend.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{d, sums, nil},
		Out: []*tensor.Tensor{p}}) // the sums are symmetric
	sum := 0.0
	for i, v := range p.F32() {
		sum += float64(v) * float64(e[i])
	}
	return sum, nil
}

// awqGrid is scale and zero of numbers that go from the least to the greatest, or to a share of both. The
// scale is as float16 has it.
func awqGrid(v []float64, share float64) (scale, zero float64) {
	low, high := v[0], v[0]
	for _, x := range v {
		low, high = min(low, x), max(high, x)
	}
	low, high = low*share, high*share
	scale = float64(tensor.F16Value(tensor.F16Bits(float32(max(high-low, 1e-5) / 15))))
	return scale, min(max(-math.RoundToEven(low/scale), 0), 15)
}

func awqCode(x, scale, zero float64) float64 {
	return min(max(math.RoundToEven(x/scale)+zero, 0), 15)
}

// awq chooses a matrix's codes. Where clip says so, a group is clipped to the share of its greatest
// magnitude that leaves the least squares of errors of what the group gives.
func (m *matrix) awq(sums []float32, clip bool) {
	n, k := m.w.Dims()
	g := m.coded.Group
	forRows(n, func(r int) {
		row, e := m.w.RawRowView(r), make([]float64, g)
		for at := 0; at < k; at += g {
			part, limit := row[at:at+g], most(row[at:at+g])
			best, least := limit, math.Inf(1)
			for step := range awqClips {
				if !clip {
					break
				}
				to := limit * (1 - float64(step)/(2*awqClips))
				scale, zero := awqGrid(clipped(e, part, to), 1)
				for j, x := range e {
					e[j] = (awqCode(x, scale, zero)-zero)*scale - part[j]
				}
				if sum := quadratic(e, sums, at, k); sum < least {
					best, least = to, sum
				}
			}
			clipped(e, part, best)
			scale, zero := awqGrid(e, 1)
			m.coded.SetGroup(r, at/g, float32(scale), uint8(zero))
			for j, x := range e {
				m.coded.Set(r, at+j, uint8(awqCode(x, scale, zero)))
			}
		}
	})
}

// clipped sets dst to numbers within a magnitude.
func clipped(dst, v []float64, to float64) []float64 {
	for j, x := range v {
		dst[j] = min(max(x, -to), to)
	}
	return dst
}

// quadratic is eᵀ·S·e with the block of sums [k k] that begins at a row and the same column.
func quadratic(e []float64, sums []float32, at, k int) (sum float64) {
	for i, x := range e {
		row := 0.0
		for j, s := range sums[(at+i)*k+at : (at+i)*k+at+len(e)] {
			row += float64(s) * e[j]
		}
		sum += x * row
	}
	return sum
}

// turns reports whether a tensor has queries or keys, whose products are scores: AWQ does not clip them.
func (b *blockOf) turns(name string) bool {
	for _, p := range b.params[name] {
		if last := p[:strings.LastIndex(p, ".")]; strings.HasSuffix(last, ".q_proj") ||
			strings.HasSuffix(last, ".k_proj") {
			return true
		}
	}
	return false
}

// behind is how factors of the columns that layers read are taken out of what gives them: a norm's weight
// or the rows of the matrix before. nil is that something else reads them too, which may be a layer that is
// not rounded, or that neither gives them.
func (b *blockOf) behind(in *inputs) func(by []float64) error {
	for _, name := range b.tensors(in) {
		in.other = in.other || b.loaded[name] == nil
	}
	switch {
	case in.other:
		return nil
	case in.norm != "":
		return func(by []float64) error { return b.norm(in, by) }
	case in.up != "" && b.loaded[b.job.tensor(in.up)] != nil && b.job.bias(in.up) == "":
		m, rows := b.loaded[b.job.tensor(in.up)], b.job.rows(in.up)
		return func(by []float64) error {
			for j := range by {
				for i, row := 0, m.w.RawRowView(rows[j]); i < len(row); i++ {
					row[i] /= by[j]
				}
			}
			return nil
		}
	}
	return nil
}

// norm divides a norm's weight, which multiplies by plus more than itself.
func (b *blockOf) norm(in *inputs, by []float64) error {
	name := b.job.tensor(in.norm)
	v, err := b.job.floats(name)
	if err != nil {
		return err
	}
	for j := range v {
		v[j] = float32((float64(v[j])+in.plus)/by[j] - in.plus)
	}
	b.out.Changed[name] = v
	return nil
}
