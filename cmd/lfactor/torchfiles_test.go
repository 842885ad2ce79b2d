package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTorchFiles: a run's checkpoint goes to pytorch_model.bin, torch.distributed.checkpoint and Megatron's
// torch_dist, and comes back with the same bytes; a pickle that would call something is refused by name, and what
// says no model wants --like.
func TestTorchFiles(t *testing.T) {
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
	card := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "hf", "README.md"))
		require.NoError(t, err)
		return string(text)
	}
	require.Contains(t, card(), "library_name: transformers")
	require.Regexp(t, `\| training loss of the last step \| \d\.\d{4} \|`, card())
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hf", "README.md"), []byte("mine"), 0o600))
	do(0, "ckpt", "convert", "ckpt", "hf", "--overwrite")
	require.Equal(t, "mine", card(), "a page that somebody else has written stays")
	probed := "logits of a probe differ by at most 0 "
	require.Contains(t, do(0, "ckpt", "convert", "ckpt", "bin", "--to", "torch"), probed)
	require.Contains(t, do(0, "ckpt", "convert", "hf", "dcp", "--to", "dcp"), probed)
	require.Contains(t, do(0, "ckpt", "convert", "ckpt", "megatron", "--to", "megatron", "--vocab-divisible",
		"96"),
		probed)
	for _, form := range []string{"bin", "dcp"} { // under the same names
		require.Contains(t, do(0, "ckpt", "diff", "hf", form), "equal")
		do(0, "ckpt", "verify", form)
	}
	for _, form := range []string{"bin", "dcp", "megatron"} {
		require.Contains(t, do(0, "ckpt", "convert", form, form+"-back"), probed)
		require.Contains(t, do(0, "ckpt", "diff", "hf", form+"-back"), "equal")
	}
	require.Contains(t, do(0, "ckpt", "convert", "hf", "x.gguf"), probed)
	probeFlags(t, do)
	anyTwo(t, do)
	other := tinyRun(t)
	trained(t, other, "train.seed=9")
	for _, form := range []string{"ckpt", "hf", "megatron"} {
		require.Contains(t, do(1, "ckpt", "diff", form, filepath.Join(other, "ckpt"), "--like", "hf"),
			"elements differ, by at most")
	}
	do(2, "ckpt", "convert", "hf", "x", "--to", "torch", "--vocab-divisible", "96")
	do(2, "ckpt", "convert", "hf", "x", "--to", "megatron", "--vocab-divisible", "0")
	require.NoError(t, os.Rename(filepath.Join(dir, "bin", "pytorch_model.bin"),
		filepath.Join(dir, "alone.pt")))
	require.Contains(t, do(2, "ckpt", "convert", "alone.pt", "x"), "--like")
	require.Contains(t, do(2, "ckpt", "diff", "ckpt", "alone.pt"), "--like")
	do(0, "ckpt", "convert", "alone.pt", "y", "--like", "hf", "--dtype", "bf16")
	require.Contains(t, do(1, "ckpt", "diff", "hf", "y"), "BF16")
	require.Contains(t, do(0, "ckpt", "diff", "hf", "y", "--numbers"), "equal",
		"rounded to the narrower type")
	do(0, "sample", "y", "--prompt", "the", "--greedy", "--max", "3")

	evil, err := os.ReadFile(filepath.Join("..", "..", "stages", "checkpoint", "torch", "testdata",
		"evil.bin"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "evil.bin"), evil, 0o600))
	require.Contains(t, do(6, "ckpt", "convert", "evil.bin", "z", "--like", "hf"), "posix.system")
	plain, err := os.ReadFile(filepath.Join("..", "..", "stages", "checkpoint", "torch", "testdata",
		"plain.bin"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "plain.bin"), plain, 0o600))
	require.Contains(t, do(6, "ckpt", "convert", "plain.bin", "z", "--like", "hf"), "a.weight")
	require.NoDirExists(t, filepath.Join(dir, "z"))
}

// probeFlags says that logits are not compared where that is not wanted, or too large.
func probeFlags(t *testing.T, do func(want int, args ...string) string) {
	t.Helper()
	args := []string{"ckpt", "convert", "hf", "np", "--shard-size", "1MB"}
	require.Contains(t, do(0, append(args, "--no-probe")...), "not compared: --no-probe")
	require.Contains(t, do(0, append(args, "--overwrite", "--probe-limit", "1KiB")...), "--probe-limit is 1")
	do(2, "ckpt", "convert", "hf", "np2", "--no-probe", "--probe-limit", "1KiB")
	do(2, "ckpt", "convert", "hf", "np2", "--probe-limit", "much")
}

// anyTwo compares any two forms of one model.
func anyTwo(t *testing.T, do func(want int, args ...string) string) {
	t.Helper()
	forms := []string{"ckpt", "hf", "bin", "dcp", "megatron", "x.gguf"}
	for i, a := range forms { // any two, in one order each
		for j, b := range forms[:i] {
			if (i+j)%2 > 0 {
				a, b = b, a
			}
			require.Contains(t, do(0, "ckpt", "diff", a, b, "--like", "hf"), "equal", "%s %s", a, b)
		}
	}
}
