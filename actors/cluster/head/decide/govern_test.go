package decide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// attack is a job that no submitter may have, and the guard that it is for.
type attack struct {
	guard string
	spec  control.Spec
}

// attacks draws jobs that are sound but for one thing.
func attacks(rng *rand.Rand, n int) (out []attack) {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range n {
		s := control.Spec{Args: []string{"train", "run.yaml", "train.steps=3"}, Dir: "/data/mia/work", Procs: 1,
			Log: "/data/mia/run", Keep: []string{"/data/mia/ckpt"}, Env: []string{"LFACTOR_CPU=avx2"}}
		a := attack{guard: guards[rng.IntN(len(guards))].name}
		away := pick("/", "/etc", "/root/.ssh", "/data", "/data/miak", "/data/mia/../bob", "/data/mia/../../etc", "/data//bob",
			"/proc/self/root", "/data/mia/./../bob/x", "/home/agent/.lfactor/clusters/lab")
		switch a.guard {
		case "verb":
			s.Args = strings.Fields(pick("cluster user add x /tmp/x --role admin", "sh -c id", "/bin/sh", "serve m", "ui", "data",
				"data serve", "ckpt convert a b", "cluster confined {} x", "hub push", "cluster head --dir /x", "data view x",
				"-o json train", "eval m", "Train x", "cluster token", "demo", "convert data"))
		case "flags":
			s.Args = append(strings.Fields(pick("train run.yaml", "data convert --output_dir=x", "data pack c.yaml",
				"data ingest job.yaml")), pick("--cluster=other", "--cluster", "--detach", "--ui=1234", "--ui", "-ui", "--hosts=9",
				"--listen=:1", "---x", "--=", "-", "--a\nb"))
			if slices.Contains(s.Args, "-") { // it stands for stdin, and is none
				s.Args = append(s.Args, "--cluster")
			}
		case "environment":
			s.Env = append(s.Env, pick("LD_PRELOAD", "LFACTOR_LIBCUDA", "LFACTOR_XPU", "LFACTOR_NVCC", "PATH", "HOME", "LFACTOR_HOME",
				"LFACTOR_AGENT_FD", "LFACTOR_GOVERNED", "GODEBUG", "SSL_CERT_FILE", "LFACTOR_LIBNCCL", "LFACTOR_PROC",
				"LFACTOR_HTTP_PRIVATE", "", "lfactor_cpu", "LFACTOR_CPU ")+"=x")
		case "directories":
			*[]*string{&s.Dir, &s.Log, &s.Keep[0]}[rng.IntN(3)] = away
		case "quota":
			s.Files = map[string][]byte{"big": make([]byte, 5<<20)}
			a.guard = "quota"
		}
		// what a submitter says of itself does not count
		s.User, s.Role, s.Dirs = pick("root", "bob", ""), pick("admin", "", "head"), []string{"/"}
		out = append(out, attack{a.guard, s})
	}
	return out
}

// submitted is a head with a submitter mia, and how many of the attacks it takes.
func taken(t *testing.T, all []attack) map[string]int {
	t.Helper()
	p := &poisoner{t: t, rng: rand.New(rand.NewPCG(1, 2)), has: kept{}, now: time.Unix(1e9, 0)}
	h, _, err := Load(Options{Term: 1, Fill: func(n int64) int64 { return n }}, p.has)
	require.NoError(t, err)
	p.h = h
	p.step(Enroll{Serials: map[string]string{"h1": "s"}, Last: true})
	p.step(AddUser{Name: "mia", Role: "submit", Serial: "x", Until: time.Unix(2e9, 0), Dirs: []string{"/data/mia"}})
	by := By{Name: "mia", Role: "submit"}
	sound := control.Spec{Args: []string{"train", "run.yaml"}, Dir: "/data/mia/work", Procs: 1}
	out := map[string]int{}
	for i, a := range all {
		if a.guard == "quota" { // the queue is as full as it may be
			for range mostJobs {
				p.step(Submit{By: by, Spec: sound})
			}
		}
		before := h.next
		p.step(Submit{By: by, Spec: a.spec})
		if h.next > before {
			out[a.guard]++
			s := h.jobs[fmt.Sprint(h.next)].Spec
			require.Equal(t, []string{"mia", "submit", "/data/mia"}, append([]string{s.User, s.Role}, s.Dirs...), i)
		}
		for _, j := range h.sorted() {
			p.step(Stop{By: by, Job: j.ID, Now: true})
		}
	}
	return out
}

// TestAttacks: a submitter's certificate gets no job that is more than a job of its own; each guard holds off
// what no other does.
func TestAttacks(t *testing.T) {
	all := attacks(rand.New(rand.NewPCG(59, 1)), 300)
	require.Empty(t, taken(t, all))
	whole := guards
	defer func() { guards = whole }()
	for i, g := range whole {
		guards = slices.Delete(slices.Clone(whole), i, i+1)
		n := taken(t, all)
		require.Positive(t, n[g.name], g.name)
		require.Len(t, n, 1, "%s: %v", g.name, n)
		t.Logf("without the guard %q %d attacks succeed", g.name, n[g.name])
	}
}

// TestOthersJobs: a submitter ends its own jobs and sees their settings, an administrator all.
func TestOthersJobs(t *testing.T) {
	p := &poisoner{t: t, rng: rand.New(rand.NewPCG(1, 2)), has: kept{}, now: time.Unix(1e9, 0)}
	h, _, err := Load(Options{Term: 1, Fill: func(n int64) int64 { return n }}, p.has)
	require.NoError(t, err)
	p.h = h
	p.step(Submit{By: By{Name: "root", Role: "admin"}, Spec: control.Spec{Args: []string{"x"}, Dir: "/", Procs: 1}})
	mia, root := By{Name: "mia", Role: "submit"}, By{Name: "root", Role: "admin"}
	require.ErrorContains(t, h.MayTouch(mia, "1"), "job 1 is root's")
	require.ErrorContains(t, h.MayTouch(mia, "last"), "job 1 is root's")
	require.NoError(t, h.MayTouch(root, "1"))
	p.step(Stop{By: mia, Job: "1", Now: true})
	require.NotEqual(t, Ended, h.jobs["1"].State)
	h.jobs["1"].Spec.Files, h.jobs["1"].Spec.Env = map[string][]byte{"run.yaml": []byte("password")}, []string{"A=secret"}
	p.step(Stop{By: root, Job: "1", Now: true})
	require.Equal(t, Ended, h.jobs["1"].State)
	require.NotContains(t, string(p.has["jobs/1"]), "secret")
	require.NotContains(t, string(p.has["jobs/1"]), "password")
}

// TestRenewals: a user does not fill the list of revoked certificates.
func TestRenewals(t *testing.T) {
	p := &poisoner{t: t, rng: rand.New(rand.NewPCG(1, 2)), has: kept{}, now: time.Unix(1e9, 0)}
	h, _, err := Load(Options{Term: 1}, p.has)
	require.NoError(t, err)
	p.h = h
	p.step(AddUser{Name: "mia", Role: "view", Serial: "0"})
	for i := range 1000 {
		p.step(AddUser{Name: "mia", Role: "view", Serial: fmt.Sprint(i), Renews: true})
	}
	require.LessOrEqual(t, len(h.revoked), mostRenewals)
	p.now = p.now.Add(25 * time.Hour)
	p.step(AddUser{Name: "mia", Role: "view", Serial: "new", Renews: true})
	require.Contains(t, h.users["mia"].Serials, "new")
}
