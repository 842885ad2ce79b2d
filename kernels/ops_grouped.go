package kernels

import "fmt"

// Many small products in one call, as experts need them: the rows of one group times that group's matrix.
const (
	GroupedLinear   Op = "grouped_linear"
	GroupedLinearDX Op = "grouped_linear_dx"
	GroupedLinearDW Op = "grouped_linear_dw"
)

// groupedFlops takes every row to be in a group: 2·t·n·k, where w or dw is [g, n, k].
func groupedFlops(rows []int, w []int) int64 { return 2 * prod(rows[:len(rows)-1]) * prod(w[1:]) }

var _ = register(
	Spec{Op: GroupedLinear, Sig: "x[...,k]A w[g,n,k]A off[g+1]i32? -> y[...,n]A|f32",
		Source:   "arXiv:2211.15841 (MegaBlocks)",
		Flops:    func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) },
		Products: groupedProducts,
		Doc: "Group i is rows off[i]:off[i+1]: y = x·w[i]ᵀ there, and 0 for rows of no group. Groups " +
			"may be empty. Sums over k in float32, rounded once to y's dtype, " +
			"in an order that depends on n and k only: a row has the same bits in a group of any size. " +
			"Without off, x is [t,g,k] and group i is x[:,i], as of heads."},
	Spec{Op: GroupedLinearDX, Sig: "dy[...,n]A w[g,n,k]A off[g+1]i32? -> dx[...,k]A",
		Flops:    func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) },
		Products: groupedDXProducts,
		Doc: "dx = dy·w[i] for the rows of group i, 0 for rows of no group: the input gradient of " +
			"grouped_linear. The order of sums is like its, and groups without off are too."},
	Spec{Op: GroupedLinearDW, Sig: "dy[...,n]A x[...,k]A off[g+1]i32? -> dw[g,n,k]f32",
		Flops:    func(in, out [][]int) int64 { return groupedFlops(in[0], out[0]) },
		Products: groupedDWProducts,
		Doc: "dw[i] = dyᵀ·x over the rows of group i, 0 for an empty one: the weight gradient of " +
			"grouped_linear. Groups without off are like its. I[0] = Accumulate adds into dw."},
)

// checkGroups wants offsets of rows, or without them a row of each group for every token.
func checkGroups(c *Call, groups int) error {
	if len(c.In) > 2 && c.In[2] != nil {
		return checkCu("off", c.In[2], c.In[0].Rows())
	}
	if s := c.In[0].Shape; len(s) != 3 || s[1] != groups {
		return fmt.Errorf("%v has no row of each of %d groups a token, and there are no offsets",
			c.In[0], groups)
	}
	return nil
}
