package cluster_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRig: hosts have names, processes and /tmp of their own, reach each other until they are cut off,
// and a host that is killed takes its processes with it.
func TestRig(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shared"), nil, 0o644))
	r := newRig(t, 2, dir)
	a, b := r.Hosts[0], r.Hosts[1]
	out, err := a.Command("sh", "-c", "hostname; ls /tmp; ls "+dir+"; ps -e 2>/dev/null | wc "+
		"-l").CombinedOutput()
	require.NoError(t, err, string(out))
	require.True(t, strings.HasPrefix(string(out), "h1\n"), string(out))
	require.Contains(t, string(out), "shared")
	probe := func() error { return a.Command("ip", "route", "get", b.Addr).Run() }
	require.NoError(t, probe())
	a.Cut(b)
	require.Error(t, probe())
	a.Heal(b)
	require.NoError(t, probe())
	sleeper := b.Command("setsid", "sleep", "1000")
	require.NoError(t, sleeper.Start())
	b.Kill()
	require.Error(t, sleeper.Wait(), "killed with its host")
	b.Boot()
	out, err = b.Command("ls", "/tmp").CombinedOutput()
	require.NoError(t, err, string(out))
}
