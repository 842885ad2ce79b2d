package kernels

import "fmt"

// Many small products in one call, as experts need them: the rows of one group times that group's matrix.
const (
	GroupedLinear   Op = "grouped_linear"
	GroupedLinearDX Op = "grouped_linear_dx"
	GroupedLinearDW Op = "grouped_linear_dw"
	Rounded         Op = "rounded"
)

// groupedFlops takes every row to be in a group: 2·t·n·k, where w or dw is [g, n, k].
func groupedFlops(rows []int, w []int) int64 { return 2 * prod(rows[:len(rows)-1]) * prod(w[1:]) }

var _ = register(Spec{Op: GroupedLinear, Sig: "x[...,k]A w[g,n,k]A off[g+1]i32? -> y[...,n]A|f32",
	Source: "arXiv:2211.15841 (MegaBlocks)", Flops: func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) },
	Products: groupedProducts, Doc: "Group i is rows off[i]:off[i+1]: y = x·w[i]ᵀ there, and " +
		"0 for rows of no group. Groups may be empty. Sums over k in float32, rounded once to y's dtype, " +
		"in an order that depends on n and k only: a row has the same bits in a group of any size. Without " +
		"off, x is [t,g,k] and group i is x[:,i], as of heads. With off, I[2] and I[3] are as in linear."},
	Spec{Op: GroupedLinearDX, Sig: "dy[...,n]A w[g,n,k]A off[g+1]i32? -> dx[...,k]A",
		Flops: func(in, out [][]int) int64 { return groupedFlops(in[0], in[1]) }, Products: groupedDXProducts,
		Doc: "dx = dy·w[i] for the rows of group i, 0 for rows of no group: the input gradient " +
			"of grouped_linear. The order of sums is like its, and groups without off are too."},
	Spec{Op: GroupedLinearDW, Sig: "dy[...,n]A x[...,k]A off[g+1]i32? -> dw[g,n,k]f32",
		Flops: func(in, out [][]int) int64 { return groupedFlops(in[0], out[0]) }, Products: groupedDWProducts,
		Doc: "dw[i] = dyᵀ·x over the rows of group i, 0 for an empty one: the weight gradient of grouped_linear. Groups " +
			"without off are like its. I[0] = Accumulate adds into dw."})

var _ = register(Spec{Op: Rounded, Sig: "x[...,k]A off[g+1]i32? choice[1,c]f32? draw[1]i64? -> y[...,k]A", Doc: "What low_linear " +
	"rounds of an operand by itself, as Precisions[I[1]] says of the product I[0] (OperandsForward, OperandsDX, " +
	"OperandsDW) for its first operand (I[2] = 0) or its second (1). Each group of rows off[i]:off[i+1] is a matrix, " +
	"and rows of no group are 0; without off those of the last two axes are. choice is as in low_error, and " +
	"draw and I[3] are as in low_linear_dx."})

// checkGroups wants offsets of rows, or without them a row of each group for every token.
func checkGroups(c *Call, groups int) error {
	if len(c.In) > 2 && c.In[2] != nil {
		return checkCu("off", c.In[2], c.In[0].Rows())
	}
	if s := c.In[0].Shape; len(s) != 3 || s[1] != groups {
		return fmt.Errorf("%v has no row of each of %d groups a token, and there are no offsets", c.In[0], groups)
	}
	return nil
}

func init() {
	extra[Rounded] = func(c *Call) error {
		if at := c.Attr.I; at[1] < 1 || at[1] >= len(Precisions) || at[0] < OperandsForward || at[0] > OperandsDW ||
			at[2] < 0 || at[2] > 1 {
			return fmt.Errorf("rounded operand %d of product %d in precision %d", at[2], at[0], at[1])
		}
		if len(c.In) > 1 && c.In[1] != nil {
			return checkCu("off", c.In[1], c.In[0].Rows())
		}
		return nil
	}
}

// OperandOf is how a call of Rounded rounds.
func OperandOf(c *Call) Grain {
	first, second := GrainsOf(c, c.Attr.I[0], ChoiceOperand(c.Op))
	if c.Attr.I[2] == 1 {
		return second
	}
	return first
}

// Matrices are the rows of each matrix of a call of Rounded, [from, to) of all rows.
func Matrices(c *Call) (of [][2]int) {
	x := c.In[0]
	if len(c.In) > 1 && c.In[1] != nil {
		off := c.In[1].I32()
		for g := range len(off) - 1 {
			of = append(of, [2]int{int(off[g]), int(off[g+1])})
		}
		return of
	}
	rows := x.Rows()
	each := rows
	if n := len(x.Shape); n > 2 {
		each = x.Shape[n-2]
	}
	for at := 0; at < rows; at += max(1, each) {
		of = append(of, [2]int{at, at + each})
	}
	return of
}
