package kernels

import (
	"fmt"
	"math"
)

// Number is a format of few bits that operands of products are rounded to.
type Number struct {
	Name     string
	Mantissa int     // bits behind the leading one
	Least    int     // exponent of the least normal number
	Most     float32 // the greatest number
	Top      int     // exponent of the greatest number
}

// The formats of arXiv:2209.05433 and of the Open Compute Project's MX specification. None has an infinity
// here: what exceeds the greatest number becomes that.
var (
	E4M3 = Number{Name: "e4m3", Mantissa: 3, Least: -6, Most: 448, Top: 8}
	E5M2 = Number{Name: "e5m2", Mantissa: 2, Least: -14, Most: 57344, Top: 15}
	E2M1 = Number{Name: "e2m1", Mantissa: 1, Least: 0, Most: 6, Top: 2}
)

// ScaleRule says how the scale of a block follows from its greatest magnitude.
type ScaleRule int

// The rules: the greatest number over the magnitude, in float32; the power of two at or below that (both as
// TransformerEngine's blockwise recipes); and the power of two that MX has, 2^(Top - ⌊log₂ magnitude⌋), with
// which the greatest of a block may be cut off. NVFP4 has two levels: the matrix's scale in float32 brings
// the greatest of all to the greatest number times that of e4m3, and blocks have one in e4m3.
const (
	ScaleFloat ScaleRule = iota
	ScalePower
	ScaleMX
	ScaleNV
)

// Grain is how a matrix is rounded: blocks of Rows × Columns numbers, counted from its beginning, share a
// scale; 0 rows and columns are all of it.
type Grain struct {
	Number        Number
	Rows, Columns int
	Scale         ScaleRule
	// numbers are rounded up or down by chance, as near as they are to either (StochasticRound), by some noise
	Chance bool
	Noise  *Noise
	// runs of sixteen along the axis of length above 1 are turned before they are rounded (Hadamard); what
	// is left of a matrix at its end is not
	Mixed bool
	// the scale follows from Most, which steps before had, and not from the numbers that are rounded
	Kept bool
	Most float32
}

// Whole reports whether all of a matrix shares one scale, and Global whether scales of blocks depend on all of it.
func (g Grain) Whole() bool { return g.Rows == 0 }

// Global reports whether scales of blocks depend on the greatest magnitude of the matrix.
func (g Grain) Global() bool { return g.Scale == ScaleNV || g.Whole() }

// From is the grain of the rows of an operand from one on, as if they were all.
func (g Grain) From(row int) Grain {
	if g.Noise != nil {
		n := *g.Noise
		n.First += row
		g.Noise = &n
	}
	return g
}

// Turned is a grain with rows for columns: of an operand that is summed along its rows.
func (g Grain) Turned() Grain {
	g.Rows, g.Columns = g.Columns, g.Rows
	return g
}

// HadamardRun is the length of what Hadamard turns.
const HadamardRun = 16

// HadamardSigns are the signs of numbers before a run is turned (TransformerEngine's get_wgrad_sign_vector).
var HadamardSigns = [HadamardRun]float32{1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1}

// Hadamard turns sixteen rows of a width, one behind the other: each column v becomes H·D·v/4, with H Sylvester's
// matrix of Hadamard and D the signs. Both operands of a product that sums over the rows are turned, which does not
// change it, and outliers are spread (arXiv:2509.25149). Sums are float32, of pairs of rows 1, 2, 4 and 8 apart.
func Hadamard(rows []float32, width int) {
	for i, sign := range HadamardSigns {
		if sign < 0 {
			for j, v := range rows[i*width : (i+1)*width] {
				rows[i*width+j] = -v
			}
		}
	}
	for apart := 1; apart < HadamardRun; apart *= 2 {
		for i := range HadamardRun {
			if i&apart != 0 {
				continue
			}
			a, b := rows[i*width:(i+1)*width], rows[(i+apart)*width:(i+apart+1)*width]
			for j, v := range a {
				a[j], b[j] = v+b[j], v-b[j]
			}
		}
	}
	for i := range rows[:HadamardRun*width] {
		rows[i] *= 0.25
	}
}

// StochasticRound rounds x to one of its neighbours in the format: up in as many of all cases as it is near to the
// upper one. What decides are the 24 highest bits of noise (NoiseAt).
func (n Number) StochasticRound(x float32, noise uint32) float32 {
	u := math.Float32bits(x)
	a, sign := u&^(1<<31), u&(1<<31)
	if a > 0x7f800000 {
		return x
	}
	h := noise >> 8
	if int(a>>23)-127 < n.Least { // numbers lie 2^(Least-Mantissa) apart
		s := math.Float32frombits(a) * math.Float32frombits(uint32(127+n.Mantissa-n.Least)<<23)
		low := float32(uint32(s))
		if float32(h) < (s-low)*(1<<24) {
			low++
		}
		return math.Float32frombits(math.Float32bits(low*math.Float32frombits(uint32(127+n.Least-n.Mantissa)<<23)) | sign)
	}
	shift := 23 - n.Mantissa // bits that are left out; those of the mantissa are 24 of the hash at most
	rest := a & (1<<shift - 1)
	a -= rest
	if h < rest<<(24-shift) {
		a += 1 << shift
	}
	return math.Float32frombits(min(a, math.Float32bits(n.Most)) | sign)
}

