package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFormsLoaded: what is written of ten families in nine forms is loaded by transformers with nothing missing or left over, with the
// logits of the numbers as they are read here, or is refused (bench/golden/few_bits_load.py). With -long, by Python with transformers,
// compressed-tensors and gguf, named by LFACTOR_PYTHON or python3.
func TestFormsLoaded(t *testing.T) {
	if !*long {
		t.Skip("90 forms of families are loaded by transformers with -long")
	}
	python := os.Getenv("LFACTOR_PYTHON")
	if python == "" {
		python = "python3"
	}
	if err := exec.Command(python, "-c", "import transformers, compressed_tensors, gguf").Run(); err != nil {
		t.Skipf("%s cannot import transformers, compressed_tensors and gguf (%v): no form is loaded", python, err)
	}
	run := exec.Command(python, "bench/golden/few_bits_load.py", built(t), t.TempDir())
	run.Dir = "../.."
	out, err := run.Output()
	require.NoError(t, err, string(out))
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 91)
	t.Log(string(out))
}
