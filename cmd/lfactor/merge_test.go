package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMergeAdapters: adapters of a run, and of PEFT's directory of them with the model that it names or one
// that is named, are added to weights by one command, in files of a size and in a type; both ways give the same
// but for the last rounding. What has no adapters, or no model, is refused.
func TestMergeAdapters(t *testing.T) {
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
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "data:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lora.yaml"), []byte("model: {path: hf}\ndata:"+rest), 0o644))
	do(0, "train", "lora.yaml", "-q", "lora.rank=4", "lora.targets=['*_proj']", "train.steps=4",
		"optimizer.lr=0.01", "checkpoint.dir=lora", "log.dir=lora-run")
	do(0, "ckpt", "convert", "lora", "adapter")
	do(0, "ckpt", "convert", "lora", "ours", "--merge", "--shard-size", "40KB")
	do(0, "ckpt", "convert", "adapter", "peft", "--merge", "--shard-size", "40KB")
	require.FileExists(t, filepath.Join(dir, "peft", "model.safetensors.index.json"))
	far := regexp.MustCompile(`differ, by at most (\S+)`)
	near := func(a, b string, most float64) {
		t.Helper()
		_, out := runIn(t, dir, nil, "ckpt", "diff", a, b)
		for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
			if line == "equal" {
				return
			}
			m := far.FindStringSubmatch(line)
			require.NotNil(t, m, line)
			x, err := strconv.ParseFloat(m[1], 64)
			require.NoError(t, err)
			require.LessOrEqual(t, x, most, line)
		}
	}
	near("ours", "peft", 1e-6)
	require.NotContains(t, do(1, "ckpt", "diff", "hf", "peft"), "equal")
	mergeForms(t, do, near)
	require.NoError(t, os.Rename(filepath.Join(dir, "hf"), filepath.Join(dir, "moved")))
	require.Contains(t, do(2, "ckpt", "convert", "adapter", "x", "--merge"), "name it by --base")
	do(0, "ckpt", "convert", "adapter", "named", "--merge", "--base", "moved", "--dtype", "bf16")
	config, err := os.ReadFile(filepath.Join(dir, "named", "config.json"))
	require.NoError(t, err)
	require.Contains(t, string(config), "bfloat16")
	do(0, "sample", "named", "--prompt", "the", "--greedy", "--max", "3")
	do(0, "ckpt", "convert", "moved", "half", "--dtype", "bf16", "--shard-size", "1MB")
	near("named", "half", 0.5)
	for _, c := range []struct{ args, why string }{
		{"moved x --merge", "has no adapters"}, {"ckpt x --merge", "has no adapters"},
		{"adapter x", "say --merge"}, {"moved x --base y --dtype bf16", "--base is for --merge"},
		{"moved x.gguf --shard-size 1GB", "for Hugging Face directories"},
		{"moved x --shard-size ten", "want a size"}, {"moved x --shard-size 0", "want a size"}} {
		require.Contains(t, do(2, append([]string{"ckpt", "convert"}, strings.Fields(c.args)...)...), c.why)
	}
	require.NoDirExists(t, filepath.Join(dir, "x"))
}

// mergeForms trains forms of adapters, goes on from a checkpoint, and merges them as a run and as PEFT's folder.
func mergeForms(t *testing.T, do func(int, ...string) string, near func(a, b string, most float64)) {
	keys := []string{"train", "lora.yaml", "-q", "lora.rank=4", "lora.targets=['*_proj']", "lora.dora=true", "lora.modules_to_save=[embed_tokens,'*norm']",
		"lora.rank_pattern=['*.q_proj=2']", "lora.alpha_pattern=['*.mlp.*=3','*.o_proj=1']", "log.dir=lora-run"}
	tokens := []string{"train", "lora.yaml", "-q", "lora.rank=4", "lora.targets=['*_proj']", "lora.trainable_tokens=[3,101,7]", "log.dir=lora-run"}
	begins := []string{"train", "lora.yaml", "-q", "lora.rank=4", "lora.targets=['*_proj']", "lora.init=pissa_niter_8", "lora.rank_pattern=['*.q_proj=2']",
		"log.dir=lora-run"}
	for i, keys := range [][]string{keys, tokens, begins} {
		at := func(name string) string { return fmt.Sprint(name, i) }
		do(0, append(keys, "train.steps=1", "optimizer.lr=0", "checkpoint.dir="+at("still"))...)
		do(0, "ckpt", "convert", at("still"), at("same"), "--merge")
		near("hf", at("same"), 1e-6) // magnitudes begin as the norms of rows, and rows as those of the table
		do(0, append(keys, "train.steps=2", "optimizer.lr=0.01", "checkpoint.dir="+at("more"))...)
		do(0, append(keys, "train.steps=4", "optimizer.lr=0.01", "checkpoint.dir="+at("more"))...)
		do(0, "ckpt", "convert", at("more"), at("adapter"))
		do(0, "ckpt", "convert", at("more"), at("ours"), "--merge")
		do(0, "ckpt", "convert", at("adapter"), at("peft"), "--merge")
		near(at("ours"), at("peft"), 1e-6)
		greedy := []string{"--prompt", "the", "--greedy", "--max", "8"}
		require.Equal(t, do(0, append([]string{"sample", at("more")}, greedy...)...), do(0, append([]string{"sample", at("ours")}, greedy...)...))
		require.NotContains(t, do(1, "ckpt", "diff", "hf", at("peft")), "equal")
	}
	require.Contains(t, do(2, append(tokens, "lora.modules_to_save=[embed_tokens]", "checkpoint.dir=x")...), "name it in one of the two")
	for _, bad := range []string{"[3,3]", "[-1]", "[100000]"} {
		require.Contains(t, do(2, append(tokens, "lora.trainable_tokens="+bad, "checkpoint.dir=x")...), "is none of the")
	}
	for bad, why := range map[string]string{"lora.dora=true": "takes a part of each weight", "lora.base=nf4": "takes a part of each weight",
		"lora.rank=4096": "fewer than the rank of 4096", "lora.init=eva": "there is no"} {
		require.Contains(t, do(2, append(begins, bad, "checkpoint.dir=x")...), why)
	}
	require.Contains(t, do(2, append(keys, "lora.base=nf4", "checkpoint.dir=x")...), "have no norms of rows that learn")
	require.Contains(t, do(2, append(keys, "lora.modules_to_save=['*.q_proj']", "checkpoint.dir=x")...), "has an addition by lora.targets")
	require.Contains(t, do(2, append(keys, "lora.rank_pattern=['*.q_proj']", "checkpoint.dir=x")...), "is no pattern and number")
}