// step is how far numbers of the format lie apart at magnitude a.
func (n Number) step(a float64) float64 {
	if a < math.Ldexp(1, n.Least) {
		return math.Ldexp(1, n.Least-n.Mantissa)
	}
	_, e := math.Frexp(a)
	return math.Ldexp(1, e-1-n.Mantissa)
}

// Factor is what numbers of a block are multiplied with before they are rounded, and divided by behind that;
// most is the greatest magnitude, and all that of the matrix, which only Global grains read. A block of
// zeros has 1; one that is not finite has NaN.
func (g Grain) Factor(most, all float32) (by, back float32) {
	if g.Whole() {
		most = all
	}
	if by, back, ok := g.power(most); ok {
		return by, back
	}
	switch {
	case g.Scale == ScaleNV && most <= math.MaxFloat32 && all <= math.MaxFloat32 && all > 0:
		return g.twoLevels(most, all)
	case most == 0 && g.Scale != ScaleNV, all == 0 && g.Scale == ScaleNV:
		return 1, 1
	case !(most <= math.MaxFloat32): // an infinity or a NaN
		nan := float32(math.NaN())
		return nan, nan
	}
	f := g.Number.Most / most
	switch g.Scale {
	case ScalePower:
		f = math.Float32frombits(math.Float32bits(f) & 0x7f800000)
	case ScaleMX:
		_, e := math.Frexp(float64(most))
		f = float32(math.Ldexp(1, g.Number.Top-(e-1)))
	}
	if math.IsInf(float64(f), 0) || f == 0 { // of subnormal numbers
		f = math.MaxFloat32
		if g.Scale != ScaleFloat {
			f = float32(math.Ldexp(1, 127))
		}
	}
	return f, 1 / f
}

// Factors are Factor of many blocks: of every step-th greatest magnitude, with those behind it, and as often.
func (g *Grain) Factors(most []float32, step int, all float32, by, back []float32) {
	nv := g.Scale == ScaleNV && all > 0 && all <= math.MaxFloat32
	matrix := all / (E4M3.Most * g.Number.Most)
	nv = nv && matrix > 0
	inverse := 1 / matrix
	for i := 0; i < len(most); i += step {
		m := most[i]
		for _, x := range most[i+1 : i+step] {
			m = max(m, x)
		}
		b, k, power := g.power(m)
		switch {
		case power && !g.Whole():
		case nv && m <= math.MaxFloat32:
			block := E4M3.near(min(max(m/g.Number.Most/matrix, 1.0/64), E4M3.Most))
			b, k = inverse/block, matrix*block
		default:
			b, k = g.Factor(m, all)
		}
		for j := range step {
			by[i+j], back[i+j] = b, k
		}
	}
}

// power is Factor of scales that are powers of two, by the bits of numbers, where none is near the ends of their range.
func (g *Grain) power(most float32) (by, back float32, ok bool) {
	u := math.Float32bits(most)
	e := int(u>>23) - 127 // also of infinities and NaN
	if g.Scale == ScalePower {
		// of Most/most: Most is 2^Top·m, and most 2^e·n
		if e = g.Number.Top - e; u&0x7fffff > math.Float32bits(g.Number.Most)&0x7fffff {
			e--
		}
	} else if e = g.Number.Top - e; g.Scale != ScaleMX {
		return 0, 0, false
	}
	if e <= -100 || e >= 100 {
		return 0, 0, false
	}
	return math.Float32frombits(uint32(127+e) << 23), math.Float32frombits(uint32(127-e) << 23), true
}

// twoLevels are the factors of NVFP4: of the block's scale in e4m3 no less than its least normal number.
func (g Grain) twoLevels(most, all float32) (by, back float32) {
	matrix := all / (E4M3.Most * g.Number.Most)
	if matrix == 0 { // of subnormal numbers
		return 1, 1
	}
	block := min(max(most/g.Number.Most/matrix, 1.0/64), E4M3.Most)
	block = E4M3.near(block)
	return 1 / matrix / block, matrix * block
}

// near is Nearest of a normal number of the format.
func (n Number) near(x float32) float32 {
	shift := 23 - n.Mantissa
	u := math.Float32bits(x)
	return min(math.Float32frombits((u+1<<(shift-1)-1+u>>shift&1)&^(1<<shift-1)), n.Most)
}

// Nearest is the number of the format that is nearest to x, of two the even one.
func (n Number) Nearest(x float32) float32 {
	a := math.Abs(float64(x))
	if a != a {
		return x
	}
	step := n.step(a)
	return float32(math.Copysign(min(math.RoundToEven(a/step)*step, float64(n.Most)), float64(x)))
}

