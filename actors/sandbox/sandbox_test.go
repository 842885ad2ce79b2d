package sandbox

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// run runs a script in a sandbox, and gives what it said.
func run(t *testing.T, l Limits, within time.Duration, script string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := Command(ctx, l, "sh", "-c", script)
	require.NoError(t, err)
	var out bytes.Buffer
	c.Stdout, c.Stderr, c.Stdin = &out, &out, strings.NewReader("seen")
	err = c.Run()
	return out.String(), err
}

// TestSandbox: a program reads its input and the machine's files, and writes in an empty folder that is gone behind it;
// it writes to no other file, reaches no network and no process, has no privileges, and ends within its bounds.
func TestSandbox(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // the machine's matter, said at the start of a run
	}
	out, err := run(t, Limits{}, time.Minute,
		"cat; pwd; ls -A; echo x > f && cat f; wc -l < /etc/passwd > n; id -u")
	require.NoError(t, err, out)
	user := "0"
	if drops(Limits{}) {
		user = "1"
	}
	require.Equal(t, "seen/tmp\nx\n"+user+"\n", out)

	file := filepath.Join(t.TempDir(), "mine")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o666))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close() //nolint:errcheck // nobody comes
	for script, what := range map[string]string{
		"echo x > /etc/lfactor-sandbox-test":                          "writes elsewhere",
		"echo x > " + file:                                            "writes where /tmp was",
		"mount -o remount,rw / && echo x > /etc/lfactor-sandbox-test": "makes files writable",
		"head -c 200000000 /dev/zero > big":                           "writes much",
	} {
		out, err := run(t, Limits{}, time.Minute, script)
		require.Error(t, err, "%s: %s", what, out)
	}
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "mine", string(b))
	require.NoFileExists(t, "/etc/lfactor-sandbox-test")
	out, err = run(t, Limits{}, time.Minute,
		"cat /proc/self/status /proc/net/dev; kill -9 "+"1; kill -9 2; echo still")
	require.NotRegexp(t, `eth0|CapEff:\s*0*[1-9a-f]`, out)
	_ = err // it may have killed itself

	began := time.Now()
	_, err = run(t, Limits{}, 300*time.Millisecond, "sleep 600 & sleep 600 & wait")
	require.Error(t, err)
	require.Less(t, time.Since(began), time.Minute, "what it began would take longer")
	_, err = Command(context.Background(), Limits{}, "no-such-program")
	require.Error(t, err)
	_, err = Command(context.Background(), Limits{})
	require.Error(t, err)
}

// TestBounds: memory, processes and the network of a program in Python, which judges are mostly written in.
func TestBounds(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // likewise
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	python := func(code string) (string, error) {
		return run(t, Limits{Memory: 256 << 20}, time.Minute, "python3 -c '"+code+"'")
	}
	out, err := python("print(len(bytes(50_000_000)))")
	require.NoError(t, err, out)
	out, err = python("bytes(500_000_000)")
	require.ErrorContains(t, err, "exit status 1", out)
	require.Contains(t, out, "MemoryError")
	out, err = python("import socket; socket.create_connection((\"127.0.0.1\", 80), 2)")
	require.Error(t, err)
	require.Contains(t, out, "unreachable")
	if os.Getuid() == 0 {
		return // the kernel bounds no processes of root
	}
	out, err = python("import os, time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(9)\nexcept OSError: print(\"enough\")")
	require.Contains(t, out, "enough", "%v", err)
}

// TestHidden: sockets and devices of the host are out of reach, and the kernel refuses calls that an attack needs;
// a program that begins in the caller's folder sees it, and files below /tmp that it is told of, read-only.
func TestHidden(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // likewise
	}
	out, err := run(t, Limits{}, time.Minute, "echo $(ls /dev); ls -A /run; head -c 2 /dev/zero | wc -c; "+
		"echo x > /dev/null && head -c 1 /dev/urandom | wc -c; true > /dev/x || echo no; true > /run/x || echo no; "+
		"echo x > /proc/sys/kernel/core_pattern || echo no; unshare -U true || echo no; echo x > /dev/shm/x && echo yes")
	require.NoError(t, err, out)
	require.Regexp(t, `^fd full null random shm stderr stdin stdout urandom zero\n2\n1\n(.*\n)+yes\n$`, out)
	require.Equal(t, 4, strings.Count(out, "no\n"), out)

	dir := t.TempDir()
	t.Chdir(dir)
	require.NoError(t, os.WriteFile("script", []byte("pwd; cat \"$1\"; echo x > f || echo no; echo x > \"$TMPDIR/f\"; "+
		"ls \"$2\""), 0o600))
	other := filepath.Join(t.TempDir(), "other")
	require.NoError(t, os.WriteFile(other, []byte("told\n"), 0o600))
	hidden := filepath.Join(t.TempDir(), "hidden")
	require.NoError(t, os.WriteFile(hidden, []byte("x\n"), 0o600))
	c, err := Command(t.Context(), Limits{Here: true}, "sh", "script", other, filepath.Dir(hidden)+"/hid*")
	require.NoError(t, err)
	var said bytes.Buffer
	c.Stdout = &said
	require.Error(t, c.Run())
	require.Equal(t, dir+"\ntold\nno\n", said.String())
	require.NoFileExists(t, "f")

	var own *Error
	c, err = Command(t.Context(), Limits{Here: true}, other) // which is no program
	if err == nil {
		err = c.Run()
		require.ErrorAs(t, err, &own)
	}
	require.NoError(t, os.WriteFile("bad", []byte("no program"), 0o700))
	c, err = Command(t.Context(), Limits{Here: true}, "./bad")
	require.NoError(t, err)
	require.ErrorAs(t, c.Run(), &own)
	require.Contains(t, own.Why, "./bad")
	c, err = Command(t.Context(), Limits{}, "sh", "-c", "echo sandbox: x >&2; exit 125")
	require.NoError(t, err)
	require.NotErrorAs(t, c.Run(), &own)
}

// TestSockets: no Unix socket is made, whatever files there are, and pairs are.
func TestSockets(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err) // likewise
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	out, err := run(t, Limits{}, time.Minute, `python3 -c '
import socket, os, ctypes
socket.socketpair()
for f in (socket.AF_UNIX, 40, 38):
    try: socket.socket(f, socket.SOCK_STREAM)
    except PermissionError: print("refused")
print(ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0), ctypes.get_errno())'`)
	require.NoError(t, err, out)
	require.Equal(t, "refused\nrefused\nrefused\n-1 1\n", out)
}
