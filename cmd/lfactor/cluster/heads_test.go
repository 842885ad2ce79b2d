package cluster_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/topology/machine"
)

// headed is a cluster of three heads on this machine.
type headed struct {
	verbs
	home string // of the cluster
}

func newHeaded(t *testing.T, agents int) headed {
	dir := tinyRun(t)
	h := headed{verbs{t, dir, clusterHome(t, dir, "test")}, filepath.Join(dir, "home", "clusters", "test")}
	h.verb(0, "cluster", "up", "--local", fmt.Sprint(agents), "--heads", "3", "--name", "test")
	return h
}

// leader waits until a head leads, which is not the one that is given, and all others that are there follow.
func (h headed) leader(not string, there int) (lead head.SeatState) {
	h.t.Helper()
	require.Eventually(h.t, func() bool {
		var s head.Status
		code, out, _ := streamsEnv(h.t, h.dir, h.env, "cluster", "status", "-o", "json")
		if code != 0 || json.Unmarshal([]byte(out), &s) != nil {
			return false // none leads at the moment
		}
		n := 0
		lead = head.SeatState{}
		for _, x := range s.Heads {
			if x.State != "away" {
				n++
			}
			if x.State == "leads" {
				lead = x
			}
		}
		return n == there && lead.Name != "" && lead.Name != not
	}, 2*time.Minute, 20*time.Millisecond)
	return lead
}

func (h headed) dirOf(name string) string { return filepath.Join(h.home, "heads", name) }

// replaced puts a new head in the place of one that was lost with its directory, and of the one that leads
// then, which is lost likewise.
func (h headed) replaced(lost, leads string) {
	h.t.Helper()
	_, status, _ := streamsEnv(h.t, h.dir, h.env, "cluster", "status")
	require.Contains(h.t, status, "2 of 3 heads are there: the cluster can lose 0 more")
	h.verb(5, "cluster", "replace", leads) // it is there
	h.verb(2, "cluster", "replace", "head9")
	h.verb(0, "cluster", "replace", lost)
	// the new one votes, since without it no other would lead any more
	third := h.leader("", 3)
	require.NoError(h.t, os.Rename(h.dirOf(third.Name), h.dirOf(third.Name)+".lost"))
	require.NoError(h.t, syscall.Kill(third.Pid, syscall.SIGKILL))
	h.leader(third.Name, 2)
	h.verb(0, "cluster", "replace", third.Name)
	h.leader("", 3)
}

