package ui

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/cmd/lfactor/dashboard"
)

// listed is what the page hears of runs.
type listed struct {
	Admin, Starts bool
	Files         []string
	Runs          []struct {
		Dir, State string
		Running    bool
		Step       int64
	}
}

// look asks until a list of runs is as it should be.
func look(t *testing.T, ask asker, what string, right func(l listed) bool) {
	t.Helper()
	var l listed
	require.Eventually(t, func() bool {
		code, text := ask("GET", "/api/runs", "", "")
		require.Equal(t, 200, code, text)
		l = listed{}
		require.NoError(t, json.Unmarshal([]byte(text), &l))
		return right(l)
	}, 2*time.Minute, 50*time.Millisecond, "%s: %+v", what, l)
}

// TestStart: whoever has the admin link of lfactor ui --start begins a run of the folder's files, stops it and has it go
// on where it stopped. Who may only look may not, nor another page, nor a file of elsewhere; without the flag nobody may,
// and what a run file lacks is said.
func TestStart(t *testing.T) {
	dir := clitest.TinyRun(t)
	text, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	long := strings.NewReplacer("steps: 24", "steps: 100000", "log: {dir: run}", "log: {dir: long}", "ckpt", "ckpt2").Replace(string(text))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long.yaml"), []byte(long), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("model: {nam: x}\n"), 0o644))
	code, out := clitest.RunIn(t, dir, nil, "ui", "--start", ".")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "--start wants --admin")
	code, out = clitest.RunIn(t, dir, nil, "train", "run.yaml", "-q", "log.dir=before", "checkpoint.dir=ck3")
	require.Zero(t, code, out)
	s := start(t, dir, false, "ui", "--admin", "--start", ".", "before")
	view := sessionOf(t, s)
	admin := sessionOf(t, s)
	if code, _ := admin("POST", "/api/start", "here", "{}"); code == 403 { // the viewer's link was given out again first
		admin = sessionOf(t, s)
	}
	for _, c := range []struct {
		ask          asker
		origin, file string
		code         int
		says         string
	}{{view, "here", "long.yaml", 403, "change nothing"}, {admin, "", "long.yaml", 403, ""}, {admin, "http://evil.example", "long.yaml",
		403, "another page"}, {admin, "here", "../run.yaml", 422, "none of the run files"}, {admin, "here", "none.yaml", 422,
		"none of the run files"}, {admin, "here", "bad.yaml", 422, "bad.yaml:1: model.nam: unknown key"}} {
		code, out := c.ask("POST", "/api/start", c.origin, `{"file": "`+c.file+`"}`)
		require.Equal(t, c.code, code, "%s %s", c.file, out)
		require.Contains(t, out, c.says)
	}
	look(t, view, "a viewer hears of no files", func(l listed) bool { return !l.Starts && l.Files == nil && len(l.Runs) == 1 })
	code, out = admin("POST", "/api/start", "here", `{"file": "long.yaml"}`)
	require.Equal(t, 200, code, out)
	step := int64(0)
	look(t, admin, "it runs", func(l listed) bool {
		require.Equal(t, []string{"bad.yaml", "long.yaml", "run.yaml"}, l.Files)
		require.Len(t, l.Runs, 2)
		return l.Runs[1].Running && l.Runs[1].Step > 2
	})
	for path, says := range map[string]string{"/api/start": "a run is under way in", "/api/runs/1/resume": "the run is under way"} {
		code, out = admin("POST", path, "here", `{"file": "long.yaml"}`)
		require.Equal(t, 422, code, out)
		require.Contains(t, out, says)
	}
	halt := func() {
		code, out = admin("POST", "/api/runs/1/stop", "here", "")
		require.Equal(t, 200, code, out)
		look(t, admin, "it stops", func(l listed) bool { step = l.Runs[1].Step; return l.Runs[1].State == "stopped" })
	}
	halt()
	before := step
	code, out = view("POST", "/api/runs/1/resume", "here", "")
	require.Equal(t, 403, code, out)
	code, out = admin("POST", "/api/runs/1/resume", "here", "")
	require.Equal(t, 200, code, out)
	look(t, admin, "it goes on", func(l listed) bool { return l.Runs[1].Running && l.Runs[1].Step > before+2 })
	halt()
	said, err := os.ReadFile(filepath.Join(dir, "long", dashboard.OutputName))
	require.NoError(t, err)
	require.Regexp(t, `from    step \d+ of ckpt2`, string(said), "it went on from its checkpoint")
	withoutStart(t, dir)
}

// withoutStart: without the flag nobody begins a run.
func withoutStart(t *testing.T, dir string) {
	t.Helper()
	s := start(t, dir, false, "ui", "--admin", "before")
	_ = sessionOf(t, s)
	admin := sessionOf(t, s)
	code, out := admin("POST", "/api/runs/0/resume", "here", "")
	if code == 403 {
		admin = sessionOf(t, s)
		code, out = admin("POST", "/api/runs/0/resume", "here", "")
	}
	require.Equal(t, 422, code, out)
	require.Contains(t, out, "--start FOLDER")
}
