package core

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// counted is a payload whose references are counted.
type counted struct{ refs int }

func (c *counted) Bytes() int64 { return 1 }
func (c *counted) Retain()      { c.refs++ }
func (c *counted) Release()     { c.refs-- }

// TestGivenTwice: of two copies of the state that a rank is to take it takes the first, and gives the second back,
// whether it has heard of the epoch before them, between them or after them; and it tells once that it has the state.
func TestGivenTwice(t *testing.T) {
	for _, source := range []int32{FromCopy, FromMember} {
		for heard := range 3 {
			ctx := &letters{}
			r := NewRank(&RankLayout{Coordinator: 9, Program: &plan.Program{}})
			r.Receive(ctx, &actors.Message{Kind: actors.Started, Step: 1})
			given := []*counted{{1}, {1}}
			for i := range 3 {
				if i == heard {
					r.Receive(ctx, &actors.Message{Kind: actors.Rewind, Epoch: 4, Step: 7, Segment: source, Port: 1,
						Member: 1})
				}
				if i < 2 {
					r.Receive(ctx, &actors.Message{Kind: actors.State, Epoch: 4, Step: 7, Payload: given[i],
						Values: kept{step: 7}.append(nil)})
				}
			}
			require.Equal(t, 1, int(r.jobs), "it goes to the state once")
			keeps := 0
			if source == FromCopy {
				keeps = 1
				require.Len(t, r.copies, 1)
			}
			refs := []int{given[0].refs - 1, given[1].refs} // one is the job's
			if heard == 2 {                                 // both came early, and the later one counts
				refs = []int{given[1].refs - 1, given[0].refs}
			}
			require.Equal(t, []int{keeps, 0}, refs, "source %d, heard %d", source, heard)
			r.Receive(ctx, &actors.Message{Kind: actors.Done, Job: 1, Step: 7})
			require.Len(t, ctx.sent, 2)
			require.Equal(t, actors.Rewound, ctx.sent[1].Kind)
			r.Receive(ctx, &actors.Message{Kind: actors.State, Epoch: 4, Step: 7, Payload: given[1]})
			require.Equal(t, 1, int(r.jobs), "what comes later is not taken")
		}
	}
}

// TestEarlyThenClaim: a state that came before its rank has heard of the epoch is not lost when another
// coordinator claims the rank in between.
func TestEarlyThenClaim(t *testing.T) {
	ctx := &letters{}
	r := NewRank(&RankLayout{Coordinator: 9, Program: &plan.Program{}})
	r.Receive(ctx, &actors.Message{Kind: actors.Started, Step: 1})
	p := &counted{1}
	r.Receive(ctx, &actors.Message{Kind: actors.State, Epoch: 6, Step: 7, Payload: p})
	r.Receive(ctx, &actors.Message{Kind: actors.Claim, Epoch: 5})
	require.Zero(t, r.jobs, "it goes nowhere before it is told where")
	r.Receive(ctx, &actors.Message{Kind: actors.Rewind, Epoch: 6, Step: 7, Segment: FromMember, Port: 1, Member: 1})
	require.Equal(t, 1, int(r.jobs), "it goes to what it was given")
	require.Equal(t, 1, p.refs)
}
