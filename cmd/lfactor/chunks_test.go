package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/exit"
)

// TestTrainInChunks trains with sequences cut into chunks to the losses of whole ones, and refuses chunks that cannot be.
func TestTrainInChunks(t *testing.T) {
	dir := tinyRun(t)
	losses := map[string][]string{}
	for name, more := range map[string][]string{"whole": {"plan.recompute=full"}, "chunks": {"--enable-chunkpipe", "--chunksize", "8", "plan.recompute=full", "plan.keep_chunks=1"}} {
		code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml", "train.steps=3", "train.micro_batch=1", "plan.dp=1", "data.packing=false", "checkpoint.dir=" + filepath.Join("ckpt", name), "log.dir=" + name}, more...)...)
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
	for _, c := range [][2]string{{"plan.chunk_size=5", "run.yaml: plan.chunk_size: data.seq_len = 32 is no multiple of 5"}, {"train.micro_batch=2", "chunks are of one"}, {"plan.schedule=gpipe", "chunks are for chunkpipe and seq1f1b"}} {
		code, out := runIn(t, dir, nil, "train", "run.yaml", "train.micro_batch=1", "plan.dp=1", "plan.schedule=chunkpipe", "plan.chunk_size=8", c[0])
		require.Equal(t, exit.Usage, code, out)
		require.Contains(t, out, strings.TrimPrefix(c[1], "run.yaml: "))
	}
}
