package collective

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpAndSends: a collective played send by send takes what its closed form says, within 1 %, up to 64 members.
func TestOpAndSends(t *testing.T) {
	inside, between := Link{3e-6, 1 / 400e9}, Link{8e-6, 1 / 40e9}
	same := func(int, int) Link { return between }
	for _, n := range []int{2, 3, 4, 7, 8, 16, 32, 64} {
		for _, bytes := range []int64{1 << 10, 1 << 20, 1 << 28} {
			for _, k := range []Kind{AllReduce, AllGather, ReduceScatter} {
				require.InEpsilon(t, RingTime(k, n, bytes, between), Play(n, Ring(k, n, bytes), same), 0.01)
			}
			tree := Play(n, Tree(n, bytes), same)
			require.LessOrEqual(t, tree, 1.0001*TreeTime(n, bytes, between))
			if n&(n-1) == 0 { // else one branch is shorter and its sends start early
				require.InEpsilon(t, TreeTime(n, bytes, between), tree, 0.01, "tree of %d", n)
			}
			for _, local := range []int{2, 8} {
				if n%local != 0 || n == local {
					continue
				}
				got := Play(n, Hierarchical(n, local, bytes), func(a, b int) Link {
					if a/local == b/local {
						return inside
					}
					return between
				})
				require.InEpsilon(t, HierarchicalTime(n, local, bytes, inside, between), got, 0.01,
					"%d by %d, %d bytes", n, local, bytes)
			}
		}
	}
}

// reach plays a collective on sets: every member must have heard of every other's part.
func reach(n int, sends []Send) bool {
	know := make([]map[int]bool, n)
	for i := range know {
		know[i] = map[int]bool{i: true}
	}
	for _, s := range sends {
		for k := range know[s.From] {
			know[s.To][k] = true
		}
	}
	for _, k := range know {
		if len(k) != n {
			return false
		}
	}
	return true
}

func TestEveryoneHears(t *testing.T) {
	for n := 2; n < 20; n++ {
		require.True(t, reach(n, Ring(AllReduce, n, 64)))
		require.True(t, reach(n, Tree(n, 64)), n)
	}
	require.True(t, reach(16, Hierarchical(16, 4, 64)))
	require.False(t, reach(4, Ring(AllGather, 4, 64)[:4]))
}
