package cluster_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeSSH is what these tests run for ssh: hosts are folders of this machine, and FAULT says what is wrong with h2. What
// hosts were told to install is kept, so that a later one can be told the same.
const fakeSSH = `#!/bin/bash
while [ $# -gt 2 ]; do shift; done
host=$1 script=$2
export HOME=$LAB/$host SSH_CONNECTION="127.0.0.1 1 127.0.0.${host#h} 22"
mkdir -p $HOME
unset LFACTOR_HOME
fact() { sh -c "$script" | sed "s#^$1=.*#$1=$2#"; exit 0; }
is() { [[ $script == *"$1"* ]]; }
frozen() {
  sh -c "$script" || exit
  for f in $HOME/.lfactor/$1/*/.lock; do kill -STOP $(cat $f); done
  exit 0
}
if is "cluster install" && [ "$FAULT" != old ]; then
  tee $LAB/$host.now | sh -c "$script"; e=${PIPESTATUS[1]}
  grep -q '/agents/' $LAB/$host.now && mv $LAB/$host.now $LAB/../$host.old
  exec < /dev/null
  [ $e = 0 ] || exit $e
  script=true did=install
fi
[ $host != h1 ] && case $FAULT in
255:*) echo "${FAULT#255:}" >&2; exit 255;;
mute) exit 255;;
killed) kill -9 $$;;
nologin) echo "This account is currently not available."; exit 1;;
noshell) exit 0;;
hang) exec sleep 100;;
arch|disk|files|clock) is uname && case $FAULT in arch) fact arch riscv64;; disk) fact disk 20000;; files) fact files 10;;
  clock) fact now 1000000000000000000;; esac;;
folder) rm -rf $HOME/.lfactor; touch $HOME/.lfactor;;
full) is "cat >" && script=$(echo "$script" | sed "s#cat > [^ ]*#cat > /dev/full#");;
noexec) is "cat >" && script=$(echo "$script" | sed "s#chmod 700#chmod 600#");;
gone) [ "$did" ] || is "cat >" && sh -c "$script" && rm -f $HOME/.lfactor/bin/lfactor-* && exit 0;;
agent) [ $host = h2 ] && [ "$did" ] && script="kill -STOP \$(cat $HOME/.lfactor/agents/*/.lock)";;
heads) [ "$did" ] && script="for f in $HOME/.lfactor/heads/*/.lock; do kill -STOP \$(cat \$f); done";;
old) is "cluster install" && exec < <(sed "s#\"[^\"]*/h2/.lfactor#\"$HOME/.lfactor#g" $LAB/../h2.old);;
esac
exec sh -c "$script"
`

// upFails is a way in which a cluster does not come up, and what says so.
type upFails struct {
	fault, want string
	ports       [2]string // of h1 and h2
	heads       string
	lasting     bool // it is found only when time is over
}

// TestUpFails: each way in which `cluster up` fails ends with the documented code and an error that names a host and the
// reason, and nothing runs on afterwards.
func TestUpFails(t *testing.T) {
	dir := t.TempDir()
	ssh := filepath.Join(dir, "ssh")
	require.NoError(t, os.WriteFile(ssh, []byte(fakeSSH), 0o755))
	taken, err := net.Listen("tcp", ":0") // on every address, as hosts have one each
	require.NoError(t, err)
	defer taken.Close()
	_, busy, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)
	for i, c := range []upFails{
		{fault: "255:ssh: connect to host h2 port 22: Connection refused", want: "h2: ssh: connect to host h2 port 22: " +
			"Connection refused: start sshd there, or open its port"},
		{fault: "255:ssh: connect to host h2 port 22: Connection timed out", want: "timed out: start sshd there"},
		{fault: "255:ssh: connect to host h2 port 22: No route to host", want: "No route to host: start sshd there"},
		{fault: "255:root@h2: Permission denied (publickey).", want: "h2: ssh lets none of your keys in: `ssh-copy-id h2`"},
		{fault: "255:Host key verification failed.", want: "h2: ssh does not know its host key: connect once"},
		{fault: "255:@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @", want: "h2: its host key is not the one that"},
		{fault: "255:ssh: Could not resolve hostname h2: Name or service not known", want: "h2: its name is not known"},
		{fault: "mute", want: "h2: ssh: ssh h2 ended with exit status 255 and said nothing"},
		{fault: "killed", want: "h2: ssh h2 ended with signal: killed and said nothing"},
		{fault: "nologin", want: "h2: This account is currently not available."},
		{fault: "noshell", want: "h2: its shell does not say where your home is"},
		{fault: "arch", want: "h2: it is linux/riscv64, and this binary is for "},
		{fault: "disk", want: "h2: 19 MB are free in "},
		{fault: "files", want: "h2: "},
		{fault: "clock", want: "h2: its clock is -"},
		{fault: "folder", want: "h2: mkdir: "},
		{fault: "full", want: "h2: cat: write error: No space left on device"},
		{fault: "noexec", want: "h2: sh: 1: "},
		{fault: "gone", want: "h2: sh: 1: "},
		{want: "h1: the head's port: listen tcp 127.0.0.1:" + busy + ": bind: address already in use", ports: [2]string{busy}},
		{want: "h2: ", ports: [2]string{1: busy}},
		{fault: "hang", want: "h2: its shell did not end within 1m0s: log in with `ssh h2`", lasting: true},
		{fault: "agent", want: "ports: 2 of 2 ways between hosts are closed: h1 cannot reach h2: ", lasting: true},
		{fault: "old", want: "h2 did not join within 2s; the log of h2 (127.0.0.2) ends in: ", lasting: true},
		{fault: "heads", want: "no head leads within 2s: ", heads: "h1,h2,h3", lasting: true},
	} {
		if c.lasting && !*long {
			t.Logf("%q is left out: add -long", c.fault)
			continue
		}
		t.Run(fmt.Sprintf("%02d %.20s", i, c.fault), func(t *testing.T) { upFailsOne(t, filepath.Join(dir, fmt.Sprint(i)), ssh, c) })
	}
}

func upFailsOne(t *testing.T, dir, ssh string, c upFails) {
	require.NoError(t, os.Mkdir(dir, 0o755))
	env := []string{"LFACTOR_HOME=" + filepath.Join(dir, "home"), "LAB=" + dir, "FAULT=" + c.fault}
	text, args := "name: bad\nhosts:\n", []string{"cluster", "up", "hosts.yaml", "--ssh", ssh, "--wait", "2s"}
	for i, name := range []string{"h1", "h2", "h3"} {
		ports := fmt.Sprintf("%d-%d", 21400+20*i, 21419+20*i)
		if i < 2 && c.ports[i] != "" {
			ports = c.ports[i]
		}
		if i < 2 || c.heads != "" {
			text += fmt.Sprintf("  - {ssh: %s, ports: %s}\n", name, ports)
		}
	}
	if c.heads != "" {
		args = append(args, "--heads", c.heads)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hosts.yaml"), []byte(text), 0o644))
	code, out := runIn(t, dir, env, args...)
	require.Equal(t, 5, code, out)
	_, last, ok := strings.Cut(out, "error: ")
	require.True(t, ok, "%q", out)
	t.Log(last)
	require.Contains(t, last, c.want, out)
	require.Empty(t, leftovers(t, dir), out)
}
