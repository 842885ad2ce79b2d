package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestExpertsInFewBits: experts are rounded one by one beside linear layers; additions are trained on them
// as they are kept, in memory too, by two processes that share experts out and by one; and a run goes on
// from its checkpoint, whose numbers all see.
func TestExpertsInFewBits(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "data:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.yaml"), []byte("data:"+rest), 0o644))
	train := func(name string, more ...string) []string {
		return append(append([]string{"train", "run.yaml", "-q", "train.precision=fp32",
			"train.global_batch=4",
			"train.micro_batch=1", "checkpoint.dir=" + name, "log.dir=" + name + "-log"}, mixed...), more...)
	}
	do(0, train("whole", "train.steps=1", "model.overrides.moe_intermediate_size=32",
		"checkpoint.save_hf=true",
		"checkpoint.save_hf_path=hf")...)
	for _, form := range []string{"int8", "fp8", "nvfp4", "int4"} {
		do(0, "ckpt", "convert", "hf", form, "--quantize", form)
		d, err := checkpoint.OpenDir(filepath.Join(dir, form))
		require.NoError(t, err)
		experts := 0
		for _, x := range d.Tensors() {
			if strings.Contains(x.Name, ".experts.") && strings.Contains(x.Name, "weight_scale") {
				experts++
			}
		}
		require.Positive(t, experts, form)
		require.NoError(t, d.Close())
	}
	lora := []string{"lora.rank=2", `lora.targets=["*self_attn*_proj"]`}
	kept := func(name, base string, more ...string) {
		t.Helper()
		args := []string{"train", "other.yaml", "-q", "model.path=int4", "train.precision=fp32",
			"lora.base=" + base,
			"train.global_batch=4", "train.micro_batch=1", "checkpoint.dir=" + name,
			"log.dir=" + name + "/run"}
		do(0, append(append(args, lora...), more...)...)
	}
	kept("one", "kept", "train.steps=2")
	kept("two", "kept", "train.steps=2", "plan.ep=2", "plan.procs=2", "plan.dp=2")
	kept("numbers", "model", "train.steps=2")
	of := func(name string) (out []float64) {
		for _, m := range metrics(t, filepath.Join(dir, name)) {
			out = append(out, m.Loss)
		}
		require.Len(t, out, 2)
		return out
	}
	require.Equal(t, of("numbers"), of("one"))
	require.InEpsilonSlice(t, of("one"), of("two"), 1e-5)
	kept("two", "kept", "train.steps=3")
	do(0, "ckpt", "convert", "two", "peft")
	do(0, "ckpt", "convert", "two", "merged", "--merge")
	require.Contains(t, do(2, append([]string{"train", "other.yaml", "-q", "model.path=int4",
		"lora.base=kept",
		"train.balance_every=1", "plan.ep=2", "plan.dp=2"}, lora...)...),
		"experts that lie in few bits are not moved")
}
