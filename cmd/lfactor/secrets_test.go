package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretsUnwritten: a run reads data with a password that its file refers to; the password is in no file that
// the run leaves, and in nothing that commands say, also where the store refuses it.
func TestSecretsUnwritten(t *testing.T) {
	t.Parallel()
	const password = "sesame-4711"
	dir := tinyRun(t)
	files := http.FileServer(http.Dir(filepath.Join(dir, "text")))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, sent, _ := r.BasicAuth(); sent != password {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		files.ServeHTTP(w, r)
	}))
	defer s.Close()
	all, err := filepath.Glob(filepath.Join(dir, "text", "*.txt"))
	require.NoError(t, err)
	var lines []byte
	for _, f := range all {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		line, err := json.Marshal(map[string]string{"text": string(text)})
		require.NoError(t, err)
		lines = append(append(lines, line...), '\n')
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text", "all.jsonl"), lines, 0o600))
	path := `"http://ann:${env:STORE_PASSWORD}@` + strings.TrimPrefix(s.URL, "http://") + `/all.jsonl"`
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("kind: text, paths: [text]"), []byte("paths: ["+path+"]"), 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), text, 0o600))
	env := []string{"STORE_PASSWORD=" + password, "LFACTOR_CACHE=" + filepath.Join(dir, "cache")}
	said := ""
	for want, args := range map[string][]string{
		"saved step 4: durable": {"train", "run.yaml", "train.steps=4", "plan.procs=2"},
		"data.paths":            {"config", "explain", "data.paths", "run.yaml"},
	} {
		code, out := runIn(t, dir, env, args...)
		require.Zero(t, code, out)
		require.Contains(t, out, want)
		said += out
	}
	code, out := runIn(t, dir, []string{"STORE_PASSWORD=wrong-0815", env[1] + "2"}, "train", "run.yaml", "log.dir=run2",
		"checkpoint.dir=ckpt2")
	require.NotZero(t, code, out)
	require.NotContains(t, out, "wrong-0815")
	code, out = runIn(t, dir, []string{"STORE_PASSWORD=", env[1] + "3"}, "train", "run.yaml", "log.dir=run3",
		"checkpoint.dir=ckpt3")
	require.NotZero(t, code, out)
	require.Contains(t, out, "${env:STORE_PASSWORD}: the variable is not set")
	require.NotContains(t, said, password)
	require.NoError(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		require.False(t, bytes.Contains(b, []byte(password)), name)
		return err
	}))
}
