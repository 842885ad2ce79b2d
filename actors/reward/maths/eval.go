package maths

import (
	"math"
	"math/big"
	"math/cmplx"
	"slices"
	"strings"
)

var (
	one     = big.NewRat(1, 1)
	two     = big.NewRat(2, 1)
	hundred = big.NewRat(100, 1)
)

// bitsMost bounds exact numbers.
const bitsMost = 1 << 13

// exact is the value of an expression of whole numbers, fractions and decimals, nil where it has something else.
func (n *node) exact() *big.Rat {
	if n.op == opNumber {
		return n.value
	}
	v := make([]*big.Rat, len(n.parts))
	for i, x := range n.parts {
		if v[i] = x.exact(); v[i] == nil {
			return nil
		}
	}
	out := n.exactly(v)
	if out != nil && (out.Num().BitLen() > bitsMost || out.Denom().BitLen() > bitsMost) {
		return nil
	}
	return out
}

func (n *node) exactly(v []*big.Rat) *big.Rat {
	out := new(big.Rat)
	switch {
	case n.op == opAdd:
		return out.Add(v[0], v[1])
	case n.op == opMul:
		return out.Mul(v[0], v[1])
	case n.op == opDiv && v[1].Sign() != 0:
		return out.Quo(v[0], v[1])
	case n.op == opNeg:
		return out.Neg(v[0])
	case n.op == opPercent:
		return out.Quo(v[0], hundred)
	case n.op == opDegrees:
		return v[0]
	case n.op == opPow && v[1].IsInt() && v[1].Num().IsInt64():
		return power(v[0], v[1].Num().Int64())
	case n.op == opCall && n.name == "abs":
		return out.Abs(v[0])
	case n.op == opCall && (n.name == "floor" || n.name == "ceil"):
		// Div rounds down, since denominators are positive
		whole := new(big.Int).Div(v[0].Num(), v[0].Denom())
		if n.name == "ceil" && !v[0].IsInt() {
			whole.Add(whole, big.NewInt(1))
		}
		return out.SetInt(whole)
	case n.op == opCall && n.name == "!" && counts(v[0], 500):
		return out.SetInt(new(big.Int).MulRange(1, v[0].Num().Int64()))
	case n.op == opCall && n.name == "binom" && counts(v[0], 500) && counts(v[1], 500):
		return out.SetInt(new(big.Int).Binomial(v[0].Num().Int64(), v[1].Num().Int64()))
	}
	return nil
}

func counts(x *big.Rat, most int64) bool {
	return x.IsInt() && x.Sign() >= 0 && x.Num().IsInt64() && x.Num().Int64() <= most
}

func power(x *big.Rat, k int64) *big.Rat {
	if k < 0 {
		if x.Sign() == 0 {
			return nil
		}
		return power(new(big.Rat).Inv(x), -k)
	}
	if k > bitsMost || int64(max(x.Num().BitLen(), x.Denom().BitLen()))*k > bitsMost {
		return nil
	}
	e := big.NewInt(k)
	return new(big.Rat).SetFrac(new(big.Int).Exp(x.Num(), e, nil), new(big.Int).Exp(x.Denom(), e, nil))
}

// symbols are the names of an expression's variables.
func (n *node) symbols(into map[string]bool) {
	if n.op == opSymbol && !constants[n.name] {
		into[n.name] = true
	}
	for _, x := range n.parts {
		x.symbols(into)
	}
}

var constants = names(`\pi e i \infty`)

var nan = complex(math.NaN(), math.NaN())

// at is the value of an expression where its variables have values. What has none is NaN.
func (n *node) at(point map[string]complex128) complex128 {
	switch n.op {
	case opNumber:
		f, _ := n.value.Float64()
		return complex(f, 0)
	case opSymbol:
		switch n.name {
		case `\pi`:
			return math.Pi
		case "e":
			return math.E
		case "i":
			return 1i
		case `\infty`:
			return complex(math.Inf(1), 0)
		}
		return point[n.name]
	case opCall:
		return n.called(point)
	}
	v := make([]complex128, len(n.parts))
	for i, x := range n.parts {
		v[i] = x.at(point)
	}
	switch n.op {
	case opAdd:
		return v[0] + v[1]
	case opMul:
		return v[0] * v[1]
	case opDiv:
		if v[1] == 0 {
			return nan
		}
		return v[0] / v[1]
	case opNeg:
		return -v[0]
	case opPercent:
		return v[0] / 100
	case opDegrees:
		return v[0]
	case opPow:
		return raise(v[0], v[1])
	}
	return nan
}

