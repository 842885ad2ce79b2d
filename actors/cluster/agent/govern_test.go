package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/machine"
)

// TestMain is also lfactor to this test's agents: it begins confined programs, and is a job that attacks.
func TestMain(m *testing.M) {
	if i := slices.Index(os.Args, ConfinedWord); i > 1 && os.Args[i-1] == "cluster" {
		var c machine.Confinement
		if err := json.Unmarshal([]byte(os.Args[i+1]), &c); err != nil {
			panic(err)
		}
		fmt.Println("not begun:", c.Exec(os.Args[i+2:], os.Environ()))
		os.Exit(9)
	}
	if i := slices.Index(os.Args, "attack"); i > 0 {
		for n := i + 1; n+1 < len(os.Args); n += 2 {
			fmt.Println(try(os.Args[n], os.Args[n+1]))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// deeds are what a job tries with a file or a process that is none of its own.
var deeds = map[string]func(name string) error{
	"read": func(name string) error {
		text, err := os.ReadFile(name)
		if err == nil && !strings.Contains(string(text), "SECRET") {
			err = errors.New("no secret")
		}
		return err
	},
	"list":     func(name string) error { _, err := os.ReadDir(filepath.Dir(name)); return err },
	"write":    func(name string) error { return os.WriteFile(name, []byte("planted"), 0o600) },
	"plant":    func(name string) error { return os.WriteFile(name+".planted", nil, 0o600) },
	"truncate": func(name string) error { return os.Truncate(name, 0) },
	"remove":   os.Remove,
	"rename":   func(name string) error { return os.Rename(name, name+".moved") },
	"take":     func(name string) error { return os.Rename(name, "taken") },
	"mkdir":    func(name string) error { return os.Mkdir(name+".dir", 0o700) },
	"append": func(name string) error {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("planted")
			f.Close()
		}
		return err
	},
	"link": func(name string) error { // a hard link in the job's own directory
		_ = os.Remove("hard")
		if err := os.Link(name, "hard"); err != nil {
			return err
		}
		_, err := os.ReadFile("hard")
		return err
	},
	"socket": func(name string) error { return syscall.Mknod(name+".fifo", syscall.S_IFIFO|0o600, 0) },
}

// try does one of them, and says whether that went.
func try(deed, name string) string {
	switch deed {
	case "signal":
		pid, _ := strconv.Atoi(name)
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			return "no: " + err.Error()
		}
		return "yes"
	case "program":
		_, err := configs.Load(configs.Request{Text: []byte("x: 1"), Getenv: os.Getenv, Args: []string{name}})
		if err != nil && strings.Contains(err.Error(), "names a program") {
			return "no: " + err.Error()
		}
		return "yes"
	case "variable":
		if v := os.Getenv(name); v != "" {
			return "yes"
		}
		return "no: unset"
	}
	if err := deeds[deed](name); err != nil {
		return "no: " + err.Error()
	}
	return "yes"
}

// governed is an agent's host with a user's directory, and secrets beside it.
type governed struct {
	t                    *testing.T
	a                    *Agent
	top, mine, own, away string // directories
}

func newGoverned(t *testing.T) *governed {
	t.Helper()
	top, err := os.MkdirTemp("", "governed")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	require.NoError(t, os.Chmod(top, 0o755))
	g := &governed{t: t, top: top, mine: filepath.Join(top, "mia"), away: filepath.Join(top, "away")}
	dir := filepath.Join(top, "agent")
	for _, d := range []string{g.mine, g.away, dir} {
		require.NoError(t, os.Mkdir(d, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca-key.pem"), []byte("SECRET"), 0o600))
	ca, err := trust.NewCA("c", time.Now())
	require.NoError(t, err)
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: "h1", Role: trust.Agent}, &key.PublicKey, time.Now(), time.Hour)
	require.NoError(t, err)
	require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(t, err)
	g.a = &Agent{o: Options{Dir: dir, Command: []string{os.Args[0], "-test.run=none"}, Log: io.Discard}, id: id,
		owners: map[string][2]int{}}
	g.a.jobs, err = g.a.folders()
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(g.a.jobs) })
	g.own = filepath.Join(g.a.jobs, "1")
	if root() {
		uid, gid := asWhom("mia", true)
		require.NoError(t, os.Chown(g.mine, uid, gid))
	}
	return g
}

