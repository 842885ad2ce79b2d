//go:build cuda

package cuda

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cuda/emulate"
)

// envHeaders names a folder with the headers of CUDA 12.9, as the wheels nvidia-cuda-runtime-cu12 12.9.79
// and nvidia-cuda-nvcc-cu12 12.9.86 have them.
const envHeaders = "LFACTOR_CUDA12"

// TestGorgonia runs the tests of the binding by gorgonia.org/cu on the emulated driver: memory, modules,
// launches, streams and events. It is linked with a driver that does nothing and has every function.
func TestGorgonia(t *testing.T) {
	root := os.Getenv(envHeaders)
	compiler, err := exec.LookPath("gcc")
	if root == "" || err != nil {
		t.Skipf("skipped: the binding by gorgonia.org/cu wants gcc, and in %s a folder into which the "+
			"wheels "+
			"nvidia-cuda-runtime-cu12==12.9.79 and nvidia-cuda-nvcc-cu12==12.9.86 are unpacked", envHeaders)
	}
	e := emulate.New(t)
	dir := t.TempDir()
	source, library := filepath.Join(dir, "driver.c"), filepath.Join(dir, "libcuda.so")
	require.NoError(t, os.WriteFile(source, []byte(emptyDriverText(t)), 0o600))
	said, err := exec.Command(compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so", source, "-o",
		library).CombinedOutput()
	require.NoError(t, err, "%s", said)
	include := func(part string) string { return "-I" + filepath.Join(root, "nvidia", part, "include") }
	c := exec.Command("go", "test", "-count=1", "-tags", "cu cuda", ".")
	c.Dir = "gorgonia"
	c.Env = append(os.Environ(), "CGO_ENABLED=1",
		"CGO_CFLAGS="+strings.Join([]string{include("cuda_runtime"), include("cuda_nvcc")}, " "),
		"CGO_LDFLAGS=-L"+dir+" -Wl,-z,lazy", "LD_LIBRARY_PATH="+filepath.Dir(e.Path),
		fmt.Sprintf("%s=%s", LibraryVariable, e.Path))
	said, err = c.CombinedOutput()
	require.NoError(t, err, "%s", said)
}
