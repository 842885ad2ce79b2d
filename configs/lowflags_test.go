package configs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLowFlags: arguments of Megatron's about FP8 mean together what they mean there: delayed scales where
// no recipe is named, gradients in e5m2 with hybrid, and a history that only max reads.
func TestLowFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args, recipe string
		history      int
		says         string
	}{
		{"--fp8-format hybrid", "delayed", 1, ""},
		{"--fp8-format e4m3", "delayed_e4m3", 1, ""},
		{"--fp8-format e4m3 --fp8-recipe blockwise", "block_pow2", 1, ""},
		{"--fp8-recipe mxfp8 --fp8-format e4m3", "mxfp8", 1, ""},
		{"--fp8-recipe tensorwise --fp8-format hybrid", "tensor", 1, ""},
		{"--fp8-recipe tensorwise --fp8-format e4m3", "tensor_e4m3", 1, ""},
		{"--fp8-recipe tensorwise", "tensor_e4m3", 1, ""},
		{"--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max", "delayed", 1024, ""},
		{"--fp8-format hybrid --fp8-amax-history-len 1024", "delayed", 1,
			"--fp8-amax-history-len 1024: scales follow"},
		{"--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-amax-compute-algo max", "mxfp8", 1,
			"--fp8-amax-compute-algo max: the " +
				"scales of mxfp8 are of now"},
		{"--fp8-amax-history-len 1024 --fp8-amax-compute-algo max", "none", 1,
			"nothing is rounded without --fp8-format"},
		{"--qk-clip-threshold 50", "none", 1, "nothing is clipped without --qk-clip"},
		{"--fp8-format hybrid --fp8-recipe mxfp8", "", 0,
			"--fp8-recipe mxfp8 has e4m3 in all three products"},
		{"--fp8-format hybrid train.low_precision=nvfp4", "nvfp4", 1, ""},
		{"--fp8-format e5m2", "", 0, "want e4m3 or hybrid"},
		{"--fp8-format hybrid --fp8-margin 2", "", 0, "scales bring the greatest number"},
		{"--fp8-format hybrid --no-fp8-wgrad", "", 0, "train.low_precision_keep has patterns"},
	} {
		args := append(strings.Fields(c.args), "--bf16", "model.name=llama/3.2-1b", "model.init=random",
			"data.paths=["+dir+"]",
			"data.tokenizer=bytes")
		cfg, err := Load(Request{Args: args})
		if c.recipe == "" {
			require.ErrorContains(t, err, c.says, c.args)
			continue
		}
		require.NoError(t, err, c.args)
		require.Equal(t, c.recipe, cfg.Run.Train.LowPrecision, c.args)
		require.Equal(t, c.history, cfg.Run.Train.AmaxHistory, c.args)
		require.Contains(t, strings.Join(cfg.Notices, "\n"), c.says, c.args)
	}
}
