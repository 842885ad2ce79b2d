package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// readied is a coordinator to whom all ranks have said that they are ready for a step.
func readied(step int64, l RunLayout, values ...[]float64) *Coordinator {
	l.LR, l.LossScale = func(int64) float64 { return 1 }, LossScale{Scale: 1}
	l.First, l.Last = 1, 10
	c := NewCoordinator(&l)
	c.step = step
	for _, v := range values {
		c.ready = append(c.ready, saidOf(v))
	}
	return c
}

// readyWith is what a rank says when it is ready, with the norm of one parameter.
func readyWith(norm float64, experts []ExpertNorms, loads ...Load) []float64 {
	v := AppendExpertNorms(ready(norm), experts)
	for _, l := range loads {
		v = AppendLoad(v, l)
	}
	return v
}

// TestExpertNorms: the norm of experts' gradients is summed in their order, whichever rank has which.
func TestExpertNorms(t *testing.T) {
	small, big := 1.0, float64(1<<53) // big + small + small is big, and small + small + big is not
	layout := RunLayout{Norms: [][]int32{{0}, {1}}}
	norm := func(first, second []ExpertNorms) float64 {
		c := readied(1, layout, readyWith(0, first), readyWith(0, second))
		c.decide(c.sums())
		return c.norms[3]
	}
	in := func(experts []int, squares ...float64) []ExpertNorms {
		return []ExpertNorms{{3, experts, squares}}
	}
	want := norm(in([]int{0, 1}, small, small), in([]int{2}, big))
	require.Equal(t, small+small+big, want)
	require.Equal(t, want, norm(in([]int{2, 1}, big, small), in([]int{0}, small)))
	require.NotEqual(t, want, big+small+small)
	require.Equal(t, 16.0, norm(in([]int{0}, 4), in([]int{0}, 12)), "slices of one expert")
}

// TestMovesDecided: every so many steps experts go where Move says by the rows of all ranks since the last move,
// behind any step but the last and one that is given up; the layers that it names replace those that have moved before.
func TestMovesDecided(t *testing.T) {
	var got []Load
	var lay []Placed
	layout := RunLayout{Norms: [][]int32{{0}, {1}}, MoveEvery: 2, Move: func(step int64, loads []Load,
		now []Placed) []Placed {
		got, lay = loads, now
		return []Placed{{Block: 4, Expert: []int{1, 0}}}
	}}
	rows := func(a, b float64) Load { return Load{Block: 4, Rows: []float64{a, b}} }
	c := readied(1, layout, readyWith(1, nil, rows(1, 2)), readyWith(2, nil))
	require.Len(t, c.decide(c.sums()), verdictLen)
	require.Nil(t, got)
	c.moves.now = c.moves.next
	c.step = 2
	c.verdict = c.decide(c.sums())
	require.Equal(t, []Load{rows(2, 4)}, got)
	require.Equal(t, []Placed{{4, []int{1, 0}}}, Moves(c.verdict))
	require.True(t, c.moving())
	h := holdingOf(2, claimOf(c.verdict))
	require.Equal(t, [][]float64{c.verdict[:verdictLen]}, h.verdicts,
		"what a coordinator that takes over hears")
	require.Len(t, h.copies, 1)
	require.Nil(t, c.moves.now.At)
	require.Equal(t, []Load{rows(1, 2)}, c.moves.now.Loads)
	c.moves.now, c.moves.copied = c.moves.next, Laid{[]Placed{{5, []int{0}}}, []Load{rows(7, 7)}}
	c.step = 4
	c.verdict = c.decide(c.sums())
	require.Equal(t, []Load{rows(1, 2)}, got)
	require.Equal(t, []Placed{{4, []int{1, 0}}}, lay)
	require.Len(t, c.moves.next.At, 1)
	require.Nil(t, c.moves.next.Loads)
	for _, skip := range []func(){func() { c.void = &VoidError{} }, func() { c.void, c.step = nil, 10 }} {
		c.step = 6
		skip()
		require.Len(t, c.decide(c.sums()), verdictLen)
	}
	c.moves.back(FromMember)
	require.Equal(t, []Placed{{4, []int{1, 0}}}, c.moves.now.At)
	c.moves.back(FromCopy)
	require.Equal(t, Laid{[]Placed{{5, []int{0}}}, []Load{rows(7, 7)}}, c.moves.now,
		"with the rows that the next move goes by")
	for _, x := range []Laid{{}, c.moves.copied, {Loads: []Load{rows(1, 0), rows(2, 3)}}} {
		require.Equal(t, x, LaidOf(AppendLaid(nil, x)))
		c.moves.durable = x
		c.moves.back(FromDisk)
		require.Equal(t, x, c.moves.now)
	}
}

// claimOf is what a rank answers that has heard of a verdict and has a copy of its own state.
func claimOf(verdict []float64) []float64 {
	r := NewRank(&RankLayout{Rank: 0, Coordinator: 3, Program: &plan.Program{}})
	r.last.verdict, r.copies = verdict, []copied{{of: 5, kept: make([]float64, keptLen)}}
	ctx := &answers{}
	r.claimed(ctx, &actors.Message{})
	return ctx.sent[0].Values
}

// answers keeps what an actor sends.
type answers struct {
	tape
	sent []actors.Message
}

func (a *answers) Send(_ actors.Ref, m actors.Message) { a.sent = append(a.sent, m) }

// TestReadinessFits: numbers that are cut short are a rank's bug.
func TestReadinessFits(t *testing.T) {
	c := readied(1, RunLayout{Norms: [][]int32{{0}}})
	whole := readyWith(1, []ExpertNorms{{3, []int{0, 1}, []float64{4, 5}}})
	require.NotPanics(t, func() { c.readiness(0, whole) })
	require.NotPanics(t, func() { c.readiness(0, whole[:UsageLen+1]) })
	for n := range len(whole) {
		if n != UsageLen+1 {
			require.Panics(t, func() { c.readiness(0, whole[:n]) }, n)
		}
	}
}
