package planner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// longRun is the search for a small Llama with long sequences, of which there are fewer than devices.
func longRun(t *testing.T, hosts string, args ...string) *Search {
	t.Helper()
	file := filepath.Join(t.TempDir(), "run.yaml")
	require.NoError(t, os.WriteFile(file, []byte(`
model:
  name: llama/3.2-1b
  init: random
  overrides: {hidden_size: 512, num_hidden_layers: 4, num_attention_heads: 8, num_key_value_heads: 4, head_dim: 64, intermediate_size: 1024, vocab_size: 2048, max_position_embeddings: 65536}
data: {kind: text, paths: [none], tokenizer: none, seq_len: 16384}
train: {steps: 2, global_batch: 2, precision: bf16}
`), 0o644))
	p, err := New(Request{Run: configs.Request{File: file, Args: args}, Cluster: "h100",
		Hosts: hosts})
	require.NoError(t, err)
	return p
}

// TestContexts: a rank gets two runs of tokens for each of the ranks that cut its weights, or more; heads are
// exchanged where they divide, and ranks that do not divide a stage's share nothing.
func TestContexts(t *testing.T) {
	p := longRun(t, "1x4")
	list := func(ranks, tp, length, heads int) (out []string) {
		p.cfg.Run.Data.SeqLen, p.cfg.Model.Heads = length, heads
		for _, c := range p.contexts(ranks, tp) {
			out = append(out, fmt.Sprint(c.Comm, c.CP))
		}
		return
	}
	require.Empty(t, list(1, 1, 64, 8))
	require.Equal(t, []string{"gather2", "ring2", "ulysses2", "gather4", "ring4", "ulysses4"}, list(4, 2,
		16, 8))
	require.Equal(t, []string{"gather2", "ring2", "ulysses2"}, list(4, 2, 15, 8))
	require.Empty(t, list(4, 2, 7, 8))
	require.Equal(t, []string{"gather3", "ring3"}, list(3, 1, 64, 8))
	require.Equal(t, []string{"gather2", "ring2", "ulysses2", "gather4", "ring4"}, list(4, 1, 64, 2))
	require.Len(t, list(32, 1, 1<<20, 16), 12, "2, 4, 8 and 16 ranks")
}

// simulated is what the simulator says of a candidate, laid out in full.
func (p *Search) simulated(t *testing.T, c *search.Candidate) float64 {
	t.Helper()
	cfg, err := p.under(c)
	require.NoError(t, err, c)
	s, err := rehearsal.Simulate(context.Background(), cfg, rehearsal.Options{Machine: p.Machine})
	require.NoError(t, err, c)
	return s.Step
}

// TestPlannedContext holds the planned times of plans that share tokens out to the simulator, within 5 %: a
// ring's parts are priced as if each rank began at once.
func TestPlannedContext(t *testing.T) {
	p := longRun(t, "1x4")
	all, err := p.Space.Enumerate()
	require.NoError(t, err)
	seen := map[string]int{}
	for i := range all {
		c := &all[i]
		if c.CP <= 1 || c.Recompute == "none" {
			continue
		}
		require.NoError(t, p.Space.Estimate(c))
		require.NoError(t, p.Simulate(c))
		step := p.simulated(t, c)
		off := c.Simulated/step - 1
		require.InDelta(t, 0, off, 0.05, "%v: planned %.3f ms, simulated %.3f ms", c, 1e3*c.Simulated,
			1e3*step)
		seen[c.Comm]++
	}
	for _, comm := range []string{"gather", "ring", "ulysses"} {
		require.Greater(t, seen[comm], 10, comm)
	}
}

// TestContextFound: the best plan that is found is the best of all by the simulator, and shares tokens out
// where there are more devices than sequences.
func TestContextFound(t *testing.T) {
	p := longRun(t, "1x4")
	found, err := p.Find(context.Background())
	require.NoError(t, err)
	best := &found[0]
	require.Greater(t, best.CP, 1, best)
	all, err := p.Space.Enumerate()
	require.NoError(t, err)
	least := p.simulated(t, best)
	require.InEpsilon(t, least, best.Simulated, 1e-9)
	require.Greater(t, least, 1.5e-3, "reading data does not decide")
	for i := range all {
		require.GreaterOrEqual(t, p.simulated(t, &all[i])*(1+1e-9), least, "%v is faster than %v",
			&all[i], best)
	}
}

// TestChunksFound: where a pipeline waits, or nothing fits without chunks, sequences are cut over time, and
// the best plan that is found is the best of all, chunks of every plan among them, by the simulator.
func TestChunksFound(t *testing.T) {
	for _, arg := range []string{"train.global_batch=1", "plan.memory=380MiB"} {
		t.Run(arg, func(t *testing.T) {
			p := longRun(t, "1x2", arg)
			p.Space.TP, p.Space.Contexts, p.Space.Schedules = []int{1}, nil, []string{"1f1b", "zb-2p",
				chunked}
			found, err := p.Find(context.Background())
			require.NoError(t, err)
			best := &found[0]
			require.Greater(t, best.Chunks, 1, best)
			require.InEpsilon(t, p.simulated(t, best), best.Simulated, 1e-9)
			all, err := p.Space.Enumerate()
			require.NoError(t, err)
			for _, c := range all {
				for _, n := range append([]int{0}, chunkCounts...) {
					if n > 0 {
						c.Schedule, c.Loops, c.Chunks = chunked, 1, n
					}
					if c.Batch > 1 && n > 0 {
						continue
					}
					ok, err := p.wholly(context.Background(), &c)
					require.NoError(t, err)
					require.True(t, !ok || c.Simulated*(1+1e-9) >= best.Simulated,
						"%v takes %g s, %v %g s", &c,
						c.Simulated, best, best.Simulated)
				}
			}
		})
	}
}

// TestObjectiveKept: a plan that would change what the run minimises is not looked for.
func TestObjectiveKept(t *testing.T) {
	plain, scaled := longRun(t, "1x2"), longRun(t, "1x2", "train.low_precision=nvfp4")
	differs := func(p *Search) (out []string) {
		all, err := p.Space.Enumerate()
		require.NoError(t, err)
		for _, c := range all {
			for key, set := range map[string]bool{"cp": c.CP > 1, "tp": c.TP > 1, "dp": c.DP > 1, "micro": c.Batch > 1} {
				if set && !slices.Contains(out, key) {
					out = append(out, key)
				}
			}
		}
		slices.Sort(out)
		return out
	}
	require.Equal(t, []string{"cp", "dp", "micro", "tp"}, differs(plain))
	require.Equal(t, []string{"dp"}, differs(scaled))
	require.Equal(t, []string{"micro"}, differs(longRun(t, "1x2", "train.low_precision=nvfp4", "train.micro_batch=2")))
	require.Nil(t, plain.sensitive.To("plan.chunk_size", chunkLeast))
	found, err := scaled.inChunks(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, found)
	require.NotNil(t, scaled.sensitive.To("plan.chunk_size", chunkLeast))
}
