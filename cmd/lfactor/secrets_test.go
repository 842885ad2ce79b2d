package main

import (
	"bytes"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSecretsAreWrittenNowhere: the user, password and token of a URL among a run's data are in none of the
// files that the run leaves, nor in what it prints, and these files are for their owner alone. The run can
// go on with another password.
func TestSecretsAreWrittenNowhere(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var lines strings.Builder
	files, err := filepath.Glob(filepath.Join(dir, "text", "*.txt"))
	require.NoError(t, err)
	for range files {
		lines.WriteString(`{"text":"` + strings.Repeat("a line of text ", 20) + `"}` + "\n")
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if user != "someone" || !strings.HasPrefix(password, "hunter") ||
			r.URL.Query().Get("token") != "t0ken" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "a.jsonl", time.Time{}, strings.NewReader(lines.String()))
	}))
	defer s.Close()
	url := func(password string) string {
		return "data.paths=['" + strings.Replace(s.URL, "://", "://someone:"+password+"@", 1) +
			"/a.jsonl?token=t0ken']"
	}
	env := []string{"LFACTOR_CACHE=" + filepath.Join(dir, "cache")}
	for i, password := range []string{"hunter2", "hunter3"} {
		code, out := runIn(t, dir, env, "train", "run.yaml", "data.kind=jsonl", url(password),
			"data.split=[1,0,0]", []string{"train.steps=4", "train.steps=8"}[i])
		require.Zero(t, code, out)
		requireNoSecret(t, "output", out)
		if i == 1 {
			require.Contains(t, out, "step 4 of ", "it goes on")
		}
	}
	code, out := runIn(t, dir, env, "train", "run.yaml", "data.kind=jsonl", url("wrong"), "log.dir=refused",
		"checkpoint.dir=refused")
	require.NotZero(t, code)
	require.Contains(t, out, "check the credentials")
	requireNoSecret(t, "refusal", out)
	for _, sub := range []string{"run", "ckpt", "cache", "refused"} {
		_ = filepath.WalkDir(filepath.Join(dir, sub), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return nil
			}
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			requireNoSecret(t, path, string(b))
			info, err := d.Info()
			require.NoError(t, err)
			if bytes.Contains(b, []byte("a.jsonl")) {
				require.Zero(t, info.Mode().Perm()&0o077, path)
			}
			return nil
		})
	}
}

func requireNoSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, secret := range []string{"hunter", "someone", "t0ken", "wrong@"} {
		require.False(t, strings.Contains(text, secret), "%s holds %q", where, secret)
	}
}
