package planner

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
)

// lengthSearch is one for the tiny run file on four devices of a budget.
func lengthSearch(t *testing.T, memory string) *Search {
	p, err := New(Request{
		Run: configs.Request{
			File: "../../configs/runs/tiny.yaml",
			Args: []string{"plan.memory=" + memory},
		}, Hosts: "1x4",
	})
	require.NoError(t, err)
	return p
}

// TestLongest: each length that is offered fits and the next does not, a run file takes the settings, and sharing out
// tokens, or cutting them into chunks with full recompute, trains longer sequences than replicas do.
func TestLongest(t *testing.T) {
	p := lengthSearch(t, "24MiB")
	all, err := p.Longest(context.Background())
	require.NoError(t, err)
	best := map[string]int{}
	for i, c := range all {
		if i > 0 {
			require.LessOrEqual(t, c.SeqLen, all[i-1].SeqLen)
		}
		if c.SeqLen == 0 {
			continue
		}
		require.LessOrEqual(t, c.Peak, p.Space.Limit)
		cfg, err := p.config(append(c.Settings, "plan.layers=[]")...)
		require.NoError(t, err, "%+v", c)
		cfg.Model.Vocab = p.cfg.Model.Vocab
		more, err := p.peakOf(cfg, &c, c.SeqLen+lengthStep*c.parts())
		require.NoError(t, err)
		require.Greater(t, more, p.Space.Limit, "%+v: a longer one fits as well", c)
		if c.SeqLen > 3*lengthStep*c.parts() { // what takes all of the budget fits
			exact, again := *p, c
			space := *p.Space
			exact.Space, space.Limit = &space, c.Peak
			require.NoError(t, exact.longest(cfg, &again))
			require.Equal(t, c.SeqLen, again.SeqLen)
		}
		if c.TP == 1 && c.PP == 1 && c.Recompute == "full" {
			switch {
			case c.Chunks > 1 && c.CP == 1:
				best["chunks"] = c.SeqLen
			case c.CP == 4 && c.Chunks == 1:
				best["cp"] = c.SeqLen
			case c.CP == 1:
				best["replicas"] = c.SeqLen
			}
		}
	}
	require.Greater(t, best["chunks"], best["replicas"])
	require.Greater(t, best["cp"], 2*best["replicas"])

	_, err = lengthSearch(t, "100KiB").Longest(context.Background())
	require.ErrorContains(t, err, "add hosts")
	var code exit.Error
	require.ErrorAs(t, err, &code)
	require.Equal(t, exit.Fit, code.Code)
}