// secret is a file that is none of the job's, new each time; some names lead to it by detours.
func (g *governed) secret(rng *rand.Rand, n int, deed string) string {
	name := filepath.Join(g.away, fmt.Sprint("secret", n))
	require.NoError(g.t, os.WriteFile(name, []byte("SECRET"), 0o600))
	follows := slices.Contains([]string{"read", "write", "append", "truncate"}, deed)
	if fresh := filepath.Join(g.mine, "link"+fmt.Sprint(n)); follows && rng.IntN(2) == 0 {
		require.NoError(g.t, os.Symlink(name, fresh))
		return fresh
	}
	return []string{name, filepath.Join(g.mine, "..", "away", filepath.Base(name)), "/proc/self/root" + name,
		"/proc/1/root" + name, filepath.Join(g.a.o.Dir, "ca-key.pem"), filepath.Join(g.a.o.Dir, "key.pem"),
		fmt.Sprintf("/proc/%d/root%s", os.Getpid(), name)}[rng.IntN(7)]
}

func (g *governed) spec() *control.Spec {
	return &control.Spec{Args: []string{"attack"}, Dir: filepath.Join(g.mine, "work"), Procs: 1, User: "mia",
		Role: control.Submitter, Dirs: []string{g.mine}, Env: []string{"LFACTOR_CPU=avx2"}}
}

// run carries the attacks out as a job, and says how many succeed.
func (g *governed) run(words []string, free bool) (n int, said string) {
	s := g.spec()
	s.Args = append([]string{"attack"}, words...)
	c, _, err := g.a.prepare(control.Message{Kind: control.Order, Job: "1", Spec: s,
		Env: []string{"LFACTOR_PROC=1", "LD_PRELOAD_X=bad", "LFACTOR_LIBCUDA=bad"}})
	require.NoError(g.t, err)
	if free { // without the guard
		c = exec.Command(os.Args[0], s.Args...)
		c.Dir, c.Env = g.mine, append(os.Environ(), "LFACTOR_LIBCUDA=bad", "AGENT_SECRET=x")
	}
	text, err := c.CombinedOutput()
	require.NoError(g.t, err, string(text))
	require.NotContains(g.t, string(text), "not begun")
	require.Equal(g.t, len(words)/2, strings.Count("\n"+string(text), "\nyes")+strings.Count("\n"+string(text), "\nno"),
		string(text))
	return strings.Count("\n"+string(text), "\nyes"), string(text)
}

// TestAttacks: what a job of a submitter tries on its host beyond its directories fails, be the agent root or
// not; without the confinement most of it would go.
func TestAttacks(t *testing.T) {
	if err := machine.Confines(); err != nil {
		t.Skip(err)
	}
	t.Setenv("AGENT_SECRET", "x")
	modes := []bool{false}
	if root() {
		modes = append(modes, true)
	}
	for _, asRoot := range modes {
		t.Run(fmt.Sprint("root=", asRoot), func(t *testing.T) {
			was := root
			root = func() bool { return asRoot }
			defer func() { root = was }()
			g := newGoverned(t)
			rng := rand.New(rand.NewPCG(59, 3))
			var words []string
			for n := range 150 {
				all := []string{"read", "list", "write", "plant", "truncate", "remove", "rename", "take", "mkdir", "append", "link",
					"socket"}
				words = append(words, all[n%len(all)], g.secret(rng, n, all[n%len(all)]))
			}
			words = append(words, "signal", fmt.Sprint(os.Getpid()), "read", fmt.Sprintf("/proc/%d/environ", os.Getpid()),
				"variable", "AGENT_SECRET", "variable", "LFACTOR_LIBCUDA", "variable", "LD_PRELOAD_X")
			if !asRoot {
				words = append(words, "program", "reward.command=[/bin/sh]", "program", "rollout.environment=[/bin/sh, -c, id]")
			}
			n, said := g.run(words, false)
			require.Zero(t, n, strings.Join(slices.DeleteFunc(strings.Split(said, "\n"),
				func(line string) bool { return strings.HasPrefix(line, "no") }), "\n"))
			for _, file := range []string{"ca-key.pem", "key.pem"} {
				text, err := os.ReadFile(filepath.Join(g.a.o.Dir, file))
				require.NoError(t, err)
				require.NotContains(t, string(text), "planted")
			}
			ok, said := g.run([]string{"write", filepath.Join(g.mine, "result"), "plant", filepath.Join(g.own, "x"), "variable",
				"LFACTOR_PROC", "variable", "LFACTOR_CPU", "mkdir", filepath.Join(g.mine, "d")}, false)
			require.Equal(t, 5, ok, "what is its own: %s", said)
			n, _ = g.run(words, true)
			require.Greater(t, n, 75, "without the guard")
			t.Logf("%d attacks, 0 succeed; %d without the confinement", len(words)/2, n)
		})
	}
}

