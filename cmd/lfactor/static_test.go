package main

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStaticProgram: without tags and without cgo the program needs no library of the system, whatever
// devices other builds have.
func TestStaticProgram(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: what a program needs is read from ELF files, which Linux has")
	}
	path := filepath.Join(t.TempDir(), "lfactor")
	c := exec.Command("go", "build", "-o", path, ".")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "the program wants a loader")
		require.NotEqual(t, elf.PT_DYNAMIC, p.Type, "the program has a dynamic section")
	}
}
