package cluster_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClusterUsers: a user that `cluster user add` has made looks from a folder of its own, starts nothing, and is
// refused when it is revoked.
func TestClusterUsers(t *testing.T) {
	dir := t.TempDir()
	env := clusterHome(t, dir, "users")
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "1", "--name", "users")
	require.Zero(t, code, out)
	home := filepath.Join(dir, "hers")
	code, out = runIn(t, dir, env, "cluster", "user", "add", "vera", filepath.Join(home, "clusters",
		"users"),
		"--cluster", "users")
	require.Zero(t, code, out)
	require.Contains(t, out, "user vera may view until")
	hers := []string{"LFACTOR_HOME=" + home}
	code, out = runIn(t, dir, hers, "cluster", "status", "users")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, hers, "cluster", "drain", "h1", "--cluster", "users")
	require.NotZero(t, code, out)
	require.Contains(t, out, "vera has the role view")
	code, out = runIn(t, dir, env, "cluster", "user", "list", "--cluster", "users")
	require.Zero(t, code, out)
	require.Regexp(t, `vera  view  until \d{4}-\d\d-\d\d`, out)
	code, out = runIn(t, dir, env, "cluster", "user", "add", "bob", home, "--cluster", "users")
	require.Equal(t, 2, code, out)
	code, out = runIn(t, dir, env, "cluster", "user", "revoke", "vera", "--cluster", "users")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, hers, "cluster", "status", "users")
	require.NotZero(t, code, out)
}