// TestClusterHeads: of three heads the one that leads is killed while a job trains, and comes back; the next
// one that leads is lost with its directory, and does not, until it is replaced. Each time another leads
// within seconds, the job keeps its processes and goes on to the weights, optimizer state and ledger of a run
// that nobody disturbed, and whoever follows what it writes misses nothing of it.
func TestClusterHeads(t *testing.T) {
	longOnly(t, "three heads, of which the one that leads is killed or lost: sim/heads has that in "+
		"virtual time, TestClusterReplace one that is lost and replaced")
	t.Parallel()
	const steps = 250
	quiet := tinyRun(t)
	train := []string{"train", "run.yaml", "plan.procs=2", "checkpoint.interval=100",
		fmt.Sprint("train.steps=", steps)}
	code, out := runIn(t, quiet, nil, append(train, "-q")...)
	require.Zero(t, code, out)
	want := stateOf(t, quiet, steps)
	h := newHeaded(t, 2)
	first := h.leader("", 3)
	cmd := exec.Command(builtHead(t), append(train, "--cluster", "test")...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr, cmd.Stdout = h.dir, &said, &said
	cmd.Env = slices.Concat(os.Environ(), h.env, clitest.Gated(t, h.dir, steps/2))
	require.NoError(t, cmd.Start())
	at := func(step int) {
		t.Helper()
		require.Eventually(t, func() bool {
			text, err := os.ReadFile(filepath.Join(h.dir, "run", "metrics.jsonl"))
			return err == nil && bytes.Contains(text, fmt.Appendf(nil, `"step":%d,`, step))
		}, 2*time.Minute, time.Millisecond, "step %d is not reached: %s", step, said.String())
	}
	procs := func() (pids []int) {
		var s head.Status
		h.json(&s, "cluster", "status")
		for _, p := range s.Jobs[0].Procs {
			pids = append(pids, p.Pid, p.Gen)
		}
		return pids
	}
	at(10)
	before := procs()
	require.NoError(t, syscall.Kill(first.Pid, syscall.SIGKILL))
	second := h.leader(first.Name, 3) // the one that was killed follows
	require.Equal(t, before, procs(), "the job's processes are the same")
	require.NoError(t, os.Rename(h.dirOf(second.Name), h.dirOf(second.Name)+".lost"))
	require.NoError(t, syscall.Kill(second.Pid, syscall.SIGKILL))
	third := h.leader(second.Name, 2)
	require.Equal(t, before, procs(), "the job's processes are the same")
	clitest.Gate(t, h.dir, clitest.Open)
	require.NoError(t, cmd.Wait(), said.String())
	require.Equal(t, want, stateOf(t, h.dir, steps), said.String())
	for step := 1; step <= steps; step++ {
		require.Contains(t, said.String(), fmt.Sprintf("step %d/%d", step, steps),
			"nothing it wrote is lost")
	}
	code, logs, errs := streamsEnv(t, h.dir, h.env, "logs", "1", "--proc", "0")
	require.Zero(t, code, errs)
	require.Equal(t, steps, strings.Count(logs, fmt.Sprintf("/%d ", steps)), "nor is anything there twice")
	var text strings.Builder
	for _, e := range eventsOf(t, h.dir, h.env) {
		fmt.Fprintln(&text, e.Time.Format("15:04:05.000"), e.Kind, e.Text)
		require.NotEqual(t, "restart", e.Kind, e.Text)
		require.NotEqual(t, "lost", e.Kind, e.Text)
	}
	t.Log(text.String())
	require.Contains(t, h.verb(0, "cluster", "logs", third.Name), third.Name+" leads")

	h.replaced(second.Name, third.Name)
	h.verb(0, "cluster", "down")
	require.Empty(t, leftovers(t, h.home))
}

// TestClusterReplace: of three heads one is lost with its directory; another takes its place, and knows what the
// others know.
func TestClusterReplace(t *testing.T) {
	t.Parallel()
	h := newHeaded(t, 1)
	lost := "head1"
	if h.leader("", 3).Name == lost {
		lost = "head2"
	}
	pid := machine.Holder(h.dirOf(lost))
	require.NoError(t, os.Rename(h.dirOf(lost), h.dirOf(lost)+".lost"))
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	h.leader("", 2)
	h.verb(0, "cluster", "replace", lost)
	h.leader("", 3)
	h.verb(0, "cluster", "down")
	require.Empty(t, leftovers(t, h.home))
}

// TestClusterHeadsRestore: a backup gives all three heads one state, and a bad one leaves them as they are;
// heads that are stopped do not lead, and a head that leads says so when it is asked.
func TestClusterHeadsRestore(t *testing.T) {
	longOnly(t, "a backup of three heads, and one that is stopped: sim/heads has stopped heads, "+
		"TestClusterVerbs a backup of one")
	t.Parallel()
	h := newHeaded(t, 1)
	first := h.leader("", 3)
	h.verb(0, "cluster", "backup", "state")
	h.verb(0, "cluster", "drain", "h1")
	require.NoError(t, os.WriteFile(filepath.Join(h.dir, "bad"), []byte("no backup"), 0o600))
	require.Contains(t, h.verb(6, "cluster", "restore", "bad"), "is not a backup of a cluster")
	require.Equal(t, first, h.leader("", 3), "nobody was disturbed")
	h.verb(0, "cluster", "restore", "state")
	h.leader("", 3)
	require.NotContains(t, h.verb(0, "cluster", "status"), "drained", "the backup is older than that")

	lead := h.leader("", 3)
	require.NoError(t, syscall.Kill(lead.Pid, syscall.SIGSTOP))
	h.leader(lead.Name, 2)
	h.verb(0, "cluster", "drain", "h1")
	require.NoError(t, syscall.Kill(lead.Pid, syscall.SIGCONT))
	h.leader(lead.Name, 3) // it follows
	require.Contains(t, h.verb(0, "cluster", "status"), "drained")
	for _, name := range []string{"head1", "head2"} { // most heads are lost: nobody leads
		dir := h.dirOf(name)
		pid := machine.Holder(dir)
		require.NoError(t, os.Rename(dir, dir+".lost"))
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Eventually(t, func() bool {
		code, out, errs := streamsEnv(t, h.dir, h.env, "cluster", "status")
		return code == 5 && out == "" && strings.Contains(errs, "does not lead the cluster")
	}, 2*time.Minute, 50*time.Millisecond)
	for _, name := range []string{"head1", "head2"} {
		require.NoError(t, os.Rename(h.dirOf(name)+".lost", h.dirOf(name)))
	}
	h.leader("", 3)
}

// TestHeadsRefused: numbers of heads that are worth nothing, and heads on hosts that are none.
func TestHeadsRefused(t *testing.T) {
	dir := t.TempDir()
	env := clusterHome(t, dir, "test")
	for _, c := range []struct{ heads, want string }{
		{"2", "2 is an even number (head1, head2): 2 heads can lose 0, as 1 can"},
		{"h1,h2,h3,h4", "4 heads can lose 1, as 3 can"},
		{"0", "want from 1 to 7"}, {"9", "want from 1 to 7"},
		{"h1,h1,h2", `"h1" is there twice`}, {"h1,-,h2", `"-" is there twice, or is not a name`},
		{"a,b,c,d,e,f,g,h,i", "9 are more than 7"},
	} {
		code, out := runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test", "--heads",
			c.heads)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, c.want)
		require.Equal(t, 1, strings.Count(out, "\n"), out)
	}
	require.NoDirExists(t, filepath.Join(dir, "home", "clusters", "test"))
}
