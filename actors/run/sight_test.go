package run

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// seenIn reads the numbers that a rank wrote down of a step.
func seenIn(t *testing.T, dir string, rank string) map[string][]float32 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "rank-0000"+rank+".safetensors"))
	require.NoError(t, err)
	n := int(uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16)
	var head map[string]struct {
		Dtype string
		Shape []int
		Data  [2]int `json:"data_offsets"`
	}
	require.NoError(t, json.Unmarshal(text[8:8+n], &head))
	out := map[string][]float32{}
	for name, x := range head {
		if name == "__metadata__" {
			continue
		}
		d, err := tensor.ParseDType(strings.ToLower(x.Dtype))
		require.NoError(t, err)
		v := make([]float32, (x.Data[1]-x.Data[0])/d.Size())
		tensor.Widen(d, text[8+n+x.Data[0]:8+n+x.Data[1]], v)
		out[name] = v
	}
	return out
}

// TestSeenTensors: what is written down of a step is what its arithmetic is made of: outputs of a layer are
// its inputs times its weights, and the weights' gradient is that of its outputs times its inputs, over all
// microbatches; under a plan each rank has its part. Steps and microbatches that are not named write
// nothing, and a run's losses are those without.
func TestSeenTensors(t *testing.T) {
	t.Parallel()
	docs, _ := poisoned()
	const module = "model.layers.1.mlp.down_proj"
	args := []string{"train.steps=4", "log.tensors=['" + module + ".*','*.norm.weight']",
		"log.tensor_steps=[2-4/2]",
		"log.tensor_microbatches=[0,1]"}
	plain, _, said, err := spikeRun(t, docs, "train.steps=4")
	require.NoError(t, err, said)
	losses, dir, said, err := spikeRun(t, docs, args...)
	require.NoError(t, err, said)
	require.Equal(t, plain, losses)
	tensors := filepath.Join(dir, "log", TensorsName)
	require.NoFileExists(t, filepath.Join(tensors, "step-00000001", "rank-00000.safetensors"))
	require.FileExists(t, filepath.Join(tensors, "step-00000004", "rank-00000.safetensors"))
	one := seenIn(t, filepath.Join(tensors, "step-00000002"), "0")
	require.Len(t, one, 3*2+2+1)
	w, dw := one[module+".weight"], one[module+".weight_grad"]
	const out, in = 16, 32
	sum := make([]float64, out*in)
	for _, micro := range []string{"@0", "@1"} {
		x, y, dy := one[module+".input"+micro], one[module+".output"+micro], one[module+".output_grad"+micro]
		for row := range len(x) / in {
			for o := range out {
				want := 0.0
				for i := range in {
					want += float64(x[row*in+i]) * float64(w[o*in+i])
					sum[o*in+i] += float64(dy[row*out+o]) * float64(x[row*in+i])
				}
				require.InDelta(t, want, y[row*out+o], 1e-5)
			}
		}
	}
	for i, want := range sum {
		require.InDelta(t, want, dw[i], 1e-6)
	}
	text, err := os.ReadFile(filepath.Join(tensors, "rank-00000.jsonl"))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 2*len(one))
	for _, line := range lines {
		var s host.Statistics
		require.NoError(t, json.Unmarshal([]byte(line), &s))
		n := s.Zeros + s.Nonfinite
		for _, c := range s.Histogram {
			n += c
		}
		size := 1
		for _, x := range s.Shape {
			size *= x
		}
		require.Equal(t, size, n, line)
		require.True(t, s.Values && s.RMS > 0 && s.Min < s.Max, line)
	}
	_, dir, said, err = spikeRun(t, docs, append(args, "plan.tp=2", "plan.dp=2", "plan.zero=1")...)
	require.NoError(t, err, said)
	both := seenIn(t, filepath.Join(dir, "log", TensorsName, "step-00000002"), "0")
	other := seenIn(t, filepath.Join(dir, "log", TensorsName, "step-00000002"), "1")
	require.Len(t, both[module+".weight"], len(w)/4, "cut by tp, and its rows by ZeRO")
	require.Equal(t, both["model.norm.weight"], other["model.norm.weight"])
	require.NotEqual(t, both[module+".weight"], other[module+".weight"])
}

// TestSeenFaults: patterns, steps and microbatches that name nothing are refused.
func TestSeenFaults(t *testing.T) {
	t.Parallel()
	for want, more := range map[string][]string{
		`"*.nowhere" matches nothing`:    {"log.tensors=['*.nowhere']", "log.tensor_steps=[1]"},
		"log.tensor_steps names no step": {"log.tensors=['*']"},
		"log.tensors names no tensor":    {"log.tensor_steps=[1]"},
		`"5-3" ends before it begins`:    {"log.tensors=['*']", "log.tensor_steps=['5-3']"},
		`"0" is no step`:                 {"log.tensors=['*']", "log.tensor_steps=['1-5/0']"},
		"there is no microbatch -1": {"log.tensors=['*']", "log.tensor_steps=[1]",
			"log.tensor_microbatches=[-1]"},
	} {
		_, err := spikeConfig(t, t.TempDir(), nil, more...)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, want)
	}
}
