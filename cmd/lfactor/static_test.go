package main

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withoutC is a call of go on the program without tags and without cgo.
func withoutC(t *testing.T, args ...string) string {
	t.Helper()
	c := exec.Command("go", append(args, ".")...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	require.NoError(t, err, "%s", errs.String())
	return string(out)
}

// TestStaticProgram: without tags and without cgo the program needs no library of the system, whatever devices other
// builds have. Of Go code without C, what makes a program ask for libraries is a directive that imports names of
// theirs; no file has one. With -long the program is linked, which compiles most of it once more, and looked at.
func TestStaticProgram(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("skipped: what a program needs is read from ELF files, which Linux has")
	}
	files := withoutC(t, "list", "-deps", "-f",
		`{{$d := .Dir}}{{range .GoFiles}}{{$d}}/{{.}}{{"\n"}}{{end}}`)
	all := strings.Fields(files)
	require.Greater(t, len(all), 1000)
	for _, f := range all {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.False(t, bytes.Contains(text, []byte("\n//go:cgo_import_dynamic ")),
			"%s wants a library of the system", f)
	}
	if !*long {
		t.Log("the program itself is not linked and looked at: add -long")
		return
	}
	path := filepath.Join(t.TempDir(), "lfactor")
	withoutC(t, "build", "-o", path)
	f, err := elf.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for _, p := range f.Progs {
		require.NotEqual(t, elf.PT_INTERP, p.Type, "the program wants a loader")
		require.NotEqual(t, elf.PT_DYNAMIC, p.Type, "the program has a dynamic section")
	}
}
