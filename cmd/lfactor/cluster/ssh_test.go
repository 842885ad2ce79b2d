package cluster_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// lab is hosts with ssh, of which the last is the user's.
type lab struct {
	*Rig
	t      *testing.T
	dir    string
	binary string
	ssh    string
}

func newLab(t *testing.T, dir string, hosts int) *lab {
	t.Helper()
	l := &lab{Rig: newRig(t, hosts+1, dir), t: t, dir: dir, binary: filepath.Join(dir, "lfactor")}
	clitest.InstallBoth(t, l.binary)
	l.ssh = "ssh -F " + l.SSH()
	return l
}

// user runs lfactor where the user is.
func (l *lab) user(args ...string) (int, string) {
	l.t.Helper()
	return l.userWith(nil, args...)
}

// userWith is user with more environment.
func (l *lab) userWith(env []string, args ...string) (int, string) {
	l.t.Helper()
	began := time.Now()
	defer func() { l.t.Logf("%v %v", args, time.Since(began)) }()
	c := l.Hosts[len(l.Hosts)-1].In(l.dir, slices.Concat([]string{"env"}, env, []string{l.binary}, args)...)
	out, err := c.CombinedOutput()
	if err == nil {
		return 0, string(out)
	}
	x, ok := err.(*exec.ExitError)
	require.True(l.t, ok, err)
	return x.ExitCode(), string(out)
}

// clean fails if something of lfactor is on a host but the user's.
func (l *lab) clean() {
	l.t.Helper()
	for _, h := range l.Hosts[:len(l.Hosts)-1] {
		out, err := h.Command("sh", "-c",
			"ls -a /root/.lfactor 2>/dev/null; ps -eo stat,args | grep -v -e ^Z -e grep -e ' ps ' | "+
				"grep lfactor; true").CombinedOutput()
		require.NoError(l.t, err)
		require.Empty(l.t, strings.TrimSpace(string(out)), "left on %s", h.Name)
	}
}

// TestClusterSSH: hosts that have nothing but sshd become a cluster, train with the bits of one host,
// take another host in, and have nothing left of it afterwards.
func TestClusterSSH(t *testing.T) {
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4")
	require.Zero(t, code, out)
	alone := metrics(t, dir)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	l := newLab(t, dir, 3)
	hosts := "name: lab\nhosts:\n  - {ssh: h1, ports: 7400-7450}\n  - ssh: root@h2\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(hosts), 0o644))
	code, out = l.user("cluster", "up", "hosts.yaml", "--ssh", l.ssh)
	require.Zero(t, code, out)
	for _, line := range []string{"✓ ssh  2/2", "✓ machine  2/2", "✓ disk  2/2", "✓ clock  2/2",
		"✓ binary  2/2", "✓ agents  2/2", "✓ ports  2/2 ways", "✓ links"} {
		require.Contains(t, out, line)
	}
	t.Log(out)
	code, out = l.user("train", "run.yaml", "--cluster", "lab", "train.steps=4")
	require.Zero(t, code, out)
	same(t, alone, metrics(t, dir))
	code, out = l.user("cluster", "add", "h3")
	require.Zero(t, code, out)
	code, out = l.user("cluster", "check")
	require.Zero(t, code, out)
	require.Contains(t, out, "6/6 ways")
	l.Hosts[0].Cut(l.Hosts[2])
	code, out = l.user("cluster", "check")
	require.Equal(t, 5, code, out)
	require.Contains(t, out, "✗ ports  h1 cannot reach h3")
	l.Hosts[0].Heal(l.Hosts[2])
	code, out = l.user("cluster", "down")
	require.Zero(t, code, out)
	l.clean()
}

