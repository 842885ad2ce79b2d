package trained

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
)

// worded is a model's folder of the golden data with a tokenizer beside it.
func worded(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range []string{"config.json", "model.safetensors"} {
		b, err := os.ReadFile(filepath.Join("../../actors/host/testdata", name, file))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), b, 0o600))
	}
	vocab := map[string]int{}
	for i := range 256 {
		vocab[fmt.Sprintf("w%d", i)] = i
	}
	for file, v := range map[string]any{"tokenizer.json": map[string]any{"version": "1.0",
		"pre_tokenizer": map[string]any{"type": "Whitespace"},
		"model":         map[string]any{"type": "WordLevel", "vocab": vocab, "unk_token": "w0"}},
		"tokenizer_config.json": map[string]any{"tokenizer_class": "PreTrainedTokenizerFast",
			"eos_token": "w1"}} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), b, 0o600))
	}
	return dir
}

// TestFurtherOpened: published layers for further tokens propose drafts, with the answers and the
// log-probabilities of the model without them; a folder that has none is refused.
func TestFurtherOpened(t *testing.T) {
	for _, name := range []string{"deepseek-v3-mtp", "qwen3-next-mtp"} {
		dir := worded(t, name)
		var want []sample.Token
		for _, further := range []bool{false, true} {
			var options []Option
			if further {
				options = append(options, Further)
			}
			m, err := Open(dir, "", options...)
			require.NoError(t, err, name)
			e, done, err := m.Engine(tensor.F32, sample.EngineOptions{Further: further, Context: 60}, nil)
			require.NoError(t, err, name)
			var got []sample.Token
			for seed := range 6 {
				require.NoError(t, e.Submit(&sample.Request{Prompt: []int32{3, 4, 5, 6},
					Done:   func(sample.End) {},
					Params: sample.Params{Max: 40, Seed: uint64(seed), Temperature: float64(seed) / 4},
					Emit:   func(k sample.Token) bool { got = append(got, k); return true }}))
				for e.Busy() {
					require.NoError(t, e.Step())
				}
			}
			if x := e.Stats(); further {
				require.Equal(t, want, got, name)
				require.Positive(t, x.Drafted)
				t.Logf("%s: %d of %d drafts", name, x.Accepted, x.Drafted)
			} else {
				require.Zero(t, x.Drafted)
			}
			want = got
			done()
			m.Close()
		}
	}
	_, err := Open("../../actors/run/testdata/preference/policy", "", Further)
	require.ErrorContains(t, err, "no layer for further tokens")
}
