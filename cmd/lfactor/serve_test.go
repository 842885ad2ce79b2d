package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
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

// TestServeFollows: a server of a run that trains answers with its newer checkpoints as they are saved, and says so; only
// a run can be followed.
func TestServeFollows(t *testing.T) {
	t.Parallel()
	dir := clitest.TinyRun(t)
	code, out, errs := streams(t, dir, "", "train", "run.yaml", "train.steps=2")
	require.Equal(t, 0, code, out+errs)
	c := exec.Command(built(t), "serve", "ckpt", "--port", "0", "-o", "json", "--follow")
	c.Dir = dir
	said, err := c.StderrPipe()
	require.NoError(t, err)
	stdout, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer c.Process.Kill() //nolint:errcheck // it has ended
	var at struct{ Model, URL string }
	require.NoError(t, json.NewDecoder(stdout).Decode(&at))
	code, out, errs = streams(t, dir, "", "train", "run.yaml", "train.steps=4")
	require.Equal(t, 0, code, out+errs)
	lines := bufio.NewScanner(said)
	for lines.Scan() && !strings.Contains(lines.Text(), "answers begin with ckpt/step-") {
	}
	require.Regexp(t, `step-0*4$`, lines.Text())
	r, err := http.Get(strings.TrimSuffix(at.URL, "/v1") + "/metrics")
	require.NoError(t, err)
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Contains(t, string(b), "\nlfactor_weights_replaced_total 1\n")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	require.NoError(t, c.Wait())

	model, err := filepath.Abs("../../actors/run/testdata/preference/policy")
	require.NoError(t, err)
	for flags, want := range map[string]string{"--follow": "--follow wants the checkpoints of a run", "--follow --train": "--follow goes without --train",
		"--queue-tokens 0": "--queue-tokens", "--keys nowhere": `"--keys" flag: nowhere: no such file`} {
		code, _, errs = streams(t, dir, "", append([]string{"serve", model, "--port", "0"}, strings.Fields(flags)...)...)
		require.Equal(t, 2, code, flags)
		require.Contains(t, errs, want)
	}
}
