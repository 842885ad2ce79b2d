package kernels

// Product is Count matrix products (M, K) · (K, N), which a device may work on beside each other.
type Product struct {
	Count, M, N, K int64
	Ragged         bool // M is the mean of products that have more and fewer rows
}

// Flops is the product's floating-point operations.
func (p Product) Flops() int64 { return 2 * p.Count * p.M * p.N * p.K }

// FlopsOf is those of several.
func FlopsOf(all []Product) (n int64) {
	for _, p := range all {
		n += p.Flops()
	}
	return n
}

// Work is what a kernel call does on one rank, for a device that knows how long that takes it.
type Work struct {
	Products []Product // that it consists of; nil for none, and for attention in one kernel
	Flops    int64     // floating-point operations
	Bytes    int64     // of its operands
	// of attention in one kernel, the tiles of rows that are worked on beside each other, 0 for others
	Tiles    int64
	Width    int64 // of attention's heads
	Window   int64 // keys that a query of attention sees at most, 0 for all
	Backward bool  // of attention
	Ring     bool  // of attention whose ranks share a sequence's tokens
	// Bits are those of the operands of products that are rounded to fewer than their type has, 0 for others;
	// Rounded says that the call itself rounds its first, which is of activations or their gradients.
	Bits    int
	Rounded bool
	Experts bool // of products of a mixture's experts, each with the rows that came to it
}

// Bits are those of the numbers that a recipe's product multiplies, the most of its two operands.
func (p Precision) Bits(product int) int {
	if p.Name == "none" {
		return 0
	}
	first, second := p.Grains(product)
	if first.Number == E2M1 && second.Number == E2M1 {
		return 4
	}
	return 8
}

// AttentionRows is the rows of queries, in a backward of keys, that make a tile of attention's (as
// in FlashAttention-2, arXiv:2307.08691).
const AttentionRows = 128

// linear is a product of all rows of x, which is [..., k], with w, which is [n, k].
func linear(x, w []int) Product {
	k := int64(w[len(w)-1])
	return Product{Count: 1, M: prod(x) / k, N: int64(w[0]), K: k}
}

func linearProducts(in, out [][]int) []Product { return []Product{linear(in[0], in[1])} }

// linearDXProducts is the one product of dx = dy·w; leading axes of dy are all rows.
func linearDXProducts(in, out [][]int) []Product {
	n, k := int64(in[1][0]), int64(in[1][1])
	return []Product{{Count: 1, M: prod(in[0]) / n, N: k, K: n}}
}

// linearDWProducts is the one product of dw = dyᵀ·x, summed over all rows.
func linearDWProducts(in, out [][]int) []Product {
	n, k := int64(in[0][len(in[0])-1]), int64(in[1][len(in[1])-1])
	return []Product{{Count: 1, M: n, N: k, K: prod(in[0]) / n}}
}

// grouped shares rows evenly among the groups of w or dw, which is [g, n, k], and gives the sizes of a group's
// product. Groups whose offsets are an operand are ragged.
func grouped(rows, w []int) (g, t, n, k int64) {
	g, n, k = int64(w[0]), int64(w[1]), int64(w[2])
	return g, max(1, (prod(rows[:len(rows)-1])+g-1)/g), n, k
}

// groupedProducts are the products of y = x·wᵀ, one per group, with the rows shared out among the groups.
func groupedProducts(in, out [][]int) []Product {
	g, t, n, k := grouped(in[0], in[1])
	return []Product{{Count: g, M: t, N: n, K: k, Ragged: len(in) > 2}}
}

// groupedDXProducts are the products of dx = dy·w, one per group.
func groupedDXProducts(in, out [][]int) []Product {
	g, t, n, k := grouped(in[0], in[1])
	return []Product{{Count: g, M: t, N: k, K: n, Ragged: len(in) > 2}}
}

// groupedDWProducts are the products of dw = dyᵀ·x, one per group.
func groupedDWProducts(in, out [][]int) []Product {
	g, t, n, k := grouped(in[0], out[0])
	return []Product{{Count: g, M: n, N: k, K: t}}
}

// lossProducts are the logits, unless their numerators are an operand, and then the gradients of x and of w,
// where the operation has them.
func lossProducts(dx, dw bool) func(in, out [][]int) []Product {
	return func(in, out [][]int) (all []Product) {
		z := linear(in[0], in[1])
		if len(in) <= 6 || in[6] == nil {
			all = append(all, z)
		}
		if dx {
			all = append(all, Product{Count: 1, M: z.M, N: z.K, K: z.N})
		}
		if dw {
			all = append(all, Product{Count: 1, M: z.N, N: z.K, K: z.M})
		}
		return all
	}
}
