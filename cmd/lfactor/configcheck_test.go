package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs/exit"
)

// TestConfigCheckLoong counts the models of a tree in LoongForge's layout, and explains what differs
// from published ones.
func TestConfigCheckLoong(t *testing.T) {
	t.Parallel()
	tree, err := filepath.Abs("../../configs/testdata/loong/configs/models")
	require.NoError(t, err)
	for file, want := range map[string]struct {
		n   int64
		why string
	}{
		"qwen2.5vl/qwen2_5_vl_3b":     {3754622976, ""},
		"qwen2.5vl/qwen2_5_vl_7b":     {8292166656, ""},
		"qwen2.5vl/qwen2_5_vl_32b":    {33452718336, ""},
		"qwen2.5vl/qwen2_5_vl_72b":    {73410777344, ""},
		"internvl2.5/internvl2_5_8b":  {8075365376, ""},
		"internvl2.5/internvl2_5_26b": {25514186112, ""},
		"internvl2.5/internvl2_5_38b": {38388164992,
			"LoongForge pads the vocabulary to 151680 rows"},
		"internvl2.5/internvl2_5_78b": {78408318336,
			"LoongForge pads the vocabulary to 151680 rows"},
		"internvl3.5/internvl3_5_8b":  {8528318464, ""},
		"internvl3.5/internvl3_5_14b": {15119523840, ""},
		"internvl3.5/internvl3_5_38b": {38390405504, ""},
		"qwen3/qwen3_4b": {4411424256,
			"+388956160: the head has a weight of its own here"},
		"internlm2.5/internlm2_5_8b": {7737782272,
			"+73728: the vocabulary has 92553 rows here, 92544 as published: +9 × 4096 in embedding and head"},
		"llava_onevision/llava_onevision_1_5_4b": {4741610528, ""},
		"custom/qwen_vit_llama3_8b":              {8709433344, ""},
		"llama3/llama3_8b": {8030261248,
			"counted with the vocabulary of llama/3-8b, 128256"},
	} {
		code, out := runIn(t, t.TempDir(), nil, "config", "check", filepath.Join(tree, file+".yaml"),
			"-o", "json")
		require.Zero(t, code, out)
		var r run.ModelReport
		require.NoError(t, json.Unmarshal([]byte(out), &r), out)
		require.Equal(t, want.n, r.Parameters, file)
		require.Contains(t, strings.Join(r.Why, "\n"), want.why, file)
		var sum int64
		for _, n := range r.Components {
			sum += n
		}
		require.Equal(t, r.Parameters, sum, file)
	}
	code, out := runIn(t, t.TempDir(), nil, "config", "check",
		filepath.Join(tree, "../../../../models/qwen-vl/2.5-7b.yaml"))
	require.Zero(t, code, out)
	require.Contains(t, out, "published: the same (qwen-vl/2.5-7b, Qwen/Qwen2.5-VL-7B-Instruct)")
	code, out = runIn(t, t.TempDir(), nil, "config", "check",
		filepath.Join(tree, "qwen2.5vl/qwen2_5_vl_7b.yaml"), "model.foundation.hidden_sise=1")
	require.Equal(t, exit.Usage, code)
	require.Contains(t, out, `did you mean "hidden_size"?`)
}

// TestExplainCluster: config explain knows the keys of cluster files, one by one and by section, and says their units.
func TestExplainCluster(t *testing.T) {
	t.Parallel()
	code, out := runIn(t, t.TempDir(), nil, "config", "explain", "host.copy")
	require.Zero(t, code, out)
	require.Contains(t, out, "host.copy (of cluster files; in B/s, MB/s, Gb/s, GB/s, TB/s; default 25 GB/s)\n")
	code, out = runIn(t, t.TempDir(), nil, "config", "explain", "second")
	require.Zero(t, code, out)
	require.Contains(t, out, "second.flops")
	code, _ = runIn(t, t.TempDir(), nil, "config", "explain", "host.copies")
	require.Equal(t, exit.Usage, code)
}
