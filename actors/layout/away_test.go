package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology"
)

// TestPieces: the rows of each parameter whose state waits on the host are taken once and in order, no more
// bytes at a time than asked for where a row has fewer; a share is made of the first parameters; memory and
// the bytes that are copied follow from them.
func TestPieces(t *testing.T) {
	all := small(t, "adamw", topology.Grid(1, 2, 1), 1)
	require.Empty(t, all.Pieces(&all.Ranks[1]))
	require.Zero(t, all.RankLayout(1, 0).Update[Apply].Through)
	for _, share := range []float64{0.3, 1} {
		j := *all.Design
		j.OffloadState, j.Piece = share, 300
		l, err := New(&j)
		require.NoError(t, err)
		part := &l.Ranks[1]
		pieces := l.Pieces(part)
		var away, before, through, largest int64
		at := 0
		for i, p := range part.Params {
			own := p.Own.To - p.Own.From
			state := 2 * classOf(tensor.F32, append([]int{own}, p.Local[1:]...))
			require.Equal(t, float64(before) < share*float64(all.Memory(1).State), p.Away, p.Name)
			before += state
			if !p.Away {
				continue
			}
			away += state
			row := 4 * tensor.Len(p.Local[1:])
			for from := 0; from < own; at++ {
				x := pieces[at]
				require.Equal(t, i, x.Param)
				require.Equal(t, from, x.From)
				require.Greater(t, x.To, x.From)
				require.Equal(t, min(own, from+max(1, 300/row)), x.To, p.Name)
				from = x.To
				through += 2 * int64((x.To-x.From)*row)
				largest = max(largest, 2*tensor.ClassBytes(int64((x.To-x.From)*row)))
			}
		}
		require.Len(t, pieces, at)
		m := l.Memory(1)
		require.Equal(t, away, m.Away)
		require.Equal(t, all.Memory(1).State, m.State+m.Away)
		require.Equal(t, through, l.RankLayout(1, 0).Update[Apply].Through)
		require.Positive(t, largest)
		if share == 1 {
			require.Zero(t, m.State)
		}
	}
}

// TestUpdatePeak: while a rank updates, it holds the gradients of parameters that are not updated yet, and
// the state of two pieces.
func TestUpdatePeak(t *testing.T) {
	j := *small(t, "adamw", topology.Grid(1, 1, 1), 0).Design
	j.OffloadState, j.Piece = 1, 1<<20
	l, err := New(&j)
	require.NoError(t, err)
	part := &l.Ranks[0]
	var grads, want int64
	var state []int64
	for _, p := range part.Params {
		g := classOf(tensor.F32, p.Local)
		grads, state = grads+g, append(state, 2*g)
	}
	left := grads
	for i, p := range part.Params {
		next := int64(0)
		if i+1 < len(state) {
			next = state[i+1]
		}
		want = max(want, left+state[i]+next)
		left -= classOf(tensor.F32, p.Local)
	}
	require.Equal(t, want, l.updatePeak(part))
	require.Equal(t, grads, l.Memory(0).Grads)
	require.Equal(t, want-grads, l.Memory(0).Update)
	require.Zero(t, small(t, "adamw", topology.Grid(1, 1, 1), 0).Memory(0).Update)
}
