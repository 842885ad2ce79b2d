package topology

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMesh: coordinates, groups and names of a mesh with data parallelism in two axes, and the experts' mesh
// folded over it.
func TestMesh(t *testing.T) {
	m, err := New(Dim{PP, 2}, Dim{DPReplicate, 2}, Dim{DP, 2}, Dim{CP, 3},
		Dim{TP, 2}).Fold(Dim{EDP, 2}, Dim{EP, 4}, Dim{ETP, 3})
	require.NoError(t, err)
	require.Equal(t, 48, m.Size())
	require.Equal(t, "rank 31 (pp 1 dp_replicate 0 dp 1 cp 0 tp 1)", m.Name(31))
	require.Equal(t, []int{30, 31}, m.Group(31, TP))
	require.Equal(t, []int{25, 31, 37, 43}, m.Group(31, DPReplicate, DP))
	require.Equal(t, []int{25, 37, 31, 43}, m.Group(31, DP, DPReplicate), "the first axis varies slowest")
	require.Equal(t, []int{31}, m.Group(31, "no such axis"))
	require.Equal(t, []int{24, 27, 30, 33}, m.Group(30, EP))
	require.Equal(t, []int{30, 42}, m.Group(30, EDP))
	require.Equal(t, []int{30, 31, 32}, m.Group(32, ETP))
	require.Equal(t, 1, m.Axes()[5].Fold)
	for r := range m.Size() {
		require.Equal(t, r, m.Global(m.Replica(r), m.Local(r)))
		require.Equal(t, r, m.Move(m.Move(r, CP, 2), CP, m.At(r, CP)))
		for _, a := range m.Axes() {
			require.True(t, slices.Contains(m.Group(r, a.Name), r))
		}
	}
	require.Equal(t, 4, m.Replicas())
	_, err = m.Fold(Dim{"x", 5})
	require.ErrorContains(t, err, "x=5 has 5 ranks, which do not divide the 48")
	_, err = m.Fold(Dim{TP, 2})
	require.ErrorContains(t, err, "is there already")
	require.Equal(t, 1, Mesh{}.Size())
}

// TestGrid: Megatron's order.
func TestGrid(t *testing.T) {
	m := Grid(2, 3, 4)
	require.Equal(t, "rank 17 (pp 1 dp 1 tp 1)", m.Name(17))
	require.Equal(t, []int{16, 17, 18, 19}, m.Group(17, TP))
	require.Equal(t, []int{13, 17, 21}, m.Group(17, DP))
	require.Equal(t, 5, m.Local(17))
}
