package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// A product has the same bits whether tasks pack the left operand, the right one or share both, and on any number of
// threads: with rows and columns that fill no tile, several parts of the sum, and a result that is added to.
func TestOwnPanels(t *testing.T) {
	seen := map[ownSide]bool{}
	for _, k := range levels() {
		for _, s := range [][3]int{{1100, 300, 600}, {130, 700, 600}, {514, 512, 520}, {67, 900, 40}} {
			m, n, sum := s[0], s[1], s[2]
			x, y, c := filled(tensor.F32, sum, m), filled(tensor.F32, n, sum), filled(tensor.F32, m, n)
			var want []float32
			for i, threads := range []int{1, 2, 3, 2} {
				b := newBackend(k, threads)
				if i == 3 { // panels that are kept belong to no task
					b.Keep(y)
				}
				got := append([]float32(nil), c.F32()...)
				r := result{v: view{d: tensor.F32, f: got}, ld: n, acc: true}
				left, right := columnMajor(x), rowMajor(y)
				seen[b.plan(r, left, right, m, n, sum).own] = true
				b.shared.reset()
				b.blocked(r, left, right, m, n, sum)
				if b.shared.reset(); want == nil {
					want = got
				}
				require.Equal(t, want, got, "%s %v %d threads", k.name, s, threads)
				require.NoError(t, b.Close())
			}
		}
	}
	require.Equal(t, map[ownSide]bool{ownNone: true, ownLeft: true, ownRight: true}, seen)
}

// Tasks hold all rows once, in whole units but the last, at most as many as asked for, and with several
// threads the last ones are the smallest.
func TestCuts(t *testing.T) {
	for _, threads := range []int{1, 2, 5} {
		b := newBackend(&portable, threads)
		for _, unit := range []int{4, 6, 12, 16, 32} {
			for _, n := range []int{1, 47, 48, 300, 512, 2048, 4001} {
				l := b.cuts(n, unit, 256)
				at := fmt.Sprint(threads, unit, n, l)
				require.Equal(t, [2]int{0, n}, [2]int{l[0], l[len(l)-1]}, at)
				for i := 1; i < len(l); i++ {
					size := l[i] - l[i-1]
					require.True(t, size > 0 && size <= 256 && (size%unit == 0 || l[i] == n), at)
					require.True(t, i == 1 || size <= l[i-1]-l[i-2], at)
				}
				if threads > 1 && n >= 512 {
					require.LessOrEqual(t, n-l[len(l)-2], 2*roundUp(ownTail, unit), at)
				}
			}
		}
		require.NoError(t, b.Close())
	}
}

// Blocks of rows follow the second-level cache, and have the sizes that were measured where there is 1 MiB.
func TestCacheRows(t *testing.T) {
	for size, want := range map[int][2]int{0: {480, 256}, 256 << 10: {120, 96}, 512 << 10: {240, 128},
		1 << 20: {480, 256}, 2 << 20: {480, 256}, 64 << 10: {96, 96}} {
		require.Equal(t, want, [2]int{cacheRows(size, 15, 96, 480), cacheRows(size, 8, 96, 256)}, size)
	}
}
