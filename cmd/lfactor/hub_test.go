package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHub: a repository is fetched from a hub into the cache, by a verb and by a run that names it; what the
// cache has is not asked for, and offline nothing is.
func TestHub(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	trained(t, dir)
	code, out := runIn(t, dir, nil, "ckpt", "convert", "ckpt", "hf")
	require.Zero(t, code, out)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	entries, err := os.ReadDir(filepath.Join(dir, "hf"))
	require.NoError(t, err)
	var files []map[string]any
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, "hf", e.Name()))
		require.NoError(t, err)
		files = append(files, map[string]any{"rfilename": e.Name(), "blobId": commit, "lfs": map[string]any{
			"sha256": fmt.Sprintf("%x", sha256.Sum256(b)), "size": len(b)}})
	}
	asked := 0
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if strings.HasPrefix(r.URL.Path, "/api/models/an/model/revision/main") {
			_ = json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": files}) // who asked sees it
			return
		}
		http.ServeFile(w, r, filepath.Join(dir, "hf", filepath.Base(r.URL.Path)))
	}))
	defer hub.Close()
	env := []string{"HF_ENDPOINT=" + hub.URL, "HF_HOME=" + filepath.Join(dir, "home")}
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "data:")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "from.yaml"),
		[]byte("model: {path: 'hf://an/model'}\ndata:"+rest), 0o644))
	train := []string{"train", "from.yaml", "-q", "train.steps=1", "checkpoint.dir=from", "log.dir=from-run"}
	code, out = runIn(t, dir, append(env, "HF_HUB_OFFLINE=1"), train...)
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "HF_HUB_OFFLINE")
	require.Zero(t, asked)
	code, out = runIn(t, dir, env, train...)
	require.Zero(t, code, out)
	require.Greater(t, asked, 2)
	n := asked
	code, out = runIn(t, dir, append(env, "HF_HUB_OFFLINE=1"), append(train, "checkpoint.dir=again")...)
	require.Zero(t, code, out)
	require.Equal(t, n, asked)
	code, out = runIn(t, dir, env, "hub", "get", "an/model")
	require.Zero(t, code, out)
	require.Contains(t, out, filepath.Join("models--an--model", "snapshots", commit))
	code, out = runIn(t, dir, env, "hub", "get", "an/other")
	require.NotZero(t, code, out)
	code, out = runIn(t, dir, env, "hub", "get", "other")
	require.Equal(t, 2, code, out)
}