// raise is a power. One of a whole exponent is a product, which is exact where cmplx.Pow is not.
func raise(x, y complex128) complex128 {
	if k := real(y); imag(y) == 0 && k == math.Trunc(k) && math.Abs(k) <= 64 {
		out := complex128(1)
		for range int(math.Abs(k)) {
			out *= x
		}
		if k < 0 {
			if out == 0 {
				return nan
			}
			return 1 / out
		}
		return out
	}
	return cmplx.Pow(x, y)
}

var analytic = map[string]func(complex128) complex128{"sin": cmplx.Sin, "cos": cmplx.Cos,
	"tan": cmplx.Tan, "cot": cmplx.Cot, "arcsin": cmplx.Asin, "arccos": cmplx.Acos, "arctan": cmplx.Atan,
	"sinh": cmplx.Sinh, "cosh": cmplx.Cosh, "tanh": cmplx.Tanh, "asinh": cmplx.Asinh,
	"arcsinh": cmplx.Asinh, "arccosh": cmplx.Acosh, "arctanh": cmplx.Atanh, "exp": cmplx.Exp,
	"ln": cmplx.Log, "sec": func(x complex128) complex128 { return 1 / cmplx.Cos(x) },
	"csc": func(x complex128) complex128 { return 1 / cmplx.Sin(x) }}

// called is the value of a function.
func (n *node) called(point map[string]complex128) complex128 {
	v := make([]complex128, len(n.parts))
	for i, x := range n.parts {
		v[i] = x.at(point)
	}
	if n.parts[0].op == opDegrees && slices.Contains([]string{"sin", "cos", "tan", "cot", "sec", "csc"}, n.name) {
		v[0] *= math.Pi / 180
	}
	if f := analytic[n.name]; f != nil {
		return f(v[0])
	}
	switch n.name {
	case "log":
		base := complex128(10)
		if len(v) > 1 {
			base = v[1]
		}
		return cmplx.Log(v[0]) / cmplx.Log(base)
	case "root":
		return root(v[0], v[1])
	case "abs":
		return complex(cmplx.Abs(v[0]), 0)
	case "floor":
		return complex(math.Floor(real(v[0])), 0)
	case "ceil":
		return complex(math.Ceil(real(v[0])), 0)
	case "!":
		return complex(math.Gamma(real(v[0])+1), 0)
	case "binom":
		return complex(math.Gamma(real(v[0])+1)/math.Gamma(real(v[1])+1)/math.Gamma(real(v[0]-v[1])+1), 0)
	}
	return nan
}

// root is the k-th root: the real one of a negative number where k is odd, as schools have it.
func root(x, k complex128) complex128 {
	switch {
	case k == 2:
		return cmplx.Sqrt(x)
	case imag(x) == 0 && imag(k) == 0 && real(x) < 0 && math.Mod(real(k), 2) == 1:
		return complex(-math.Pow(-real(x), 1/real(k)), 0)
	case imag(x) == 0 && imag(k) == 0 && real(x) >= 0:
		return complex(math.Pow(real(x), 1/real(k)), 0)
	}
	return cmplx.Pow(x, 1/k)
}

// points are values of variables at which expressions are compared: fixed numbers that no exercise has.
func points(of map[string]bool) []map[string]complex128 {
	sorted := make([]string, 0, len(of))
	for name := range of {
		sorted = append(sorted, name)
	}
	slices.SortFunc(sorted, strings.Compare)
	out := make([]map[string]complex128, 8)
	for k := range out {
		out[k] = map[string]complex128{}
		for i, name := range sorted {
			x := math.Mod(0.7548776662466927*float64(k+1)+0.5698402909980532*float64(i*i+i+1), 1)
			if x = 0.3 + 2.4*x; k%4 == 3 {
				x = -x
			}
			out[k][name] = complex(x, 0)
		}
	}
	return out
}
