package cluster_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
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

// TestClusterSubmitter: a submitter's run in the directory that it was given has the losses of any other, and
// one that names a file beside it, a program, or a directory of nobody's is refused or fails.
func TestClusterSubmitter(t *testing.T) {
	if err := machine.Confines(); err != nil {
		t.Skip(err)
	}
	dir := tinyRun(t)
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) { // another user of the system comes there
		require.NoError(t, os.Chmod(d, 0o755))
	}
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4")
	require.Zero(t, code, out)
	alone := metrics(t, dir)
	require.NoError(t, errors.Join(os.RemoveAll(filepath.Join(dir, "run")), os.RemoveAll(filepath.Join(dir, "ckpt"))))
	require.NoError(t, exec.Command("chmod", "-R", "a+rwX", dir).Run())
	base, err := os.MkdirTemp("", "submitter")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	secret := filepath.Join(base, "secret.jsonl")
	require.NoError(t, os.WriteFile(secret, []byte(`{"text": "SECRET"}`), 0o600))
	env := clusterHome(t, base, "users")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "users")
	require.Zero(t, code, out)
	home := filepath.Join(base, "mias")
	code, out = runIn(t, dir, env, "cluster", "user", "add", "mia", filepath.Join(home, "clusters", "users"), "--cluster", "users",
		"--role", "submit", "--dirs", dir)
	require.Zero(t, code, out)
	hers := []string{"LFACTOR_HOME=" + home}
	code, out = runIn(t, dir, hers, "train", "run.yaml", "--cluster", "users", "train.steps=4")
	require.Zero(t, code, out)
	same(t, alone, metrics(t, dir))
	if os.Geteuid() == 0 {
		i, err := os.Stat(filepath.Join(dir, "run", "metrics.jsonl"))
		require.NoError(t, err)
		require.NotZero(t, i.Sys().(*syscall.Stat_t).Uid, "it runs as a user of its own")
	}
	for _, words := range [][]string{{"data.paths=[" + secret + "]"}, {"log.dir=" + base}, {"checkpoint.dir=/etc/x"}} {
		code, out = runIn(t, dir, hers, append([]string{"train", "run.yaml", "--cluster", "users"}, words...)...)
		require.NotZero(t, code, "%v: %s", words, out)
		require.NotContains(t, out, "SECRET")
	}
	code, out = runIn(t, base, hers, "ps", "--cluster", "users", "-o", "json")
	require.Zero(t, code, out)
	require.Contains(t, out, `"user":"mia"`)
	text, err := os.ReadFile(filepath.Join(base, "home", "clusters", "users", "head", "audit.jsonl"))
	require.NoError(t, err)
	require.Contains(t, string(text), `"name":"mia","role":"submit"`)
}
