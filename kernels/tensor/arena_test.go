package tensor

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArena gives and takes buffers of all sizes at random: none overlaps another, all are aligned, what is given back is found again
// whatever its size was, and in the end there is one hole.
func TestArena(t *testing.T) {
	p := NewPool("test", 0)
	r := rand.New(rand.NewPCG(1, 2))
	type one struct {
		t    *Tensor
		mark byte
	}
	var live []one
	check := func(x one) {
		b := x.t.Bytes()
		for _, i := range []int{0, len(b) / 2, len(b) - 1} {
			require.Equal(t, x.mark, b[i], "another buffer lies over this one")
		}
	}
	for i := range 4000 {
		if len(live) > 60 || len(live) > 0 && r.IntN(3) == 0 {
			k := r.IntN(len(live))
			check(live[k])
			live[k].t.Release()
			live = append(live[:k], live[k+1:]...)
			continue
		}
		x, err := p.New("x", F32, 1+r.IntN(1<<(6+r.IntN(12))))
		require.NoError(t, err)
		require.Zero(t, addressOf(x.Bytes())%Align)
		b := x.Bytes()
		for j := range b {
			b[j] = byte(i)
		}
		live = append(live, one{x, byte(i)})
	}
	var used int
	if runtime.GOOS == "linux" {
		require.Len(t, p.large.regions, 1)
		for _, x := range live {
			if x.t.Buf.in != nil {
				used += x.t.Buf.class + stagger
			}
		}
		require.Positive(t, used)
		require.Equal(t, used, p.large.regions[0].used)
		region := p.large.regions[0]
		for _, x := range live {
			check(x)
			x.t.Release()
		}
		require.Equal(t, []hole{{0, len(region.mem)}}, region.free)
		require.Empty(t, p.large.regions, "a pool without buffers keeps no region")
		x, err := NewPool("next", 0).New("x", F32, 1<<20)
		require.NoError(t, err)
		require.Same(t, region, x.Buf.in, "the next pool takes it")
		x.Release()
	}
	require.Zero(t, p.Live())
}

// TestArenaBudget: what was freed in one size serves another within a budget that has no room for both.
func TestArenaBudget(t *testing.T) {
	p := NewPool("test", 24<<20)
	for _, n := range []int{5 << 20, 3 << 20, 5 << 20} {
		x, err := p.New("x", F32, n)
		require.NoError(t, err)
		clear(x.Bytes())
		x.Release()
	}
	_, err := p.New("x", F32, 7<<20)
	require.ErrorAs(t, err, new(*BudgetError))
}