// TestPrograms: every key of a run file that names a program is refused where a job may start none, whichever
// way it is given.
func TestPrograms(t *testing.T) {
	load := func(env string, words ...string) error {
		_, err := configs.Load(configs.Request{Args: words, Getenv: func(name string) string {
			if name == configs.EnvGoverned {
				return env
			}
			return ""
		}})
		return err
	}
	for _, words := range []string{"reward.command=[/bin/sh]", "rollout.environment=[/bin/sh, -c, id]",
		"rollout.environment=[httpd]", "rollout.environment=[http://h:1, x]"} {
		require.ErrorContains(t, load("1", words), "names a program", words)
		err := load("", words)
		require.True(t, err == nil || !strings.Contains(err.Error(), "names a program"))
	}
	if err := load("1", "rollout.environment=[http://h:1]"); err != nil {
		require.NotContains(t, err.Error(), "names a program")
	}
}

// TestPlace: files that come with a job are in its folder and for its user alone, whatever they are called and
// whatever links lie there; an administrator's too.
func TestPlace(t *testing.T) {
	g := newGoverned(t)
	for n, name := range []string{"../../etc/x", "/etc/cron.d/x", filepath.Join(g.away, "x"), "link/x", "a/../../x", "run.yaml",
		g.a.o.Dir + "/ca-key.pem"} {
		for _, role := range []string{control.Submitter, "admin"} {
			job := fmt.Sprint(n, "-", role)
			require.NoError(t, os.Symlink(g.away, filepath.Join(g.mine, "link")))
			own, err := g.a.own(job, 0, 0)
			require.NoError(t, err)
			s := &control.Spec{Args: []string{"train", name, "--plan=" + name}, Dir: g.mine, Role: role,
				Files: map[string][]byte{name: []byte("planted")}}
			args, err := place(own, s, 0, 0)
			require.NoError(t, err)
			want := filepath.Join(g.a.jobs, job, "0", filepath.Base(name))
			require.Equal(t, []string{"train", want, "--plan=" + want}, args)
			i, err := os.Lstat(want)
			require.NoError(t, err)
			require.Equal(t, fs.FileMode(0o600), i.Mode())
			// its user turns the folder into a link before the next process comes
			require.NoError(t, os.RemoveAll(filepath.Dir(want)))
			require.NoError(t, os.Symlink(g.away, filepath.Dir(want)))
			_, err = place(own, s, 0, 0)
			require.Error(t, err)
			left, err := os.ReadDir(g.away)
			require.NoError(t, err)
			require.Empty(t, left)
			require.NoError(t, os.Remove(filepath.Join(g.mine, "link")))
		}
	}
	for _, name := range []string{"..", ".", "/", "a/.."} {
		own, err := g.a.own("x", 0, 0)
		require.NoError(t, err)
		_, err = place(own, &control.Spec{Dir: g.mine, Role: control.Submitter, Files: map[string][]byte{name: nil}}, 0, 0)
		require.Error(t, err, name)
	}
	for _, job := range []string{"../x", "a/b", "/x", ".."} {
		_, err := g.a.own(job, 0, 0)
		require.Error(t, err, job)
	}
}

// TestGiven: a directory that has the cluster's keys in it, or lies among them, is no user's, also by a link.
func TestGiven(t *testing.T) {
	g := newGoverned(t)
	g.a.o.Local = []control.LocalHead{{Dir: filepath.Join(g.top, "head")}}
	require.NoError(t, os.Mkdir(filepath.Join(g.top, "head"), 0o700))
	require.NoError(t, os.Symlink(g.a.o.Dir, filepath.Join(g.mine, "to")))
	for _, dir := range []string{g.top, g.a.o.Dir, filepath.Join(g.a.o.Dir, "jobs"), filepath.Join(g.top, "head"), "/",
		filepath.Join(g.mine, "to")} {
		require.ErrorContains(t, g.a.given(dir, 0, 0), "is no directory for jobs", dir)
	}
	require.NoError(t, g.a.given(g.mine, 0, 0))
	s := g.spec()
	s.Log = filepath.Join(g.top, "away")
	_, err := g.a.confinement(s, nil, 0, 0)
	require.ErrorContains(t, err, "is in no directory of mia's")
	// what a run's folder has is read where that is the user's own
	require.NoError(t, os.WriteFile(filepath.Join(g.away, "run.yaml"), []byte("SECRET"), 0o600))
	require.NoError(t, os.Symlink(g.away, filepath.Join(g.mine, "run")))
	s.Log = filepath.Join(g.mine, "run")
	require.False(t, control.Within(resolved(s.Log), all(s.Dirs, resolved)))
}

// TestAsWhom: nobody's jobs run as root, or as an account that is no person's.
func TestAsWhom(t *testing.T) {
	for _, name := range []string{"root", "daemon", "bin", "mail", "nobody-of-this-name", "0", "-1"} {
		uid, gid := asWhom(name, true)
		require.GreaterOrEqual(t, uid, firstUser, name)
		require.GreaterOrEqual(t, gid, firstUser, name)
		again, _ := asWhom(name, true)
		require.Equal(t, uid, again)
		uid, _ = asWhom(name, false)
		require.Zero(t, uid)
	}
}
