package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestQATCommand: a run with train.qat learns with weights as few bits have them, and is exported to those bits
// with its own loss to the bit; it goes on from its checkpoint, and what it cannot be together with is refused.
func TestQATCommand(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	loss := func(args ...string) float64 {
		t.Helper()
		out := do(0, append(append([]string{"eval"}, args...), "-o", "json")...)
		var e struct{ Loss float64 }
		require.NoError(t, json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &e), out)
		return e.Loss
	}
	valid := "data.valid=[text]"
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "data:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "other.yaml"), []byte("data:"+rest), 0o644))
	for _, c := range [][]string{{"train.qat=int4", "train.qat_group=16"}, {"train.qat=int8",
		"train.qat_group=0"}} {
		name := strings.TrimPrefix(c[0], "train.qat=")
		keys := append([]string{"run.yaml", valid, "train.eval_steps=1", "train.precision=fp32",
			"checkpoint.dir=" + name,
			"log.dir=" + name + "-log"}, c...)
		do(0, append(append([]string{"train"}, keys...), "-q", "train.steps=3")...)
		do(0, append(append([]string{"train"}, keys...), "-q", "train.steps=4")...)
		require.Contains(t, do(0, "ckpt", "convert", name, name+"-hf", "--quantize", "qat"),
			"logits of a probe differ by at most 0 ")
		require.Equal(t, loss(keys...), loss("other.yaml", valid, "train.eval_steps=1",
			"train.precision=fp32", "model.path="+name+"-hf", "checkpoint.dir=none", "log.dir=none-log"))
		do(0, "ckpt", "convert", name, name+"-whole")
		require.Contains(t, do(2, "ckpt", "convert", name+"-whole", "x", "--quantize", "qat"),
			"for the checkpoints of a run with train.qat")
	}
	do(0, "train", "run.yaml", "-q", "train.steps=3", "checkpoint.dir=free", "log.dir=free-log",
		"train.precision=bf16", "train.qat=int4",
		"train.qat_group=16", "optimizer.kind=schedule_free", "schedule.kind=constant")
	do(0, "ckpt", "convert", "free", "free-hf", "--quantize",
		"qat") // an average, which is in float32, is rounded first
	do(0, "train", "run.yaml", "-q", "train.steps=2", "checkpoint.dir=plain", "log.dir=plain-log")
	require.Contains(t, do(2, "ckpt", "convert", "plain", "x", "--quantize", "qat"),
		"is of no run with train.qat")
	require.Contains(t, do(2, "ckpt", "convert", "int4", "x", "--quantize", "qat", "--group-size", "32"),
		"leave out")
	for _, c := range []struct{ keys, why string }{{"train.qat_group=16", "is not read"},
		{"train.qat=int4 train.qat_group=48", "no groups of 48"},
		{"train.qat=int4 train.qat_group=0 plan.tp=2", "cuts within groups"},
		{"train.qat=int4 train.qat_group=16 lora.rank=2", "do not learn"},
		{"train.qat=int4 train.qat_group=16 train.low_precision=mxfp8", "rounded twice"}} {
		require.Contains(t, do(2, append([]string{"train", "run.yaml"}, strings.Fields(c.keys)...)...),
			c.why)
	}
	require.NoDirExists(t, filepath.Join(dir, "x"))
}

// TestQATExperts: experts learn with weights as few bits have them, too, under every plan that leaves groups whole, and
// are exported to those bits one by one.
func TestQATExperts(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	base := append(append([]string{"train", "run.yaml", "-q"}, mixed...), "train.precision=fp32",
		"train.qat=int4",
		"train.qat_group=16", "train.steps=2", "train.global_batch=4", "train.micro_batch=1")
	_ = do(0, append(base, "plan.ep=2", "checkpoint.dir=qat", "log.dir=qat-log")...)
	require.Contains(t, do(0, "ckpt", "convert", "qat", "qat-hf", "--quantize", "qat"),
		"logits of a probe differ by at most 0 ")
	d, err := checkpoint.OpenDir(filepath.Join(dir, "qat-hf"))
	require.NoError(t, err)
	defer d.Close()
	few := 0
	for _, x := range d.Tensors() {
		if strings.Contains(x.Name, ".experts.") && strings.HasSuffix(x.Name, ".weight_packed") {
			few++
		}
	}
	require.Positive(t, few)
	require.Contains(t, do(2, append(base, "plan.ep=1", "plan.etp=2", "train.qat_group=0")...),
		"plan.etp = 2 cuts within groups")
}
