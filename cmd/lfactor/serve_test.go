package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestServe: the verb says where it listens, answers there until a signal comes, and refuses an address that
// others reach without a token. A draft model changes no answer.
func TestServe(t *testing.T) {
	t.Parallel()
	model := "../../actors/run/testdata/preference/policy"
	c := exec.Command(built(t), "serve", model, "--port", "0", "--name", "words", "-o", "json",
		"--draft", "../../actors/run/testdata/preference/reference", "--ahead", "2")
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewReader(out)
	var at struct{ Model, URL string }
	require.NoError(t, json.NewDecoder(lines).Decode(&at))
	require.Equal(t, "words", at.Model)
	r, err := http.Post(at.URL+"/completions", "application/json",
		strings.NewReader(`{"model": "words", "prompt": "w5 w6", "max_tokens": 4, "temperature": 0}`))
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 200, r.StatusCode, string(b))
	require.Contains(t, string(b), `"completion_tokens":4`)
	r, err = http.Get(strings.TrimSuffix(at.URL, "/v1") + "/metrics")
	require.NoError(t, err)
	b, err = io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Regexp(t, `lfactor_drafts_total [1-9]`, string(b))
	require.NoError(t, c.Process.Signal(os.Interrupt))
	err = c.Wait()
	require.NoError(t, err)
	code, _, errs := streams(t, t.TempDir(), "", "serve", model, "--host", "0.0.0.0")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "LFACTOR_SERVE_TOKEN")
	code, _, errs = streams(t, t.TempDir(), "", "serve", model, "--ahead", "3")
	require.Equal(t, 2, code)
	require.Contains(t, errs, "--draft")
	for flag, want := range map[string]string{"--beside=ftp://x": "--beside is the address", "--beside=http://x/v1": "--beside is the address",
		"--pairs=/nowhere/pairs.jsonl": "--pairs: /nowhere/pairs.jsonl: no such file"} {
		code, _, errs = streams(t, t.TempDir(), "", "serve", model, "--port", "0", flag)
		require.Equal(t, 2, code, flag)
		require.Contains(t, errs, want)
	}
}
