//go:build cuda

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cuda/emulate"
)

// stubProgram stands for lfactor in a visit: one layer fails, a step has losses, which are those of no other
// step: the number of its own process (two of bash's RANDOM are the same once in 32,768).
const stubProgram = `#!/bin/bash
case "$*" in
doctor) echo "cuda: a stand-in" ;;
*"--layers 1"*) echo "no memory for a layer" >&2; exit 3 ;;
*) echo '{"losses":['"${STUB_LOSSES:-$$}"']}' ;;
esac
`

// visiting runs bench/gpu.sh on the emulated driver with this test's own program, and returns what it kept.
func visiting(t *testing.T, program string, env ...string) (summary, out string, failed bool) {
	t.Helper()
	e := emulate.New(t)
	programs := t.TempDir()
	out = t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	require.NoError(t, os.Symlink(self, filepath.Join(programs, "cuda.test")))
	if program == "" {
		require.NoError(t, os.WriteFile(filepath.Join(programs, "lfactor"), []byte(stubProgram), 0o700))
	} else {
		require.NoError(t, os.Symlink(program, filepath.Join(programs, "lfactor")))
	}
	c := exec.Command("bash", "../../bench/gpu.sh", "run", out)
	c.Env = append(append(os.Environ(), LibraryVariable+"="+e.Path, ProductsVariable+"="+e.Path,
		AttentionVariable+"=none", ExchangeVariable+"="+e.Path, "GPU_PROGRAMS="+programs), env...)
	said, err := c.CombinedOutput()
	text, readErr := os.ReadFile(filepath.Join(out, "summary.txt"))
	require.NoError(t, readErr, "%s", said)
	kept, err2 := os.ReadDir(out)
	require.NoError(t, err2)
	require.LessOrEqual(t, len(kept), 8)
	return string(text), out, err != nil
}

// TestVisit: of a visit whose third operation panics, hangs or loses the device, and of which a part fails,
// each is reported and the rest is kept; no success is told of what failed.
func TestVisit(t *testing.T) {
	quick := []string{"GPU_OPS=^(fill|cast|scale|mul|sum)$",
		"GPU_SKIP=^(libraries|lean|repeats|kernels|torch|sanitizer)$",
		"GPU_LIMIT=20s"}
	for plant, wants := range map[string]string{"panic:3": "FAILED", "lost:3": "LOST", "hang:3": "HANGS"} {
		t.Run(plant, func(t *testing.T) {
			t.Parallel()
			said, _, failed := visiting(t, "", append(quick, "GPU_PLANT="+plant)...)
			require.True(t, failed)
			require.Contains(t, said, "conformance: 4 operations passed, 1 did not\n")
			require.Regexp(t, `(?m)^visit: scale `+wants, said)
			require.Contains(t, said, "== layer: FAILED: exit code 3")
			require.Contains(t, said, "no memory for a layer")
			require.Contains(t, said, "== step: ok")
			require.Contains(t, said, "-- the losses of two runs differ")
			require.NotContains(t, said, "same to the bit")
		})
	}
	t.Run("no time", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		said, out, failed := visiting(t, "", append(quick, "GPU_PLANT=hang:1", "GPU_SECONDS=20",
			"GPU_LIMIT=1h",
			"STUB_LOSSES=1")...)
		require.True(t, failed)
		require.Less(t, time.Since(began), 4*time.Minute, "the operation would take an hour")
		require.Contains(t, said, "== conformance: FAILED: it did not end in time")
		require.Contains(t, said, "== step: NOT RUN: no time was left")
		require.Contains(t, said, "-- there are no losses of two runs to compare")
		require.FileExists(t, filepath.Join(out, "logs.tgz"))
	})
	if !*long {
		return
	}
	t.Run("whole", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "lfactor")
		c := exec.Command("go", "build", "-tags", "cuda", "-o", program, "../../cmd/lfactor")
		c.Env = append(os.Environ(), "CGO_ENABLED=0")
		made, err := c.CombinedOutput()
		require.NoError(t, err, "%s", made)
		said, _, failed := visiting(t, program,
			"GPU_STEP=--hidden 64 --intermediate 128 --vocab 200 --seq 32 --batch 1 --layers 2",
			"GPU_BENCH=^$", "GPU_SKIP=^(torch|sanitizer|kernels)$")
		require.False(t, failed, said)
		require.Contains(t, said, "the losses of two runs are the same to the bit")
		t.Log(said)
	})
}
