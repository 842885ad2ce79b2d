package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// output runs a command in a directory and returns what it printed.
func output(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s %s: %s", name, strings.Join(args, " "), out)
	return strings.TrimSpace(string(out))
}

// TestGoInstall serves the checked-out commit as a module from a folder, as a proxy would, and installs
// lfactor from there with an empty module cache; only other modules come from this machine's cache.
func TestGoInstall(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("left out without -long: go install of the commit from a module zip, which compiles " +
			"everything once more")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	commit := output(t, root, nil, "git", "rev-parse", "HEAD")
	if dirty := output(t, root, nil, "git", "status", "--porcelain"); dirty != "" {
		t.Logf("the commit is installed without these changes:\n%s", dirty)
	}
	v := module.Version{Path: "github.com/lfactor/lfactor",
		Version: module.PseudoVersion("", "", time.Unix(0, 0).UTC(), commit[:12])}
	proxy, cache, bin := t.TempDir(), t.TempDir(), t.TempDir()
	at := filepath.Join(proxy, v.Path, "@v")
	require.NoError(t, os.MkdirAll(at, 0o755))
	f, err := os.Create(filepath.Join(at, v.Version+".zip"))
	require.NoError(t, err)
	clone := filepath.Join(t.TempDir(), "clone")
	output(t, root, nil, "git", "clone", "--quiet", root, clone)
	require.NoError(t, zip.CreateFromVCS(f, v, clone, commit, ""))
	require.NoError(t, f.Close())
	for name, text := range map[string]string{"list": v.Version, v.Version +
		".info": fmt.Sprintf(`{"Version": %q}`, v.Version), v.Version +
		".mod": output(t, root, nil, "git", "show", commit+":go.mod") + "\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
	}
	others := filepath.Join(output(t, root, nil, "go", "env", "GOMODCACHE"), "cache", "download")
	env := []string{"GOPROXY=file://" + proxy + ",file://" + others, "GOSUMDB=off", "GOFLAGS=-modcacherw",
		"GOMODCACHE=" + cache, "GOBIN=" + bin}
	output(t, t.TempDir(), env, "go", "install", v.Path+"/cmd/lfactor@"+v.Version)
	require.Contains(t, output(t, t.TempDir(), nil, filepath.Join(bin, "lfactor"), "version"), v.Version)
	require.Contains(t, output(t, t.TempDir(), nil, filepath.Join(bin, "lfactor"), "config", "models"),
		"llama/3.2-1b")
}

// TestModTidy: go.mod and go.sum list what the code needs.
func TestModTidy(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("left out without -long: go mod tidy -diff, which reads modules that only other modules' " +
			"tests need")
	}
	require.Empty(t, output(t, "../..", nil, "go", "mod", "tidy", "-diff"))
}
