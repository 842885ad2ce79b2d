package latent

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/ref"
)

var long = flag.Bool("long", false, "run the long tier as well")

// python is one with diffusers, named by LFACTOR_PYTHON or python3; where there is none the test is skipped.
func python(t *testing.T) string {
	if !*long {
		t.Skip("autoencoders are held to diffusers itself with -long")
	}
	name := os.Getenv("LFACTOR_PYTHON")
	if name == "" {
		name = "python3"
	}
	if err := exec.Command(name, "-c", "import torch, diffusers").Run(); err != nil {
		t.Skipf("%s cannot import torch and diffusers (%v): nothing is compared", name, err)
	}
	return name
}

// script runs bench/golden/latents.py and gives what it prints.
func script(t *testing.T, python string, args ...string) []byte {
	run := exec.Command(python, append([]string{"bench/golden/latents.py"}, args...)...)
	run.Dir = "../.."
	var said strings.Builder
	run.Stderr = &said
	out, err := run.Output()
	require.NoError(t, err, said.String())
	return out
}

// TestExport: diffusers loads a folder that was written here with nothing missing or unexpected, and computes
// with it what it computed with its own.
func TestExport(t *testing.T) {
	python := python(t)
	for _, name := range goldens(t) {
		dir := t.TempDir()
		require.NoError(t, openGolden(t, name).open(ref.New()).Save(dir))
		var got struct {
			Missing, Unexpected []string
			Off                 float64
		}
		out := script(t, python, "check", dir, name)
		require.NoError(t, json.Unmarshal(out, &got), string(out))
		require.Empty(t, got.Missing, name)
		require.Empty(t, got.Unexpected, name)
		require.Less(t, got.Off, 1e-5, name)
	}
}

// TestFuzz: what diffusers builds of random settings is computed as there, with its loss and gradients, or
// refused with its reason.
func TestFuzz(t *testing.T) {
	python, dir := python(t), t.TempDir()
	t.Log(string(script(t, python, "fuzz", dir, "90")))
	cases, err := os.ReadDir(dir)
	require.NoError(t, err)
	b := cpu.New(2)
	defer b.Close()
	refused := 0
	for _, c := range cases {
		path := filepath.Join(dir, c.Name())
		_, err := ReadFile(filepath.Join(path, configName))
		var why *source.Error
		if errors.As(err, &why) {
			t.Logf("%s is refused: %v", c.Name(), err)
			refused++
			continue
		}
		require.NoError(t, err)
		g := openGoldenAt(t, path)
		g.compute(b)
		g.learn(b)
	}
	t.Logf("%d random settings computed as diffusers does, %d refused", len(cases)-refused, refused)
	require.Greater(t, len(cases), 60)
	require.Less(t, refused, len(cases)/10)
}
