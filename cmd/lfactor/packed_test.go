package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// TestPackedBase: additions are trained on a base in few bits; stopped and resumed, on another plan, a
// run has the losses of one that was left alone; its checkpoint is sampled, compared and exported, merged
// or not, as any other; and what a base in few bits cannot be is refused with exit code 2.
func TestPackedBase(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	trained(t, dir)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	do(0, "ckpt", "convert", "ckpt", "hf")
	do(0, "ckpt", "convert", "hf", "four", "--quantize", "int4")
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	from, rest, _ := strings.Cut(string(text), "data:")
	require.Contains(t, from, "model:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lora.yaml"),
		[]byte("model: {path: hf}\ndata:"+rest), 0o644))
	lora := []string{"train", "lora.yaml", "-q",
		"lora.rank=4", "lora.targets=['*_proj']", "train.steps=8", "checkpoint.interval=4",
		"schedule.kind=constant"}
	with := func(more ...string) []string { return append(append([]string{}, lora...), more...) }
	losses := func(log string) (out []float64) {
		for _, m := range clitest.Metrics(t, log) {
			out = append(out, m.Loss)
		}
		return out
	}
	do(0, with("lora.base=nf4", "checkpoint.dir=whole", "log.dir=a/run")...)
	do(0, with("lora.base=nf4", "checkpoint.dir=cut", "log.dir=b/run", "train.steps=4")...)
	do(0, with("lora.base=nf4", "checkpoint.dir=cut", "log.dir=b/run", "plan.pp=2")...)
	want := losses(filepath.Join(dir, "a"))
	require.NotEmpty(t, want)
	require.Equal(t, want, losses(filepath.Join(dir, "b")))
	do(0, "sample", "whole", "--prompt", "the", "--greedy", "--max", "3")
	do(0, "ckpt", "verify", "whole")
	require.Contains(t, do(0, "ckpt", "diff", "whole", "cut"), "equal")
	do(0, "ckpt", "convert", "whole", "adapter")
	require.FileExists(t, filepath.Join(dir, "adapter", "adapter_model.safetensors"))
	for name, plan := range map[string][]string{"tp": {"plan.tp=2"}, "zero": {"plan.dp=2", "plan.zero=3"}} {
		for _, base := range []string{"nf4", "kept"} { // rows of matrices are shared out, and read as they are kept
			to := []string{"lora.base=" + base, "checkpoint.dir=" + name + base, "log.dir=" + name + base + "-log/run"}
			if base == "kept" {
				to = append(to, "model.path=four")
			}
			do(0, with(append(to, "train.steps=4")...)...)
			do(0, with(append(to, plan...)...)...)
			got := losses(filepath.Join(dir, name+base+"-log"))
			alone := want
			if base == "kept" {
				do(0, with("lora.base=kept", "model.path=four", "checkpoint.dir=k"+name, "log.dir=k"+name+"-log/run")...)
				alone = losses(filepath.Join(dir, "k"+name+"-log"))
			}
			require.InDeltaSlice(t, alone, got, 1e-4, name+base)
			do(0, "ckpt", "verify", name+base)
			do(0, "sample", name+base, "--prompt", "the", "--greedy", "--max", "3")
		}
	}
	for flag, why := range map[string]string{"train.low_precision=mxfp8": "low_precision", "lora.rank=0": "set lora.rank"} {
		out := do(2, with("lora.base=nf4", "checkpoint.dir=no", "plan.dp=2", flag)...)
		require.Contains(t, out, "lora.base")
		require.Contains(t, out, why)
	}
	require.Contains(t, do(2, with("lora.base=kept", "checkpoint.dir=no")...), "keeps no weights in few bits")
}
