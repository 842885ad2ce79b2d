package tensor

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestArena gives and takes buffers of all sizes at random: none overlaps another, all are aligned, what is
// given back is found again whatever its size was, and in the end there is one hole.
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

// TestArenaBudget: within a budget, what was freed in one size serves another that could not lie beside it,
// and the memory behind it has gone back to the system by then: it reads as 0.
func TestArenaBudget(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("large buffers lie in the Go heap here")
	}
	p := NewPool("test", 24<<20)
	take := func(n int) *Tensor {
		x, err := p.New("x", F32, n)
		require.NoError(t, err)
		return x
	}
	small := take(arenaLeast / 4) // so that the pool keeps its region
	x := take(2 << 20)
	for i := range x.Bytes() {
		x.Bytes()[i] = 0xff
	}
	x.Release()
	x = take(1 << 20)
	require.Equal(t, byte(0xff), x.Bytes()[1<<20], "there was room: the same memory")
	x.Release()
	x = take(11 << 19)
	require.Zero(t, x.Bytes()[1<<20], "there was none: fresh memory")
	_, err := p.New("x", F32, 1<<20)
	require.ErrorAs(t, err, new(*BudgetError))
	x.Release()
	small.Release()
}
