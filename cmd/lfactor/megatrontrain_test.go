package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGoesOnFromMegatron: what Megatron's own library has trained and saved with its optimizer, in each of
// its forms, is converted, and goes on here: the losses of the next steps are those that Megatron had
// (bench/golden/megatron_train.py). What comes of it goes back to Megatron with its moments, and gives the
// same checkpoint again.
func TestGoesOnFromMegatron(t *testing.T) {
	t.Parallel()
	for kind, forms := range map[string][]string{"dense": {"buckets", "ranks", "model", "reshard"},
		"experts": {"ranks", "model"}} {
		golden, err := filepath.Abs(filepath.Join("..", "..", "stages", "checkpoint", "torch", "testdata",
			"megatron-train-"+kind))
		require.NoError(t, err)
		var facts struct {
			IDs    []int32 `json:"ids"`
			Losses []float64
		}
		text, err := os.ReadFile(filepath.Join(golden, "facts.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &facts))
		dir := t.TempDir()
		var first string
		for i, form := range forms {
			do := func(want int, args ...string) string {
				t.Helper()
				code, out := runIn(t, dir, nil, args...)
				require.Equal(t, want, code, out)
				return out
			}
			do(0, "ckpt", "convert", filepath.Join(golden, form), form, "--to", "lfactor", "--like", golden)
			if first == "" {
				first = form
			}
			require.Contains(t, do(0, "ckpt", "diff", first, form), "equal")
			if i > 0 {
				continue
			}
			require.NoError(t, os.CopyFS(filepath.Join(dir, "run"), os.DirFS(filepath.Join(dir, form))))
			require.NoError(t, writeIndexed(filepath.Join(dir, "data"), append(slices.Repeat(facts.IDs[:12],
				8), facts.IDs[0])))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(goesOn), 0o600))
			do(0, "train", "run.yaml", "model.path="+filepath.Join(dir, form, "model"), "checkpoint.dir=run",
				"train.steps=6")
			text, err := os.ReadFile(filepath.Join(dir, "runs", "metrics.jsonl"))
			require.NoError(t, err)
			var losses []float64
			for line := range strings.Lines(string(text)) {
				var step struct{ Loss float64 }
				require.NoError(t, json.Unmarshal([]byte(line), &step))
				losses = append(losses, step.Loss)
			}
			require.InDeltaSlice(t, facts.Losses[3:], losses, 1e-5, "%s %s", kind, form)
			do(0, "ckpt", "convert", "run", "back", "--to", "megatron")
			require.FileExists(t, filepath.Join(dir, "back", "iter_0000006", "common.pt"))
			do(0, "ckpt", "convert", "back", "again", "--to", "lfactor", "--like", golden)
			require.Contains(t, do(0, "ckpt", "diff", "run", "again"), "equal")
			do(0, "ckpt", "convert", "back", "bare", "--to", "lfactor", "--like", golden, "--no-optimizer")
			do(0, "train", "run.yaml", "model.path="+filepath.Join(dir, form, "model"),
				"checkpoint.dir=bare", "train.steps=1",
				"log.dir=bareruns")
		}
	}
}

// goesOn is a run with the settings of bench/golden/megatron_train.py.
const goesOn = `
model: {init: random}
data: {paths: [data], kind: megatron, seq_len: 12, shuffle: false}
train: {global_batch: 1, micro_batch: 1, precision: fp32, log_interval: 1}
optimizer: {lr: 0.01, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, clip_grad: 0}
schedule: {kind: constant, warmup_steps: 0}
log: {dir: runs}
plan: {procs: 1}
`

// writeIndexed writes one sequence as Megatron's .bin and .idx.
func writeIndexed(prefix string, ids []int32) error {
	le := binary.LittleEndian
	bin, idx := []byte{}, le.AppendUint64([]byte("MMIDIDX\x00\x00"), 1)
	for _, id := range ids {
		bin = le.AppendUint32(bin, uint32(id))
	}
	idx = le.AppendUint64(le.AppendUint64(append(idx, 4), 1), 2)
	idx = le.AppendUint64(le.AppendUint32(idx, uint32(len(ids))), 0)
	idx = le.AppendUint64(le.AppendUint64(idx, 0), 1)
	return errors.Join(os.WriteFile(prefix+".bin", bin, 0o600), os.WriteFile(prefix+".idx", idx, 0o600))
}

// TestDeepSpeed: files of DeepSpeed are converted with what its optimizer keeps, verified, and compared.
func TestDeepSpeed(t *testing.T) {
	t.Parallel()
	golden, err := filepath.Abs(filepath.Join("..", "..", "stages", "checkpoint", "torch", "testdata"))
	require.NoError(t, err)
	like, dir := filepath.Join(golden, "deepspeed-hf"), t.TempDir()
	do := func(want int, args ...string) string {
		t.Helper()
		code, out := runIn(t, dir, nil, args...)
		require.Equal(t, want, code, out)
		return out
	}
	for _, form := range []string{"zero2", "universal"} {
		src := filepath.Join(golden, "deepspeed-"+form)
		require.Contains(t, do(0, "ckpt", "verify", src), "✓")
		require.Contains(t, do(0, "ckpt", "convert", src, form, "--to", "lfactor", "--like", like),
			"differ by at most 0 ")
		require.Contains(t, do(0, "ckpt", "convert", src, form+"-hf", "--like", like),
			"differ by at most 0 ")
		require.Contains(t, do(0, "ckpt", "diff", form+"-hf", src), "equal")
		require.DirExists(t, filepath.Join(dir, form, "step-00000002"))
	}
	require.Contains(t, do(0, "ckpt", "diff", "zero2", "universal"), "equal")
}