// Precision is a recipe for the three products of a layer: how activations, weights and gradients of outputs
// are rounded before they are multiplied. Sums are float32, and what comes out has the model's type.
type Precision struct {
	Name              string
	Act, Weight, Grad Grain
	Mixed             bool // operands of the weights' gradient are turned before they are rounded
	// scales follow from the greatest numbers of steps before, where they are known (DelayedScales)
	Delayed             bool
	Source, Description string
}

// grain is one without more than blocks and a rule of scales.
func grain(n Number, rows, columns int, scale ScaleRule) Grain {
	return Grain{Number: n, Rows: rows, Columns: columns, Scale: scale}
}

// Precisions are the recipes, by the number that an operation has for them; 0 is none.
var Precisions = []Precision{{Name: "none"},
	{Name: "block", Act: grain(E4M3, 1, 128, ScaleFloat), Weight: grain(E4M3, 128, 128, ScaleFloat),
		Grad: grain(E4M3, 1, 128, ScaleFloat), Source: "arXiv:2412.19437, section 3.3",
		Description: "e4m3, 1×128 activations and gradients, 128×128 weights, float32 scales"},
	{Name: "block_pow2", Act: grain(E4M3, 1, 128, ScalePower), Weight: grain(E4M3, 128, 128, ScalePower),
		Grad: grain(E4M3, 1, 128, ScalePower), Source: "TransformerEngine, Float8BlockScaling",
		Description: "the same with powers of two for scales"},
	{Name: "mxfp8", Act: grain(E4M3, 1, 32, ScaleMX), Weight: grain(E4M3, 1, 32, ScaleMX),
		Grad: grain(E4M3, 1, 32, ScaleMX), Source: "OCP Microscaling Formats 1.0; arXiv:2506.08027",
		Description: "e4m3 in blocks of 32 along the sum, powers of two for scales"},
	{Name: "mxfp4", Act: grain(E2M1, 1, 32, ScaleMX), Weight: grain(E2M1, 1, 32, ScaleMX),
		Grad: grain(E4M3, 1, 32, ScaleMX), Source: "OCP Microscaling Formats 1.0",
		Description: "e2m1 in blocks of 32 along the sum, gradients as mxfp8"},
	{Name: "nvfp4", Act: grain(E2M1, 1, 16, ScaleNV), Weight: grain(E2M1, 16, 16, ScaleNV),
		Grad: Grain{Number: E2M1, Rows: 1, Columns: 16, Scale: ScaleNV, Chance: true}, Mixed: true,
		Source: "arXiv:2509.25149", Description: "e2m1 in blocks of 16 along the sum (weights 16×16), e4m3 scales " +
			"and one a matrix; gradients by chance, operands of the weights' gradient turned"},
	{Name: "tensor", Act: grain(E4M3, 0, 0, ScaleFloat), Weight: grain(E4M3, 0, 0, ScaleFloat),
		Grad: grain(E5M2, 0, 0, ScaleFloat), Source: "TransformerEngine, Float8CurrentScaling; arXiv:2209.05433",
		Description: "e4m3, gradients e5m2, one float32 scale a matrix, of its greatest number now"},
	{Name: "tensor_e4m3", Act: grain(E4M3, 0, 0, ScaleFloat), Weight: grain(E4M3, 0, 0, ScaleFloat),
		Grad: grain(E4M3, 0, 0, ScaleFloat), Source: "TransformerEngine, Float8CurrentScaling",
		Description: "the same with gradients in e4m3"},
	{Name: "delayed", Act: grain(E4M3, 0, 0, ScaleFloat), Weight: grain(E4M3, 0, 0, ScaleFloat),
		Grad: grain(E5M2, 0, 0, ScaleFloat), Delayed: true, Source: "TransformerEngine, DelayedScaling",
		Description: "tensor with the scale of the greatest number of steps before"},
	{Name: "delayed_e4m3", Act: grain(E4M3, 0, 0, ScaleFloat), Weight: grain(E4M3, 0, 0, ScaleFloat),
		Grad: grain(E4M3, 0, 0, ScaleFloat), Delayed: true, Source: "TransformerEngine, DelayedScaling",
		Description: "the same with gradients in e4m3"},
}

// PrecisionOf is the number of a recipe.
func PrecisionOf(name string) (int, error) {
	var names []string
	for i, p := range Precisions {
		if p.Name == name {
			return i, nil
		}
		names = append(names, p.Name)
	}
	return 0, fmt.Errorf("precision %q: want one of %v", name, names)
}

// Operands of an operation of low precision.
const (
	OperandsForward = iota // x [rows k] and w [n k]: summed along k
	OperandsDX             // dy [rows n] and w [n k]: along n
	OperandsDW             // dy [rows n] and x [rows k]: along rows
)

// Grains are how the first and the second operand of a product are rounded.
func (p Precision) Grains(product int) (first, second Grain) {
	switch product {
	case OperandsDX:
		return p.Grad, p.Weight.Turned()
	case OperandsDW:
		first, second = p.Grad.Turned(), p.Act.Turned()
		first.Mixed, second.Mixed = p.Mixed, p.Mixed
		return first, second
	}
	return p.Act, p.Weight
}
