// Package kernels names the operations that a backend offers and states the contract of each. It holds no arithmetic:
// kernels/ref defines every operation in plain loops, and each backend passes kernels/kernelstest.
//
// Letters of shapes: t tokens (rows of a packed microbatch) · s key tokens · k, d input width · n, f output width
// · h query heads · g key/value heads · v vocabulary · r rotary pairs · c sequences. "A" is the activation dtype:
// f32, bf16 or f16, the same for all A operands of a call. "..." is any leading dimensions, taken as rows.
//
// Every sum is taken in float32 or wider, in an order that depends on the shape only: never on the number of threads.
// A call reads all of In and writes all of Out; Out may not alias In unless the contract says "in place".
//
// A NaN or infinity is carried on to every result that depends on it; attention may also spread one within
// its sequence, and a convolution to places beside. Subnormal float32 and bf16 numbers may count as zero in
// arithmetic; conversions and copies keep them.
package kernels

import (
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Op is the name of an operation.
type Op string

// Attr holds the constants of a call; each contract says which it uses.
type Attr struct {
	Name string
	I    [4]int
	F    [2]float64
}

// Call is one operation on operands of one device. In[i] is nil where an optional operand is absent.
type Call struct {
	Op   Op
	In   []*tensor.Tensor
	Out  []*tensor.Tensor
	Attr Attr
	// Then are epilogues of a product (see TakesEpilogues): operations (see Epilogue) that read what the call
	// or one before them computes, in order. A backend may run them on parts of it while those are in a
	// cache; results are those of calls one after another.
	Then []*Call
	// Passing says of a product among these that nobody but epilogues reads its result, so that a backend
	// may leave that unwritten.
	Passing bool
}

// TakesEpilogues reports whether an operation may have Call.Then: products with a matrix, and those towards the input.
func TakesEpilogues(op Op) bool {
	switch op {
	case Linear, LinearDX, PackedLinear, PackedLinearDX:
		return true
	}
	return false
}

// Epilogue reports whether an operation may stand in Call.Then: each element of its results depends on the
// same one of the product, or, for rope, on the same head's. Products of other operands may, whose results
// are added to the product's.
func Epilogue(op Op) bool {
	switch op {
	case Sum, Mul, SwiGLU, SwiGLUBwd, Act, ActBwd, Rope, Linear, LinearDX:
		return true
	}
	return false
}

// Backend runs operations on one device. Run returns when the results may be read (a backend with streams orders calls
// of one Backend value and synchronises in Sync). Operands that break the contract are our bug: Run panics.
type Backend interface {
	Name() string
	Run(c *Call)
	// Sync returns when every call so far has finished.
	Sync()
}

// Spec is the contract of one operation.
type Spec struct {
	Op  Op
	Sig string // operands with shapes and dtypes: "x[t,k]A w[n,k]A bias[n]A? -> y[t,n]A"
	Doc string // formula, attributes, order of sums
	// Flops gives the floating-point operations of a call from its operand shapes; nil is one an output element.
	Flops func(in, out [][]int) int64
	// Products gives the matrix products of which a call consists, nil where it does not. They have all of
	// its operations, but that rows are shared evenly among groups.
	Products func(in, out [][]int) []Product
	Source   string // paper, spec or the definition followed
}

var (
	specs   []Spec
	specsAt = map[Op]int{}
)

// register enters operations. One that is given by its matrix products has its count of operations from them.
func register(s ...Spec) bool {
	for i := range s {
		if f := s[i].Products; f != nil && s[i].Flops == nil {
			s[i].Flops = func(in, out [][]int) int64 { return FlopsOf(f(in, out)) }
		}
		specsAt[s[i].Op] = len(specs) + i
	}
	specs = append(specs, s...)
	return true
}

// Specs lists all contracts in a fixed order.
func Specs() []Spec { return slices.Clone(specs) }

// Lookup returns the contract of op.
func Lookup(op Op) (Spec, bool) {
	i, ok := specsAt[op]
	if !ok {
		return Spec{}, false
	}
	return specs[i], true
}

func prod(s []int) int64 {
	n := int64(1)
	for _, d := range s {
		n *= int64(d)
	}
	return n
}