// TestClusterSSHApply: a host that has lost everything takes part again under its name, while another one is
// away; a file makes what is, what is written, and repeated does nothing; a host that was removed can be
// added again.
func TestClusterSSHApply(t *testing.T) {
	longOnly(t, "hosts that are lost and come back, by `cluster apply` and `cluster add`: TestChanges has what is "+
		"done to which host")
	dir := t.TempDir()
	l := newLab(t, dir, 3)
	write := func(hosts string) {
		text := "name: lab\nhosts: [" + hosts + "]\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(text), 0o644))
	}
	apply := func(want string) {
		t.Helper()
		code, out := l.user("cluster", "apply", "hosts.yaml")
		require.Zero(t, code, out)
		require.Contains(t, out, want)
	}
	write("{ssh: h1}, {ssh: h2}, {ssh: h3}")
	code, out := l.user("cluster", "up", "hosts.yaml", "--ssh", l.ssh)
	require.Zero(t, code, out)
	apply("cluster lab has the hosts of hosts.yaml")
	code, out = l.user("cluster", "add", "h2")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "has a host h2 already, which is ready")
	for _, x := range l.Hosts[1:3] {
		x.Kill()
	}
	l.Hosts[1].Boot()
	l.Hosts[1].SSHD()
	require.Eventually(t, func() bool {
		_, out := l.user("cluster", "status", "-o", "json")
		return strings.Count(out, `"away"`) == 2
	}, 2*time.Minute, 50*time.Millisecond)
	code, out = l.user("cluster", "add", "h2") // h3 is away meanwhile
	require.Zero(t, code, out)
	l.Hosts[2].Boot()
	l.Hosts[2].SSHD()
	apply("rejoin h3")
	write("{ssh: h1}, {ssh: h3}")
	apply("remove h2")
	apply("cluster lab has the hosts of hosts.yaml")
	write("{ssh: h1}, {ssh: h2}, {ssh: h3}")
	apply("add h2")
	code, out = l.user("cluster", "remove", "h2")
	require.Zero(t, code, out)
	code, out = l.user("cluster", "add", "h2")
	require.Zero(t, code, out)
	code, out = l.user("cluster", "check")
	require.Zero(t, code, out)
	code, out = l.user("cluster", "down")
	require.Zero(t, code, out)
	l.clean()
}

// TestClusterSSHHeads: of three hosts with heads the one that leads is cut down with everything on it while
// a job trains on a fourth and fifth; the job goes on with another head, and ends. The host comes back with
// nothing, and gets a new head.
func TestClusterSSHHeads(t *testing.T) {
	longOnly(t, "heads on three hosts with ssh, of which one is lost and replaced: TestClusterReplace "+
		"has that on one machine")
	dir := tinyRun(t)
	l := newLab(t, dir, 4)
	hosts := "name: lab\nheads: [h1, h2, h3]\nhosts:\n  - {ssh: h1, ports: 7400-7450}\n  - ssh: h2\n  - ssh: h3\n  - ssh: h4\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(hosts), 0o644))
	for heads, want := range map[string]string{"h1,h2": "an even number", "h1,h2,h9": "no host h9"} {
		code, out := l.user("cluster", "up", "hosts.yaml", "--ssh", l.ssh, "--heads", heads)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, want)
	}
	code, out := l.user("cluster", "up", "hosts.yaml", "--ssh", l.ssh)
	require.Zero(t, code, out)
	require.Contains(t, out, "✓ head  3/3")
	require.Contains(t, out, "with a head on h1, h2, h3")
	var first string
	status := func() (leads string) {
		_, out := l.user("cluster", "status")
		if m := regexp.MustCompile(`head (h\d)  \S+  leads`).FindStringSubmatch(out); m != nil {
			return m[1]
		}
		return ""
	}
	require.Eventually(t, func() bool { first = status(); return first != "" }, 2*time.Minute,
		50*time.Millisecond)
	// no job runs on the host that will be lost
	code, out = l.user("cluster", "drain", first)
	require.Zero(t, code, out)
	code, out = l.userWith(clitest.Gated(t, dir, 75), "train", "run.yaml", "--cluster", "lab", "--detach",
		"plan.procs=2", "train.steps=150")
	require.Zero(t, code, out)
	require.Eventually(t, func() bool { return clitest.Steps(t, dir) > 5 }, 2*time.Minute, time.Millisecond,
		"the run does not start")
	l.Hosts[first[1]-'1'].Kill()
	require.Eventually(t, func() bool { now := status(); return now != "" && now != first }, 2*time.Minute,
		50*time.Millisecond)
	clitest.Gate(t, dir, clitest.Open)
	code, out = l.user("attach")
	require.Zero(t, code, out)
	require.Contains(t, out, "step 150/150")
	// the new head gives agents some seconds to come back, by when the run may have ended
	require.Eventually(t, func() bool {
		code, out = l.user("events")
		return code == 0 && strings.Contains(out,
			"host "+first+" is lost: it did not come back to the new head")
	}, 2*time.Minute, 100*time.Millisecond)
	require.NotContains(t, out, "starts again")
	t.Log(out)
	lost := l.Hosts[first[1]-'1'] // it comes back without anything that it had
	lost.Boot()
	lost.SSHD()
	code, out = l.user("cluster", "replace", first, "--ssh", l.ssh)
	require.Zero(t, code, out)
	code, out = l.user("cluster", "status")
	require.Zero(t, code, out)
	require.Regexp(t, "head "+first+`  \S+  follows`, out)
	require.NotContains(t, out, "heads are there")
}

