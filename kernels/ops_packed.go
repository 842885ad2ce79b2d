package kernels

// Products with a matrix that does not learn and lies in memory in few bits.
const (
	PackedLinear   Op = "packed_linear"
	PackedLinearDX Op = "packed_linear_dx"
)

var _ = register(
	Spec{Op: PackedLinear, Sig: "x[...,k]A w[n,b]i32 bias[n]A? -> y[...,n]A", Products: packedProducts,
		Doc: "linear with w in the form and with the groups that I[1] and I[2] say (see PackedForm): its numbers are " +
			"rounded once to A, and then multiplied as linear's."},
	Spec{Op: PackedLinearDX, Sig: "dy[...,n]A w[n,b]i32 -> dx[...,k]A", Products: packedDXProducts,
		Doc: "dx = dy·w with such a matrix."})

func packedProducts(in, out [][]int) []Product {
	x := in[0]
	return []Product{linear(x, []int{in[1][0], x[len(x)-1]})}
}

func packedDXProducts(in, out [][]int) []Product {
	n, k := int64(in[1][0]), int64(out[0][len(out[0])-1])
	return []Product{{Count: 1, M: prod(in[0]) / n, N: k, K: n}}
}
