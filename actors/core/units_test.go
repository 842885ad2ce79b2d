package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// TestHeld: a rank says on which edges it holds how many messages for want of credit, each once,
// forwards and backwards.
func TestHeld(t *testing.T) {
	r := &Rank{l: &RankLayout{Credits: 3, Ports: []Port{{ID: 0, From: 0, To: 1}, {ID: 1, From: 1, To: 2},
		{ID: 2, From: 2, To: 3}}}}
	r.edges = []edge{{id: 2, to: 7, queue: make([]actors.Message, 2)},
		{id: 5, to: 8, queue: make([]actors.Message, 4), first: 1},
		{id: 3, to: 9, credits: 1, queue: make([]actors.Message, 4)}, {id: 4, to: 10}}
	require.Equal(t, []actors.Held{
		{To: 7, Edge: r.l.Ports[1].edgeName(0), Count: 2, Credits: 3},
		{To: 8, Edge: r.l.Ports[2].edgeName(1), Count: 3, Credits: 3},
	}, r.held())
}

// TestClasses: shapes of microbatches are kept from the first that is not 0, and are gone with the next
// number of microbatches.
func TestClasses(t *testing.T) {
	var b inbox
	b.begin(&plan.Program{Micro: 3})
	put := func(micro int32, class int32) {
		b.put(&actors.Message{Kind: actors.Batch, Action: plan.Action{Micro: micro}, Port: class,
			Payload: empty{}})
	}
	put(0, 0)
	require.Nil(t, b.classes)
	put(2, 5)
	put(1, 4)
	require.Equal(t, []int32{0, 4, 5}, b.classes)
	require.Equal(t, int32(5), b.class(plan.Action{Micro: 2}))
	b.begin(&plan.Program{Micro: 3})
	require.NotNil(t, b.classes)
	b.begin(&plan.Program{Micro: 2})
	require.Nil(t, b.classes)
	require.Zero(t, b.class(plan.Action{Micro: 1}))
}

// empty is a payload without storage.
type empty struct{}

func (empty) Release()     {}
func (empty) Retain()      {}
func (empty) Bytes() int64 { return 0 }

// TestRoutedEnds: where routes say who is at the other end of a port, the layout's own neighbour does not count.
func TestRoutedEnds(t *testing.T) {
	l := &RankLayout{Program: &plan.Program{StageRank: []int{0, 1}}, Ports: []Port{{ID: 0, From: 0, To: 1},
		{ID: 1, From: 0, To: 1}}, Peer: func(stage int) actors.Ref { return actors.Ref(40 + stage) },
		Routes: func(port int32, _ bool) *Route {
			if port == 1 {
				return &Route{}
			}
			return nil
		}}
	w := l.wires(nil, make([]wire, 0, 8))
	require.Len(t, w, 1)
	require.Equal(t, []wire{{id: 0, peer: 41, far: 1}, {id: 1, far: 1, is: routed}}, w[0].out)
	l.Routes = nil
	require.Equal(t, []wire{{id: 0, peer: 41, far: 1}, {id: 1, peer: 41, far: 1}},
		l.wires(nil, make([]wire, 0, 8))[0].out)
}

// TestStaleCopies: copies of another step than the one that is under way count for nothing.
func TestStaleCopies(t *testing.T) {
	ctx := &hours{}
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, Observer: 1, First: 1, Last: 99, Keep: 1})
	done := func(step int64, from actors.Ref) {
		c.counted(ctx, &actors.Message{Kind: actors.Kept, From: from, Member: int32(from), Step: step,
			Values: []float64{1}})
	}
	c.step = 4
	c.keep(ctx)
	require.True(t, c.copies.under)
	done(3, 5)
	done(3, 6)
	require.True(t, c.copies.under, "of step 3")
	done(4, 5)
	require.True(t, c.copies.under)
	done(4, 6)
	require.False(t, c.copies.under)
	require.Equal(t, int64(4), c.copies.whole.step)
	left := c.copies.left
	done(4, 6)
	require.Equal(t, left, c.copies.left, "nothing is under way")
}

// TestHopeless: ends count in a row at one step, of each rank by itself, and all together while no step ends.
func TestHopeless(t *testing.T) {
	c := NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, First: 1, Last: 99, Restarts: 2})
	c.step = 3
	require.Empty(t, c.hopelessly(0, 0)+c.hopelessly(0, 0)+c.hopelessly(1, 0))
	c.step = 4
	require.Empty(t, c.hopelessly(0, 0)+c.hopelessly(0, 0), "another step")
	require.Equal(t, "rank 0 has ended 3 times at step 4", c.hopelessly(0, 0))
	c = NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, First: 1, Last: 99})
	for range 100 {
		require.Empty(t, c.hopelessly(0, 0), "0 is no limit")
	}
	c = NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, First: 1, Last: 99, Restarts: 2})
	for i := range int64(lossesMost * 2 * 2) {
		c.step = i
		require.Empty(t, c.hopelessly(0, 0))
	}
	c.step++
	require.NotEmpty(t, c.hopelessly(0, 0), "the run does not get on")
	c = NewCoordinator(&RunLayout{Ranks: []actors.Ref{5, 6}, First: 1, Last: 99, Restarts: 2, Window: actors.Second})
	for step, at := range []actors.Duration{0, actors.Second - 1, 3 * actors.Second, 3*actors.Second + 1} {
		c.step = int64(step)
		require.Empty(t, c.hopelessly(0, actors.Time(at)), "steps are taken, and the window is over once")
	}
	c.step = 9
	require.NotEmpty(t, c.hopelessly(0, actors.Time(4*actors.Second)), "the third time within the window")
}

// TestShortValues: what values do not reach to is 0.
func TestShortValues(t *testing.T) {
	require.Zero(t, UsageOf(nil))
	require.Equal(t, Usage{Loss: 1, Busy: 2}, UsageOf([]float64{1, 2}))
	require.Empty(t, Behind([]float64{1, 2}))
	require.Nil(t, loadsOf([]said{saidOf(nil), saidOf(new(Usage).Values())}))
}