// TestClusterSSHRefusals: what keeps hosts from becoming a cluster is one line for each with host,
// cause and remedy, exit code 5, and nothing is left on any host.
func TestClusterSSHRefusals(t *testing.T) {
	dir := t.TempDir()
	l := newLab(t, dir, 2)
	conf, err := os.ReadFile(filepath.Join(dir, "ssh_config"))
	require.NoError(t, err)
	known, err := os.ReadFile(filepath.Join(dir, "known_hosts"))
	require.NoError(t, err)
	other := func(name, from, to string) string { // another configuration of ssh
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, bytes.ReplaceAll(conf, []byte(from), []byte(to)), 0o600))
		return "ssh -F " + file
	}
	lines := strings.SplitAfter(string(known), "\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "known1"), []byte(lines[0]), 0o600))
	changed := lines[0] + strings.Replace(lines[0], "10.77.0.1", "10.77.0.2", 1)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "known2"), []byte(changed), 0o600))
	require.NoError(t, exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f",
		filepath.Join(dir, "wrongkey")).Run())
	fake := func(name, facts string) string { // a host that says other things of itself
		file := filepath.Join(dir, name)
		text := "#!/bin/sh\ncase \"$*\" in *uname*h2*|*h2*uname*) ssh -F " +
			filepath.Join(dir, "ssh_config") + " \"$@\" | " + facts + ";; *) exec ssh -F " +
			filepath.Join(dir, "ssh_config") + " \"$@\";; esac\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
		return file
	}
	for _, c := range []struct{ name, ssh, want string }{
		{"unknown host key", other("c1", "/known_hosts", "/known1"),
			"✗ ssh  h2: ssh does not know its host key: connect once"},
		{"changed host key", other("c2", "/known_hosts", "/known2"),
			"✗ ssh  h2: its host key is not the one that ssh knows"},
		{"wrong key", other("c3", "/userkey", "/wrongkey"),
			"✗ ssh  h1: ssh lets none of your keys in: `ssh-copy-id h1`"},
		{"no ssh", other("c4", "10.77.0.2", "10.77.0.3\n  Port 9"), "✗ ssh  h2: "},
		{"unknown name", other("c5", "10.77.0.2", "no-such-host.invalid"),
			"✗ ssh  h2: its name is not known"},
		{"another architecture", fake("f1", "sed s/x86_64/riscv64/"), "✗ machine  h2: it is linux/riscv64"},
		{"a clock off by a minute",
			fake("f2", `awk -F= '/^now/{$0="now=" $2-60e9} {print}' OFMT=%.0f CONVFMT=%.0f`),
			"✗ clock  h2: its clock is -1m"},
		{"no space", fake("f3", "sed 's/^disk=.*/disk=20000/'"), "✗ disk  h2: 19 MB are free in /root"},
	} {
		code, out := l.user("cluster", "up", "--hosts", "h1,h2", "--name", "bad", "--ssh", c.ssh)
		require.Equal(t, 5, code, "%s: %s", c.name, out)
		require.Contains(t, out, c.want, c.name)
		l.clean()
	}
	busy := l.Hosts[0].Command(l.binary, "cluster", "up", "--local", "1", "--name", "old", "--addr",
		l.Hosts[0].Addr)
	out, err := busy.CombinedOutput()
	require.NoError(t, err, string(out))
	code, text := l.user("cluster", "up", "--hosts", "h1,h2,h9", "--name", "x", "--ssh", l.ssh)
	require.Equal(t, 5, code, text)
	for _, args := range [][]string{{}, {"--hosts", "h1", "--local", "2"}, {"nothing.yaml"},
		{"--hosts", "h1,h1"}, {"--hosts=-oProxyCommand=x"}} {
		code, text := l.user(append([]string{"cluster", "up"}, args...)...)
		require.Equal(t, 2, code, "%v: %s", args, text)
	}
}

