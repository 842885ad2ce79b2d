package trained

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConv1DInFewBits: GPT-2's layers are [in out], which no reader of a form that is written takes; each form says why.
func TestConv1DInFewBits(t *testing.T) {
	for form, why := range map[string]string{"int8": "compressed-tensors", "int4": "compressed-tensors", "nvfp4": "compressed-tensors",
		"fp8": "FP8Linear", "gptq": "calibrated", "awq": "calibrated"} {
		f := Form{Quantize: form}
		if why == "calibrated" {
			f.Calibration = &Calibration{}
		}
		dst := filepath.Join(t.TempDir(), "out")
		err := Rewrite("../family/testdata/gpt2", "", dst, f)
		require.ErrorContains(t, err, "Conv1D", form)
		require.ErrorContains(t, err, why, form)
		require.NoFileExists(t, filepath.Join(dst, "config.json"))
	}
}
