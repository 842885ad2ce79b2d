package main

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/configs/exit"
)

// stuckRun is a run under way, whose standard error is read as it comes.
type stuckRun struct {
	cmd  *exec.Cmd
	line chan string
	all  strings.Builder
}

func startRun(t *testing.T, dir string, env []string, args ...string) *stuckRun {
	t.Helper()
	r := &stuckRun{cmd: exec.Command(built(t), args...), line: make(chan string, 100_000)}
	r.cmd.Dir, r.cmd.Env = dir, append(os.Environ(), env...)
	out, err := r.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() { r.kill(t) })
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			r.line <- strings.Join(strings.Fields(s.Text()), " ")
		}
		close(r.line)
	}()
	return r
}

// kill ends the run with all its processes, which write to its folder until they are gone; they may have ended.
func (r *stuckRun) kill(t *testing.T) {
	workers := clitest.ChildrenOf(r.cmd.Process.Pid)
	_ = r.cmd.Process.Kill()
	for _, pid := range workers {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for range r.line { // until nobody has the other end of the pipe
	}
	_ = r.cmd.Wait()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(workers, func(pid int) bool {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err == nil && !strings.Contains(string(text), ") Z ")
		})
	}, 2*time.Minute, time.Millisecond)
}

// until reads lines up to one with a text in it.
func (r *stuckRun) until(t *testing.T, text string) {
	t.Helper()
	for l := range r.line {
		r.all.WriteString(l + "\n")
		if strings.Contains(l, text) {
			return
		}
	}
	require.Fail(t, "the run ended", r.all.String())
}

// end waits for the run's end and returns its exit code and last committed step.
func (r *stuckRun) end(t *testing.T) (code int, last int64) {
	t.Helper()
	for l := range r.line {
		r.all.WriteString(l + "\n")
	}
	_ = r.cmd.Wait() // its state tells
	for _, l := range strings.Split(r.all.String(), "\n") {
		_, _ = fmt.Sscanf(l, "step %d", &last)
	}
	return r.cmd.ProcessState.ExitCode(), last
}

// hangingStore serves a file, until it is told to answer nobody any more.
func hangingStore(t *testing.T, content string) (url string, hang *atomic.Bool) {
	hang, gone := new(atomic.Bool), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hang.Load() {
			<-gone
		}
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "a.jsonl", time.Time{}, strings.NewReader(content))
	}))
	t.Cleanup(func() { close(gone); s.Close() })
	return s.URL + "/a.jsonl", hang
}

// TestStopWhileDataHangs: a store that stops to answer is named by `lfactor why`, and SIGTERM, SIGINT and
// SIGHUP end the run all the same, with the state of the last committed step saved. While the data is being
// opened they end it too.
func TestStopWhileDataHangs(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	var lines strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&lines, "{\"text\":\"line %d %s\"}\n", i, strings.Repeat("some words of text ", 12))
	}
	for i, sig := range clitest.Sample(t, 1, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM,
		syscall.SIGHUP}) {
		url, hang := hangingStore(t, lines.String())
		cache, logs, ckpt := filepath.Join(dir, fmt.Sprint("cache", i)), fmt.Sprint("run", i),
			fmt.Sprint("ckpt", i)
		r := startRun(t, dir, []string{"LFACTOR_CACHE=" + cache}, "train", "run.yaml", "data.kind=jsonl",
			"data.paths=["+url+"]", "data.split=[1,0,0]",
			"train.steps=1000000", "checkpoint.interval=0", "log.dir="+logs, "checkpoint.dir="+ckpt)
		r.until(t, "step 5/")
		hang.Store(true)
		require.NoError(t, os.RemoveAll(cache))
		size, grew := int64(0), time.Now()
		for root := ""; !strings.Contains(root, "which waits for "+url+" at byte ") ||
			!regexp.MustCompile(`since [1-9]`).MatchString(root) ||
			time.Since(grew) < 2*time.Second; { // until then steps may go on, with data that was read ahead
			all, silent, err := host.AskWhy(filepath.Join(dir, logs), time.Second)
			require.NoError(t, err)
			root = host.Diagnose(all, silent...).Root
			info, err := os.Stat(filepath.Join(dir, logs, "metrics.jsonl"))
			require.NoError(t, err)
			if info.Size() != size {
				size, grew = info.Size(), time.Now()
			}
		}
		require.NoError(t, r.cmd.Process.Signal(sig))
		code, last := r.end(t)
		require.Equal(t, map[syscall.Signal]int{syscall.SIGINT: exit.Interrupted}[sig], code, r.all.String())
		require.Contains(t, tail(r.all.String()), "the step under way is left")
		b, err := os.ReadFile(filepath.Join(dir, ckpt, "latest"))
		require.NoError(t, err)
		require.Contains(t, string(b), fmt.Sprint(last), "the last committed step is saved")

		r = startRun(t, dir, []string{"LFACTOR_CACHE=" + cache}, "train", "run.yaml", "data.kind=jsonl",
			"data.paths=["+url+"]", "log.dir=open", "checkpoint.dir=open",
			"log.stall=1")
		r.until(t, "! the run has been opening for")
		require.NoError(t, r.cmd.Process.Signal(sig))
		code, _ = r.end(t)
		require.Equal(t, exit.Interrupted, code, r.all.String())
		require.Contains(t, r.all.String(), "stopped while "+url+" was being opened")
	}
}

// TestStoppedWorker: a worker process that is stopped, in a run that starts none again, is named with its
// number and state, by `lfactor why` and by the run itself when it is to end; its ranks' state cannot be
// saved, and the run says so.
func TestStoppedWorker(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	r := startRun(t, dir, nil, "train", "run.yaml", "train.steps=1000000", "checkpoint.interval=0",
		"plan.procs=2", "train.restarts=0")
	r.until(t, "step 5/")
	kids := children(t, r.cmd.Process.Pid)
	require.Len(t, kids, 1)
	require.NoError(t, syscall.Kill(kids[0], syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(kids[0], syscall.SIGKILL) })
	want := fmt.Sprintf("process 1 (pid %d) is stopped", kids[0])
	for root := ""; !strings.Contains(root, want); {
		all, silent, err := host.AskWhy(filepath.Join(dir, "run"), time.Second)
		require.NoError(t, err)
		d := host.Diagnose(all, silent...)
		for _, line := range d.Chain {
			require.NotContains(t, line, " of  ", "a blank name")
		}
		root = d.Root
	}
	require.NoError(t, r.cmd.Process.Signal(syscall.SIGTERM))
	code, _ := r.end(t)
	require.Equal(t, exit.Failed, code, r.all.String())
	require.Contains(t, r.all.String(), "could not be saved")
	require.Contains(t, r.all.String(), want)
}

// TestPipesAreNoData: a named pipe among the data, which nobody writes to, is refused at once.
func TestPipesAreNoData(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for _, name := range []string{"a.jsonl", "b.txt", "c.parquet", "d.bin", "d.idx", "e.tar"} {
		require.NoError(t, syscall.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	for kind, path := range map[string]string{"jsonl": "a.jsonl", "text": "b.txt", "parquet": "c.parquet",
		"megatron": "d", "media": "e.tar"} {
		code, out := runIn(t, dir, nil, "train", "run.yaml", "data.kind="+kind, "data.paths=["+path+"]")
		require.Equal(t, exit.Usage, code, out)
	}
}

// tail is the end of an output.
func tail(s string) string { return s[max(0, len(s)-1500):] }
