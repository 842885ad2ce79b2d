package rehearsal

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/sim"
)

// replayedRun simulates a mixture on eight ranks under a trace in which choose says where tokens go, nil for
// none: what the trace says, and how long the last step takes, and all do by what the coordinator says.
func replayedRun(t *testing.T, more string, steps int64, choose func(token, k int) int32, args ...string) (
	x *Routed, last float64, all []float64) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o644))
	load := func(layers int, more string) *configs.Config {
		cfg, err := configs.Load(configs.Request{Args: args, Text: fmt.Appendf(nil,
			"model: {name: qwen/3-30b-a3b, "+
				"init: random, overrides: {num_hidden_layers: %d}}\n"+
				"data: {kind: text, paths: [%s/a.txt], seq_len: 1024}\n"+
				"train: {steps: 2, global_batch: 32, precision: bf16%s}\n"+
				"plan: {dp: 8, ep: 8, memory: 500GiB}\n", layers, dir, more)})
		require.NoError(t, err)
		return cfg
	}
	cfg := load(4, more)
	m, err := Machine("h100")
	require.NoError(t, err)
	r, err := New(cfg, Options{Machine: m, Steps: steps})
	require.NoError(t, err)
	run := func() float64 {
		return r.Summary(r.Run(sim.Options{Report: func(m actors.Message) {
			if m.Text == core.TopicStep {
				all = append(all, core.SummaryOf(m.Values).Time/1e9)
			}
		}})).Step
	}
	if choose == nil {
		return nil, run(), all
	}
	at := t.TempDir()
	h := r.Layout.Design.RoutingHeader(cfg.Model.Identity())
	for rank := range 8 {
		h.Rank = rank
		f, err := os.Create(layout.RoutingFile(at, rank))
		require.NoError(t, err)
		w, err := routing.NewWriter(f, h, false)
		require.NoError(t, err)
		experts := make([]int32, 1024*8)
		for i := range experts {
			experts[i] = choose(i/8, i%8)
		}
		for micro := range int32(4) {
			for block := int32(1); block <= 4; block++ {
				require.NoError(t, w.Write(routing.Place{Step: 7, Micro: micro, Block: block}, experts))
			}
		}
		require.NoError(t, w.Flush())
		require.NoError(t, f.Close())
	}
	x, err = r.Replay(cfg, at)
	require.NoError(t, err)
	_, err = r.Replay(load(5, more), at)
	require.ErrorContains(t, err, "is of the model")
	last = run()
	return x, last, all
}

// TestReplayed: a step under recorded routing that is even takes as long as without; where all tokens go to
// the experts of one rank that rank's experts take the longer, the step is longer by no less than that, and
// expert, rank, link and what copies would make of it are named. A trace of another model is refused.
func TestReplayed(t *testing.T) {
	run := func(choose func(token, k int) int32) (*Routed, float64) {
		x, last, _ := replayedRun(t, "", 2, choose)
		return x, last
	}
	_, plain := run(nil)
	even, same := run(func(token, k int) int32 { return int32((token*8 + k*17) % 128) })
	require.InEpsilon(t, plain, same, 1e-6)
	require.InDelta(t, 1, even.RankShare, 0.1)
	skewed, longer := run(func(_, k int) int32 { return int32(40 + k) })
	t.Log(skewed)
	require.Equal(t, []any{1, 1, 40, 8 * 4 * 1024, 16.0}, []any{skewed.Steps, skewed.Block, skewed.Expert,
		skewed.Rows, skewed.Share})
	require.Equal(t, []any{2, 8.0, 2, int64(8 * 1024 * 2048 * 2)}, []any{skewed.Rank, skewed.RankShare,
		skewed.To, skewed.Bytes})
	require.Equal(t, []any{8.0, 1.0}, []any{skewed.Held, skewed.Spread})
	require.Greater(t, longer-plain, 4*4*3*(skewed.RankTime-skewed.EvenTime)*0.85,
		"four microbatches of four layers, forward and twice that backward, but that weights' gradients fill tiles")
	require.Greater(t, skewed.RankTime, 4*skewed.EvenTime)
}

// TestReplayedCopies: four experts that every token goes to take an eighth of all rows each, so that their
// ranks have more than even use wherever they lie; with a place more on each rank copies share those rows,
// and a step takes about as long as under even routing.
func TestReplayedCopies(t *testing.T) {
	busy := func(token, k int) int32 {
		if k < 4 {
			return int32(40 + k)
		}
		if e := int32(token*4+k) % 124; e < 40 {
			return e
		} else {
			return e + 4
		}
	}
	_, _, even := replayedRun(t, ", balance_every: 2", 4, func(token, k int) int32 {
		return int32((token*8 + k*17) % 128)
	})
	_, _, moved := replayedRun(t, ", balance_every: 2", 4, busy)
	_, _, copied := replayedRun(t, ", balance_every: 2", 4, busy, "plan.redundant_experts=8")
	t.Logf("even %v, moved %v, with copies %v", even, moved, copied)
	require.Greater(t, moved[2], 1.04*even[2])
	require.InEpsilon(t, even[2], copied[2], 0.06,
		"each rank has an expert more, which takes tiles of its own")
}

// TestReplayedMoves: where all tokens go to experts of one rank, these lie on eight ranks behind the first
// move, and a step takes as long as under even routing from then on. The step that moves them takes longer,
// by no less than the rows of a layer take on their way; experts that would gain nothing stay.
func TestReplayedMoves(t *testing.T) {
	evenly := func(token, k int) int32 { return int32((token*8 + k*17) % 128) }
	_, _, even := replayedRun(t, ", balance_every: 2", 4, evenly)
	_, _, skewed := replayedRun(t, "", 4, func(_, k int) int32 { return int32(40 + k) })
	_, _, moved := replayedRun(t, ", balance_every: 2", 4, func(_, k int) int32 { return int32(40 + k) })
	t.Logf("even %v, skewed %v, moved %v", even, skewed, moved)
	require.Greater(t, skewed[3], 1.5*even[3])
	require.InEpsilon(t, even[3], even[1], 1e-3)
	require.InEpsilon(t, skewed[0], moved[0], 1e-6)
	require.InEpsilon(t, even[2], moved[2], 1e-3)
	require.InEpsilon(t, even[3], moved[3], 1e-3)
	const expert = 3 * 2048 * 768 * (2 + 3*4) // bytes of weights, master copy and moments
	require.Greater(t, moved[1]-skewed[1], 4*16*expert*7/8/450e9, "four layers of sixteen experts a rank")
	require.Less(t, moved[1]-skewed[1], 3.0)
}
