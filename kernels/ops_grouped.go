package kernels

// Many small products in one call, as experts need them: the rows of one group times that group's matrix.
const (
	GroupedLinear   Op = "grouped_linear"
	GroupedLinearDX Op = "grouped_linear_dx"
	GroupedLinearDW Op = "grouped_linear_dw"
)

// groupedFlops takes every row to be in a group: 2·t·n·k, where w or dw is [g, n, k].
func groupedFlops(rows []int, w []int) int64 { return 2 * int64(rows[0]) * prod(w[1:]) }

var _ = register(
	Spec{Op: GroupedLinear, Sig: "x[t,k]A w[g,n,k]A off[g+1]i32 -> y[t,n]A|f32",
		Source: "arXiv:2211.15841 (MegaBlocks)",
		Flops:  func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) },
		Doc: "Group i is rows off[i]:off[i+1]: y = x·w[i]ᵀ there, and 0 for rows of no group. Groups " +
			"may be empty. Sums over k in float32, rounded once to y's dtype, " +
			"in an order that depends on n and k only: a row has the same bits in a group of any size."},
	Spec{Op: GroupedLinearDX, Sig: "dy[t,n]A w[g,n,k]A off[g+1]i32 -> dx[t,k]A",
		Flops: func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) },
		Doc: "dx = dy·w[i] for the rows of group i, 0 for rows of no group: the input gradient of " +
			"grouped_linear. The order of sums is like its."},
	Spec{Op: GroupedLinearDW, Sig: "dy[t,n]A x[t,k]A off[g+1]i32 -> dw[g,n,k]f32",
		Flops: func(in, out [][]int) int64 { return groupedFlops(in[0], out[0]) },
		Doc: "dw[i] = dyᵀ·x over the rows of group i, 0 for an empty one: the weight gradient of " +
			"grouped_linear. I[0] = Accumulate adds into dw."},
)
