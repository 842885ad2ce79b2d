package ui

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

// started is a command under way, of which lines of one stream are read.
type started struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// start runs lfactor in a directory; its stderr is read where stderr says so, and else its stdout.
func start(t *testing.T, dir string, stderr bool, args ...string) started {
	t.Helper()
	return startEnv(t, dir, nil, stderr, args...)
}

// startEnv is start with more environment.
func startEnv(t *testing.T, dir string, env []string, stderr bool, args ...string) started {
	t.Helper()
	c := exec.Command(clitest.Built(t), args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	pipe := c.StdoutPipe
	if stderr {
		pipe = c.StderrPipe
	}
	out, err := pipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // as above
	})
	return started{c, bufio.NewScanner(out)}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/login\?token=\S+`)

// link reads until a link comes.
func (s started) link(t *testing.T) string {
	t.Helper()
	for s.lines.Scan() {
		if l := address.FindString(s.lines.Text()); l != "" {
			return l
		}
	}
	require.Fail(t, "no link was printed")
	return ""
}

// TestVerb: lfactor ui prints a link, which begins one session; another is printed then. It ends with 130
// on SIGINT, and refuses what is no folder.
func TestVerb(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	s := start(t, dir, false, "ui", "a")
	link := s.link(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	base := link[:strings.Index(link, "/login")]
	for _, c := range []struct {
		url  string
		want int
	}{{base + "/", 401}, {link, 200}, {base + "/", 200}, {base + "/api/runs", 200}, {link, 401}} {
		r, err := (&http.Client{Jar: jar}).Get(c.url)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, c.want, r.StatusCode, c.url)
	}
	require.NotEqual(t, link, s.link(t), "the first was used")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, s.cmd.Wait())

	code, text := clitest.RunIn(t, dir, nil, "ui", "nothing")
	require.Equal(t, 6, code, text)
	require.Contains(t, text, "nothing: no such folder")
	code, text = clitest.RunIn(t, dir, nil, "ui", "--cluster", "nowhere", "a")
	require.Equal(t, 2, code, text)
	code, text = clitest.RunIn(t, dir, nil, "train", "run.yaml", "--ui=x")
	require.Equal(t, 2, code, text)
}

// TestTaken: a port that is taken is a wrong command line, told without the names of calls, and a run directory that is
// not there is no job of a cluster.
func TestTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	dir := t.TempDir()
	for want, args := range map[string][]string{"127.0.0.1:" + port + ": address already in use; name another with --port": {"2", "ui", "--port", port, "."},
		"invalid port": {"2", "ui", "--port", "99999", "."}, "runs/a: no run is under way here": {"6", "stop", "runs/a"},
		"none.yaml: no such file": {"2", "data", "view", "--config", "none.yaml"}} {
		code, text := clitest.RunIn(t, dir, nil, args[1:]...)
		require.Equal(t, args[0], strconv.Itoa(code), text)
		require.Contains(t, text, want)
		require.NotContains(t, text, "listen tcp")
	}
}

// TestTrainShows: train --ui shows the run while it lasts, with several processes once.
func TestTrainShows(t *testing.T) {
	dir := clitest.TinyRun(t)
	s := startEnv(t, dir, clitest.Gated(t, dir, 12), true, "train", "run.yaml", "--ui", "plan.procs=2")
	link := s.link(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	r, err := (&http.Client{Jar: jar}).Get(link)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, 200, r.StatusCode)
	clitest.Gate(t, dir, clitest.Open)
	links := 0
	for s.lines.Scan() {
		links += len(address.FindAllString(s.lines.Text(), -1))
	}
	require.Equal(t, 1, links, "the one that took the place of the first")
	require.NoError(t, s.cmd.Wait())
	require.Len(t, clitest.Metrics(t, dir), 24)
	rows(t, dir)
}

// rows: the rows of a step are a page of their own, as they were trained, behind the same login; its own script is
// all that runs in it, and it may ask the server nothing.
func rows(t *testing.T, dir string) {
	t.Helper()
	s := start(t, dir, false, "ui", "run")
	link := s.link(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	ask := func(url string) (code int, policy, text string) {
		r, err := (&http.Client{Jar: jar}).Get(url)
		require.NoError(t, err)
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, r.Header.Get("Content-Security-Policy"), string(b)
	}
	base := link[:strings.Index(link, "/login")]
	code, _, _ := ask(base + "/runs/0/rows")
	require.Equal(t, 401, code, "a stranger sees nothing")
	_, _, _ = ask(link)
	code, policy, page := ask(base + "/runs/0/rows?step=5")
	require.Equal(t, 200, code, page)
	require.Contains(t, page, "<title>step 5 of run</title>")
	require.Contains(t, page, " learnt")
	require.Equal(t, 1, strings.Count(page, "<script"))
	require.Contains(t, policy, "frame-ancestors 'none'; sandbox allow-scripts")
	require.NotContains(t, policy, "'self'")
	_, text := clitest.RunIn(t, dir, nil, "data", "blame", "run", "5", "-o", "json")
	var blamed struct{ Samples []int64 }
	require.NoError(t, json.Unmarshal([]byte(text), &blamed), text)
	for _, n := range blamed.Samples {
		require.Regexp(t, fmt.Sprintf(`sample %d\b`, n), page)
	}
	code, _, page = ask(base + "/runs/0/rows")
	require.Equal(t, 200, code, page)
	require.Contains(t, page, "<title>step 24 of run</title>", "the newest")
	for path, want := range map[string]int{"/runs/0/rows?step=99": 422, "/runs/0/rows?step=x": 422,
		"/runs/1/rows": 404,
		"/runs/x/rows": 404} {
		code, _, text := ask(base + path)
		require.Equal(t, want, code, text)
	}
	_, _, here := ask(base + "/runs/0/rows?step=5")
	rowsElsewhere(t, dir, here, ask)
}

// rowsElsewhere: one server shows runs that were started in other folders than its own, with the page that
// one has there.
func rowsElsewhere(t *testing.T, dir, here string, ask func(url string) (code int, policy, text string)) {
	t.Helper()
	whole := filepath.Join(dir, "run")
	other := t.TempDir()
	there := start(t, other, false, "ui", whole).link(t)
	_, _, _ = ask(there)
	at := there[:strings.Index(there, "/login")]
	code, _, far := ask(at + "/runs/0/rows?step=5")
	require.Equal(t, 200, code, far)
	require.Equal(t, here, strings.ReplaceAll(far, whole, "run"))
	code, _, text := ask(at + "/runs/0/rows?step=99")
	require.Equal(t, 422, code, text)
	require.Contains(t, text, "99")
	code, text = clitest.RunIn(t, other, nil, "data", "view", "--run", whole, "--step", "5", "--html",
		"5.html")
	require.Equal(t, 0, code, text)
	written, err := os.ReadFile(filepath.Join(other, "5.html"))
	require.NoError(t, err)
	require.Equal(t, far, string(written))
	// Its own data are gone: the page says of which folder paths were.
	require.NoError(t, os.Rename(filepath.Join(dir, "tok"), filepath.Join(dir, "tok.gone")))
	code, _, text = ask(at + "/runs/0/rows?step=5")
	require.Equal(t, 422, code, text)
	require.Contains(t, text, "data.tokenizer")
	require.Contains(t, text, " begin at "+dir+", where the run was started")
	for _, args := range [][]string{{"--run", whole, "--config", "x.yaml"}, {"--step", "3", "x"}, {"--run",
		whole, "x"},
		{"--run", whole, "--step", "-1"}, {"--run", whole, "--steps", "4"},
		{"--run", whole, "--dropped", filepath.Join(whole, "run.yaml")}, {"--run", whole, "--text-key",
			"x"}} {
		code, text = clitest.RunIn(t, other, nil, append([]string{"data", "view", "--html", "no.html"},
			args...)...)
		require.Equal(t, 2, code, "%v: %s", args, text)
	}
	// Whole paths are read from anywhere, also when the folder where the run was started is gone.
	require.NoError(t, os.Rename(filepath.Join(dir, "tok.gone"), filepath.Join(dir, "tok")))
	file := filepath.Join(whole, "run.yaml")
	conf, err := os.ReadFile(file)
	require.NoError(t, err)
	conf = regexp.MustCompile(`(?m)^# The paths below .*$`).ReplaceAll(conf,
		[]byte(`# The paths below begin at "/gone", where the run was started.`))
	for _, name := range []string{"text", "tok"} {
		conf = regexp.MustCompile(`(- |tokenizer: |paths: \[)`+name+`(\]?\n)`).ReplaceAll(conf, []byte("${1}"+filepath.Join(dir, name)+"${2}"))
	}
	require.NoError(t, os.WriteFile(file, conf, 0o600))
	code, _, text = ask(at + "/runs/0/rows?step=5")
	require.Equal(t, 200, code, text)
	code, text = clitest.RunIn(t, other, nil, "data", "view", "--run", whole, "--html", "6.html")
	require.Equal(t, 0, code, text)
}
