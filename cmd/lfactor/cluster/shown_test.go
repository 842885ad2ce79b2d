package cluster_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// dash is a page of lfactor ui --cluster to which somebody has logged in.
type dash struct {
	t    *testing.T
	base string
	http *http.Client
}

var linkLines = regexp.MustCompile(`(?m)^(dashboard|admin) +(http://127\.0\.0\.1:\d+)(/login\?token=\S+)`)

// dashboards are the pages of a user, of the viewer and of the admin.
func dashboards(t *testing.T, dir string, env []string) (view, admin dash) {
	t.Helper()
	c := exec.Command(builtHead(t), "ui", "--cluster", "shown", "--admin")
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()         // as above
	})
	in := bufio.NewScanner(out)
	for _, to := range []*dash{&view, &admin} {
		require.True(t, in.Scan(), "no link was printed")
		m := linkLines.FindStringSubmatch(in.Text())
		require.NotNil(t, m, in.Text())
		jar, err := cookiejar.New(nil)
		require.NoError(t, err)
		*to = dash{t, m[2], &http.Client{Jar: jar}}
		r, err := to.http.Get(m[2] + m[3])
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Equal(t, 200, r.StatusCode)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // more links
	return view, admin
}

// do asks, and reads JSON into out where it is told.
func (d dash) do(method, path string, out any) (status int, text string) {
	d.t.Helper()
	r, err := http.NewRequest(method, d.base+path, nil)
	require.NoError(d.t, err)
	r.Header.Set("Origin", d.base)
	a, err := d.http.Do(r)
	require.NoError(d.t, err)
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	require.NoError(d.t, err)
	if a.StatusCode == 200 && out != nil {
		require.NoError(d.t, json.Unmarshal(b, out), string(b))
	}
	return a.StatusCode, string(b)
}

type told struct {
	Now   []struct{ Name, Host string }
	Lines []struct{ Actor, Host, Kind string }
}

// TestClusterShown: lfactor ui --cluster has hosts, jobs and the run of a job whose processes are on two
// hosts, live, with who said what on which host; a user with the role view sees neither settings nor may
// stop, whatever the link, and what is stopped has saved.
func TestClusterShown(t *testing.T) {
	dir := tinyRun(t)
	env := clusterHome(t, dir, "shown")
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "shown")
	require.Zero(t, code, out)
	home := filepath.Join(dir, "hers")
	code, out = runIn(t, dir, env, "cluster", "user", "add", "vera", filepath.Join(home, "clusters",
		"shown"))
	require.Zero(t, code, out)
	code, out = runIn(t, dir, env, append([]string{"train", "run.yaml", "--cluster", "shown", "--detach",
		"plan.procs=2", "train.log_interval=100000"}, clitest.WiderArgs...)...)
	require.Zero(t, code, out)
	view, admin := dashboards(t, dir, env)
	hers, hersAdmin := dashboards(t, dir, []string{"LFACTOR_HOME=" + home})

	for _, d := range []dash{view, hers} {
		var runs struct {
			Cluster string
			Runs    []struct {
				Name    string
				Running bool
				Step    int
			}
		}
		require.Eventually(t, func() bool {
			d.do("GET", "/api/runs", &runs)
			return len(runs.Runs) == 1 && runs.Runs[0].Running && runs.Runs[0].Step > 2
		}, 2*time.Minute, 20*time.Millisecond, "the job's run is not shown")
		require.Equal(t, "shown", runs.Cluster)
		require.Contains(t, runs.Runs[0].Name, "job 1 ")
		var said told
		require.Eventually(t, func() bool {
			d.do("GET", "/api/runs/0/logs", &said)
			at := map[string]bool{}
			for _, l := range said.Lines {
				at[l.Actor+" "+l.Kind+" "+l.Host] = true
			}
			return at["rank0 jobs h1"] && at["rank3 jobs h2"] && len(said.Now) > 4
		}, 2*time.Minute, 50*time.Millisecond, "%v", &said)
		for name, want := range map[string]string{"checkpoints": `"dir":`, "samples": `"last":`, "plan": `"schedule":"`} {
			status, text := d.do("GET", "/api/runs/0/"+name, nil)
			require.Equal(t, 200, status, text)
			require.Contains(t, text, want)
		}
		var now struct {
			Hosts  []struct{ Name, State, Job string }
			Jobs   []struct{ ID, State string }
			Events []struct{ Kind string }
			Wrong  string
		}
		status, text := d.do("GET", "/api/cluster", &now)
		require.Equal(t, 200, status, text)
		require.Equal(t, "[{h1 busy 1} {h2 busy 1}]", fmt.Sprint(now.Hosts))
		require.Equal(t, "[{1 running}]", fmt.Sprint(now.Jobs))
		require.NotEmpty(t, now.Events)
		require.Empty(t, now.Wrong)
	}
	forRoles(t, view, admin, hers, hersAdmin)
	code, out = runIn(t, dir, env, "attach", "1")
	require.Zero(t, code, out)
	require.Eventually(t, func() bool {
		_, text := view.do("GET", "/api/cluster", nil)
		return strings.Contains(text, `"state":"ended"`)
	}, 2*time.Minute, 50*time.Millisecond)
	_, text := view.do("GET", "/api/runs/0/series", nil)
	require.Contains(t, text, `"step":[1,`, "what was read stays")
	afterwards(t, dir, env)
	code, out = runIn(t, dir, env, "ui", "--cluster", "no-such-cluster")
	require.Equal(t, 5, code, out)
}

// afterwards looks at the cluster when its job is over: what lies on the job's host is read.
func afterwards(t *testing.T, dir string, env []string) {
	late, _ := dashboards(t, dir, env) // who comes when the job is over sees it, too
	_, text := late.do("GET", "/api/runs/0/series", nil)
	require.Contains(t, text, `"step":[1,`, "what lies on the job's host is read")
	status, text := late.do("GET", "/api/runs/0/checkpoints", nil)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, `"latest":true`)
}

// forRoles asks for what the roles of users and links decide, and stops the job.
func forRoles(t *testing.T, view, admin, hers, hersAdmin dash) {
	status, text := view.do("GET", "/api/runs/0/settings", nil)
	require.Equal(t, 200, status, text)
	require.Contains(t, text, "global_batch")
	status, text = hers.do("GET", "/api/runs/0/settings", nil)
	require.Equal(t, 422, status, "the run file is for those who may submit: %s", text)
	for _, d := range []dash{view, hers} {
		status, text = d.do("POST", "/api/runs/0/stop", nil)
		require.Equal(t, 403, status, text)
	}
	status, text = hersAdmin.do("POST", "/api/runs/0/stop", nil)
	require.Equal(t, 422, status, text)
	require.Contains(t, text, "vera has the role view")
	status, text = admin.do("POST", "/api/runs/0/stop", nil)
	require.Equal(t, 200, status, text)
}
