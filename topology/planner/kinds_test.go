package planner

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/cost"
)

// TestTwoKinds: with devices of two kinds, stages get layers by the rates of theirs, and that is faster than
// as many layers everywhere; all plans that are offered were simulated with each rank's own rates.
func TestTwoKinds(t *testing.T) {
	req := configs.Request{File: "../../configs/runs/pretrain-llama-3.2-1b.yaml",
		Args: []string{"model.init=random", "train.global_batch=16"}}
	p, err := New(Request{Run: req, Cluster: "h100", Hosts: "1x4"})
	require.NoError(t, err)
	m := *p.Machine
	m.Second = &cost.Second{From: 2, Flops: m.Flops / 2, Memory: m.Memory, Bandwidth: m.Bandwidth / 2,
		Overhead: m.Overhead}
	p.Machine, p.Space.Machine, p.Exact = &m, &m, 6
	all, err := p.Find(context.Background())
	require.NoError(t, err)
	simulated := 0
	for i := range all {
		if all[i].Simulated > 0 {
			simulated++
		}
	}
	require.GreaterOrEqual(t, simulated, 6)

	c := all[0]
	c.PP, c.TP, c.DP, c.SP, c.Loops, c.Schedule, c.Zero, c.Batch, c.Micro = 2, 1, 2, false, 1, "1f1b", 0, 1, 8
	require.Equal(t, "[11,5]", p.weighed(&c))
	step := func(layers string) float64 {
		settings := p.Settings(&c)
		for i, s := range settings {
			if strings.HasPrefix(s, "plan.layers=") {
				settings[i] = "plan.layers=" + layers
			}
		}
		cfg, err := p.config(settings...)
		require.NoError(t, err)
		s, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: &m})
		require.NoError(t, err)
		return s.Step
	}
	require.Less(t, step("[11,5]"), 0.8*step("[8,8]"))

	text := m.Write()
	back, err := cost.Read("two.yaml", text)
	require.NoError(t, err)
	require.Equal(t, 2, back.Second.From)
	require.InEpsilon(t, m.Second.Flops, back.Second.Flops, 1e-5)
	_, err = cost.Read("two.yaml", []byte(strings.Replace(string(text), "  from: 2\n", "", 1)))
	require.ErrorContains(t, err, "second.from: is missing")
}
