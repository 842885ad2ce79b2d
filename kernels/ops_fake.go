package kernels

import "math"

// Weights that are multiplied as few bits would have them, while they learn as they are.
const (
	FakeQuant   Op = "fake_quant"
	FakeQuantDW Op = "fake_quant_dw"
)

var _ = register(Spec{Op: FakeQuant, Sig: "w[...,k]A -> y[...,k]A",
	Source: "arXiv:1712.05877; torchao 0.18, IntxFakeQuantizer", Doc: "Groups of I[2] numbers of a row, " +
		"0 being all of it, have a scale s: the greatest magnitude over half of 2^I[1] - 1, and at least 2^-23. y " +
		"= min(max(round(w·(1/s)), -2^(I[1]-1)), 2^(I[1]-1) - 1)·s, in float32 with ties to even, rounded once to A."},
	Spec{Op: FakeQuantDW, Sig: "dy[...,k]f32 w[...,k]A -> dw[...,k]f32", Doc: "The gradient of fake_quant as if " +
		"nothing were rounded: dy, and 0 where w was beyond the least or the greatest whole number."})

// Fake is how a weight is rounded while it learns: to whole numbers of so many bits, with a scale for a group of
// columns, 0 being a whole row. The zero value is not at all.
type Fake struct{ Bits, Group int }

// Attr are the constants of an operation that rounds so, and FakeAt is the inverse.
func (f Fake) Attr() Attr { return Attr{I: [4]int{0, f.Bits, f.Group}} }

// FakeAt is what Attr made.
func FakeAt(a Attr) Fake { return Fake{a.I[1], a.I[2]} }

// leastScale is the least of a group.
const leastScale = 0x1p-23

// Scale is that of a group of numbers.
func (f Fake) Scale(group []float32) float32 {
	most := float32(0)
	for _, x := range group {
		most = max(most, float32(math.Abs(float64(x))))
	}
	return max(most/(float32(int(1)<<f.Bits-1)/2), leastScale)
}

// Codes sets codes to the whole numbers of a group with a scale.
func (f Fake) Codes(codes, group []float32, scale float32) {
	least := -float32(int(1) << (f.Bits - 1))
	by := 1 / scale
	for i, x := range group {
		codes[i] = min(max(float32(math.RoundToEven(float64(x*by))), least), -least-1)
	}
}

// Row sets dst to a row as it is rounded; dst may be the row.
func (f Fake) Row(dst, row []float32) {
	for at := range f.groups(len(row)) {
		part := f.part(row, at)
		scale := f.Scale(part)
		to := f.part(dst, at)
		f.Codes(to, part, scale)
		for i := range to {
			to[i] *= scale
		}
	}
}

// Gradient sets dst to what reaches a row of a gradient dy.
func (f Fake) Gradient(dst, dy, row []float32) {
	least := -float32(int(1) << (f.Bits - 1))
	for at := range f.groups(len(row)) {
		part, from, to := f.part(row, at), f.part(dy, at), f.part(dst, at)
		by := 1 / f.Scale(part)
		for i, x := range part {
			switch v := float32(math.RoundToEven(float64(x * by))); {
			case v != v:
				to[i] = v
			case v < least || v > -least-1:
				to[i] = from[i] * 0
			default:
				to[i] = from[i]
			}
		}
	}
}

// groups is how many a row has.
func (f Fake) groups(k int) int {
	if f.Group == 0 {
		return min(k, 1)
	}
	return (k + f.Group - 1) / f.Group
}

func (f Fake) part(row []float32, n int) []float32 {
	if f.Group == 0 {
		return row
	}
	return row[n*f.Group : min((n+1)*f.Group, len(row))]
}
