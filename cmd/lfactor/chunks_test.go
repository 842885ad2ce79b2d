package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestTrainInChunks trains with sequences cut into chunks to the losses of whole ones, and refuses chunks
// that cannot be.
func TestTrainInChunks(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	losses := map[string][]string{}
	for name, more := range map[string][]string{"whole": {"plan.recompute=full"},
		"chunks": {"--enable-chunkpipe", "--chunksize", "8", "plan.recompute=full", "plan.keep_chunks=1"}} {
		code, out := runIn(t, dir, nil,
			append([]string{"train", "run.yaml", "train.steps=3", "train.micro_batch=1", "plan.dp=1",
				"data.packing=false", "checkpoint.dir=" + filepath.Join("ckpt", name), "log.dir=" + name},
				more...)...)
		require.Zero(t, code, out)
		for _, line := range strings.Split(out, "\n") {
			if f := strings.Fields(line); len(f) > 3 && f[0] == "step" {
				losses[name] = append(losses[name], f[3])
			}
		}
	}
	require.Len(t, losses["whole"], 3)
	for i := range losses["whole"] {
		a, err := strconv.ParseFloat(losses["whole"][i], 64)
		require.NoError(t, err)
		b, err := strconv.ParseFloat(losses["chunks"][i], 64)
		require.NoError(t, err)
		require.InEpsilon(t, a, b, 1e-4)
	}
	for i, c := range []struct {
		code      int
		set, says string
	}{
		{0, "plan.chunk_size=5",
			"microbatches of 32 tokens are padded to 35, a multiple of plan.chunk_size = 5"},
		{exit.Usage, "plan.schedule=gpipe", "chunks are for chunkpipe and seq1f1b"},
	} {
		code, out := runIn(t, dir, nil, "train", "run.yaml", "train.steps=1", "train.micro_batch=1",
			"plan.dp=1", "plan.schedule=chunkpipe",
			"plan.chunk_size=8", fmt.Sprint("checkpoint.dir=c", i), fmt.Sprint("log.dir=l", i), c.set)
		require.Equal(t, c.code, code, out)
		require.Contains(t, out, c.says)
	}
}

// TestChunksOfHybrids: a chunk has to have the rows that a convolution of linear attention joins.
func TestChunksOfHybrids(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	args := []string{"plan", "run.yaml", "model.name=qwen/3.5-0.8b", "model.overrides.rope_scaling={}",
		"plan.pp=1",
		"model.overrides.linear_num_key_heads=2", "model.overrides.linear_num_value_heads=4",
		"model.overrides.linear_key_head_dim=8", "model.overrides.linear_value_head_dim=8",
		"plan.schedule=chunkpipe"}
	code, out := runIn(t, dir, nil, append(args, "plan.chunk_size=2")...)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "2 tokens are less than the 4 that a layer of linear attention joins")
	code, out = runIn(t, dir, nil, append(args, "plan.chunk_size=4")...)
	require.Zero(t, code, out)
}
