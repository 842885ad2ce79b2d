package host

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/topology"
)

// TestCodeBooks: behind twelve steps of codes and eight of what says them, VQ-BeT's code books and their averages are
// lerobot's on one device and on two replicas, with the mark that they are learnt. Steps of the second phase leave them
// as they are, and those of the first leave the transformer.
func TestCodeBooks(t *testing.T) {
	t.Parallel()
	for dp := 1; dp <= 2; dp++ {
		g := openPolicy(t, "vqbet_codes")
		g.each = g.alone(dp)
		books, begun, changed := 0, map[string][]float32{}, 0
		g.after = func(r *Rank) {
			for _, p := range r.c.Params {
				got := r.run.Params[p.Name].F32()
				if _, want := g.read("after." + g.m.Source(p.Name).Name); want != nil {
					require.LessOrEqual(t, relative(got, want), 1e-4, p.Name)
					books++
				}
				if strings.HasSuffix(p.Name, "discretized") || strings.HasSuffix(p.Name, "freeze_codebook") {
					require.Equal(t, []float32{1}, got, p.Name)
				}
			}
		}
		see := func(_ *layout.Layout, _ int, r *Rank) {
			for _, p := range r.c.Params {
				begun[p.Name] = append([]float32(nil), r.run.Params[p.Name].F32()...)
			}
		}
		g.AdamW = &adamWFacts{LR: 1e-3, Eps: 1e-8, Betas: []float64{0.9, 0.95}}
		g.plan = func(j *layout.Design) { j.Micro = 2 / dp; j.Rows = int(g.made.Cu[1]) }
		losses, _ := g.train(topology.New(topology.Dim{Name: topology.DP, Size: dp}), goldenBackends["cpu"], 20, see)
		require.InEpsilonSlice(t, g.Losses, losses, 1e-4)
		require.Equal(t, 6*dp, books)

		g.after = func(r *Rank) {
			for _, p := range r.c.Params {
				now, first := r.run.Params[p.Name].F32(), begun[p.Name]
				code := strings.HasPrefix(p.Name, "vqbet.action_head.vqvae_model.") && p.Name != "vqbet.action_head.vqvae_model.discretized" &&
					!strings.HasSuffix(p.Name, "freeze_codebook")
				if !code {
					require.Equal(t, first, now, p.Name)
				} else {
					require.NotEqual(t, first, now, p.Name)
					changed++
				}
			}
		}
		_, _ = g.train(topology.New(topology.Dim{Name: topology.DP, Size: dp}), goldenBackends["cpu"], 12, see)
		require.Equal(t, 18*dp, changed)
	}
}
