package kernels

// Products with a matrix that does not learn and lies in memory in few bits.
const (
	PackedLinear   Op = "packed_linear"
	PackedLinearDX Op = "packed_linear_dx"
	// of experts
	PackedGrouped   Op = "packed_grouped_linear"
	PackedGroupedDX Op = "packed_grouped_linear_dx"
)

var _ = register(Spec{Op: PackedLinear, Sig: "x[...,k]A w[n,b]i32 bias[n]A? -> y[...,n]A", Products: packedProducts,
	Doc: "linear with w in the form and with the groups that I[1] and I[2] say (see PackedForm): " +
		"its numbers are rounded once to A, and then multiplied as linear's."}, Spec{Op: PackedLinearDX,
	Sig: "dy[...,n]A w[n,b]i32 -> dx[...,k]A", Products: packedDXProducts, Doc: "dx = dy·w with such a matrix."},
	Spec{Op: PackedGrouped, Sig: "x[t,k]A w[g,n,b]i32 off[g+1]i32 -> y[t,n]A", Products: packedGroupProducts,
		Doc: "grouped_linear with a matrix for each group that lies as that of packed_linear."},
	Spec{Op: PackedGroupedDX, Sig: "dy[t,n]A w[g,n,b]i32 off[g+1]i32 -> dx[t,k]A", Products: packedGroupDXProducts,
		Doc: "grouped_linear_dx with such matrices."})

func packedProducts(in, out [][]int) []Product {
	x := in[0]
	return []Product{linear(x, []int{in[1][0], x[len(x)-1]})}
}

func packedDXProducts(in, out [][]int) []Product {
	n, k := int64(in[1][0]), int64(out[0][len(out[0])-1])
	return []Product{{Count: 1, M: prod(in[0]) / n, N: k, K: n}}
}

// packedGroupProducts takes every row to be in a group.
func packedGroupProducts(in, out [][]int) []Product {
	x := in[0]
	return []Product{linear(x, []int{in[1][1], x[len(x)-1]})}
}

func packedGroupDXProducts(in, out [][]int) []Product {
	n, k := int64(in[1][1]), int64(out[0][len(out[0])-1])
	return []Product{{Count: 1, M: prod(in[0]) / n, N: k, K: n}}
}
