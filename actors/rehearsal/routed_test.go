package rehearsal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/sim"
)

// TestReplayed: a step under recorded routing that is even takes as long as without; where all tokens go to
// the experts of one rank that rank's experts take the longer, the step is longer by no less than that, and
// expert, rank, link and what copies would make of it are named. A trace of another model is refused.
func TestReplayed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o644))
	cfg,
		err := configs.Load(configs.Request{Text: []byte("model: {name: qwen/3-30b-a3b, init: random, " +
		"overrides: {num_hidden_layers: 4}}\n" +
		"data: {kind: text, paths: [" + dir +
		"/a.txt], seq_len: 1024}\ntrain: {steps: 2, global_batch: 32, precision: bf16}\n" +
		"plan: {dp: 8, ep: 8, memory: 500GiB}\n")})
	require.NoError(t, err)
	m, err := Machine("h100")
	require.NoError(t, err)
	run := func(choose func(token, k int) int32) (*Routed, float64) {
		r, err := New(cfg, Options{Machine: m})
		require.NoError(t, err)
		if choose == nil {
			return nil, r.Summary(r.Run(sim.Options{})).Step
		}
		at := t.TempDir()
		h := r.Layout.Job.RoutingHeader(cfg.Model.Identity())
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
		x, err := r.Replay(cfg, at)
		require.NoError(t, err)
		other,
			err := configs.Load(configs.Request{Text: []byte("model: {name: qwen/3-30b-a3b, init: " +
			"random, overrides: {num_hidden_layers: 5}}\n" +
			"data: {kind: text, paths: [x], seq_len: 1024}\ntrain: {steps: 2}\n")})
		require.NoError(t, err)
		_, err = r.Replay(other, at)
		require.ErrorContains(t, err, "is of the model")
		return x, r.Summary(r.Run(sim.Options{})).Step
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
	require.Greater(t, longer-plain, 4*4*3*(skewed.RankTime-skewed.EvenTime)*0.9,
		"four microbatches of four layers, forward and twice that backward")
	require.Greater(t, skewed.RankTime, 4*skewed.EvenTime)
}
