package planner

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/search"
)

// TestPaired: of a plan whose experts are shared out over a network, one with microbatches that overlap is offered too
// where it is faster and fits, and a run file with its settings has the overlap. Plans without exchanges inside passes,
// or with too few microbatches, have none; and a run file that asks for overlap has plans without it.
func TestPaired(t *testing.T) {
	q := question{text: mixed, cluster: "a800", hosts: "2x1", args: []string{"train.global_batch=16",
		"data.seq_len=256"}}
	p := q.search(t)
	p.Exact, p.Space.TP = 2, []int{1}
	all, err := p.Find(context.Background())
	require.NoError(t, err)
	at := slices.IndexFunc(all, func(c search.Candidate) bool {
		return c.Why == "" && c.PP == 1 && c.EP == 2 && c.Micro == 8 && c.Zero == 1 && c.Recompute == "none"
	})
	require.GreaterOrEqual(t, at, 0)
	c := all[at]
	require.NoError(t, p.Simulate(&c))
	alone := c // nothing inside a pass goes to another rank
	alone.EP, alone.ETP = 1, 1
	few := c
	few.Micro = 2
	more, err := p.paired(context.Background(), []search.Candidate{alone, few, c})
	require.NoError(t, err)
	require.Len(t, more, 1)
	x := &more[0]
	require.Less(t, x.Simulated, c.Simulated)
	require.NotEqual(t, x.Bubble, c.Bubble, "the plan without overlap waits otherwise")
	require.Greater(t, x.Memory, int64(0))
	require.Contains(t, x.String(), "1f1b overlapped")
	cfg, err := p.under(x)
	require.NoError(t, err)
	require.True(t, cfg.Run.Plan.OverlapMicro)
	l, err := p.laidOut(x)
	require.NoError(t, err)
	require.Equal(t, worst(l), x.Memory)
	p.Space.Limit = x.Memory - 1
	more, err = p.paired(context.Background(), []search.Candidate{c})
	require.NoError(t, err)
	require.Empty(t, more, "it does not fit")

	q.args = append(q.args, "plan.overlap_microbatches=true", "plan.dp=2", "plan.ep=2")
	p = q.search(t)
	cfg, err = p.under(&alone)
	require.NoError(t, err)
	require.False(t, cfg.Run.Plan.OverlapMicro)
	cfg, err = p.under(x)
	require.NoError(t, err)
	require.True(t, cfg.Run.Plan.OverlapMicro)
}
