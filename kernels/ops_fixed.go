package kernels

import (
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Operations on sums in fixed point: whole numbers of 64 bits, whose sum is the same in any order.
const (
	FixedAdd     Op = "fixed_add"
	FixedSum     Op = "fixed_sum"
	FixedRead    Op = "fixed_read"
	FixedSquares Op = "fixed_squares"
)

// FixedBits is the binary logarithm of what a number has to be below, in units of the last place, to be added in fixed
// point: a vector's conversion by way of float64 takes 51 bits, and 4096 numbers of 50 cannot leave 64.
const FixedBits = 50

// The words of fixed_squares: the first has multiples of 2^-52 of the bound, the second the rest in steps 2^-27 as
// large, which 2^26 rows cannot fill.
const (
	fixedHigh  = -52
	fixedLow   = -79
	FixedWords = 2
)

var _ = register(Spec{Op: FixedAdd, Sig: "x[...]A|f32 -> q[...]i64 over[1]i64", Doc: "q += x·F[0], rounded to the " +
	"nearest whole number, halves to the even one; I[0]=0 sets q instead. F[0] is a power of two. over grows by 1 if " +
	"some x is no number, or |x·F[0]| >= 2^50; q then has no meaning.", Source: "doi:10.1109/TC.2014.2345391"},
	Spec{Op: FixedSum, Sig: "q0[...]i64 ... -> q[...]i64",
		Doc: "q = q0 + q1 + … modulo 2^64, divided by I[0] if that is not 0; q may be q0 (in place)."},
	Spec{Op: FixedRead, Sig: "q[...]i64 -> y[...]f32", Doc: "y = q·F[0], rounded once; F[0] is a power of two."},
	Spec{Op: FixedSquares, Sig: "x[*]f32 -> y[2]f64", Doc: "Of each row of x (its first axis) Σ x², as sum_squares, " +
		"rounded to multiples of 2^-52·F[0], and what is left to multiples of 2^-79·F[0]: y has the sums of both, " +
		"which are exact in any order of rows, and over any shares of them, below F[0], a power of two, and for 2^26 " +
		"rows."})

// FixedMagic added to a number below 2^51 leaves the nearest whole number in the last places of a float64.
const FixedMagic = 3 << 51

// FixedWithin reports whether numbers as great as most can be told in units of 1/scale; a NaN cannot.
func FixedWithin(most float32, scale float64) bool { return float64(most)*scale < 1<<FixedBits }

// Fixed adds x·scale to q, or sets q, and reports whether all of x could be told.
func Fixed(q []int64, x []float32, scale float64, add bool) bool {
	zero, most := int64(math.Float64bits(FixedMagic)), uint32(0)
	if !add {
		clear(q)
	}
	q = q[:len(x)]
	for i, v := range x {
		most = max(most, math.Float32bits(v)&^(1<<31))
		q[i] += int64(math.Float64bits(float64(v)*scale+FixedMagic)) - zero
	}
	return FixedWithin(math.Float32frombits(most), scale)
}

// StoreFixedSum is fixed_sum of elements [from, to).
func StoreFixedSum(c *Call, from, to int) {
	q := c.Out[0].I64()[from:to]
	copy(q, c.In[0].I64()[from:to])
	for _, t := range c.In[1:] {
		for i, v := range t.I64()[from:to] {
			q[i] += v
		}
	}
	if n := int64(c.Attr.I[0]); n > 1 {
		for i := range q {
			q[i] /= n
		}
	}
}

// StoreFixedRead is fixed_read of elements [from, to).
func StoreFixedRead(c *Call, from, to int) {
	y, by := c.Out[0].F32(), float32(c.Attr.F[0])
	for i, v := range c.In[0].I64()[from:to] {
		y[from+i] = float32(v) * by
	}
}

// StoreFixedSquares is fixed_squares, given the sum of a row's squares.
func StoreFixedSquares(c *Call, squares func(row []float32) float64) {
	y := c.Out[0].F64()
	clear(y)
	rows, x := rowsOf(c.In[0]), c.In[0].F32()
	for i := range rows {
		left := squares(x[i*len(x)/rows : (i+1)*len(x)/rows])
		for w, bits := range []int{fixedHigh, fixedLow} {
			unit := math.Ldexp(c.Attr.F[0], bits)
			part := math.RoundToEven(left/unit) * unit
			y[w], left = y[w]+part, left-part
		}
	}
}

func rowsOf(t *tensor.Tensor) int {
	if len(t.Shape) == 0 {
		return 1
	}
	return t.Shape[0]
}
