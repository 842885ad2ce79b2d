package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestProducts: the products of which operations say that they consist have all of their operations.
func TestProducts(t *testing.T) {
	const rows, n, k, groups = 12, 5, 7, 3
	x, y, w := []int{2, rows / 2, k}, []int{2, rows / 2, n}, []int{n, k}
	tall := []int{groups, n, k}
	loss := [][]int{x, w, {rows}, {rows}, {rows}, {1}}
	numerators := append(append([][]int{}, loss...), []int{rows, n}, []int{rows, 1})
	seen := map[Op]bool{}
	for _, c := range []struct {
		op      Op
		in, out [][]int
		want    []Product
	}{
		{Linear, [][]int{x, w}, nil, []Product{{1, rows, n, k, false}}},
		{LinearDX, [][]int{y, w}, nil, []Product{{1, rows, k, n, false}}},
		{LinearDW, [][]int{y, x}, nil, []Product{{1, n, k, rows, false}}},
		{LowLinear, [][]int{x, w}, nil, []Product{{1, rows, n, k, false}}},
		{LowLinearDX, [][]int{y, w}, nil, []Product{{1, rows, k, n, false}}},
		{PackedLinear, [][]int{x, {int(n), 3}}, nil, []Product{{1, rows, n, k, false}}},
		{PackedLinearDX, [][]int{y, {int(n), 3}}, [][]int{x}, []Product{{1, rows, k, n, false}}},
		{PackedGrouped, [][]int{x, {int(groups), int(n), 3}}, nil, []Product{{1, rows, n, k, false}}},
		{PackedGroupedDX, [][]int{y, {int(groups), int(n), 3}}, [][]int{x}, []Product{{1, rows, k, n, false}}},
		{LowLinearDW, [][]int{y, x}, nil, []Product{{1, n, k, rows, false}}},
		{GroupedLinear, [][]int{x, tall}, nil, []Product{{groups, rows / groups, n, k, false}}},
		{GroupedLinearDX, [][]int{y, tall}, nil, []Product{{groups, rows / groups, k, n, false}}},
		{GroupedLinearDW, [][]int{y, x}, [][]int{tall}, []Product{{groups, n, k, rows / groups, false}}},
		{LinearLSE, loss[:3], nil, []Product{{1, rows, n, k, false}}},
		{LinearCEDX, loss, nil, []Product{{1, rows, n, k, false}, {1, rows, k, n, false}}},
		{LinearCEDW, loss, nil, []Product{{1, rows, n, k, false}, {1, n, k, rows, false}}},
		{LinearCEBwd, loss, nil, []Product{{1, rows, n, k, false}, {1, rows, k, n, false}, {1, n, k, rows,
			false}}},
		{LinearCE, loss[:5], nil, []Product{{1, rows, n, k, false}, {1, rows, k, n, false}, {1, n, k, rows,
			false}}},
		{LinearCEBwd, numerators, nil, []Product{{1, rows, k, n, false}, {1, n, k, rows, false}}},
		{LinearCEDX, numerators, nil, []Product{{1, rows, k, n, false}}},
		// four channels of two groups, of which one output of three places takes two by a kernel of five
		{Conv, [][]int{{2, 9, 4}, {6, 2, 5}}, [][]int{{2, 3, 6}}, []Product{{1, 6, 6, 10, false}}},
		{ConvDX, [][]int{{2, 3, 6}, {6, 2, 5}}, [][]int{{2, 9, 4}}, []Product{{1, 6, 6, 10, false}}},
		{ConvDW, [][]int{{2, 3, 6}, {2, 9, 4}}, [][]int{{6, 2, 5}}, []Product{{1, 6, 6, 10, false}}},
	} {
		s, ok := Lookup(c.op)
		require.True(t, ok)
		seen[c.op] = true
		got := s.Products(c.in, c.out)
		require.Equal(t, c.want, got, c.op)
		require.Equal(t, FlopsOf(got), s.Flops(c.in, c.out), c.op)
	}
	for _, s := range Specs() {
		require.Equal(t, s.Products != nil, seen[s.Op], "%s is not looked at", s.Op)
	}
	s, _ := Lookup(GroupedLinear)
	offsets := []int{groups + 1}
	require.Equal(t, []Product{{groups, 5, n, k, true}}, s.Products([][]int{{13, k}, tall, offsets}, nil),
		"groups of about five rows")
}
