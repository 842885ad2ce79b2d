//go:build cuda

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cuda"
	"github.com/lfactor/lfactor/kernels/cuda/emulate"
)

// trainTagged trains a tiny run on two processes with a program that has devices, and returns what it said.
func trainTagged(t *testing.T, program, dir, device string, env ...string) string {
	t.Helper()
	c := exec.Command(program, "train", "run.yaml", "device="+device, "plan.procs=2", "plan.dp=1",
		"train.steps=6", "train.global_batch=4")
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

func tagged(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lfactor")
	c := exec.Command("go", "build", "-tags", "cuda", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestDeviceLostInWorker: a GPU that is lost to a worker process ends that process, which is started again;
// the run has the losses that it would have had.
func TestDeviceLostInWorker(t *testing.T) {
	t.Parallel()
	e := emulate.New(t)
	env := []string{cuda.LibraryVariable + "=" + e.Path, cuda.ProductsVariable + "=none",
		cuda.AttentionVariable + "=none", cuda.ExchangeVariable + "=" + e.Path}
	program := tagged(t)
	quiet, dir, one := tinyRun(t), tinyRun(t), tinyRun(t)
	trainTagged(t, program, quiet, "cuda", env...)
	trainTagged(t, program, one, "cuda:1", env...)
	require.Equal(t, losses(t, quiet), losses(t, one), "two processes on one device")
	once := filepath.Join(dir, "lose")
	require.NoError(t, os.WriteFile(once, nil, 0o600))
	said := trainTagged(t, program, dir, "cuda", append(env, "LFACTOR_EMULATE_LOSE="+once)...)
	require.NoFileExists(t, once, "a device was lost")
	require.Contains(t, said, "recovered after")
	require.Contains(t, said,
		"CUDA_ERROR_LAUNCH_FAILED (719): a kernel failed; the device is lost to this process")
	require.Equal(t, losses(t, quiet), losses(t, dir), said)
}

// TestPluginCrashInWorker: the same of a plug-in whose code crashes.
func TestPluginCrashInWorker(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("skipped: the plug-in is built with gcc, which is not installed")
	}
	text, err := os.ReadFile("../../kernels/xpu/plugin/reference.c")
	require.NoError(t, err)
	plant := []byte(`
  static int runs;
  if (getenv("LFACTOR_PROC") && getenv("CRASH") && ++runs == 300 && remove(getenv("CRASH")) == 0)
    *(volatile int *)8 = 1;
`)
	at := bytes.Index(text, []byte("static lfx_status run(lfx_device *d"))
	require.Positive(t, at)
	at += bytes.Index(text[at:], []byte("{\n")) + 2
	folder := t.TempDir()
	source, library := filepath.Join(folder, "crash.c"), filepath.Join(folder, "crash.so")
	whole := strings.Join([]string{"#include <stdio.h>\n#include <stdlib.h>\n", string(text[:at]),
		string(plant),
		string(text[at:])}, "")
	require.NoError(t, os.WriteFile(source, []byte(whole), 0o600))
	said, err := exec.Command(compiler, "-std=gnu11", "-O1", "-shared", "-fPIC",
		"-I../../kernels/xpu/plugin", source,
		"-o", library, "-lm", "-lpthread").CombinedOutput()
	require.NoError(t, err, "%s", said)
	program := tagged(t)
	quiet, dir := tinyRun(t), tinyRun(t)
	trainTagged(t, program, quiet, "xpu:"+library)
	once := filepath.Join(dir, "crash")
	require.NoError(t, os.WriteFile(once, nil, 0o600))
	out := trainTagged(t, program, dir, "xpu:"+library, "CRASH="+once)
	require.NoFileExists(t, once)
	require.Contains(t, out, "recovered after")
	require.Equal(t, losses(t, quiet), losses(t, dir), out)
}
