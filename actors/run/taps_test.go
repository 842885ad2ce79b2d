package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestTaps: taps of a depthwise convolution are no matrix, whose shape elsewhere is [channels 1 taps]: Muon leaves them
// to AdamW, and Adafactor keeps a number for each, which is what transformers' makes of that shape.
func TestTaps(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "hybrid.yaml")
	require.NoError(t, os.WriteFile(file, []byte(gapModels["hybrid"]+"vocab_size: 8\neos_token_id: 1\n"), 0o600))
	writePairs(t, dir, false)
	for kind, rest := range map[string]string{"muon": "adamw", "adafactor": "adafactor of numbers"} {
		cfg, err := configs.Load(configs.Request{Args: []string{"model.file=" + file, "data.tokenizer=" + dir,
			"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.seq_len=32", "objective.kind=dpo",
			"optimizer.kind=" + kind, "log.dir=" + filepath.Join(dir, kind)}})
		require.NoError(t, err)
		r, err := Open(cfg)
		require.NoError(t, err)
		taps := 0
		for _, p := range r.job.Model.Params(nil) {
			switch name := r.job.Optimizer(p).Name; {
			case strings.HasSuffix(p.Name, "_conv.weight"):
				taps++
				require.Equal(t, rest, name, p.Name)
			case strings.HasSuffix(p.Name, "o_proj.weight"):
				require.Equal(t, kind, name, p.Name)
			}
		}
		require.Equal(t, 3, taps)
		r.Close()
	}
}
