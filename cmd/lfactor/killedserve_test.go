package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// teacher is a server of adapters that are trained, and its client.
type teacher struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string
	dead bool // it was killed, as a call has found
}

// newTeacher serves a small model whose adapters are saved in a folder.
func newTeacher(t *testing.T, dir string) *teacher {
	t.Helper()
	c := exec.Command(built(t), "serve", "../../actors/run/testdata/preference/policy", "--port", "0", "--name", "words", "-o",
		"json", "--train", "--rank", "4", "--adapters", "2", "--train-tokens", "64", "--adapters-dir", dir)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	x := &teacher{t: t, cmd: c}
	var at struct{ URL string }
	require.NoError(t, json.NewDecoder(out).Decode(&at))
	x.url = at.URL + "/adapters"
	return x
}

// call is the answer to a request, nil once the server is dead.
func (x *teacher) call(path, body string) (v map[string]any) {
	x.t.Helper()
	if x.dead {
		return nil
	}
	r, err := http.Post(x.url+path, "application/json", bytes.NewBufferString(body))
	if err == nil {
		defer r.Body.Close() //nolint:errcheck // it is only read
		var text []byte
		if text, err = io.ReadAll(r.Body); err == nil {
			require.Less(x.t, r.StatusCode, 300, "%s %s: %s", path, body, text)
			require.NoError(x.t, json.Unmarshal(text, &v))
		}
	}
	x.dead = err != nil
	return v
}

// TestServeTrainKilled: a server of adapters that clients train is killed at random moments, also while it saves, and
// started again each time; its client goes on from the newest save that it was told of. What it sees of every step and
// the adapter's files in the end are those of one that nobody disturbed.
func TestServeTrainKilled(t *testing.T) {
	t.Parallel()
	const steps = 12
	kills := 3
	if *long {
		kills = 12
	} else {
		t.Log("3 of 12 kills; all of them with -long")
	}
	died, behind := 0, 0 // lives that ended early, and those of them in which something had been saved
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	seen := func(dir string, kills int) (out [steps + 1][3]any) {
		rng, saved := rand.New(rand.NewPCG(59, 10)), 0
		labels := map[int]int{} // the lives of the server in which steps were saved last
		for n := 0; saved < steps; n++ {
			x := newTeacher(t, dir)
			at := saved + 1 + rng.IntN(2) // the step in which it is killed
			x.call("", `{"name": "one", "seed": 7}`)
			if saved > 0 {
				x.call("/one/load", fmt.Sprintf(`{"label": "s%d-%d", "state": true}`, saved, labels[saved]))
			}
			for step := saved + 1; step <= steps && !x.dead; step++ {
				if n < kills && step == at {
					time.AfterFunc(time.Duration(rng.IntN(5000))*time.Microsecond, func() { _ = x.cmd.Process.Kill() })
				}
				v := x.call("/one/forward_backward", fmt.Sprintf(`{"data": [{"tokens": [%d, 5, 9, 10], "targets": [5, 9, 10, %d],
					"weights": [1, 1, 0.5, 2]}]}`, 3+step, 11+step))
				w := x.call("/one/optim_step", `{"lr": 0.05, "clip": 1}`)
				if w != nil {
					now := [3]any{v["loss"], v["logprobs"], w["grad_norm"]}
					require.True(t, out[step][0] == nil || fmt.Sprint(out[step]) == fmt.Sprint(now), "step %d is taken again", step)
					out[step] = now
				}
				labels[step] = n
				if x.call("/one/save", fmt.Sprintf(`{"label": "s%d-%d", "state": true}`, step, n)) != nil {
					saved = step
				}
			}
			died, behind = died+bit(x.dead), behind+bit(x.dead && saved > 0)
			_ = x.cmd.Process.Kill() // it may have been
			_ = x.cmd.Wait()         // it was killed
		}
		return out
	}
	quiet, dir := t.TempDir(), t.TempDir()
	want := seen(quiet, 0)
	require.Equal(t, want, seen(dir, kills))
	t.Logf("%d kills, %d behind a save", died, behind)
	require.Greater(t, behind, 0)
	last := func(dir string) map[string]string {
		all, err := filepath.Glob(filepath.Join(dir, "one", fmt.Sprintf("s%d-*", steps)))
		require.NoError(t, err)
		require.Len(t, all, 1)
		return treeOf(t, all[0])
	}
	require.Equal(t, last(quiet), last(dir))
}