// TestClusterSSHTaken: hosts that belong to a cluster are not taken for another, whose `up` names it and
// leaves nothing behind; of two that come at once one gets them; a port that is taken is named.
func TestClusterSSHTaken(t *testing.T) {
	longOnly(t, "hosts that belong to another cluster, and two that come at once: "+
		"TestClusterSSHRefusals has other refusals")
	dir := t.TempDir()
	l := newLab(t, dir, 2)
	up := func(name, ports string) (int, string) {
		file := filepath.Join(dir, name+".yaml")
		text := "name: " + name + "\nhosts:\n  - {ssh: h1, ports: " + ports + "}\n  - {ssh: h2, ports: " +
			ports + "}\n"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return l.user("cluster", "up", file, "--ssh", l.ssh)
	}
	code, out := up("ssh-port", "22-40")
	require.Equal(t, 5, code, out)
	require.Contains(t, out,
		"✗ head  h1: the head's port: listen tcp 10.77.0.1:22: bind: address already in use; name other "+
			"ports in hosts.yaml")
	l.clean()

	var codes [2]int
	var outs [2]string
	var both sync.WaitGroup
	for i := range 2 {
		both.Go(func() {
			codes[i], outs[i] = up([]string{"one", "two"}[i],
				[]string{"7400-7450", "7500-7550"}[i])
		})
	}
	both.Wait()
	won := 0
	if codes[0] != 0 {
		won = 1
	}
	names := [2]string{"one", "two"}
	require.Zero(t, codes[won], outs[won])
	require.Equal(t, 5, codes[1-won], outs[1-won])
	require.Contains(t, outs[1-won], "an agent of cluster "+names[won]+" runs there already, pid ")
	require.Contains(t, outs[1-won], "`lfactor cluster down "+names[won]+"`")

	code, out = up("three", "7600-7650")
	require.Equal(t, 5, code, out)
	require.Contains(t, out, "✗ start  h1: an agent of cluster "+names[won]+" runs there already")
	home := t.TempDir() // of another user, who likes the same name
	again := l.Hosts[len(l.Hosts)-1].In(l.dir, "env", "HOME="+home, l.binary, "cluster", "up",
		filepath.Join(dir, names[won]+".yaml"), "--ssh", l.ssh)
	text, err := again.CombinedOutput()
	require.Error(t, err, string(text))
	require.Contains(t, string(text), "the head of a cluster "+names[won]+" runs there already")
	code, out = l.user("cluster", "check", names[won])
	require.Zero(t, code, "the first is unharmed: %s", out)
	code, out = l.user("cluster", "down", names[won])
	require.Zero(t, code, out)
	l.clean()
}
