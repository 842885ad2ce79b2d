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
// which the greatest of a block may be cut off.
const (
	ScaleFloat ScaleRule = iota
	ScalePower
	ScaleMX
)

// Grain is how a matrix is rounded: blocks of Rows × Columns numbers, counted from its beginning, share a
// scale.
type Grain struct {
	Number        Number
	Rows, Columns int
	Scale         ScaleRule
}

// Turned is a grain with rows for columns: of an operand that is summed along its rows.
func (g Grain) Turned() Grain {
	g.Rows, g.Columns = g.Columns, g.Rows
	return g
}

// Factor is what numbers of a block are multiplied with before they are rounded, and divided by behind that;
// most is the greatest magnitude, and a block of zeros has 1; one that is not finite has NaN.
func (g Grain) Factor(most float32) (by, back float32) {
	switch {
	case most == 0:
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

// Precision is a recipe for the three products of a layer: how activations, weights and gradients of outputs
// are rounded before they are multiplied. Sums are float32, and what comes out has the model's type.
type Precision struct {
	Name                string
	Act, Weight, Grad   Grain
	Source, Description string
}

// Precisions are the recipes, by the number that an operation has for them; 0 is none.
var Precisions = []Precision{{Name: "none"},
	{Name: "block", Act: Grain{E4M3, 1, 128, ScaleFloat}, Weight: Grain{E4M3, 128, 128, ScaleFloat},
		Grad: Grain{E4M3, 1, 128, ScaleFloat}, Source: "arXiv:2412.19437, section 3.3",
		Description: "e4m3, 1×128 activations and gradients, 128×128 weights, float32 scales"},
	{Name: "block_pow2", Act: Grain{E4M3, 1, 128, ScalePower}, Weight: Grain{E4M3, 128, 128, ScalePower},
		Grad: Grain{E4M3, 1, 128, ScalePower}, Source: "TransformerEngine, Float8BlockScaling",
		Description: "the same with powers of two for scales"},
	{Name: "mxfp8", Act: Grain{E4M3, 1, 32, ScaleMX}, Weight: Grain{E4M3, 1, 32, ScaleMX},
		Grad: Grain{E4M3, 1, 32, ScaleMX}, Source: "OCP Microscaling Formats 1.0; arXiv:2506.08027",
		Description: "e4m3 in blocks of 32 along the sum, powers of two for scales"},
	{Name: "mxfp4", Act: Grain{E2M1, 1, 32, ScaleMX}, Weight: Grain{E2M1, 1, 32, ScaleMX},
		Grad: Grain{E4M3, 1, 32, ScaleMX}, Source: "OCP Microscaling Formats 1.0",
		Description: "e2m1 in blocks of 32 along the sum, gradients as mxfp8"},
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
		return p.Grad.Turned(), p.Act.Turned()
	}
	return p.Act, p.Weight
}
