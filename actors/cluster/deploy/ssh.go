package deploy

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
)

// wantDisk is what head or agent need: the binary, and the logs of etcd, which takes 64 MiB for each.
const wantDisk = 400 << 20

// maxSkew is how far a host's clock may be off: certificates and the times of events are wrong with more.
const maxSkew = 10 * time.Second

// remote is a host while it is brought up.
type remote struct {
	user.Host
	Entry
	home   string
	pushed bool // the binary, which was not there
	began  []string
	facts  map[string]string
	skew   time.Duration
}

// shell runs a script on a host by the system's ssh.
func (u *Up) shell(ctx context.Context, r *remote, script string, in io.Reader) (string, error) {
	return overSSH(ctx, u.SSHCommand, r.Entry.SSH, script, in)
}

// What a script on a host may take, and one that is sent a program.
const (
	shellLimit = time.Minute
	sendLimit  = 30 * time.Minute
)

// overSSH runs a script on a host. The system's ssh is used with all its settings; it may ask nobody anything.
func overSSH(ctx context.Context, command []string, host, script string, in io.Reader) (string, error) {
	if len(command) == 0 {
		command = []string{"ssh"}
	}
	within := shellLimit
	if in != nil {
		within = sendLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("its shell did not end within %v: log in with `ssh %s` "+
		"and see what hangs, its home or what its shell reads first", within, host))
	defer cancel()
	args := append(append([]string(nil), command[1:]...), "-o", "BatchMode=yes", "-o", "ConnectTimeout=10",
		"-o", "ServerAliveInterval=10", "-T", host, "exec sh -c "+quote(script))
	c := exec.CommandContext(ctx, command[0], args...)
	var out, errs bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr, c.WaitDelay = in, &out, &errs, time.Second // what ssh has started may hold them open
	err := c.Run()
	if err == nil {
		return out.String(), nil
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	said := cmp.Or(strings.TrimSpace(errs.String()), strings.TrimSpace(out.String())) // as nologin does
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	var x *exec.ExitError
	if !errors.As(err, &x) {
		return "", fmt.Errorf("ssh cannot be run: %w", err)
	}
	if said == "" {
		said = fmt.Sprintf("ssh %s ended with %v and said nothing", host, x)
	}
	if x.ExitCode() == 255 {
		return "", errors.New(remedy(host, errs.String(), said))
	}
	return "", errors.New(strings.TrimPrefix(said, "error: "))
}

// remedy says what to do about an error of ssh itself.
func remedy(host, all, said string) string {
	try := ""
	switch {
	case strings.Contains(all, "HOST IDENTIFICATION HAS CHANGED"):
		said, try = "its host key is not the one that ssh knows",
			"find out why; if it was set up anew, `ssh-keygen -R "+host+"`"
	case strings.Contains(all, "Host key verification failed"):
		said, try = "ssh does not know its host key", "connect once with `ssh "+host+"` and compare the key"
	case strings.Contains(all, "Permission denied"):
		said, try = "ssh lets none of your keys in",
			"`ssh-copy-id "+host+"`, or load the key into your agent with `ssh-add`"
	case strings.Contains(all, "Could not resolve"):
		said, try = "its name is not known", "correct it, or give it a HostName in ~/.ssh/config"
	case strings.Contains(all, "refused"), strings.Contains(all, "timed out"),
		strings.Contains(all, "No route"):
		try = "start sshd there, or open its port"
	}
	if try == "" {
		return "ssh: " + said
	}
	return said + ": " + try
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// facts is what is asked of a host before anything is put there. It runs in any POSIX shell.
const facts = `echo os=$(uname -s); echo arch=$(uname -m); echo home=$HOME; echo conn=$SSH_CONNECTION; echo now=$(date +%s%N)
echo cores=$(getconf _NPROCESSORS_ONLN); echo files=$(ulimit -Hn); echo memory=$(awk '/MemTotal/{print $2}' /proc/meminfo)
echo disk=$(df -Pk "$HOME" | awk 'NR==2{print $4}'); echo gpus=$(ls -d /dev/nvidia[0-9]* 2>/dev/null | wc -l)`

// learn asks a host for its facts.
func (u *Up) learn(ctx context.Context, r *remote) error {
	began := time.Now()
	text, err := u.shell(ctx, r, facts, nil)
	if err != nil {
		return err
	}
	r.facts = map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			r.facts[k] = v
		}
	}
	if r.home = r.facts["home"]; r.home == "" {
		return errors.New("its shell does not say where your home is: is there a login shell?")
	}
	if now, err := strconv.ParseInt(r.facts["now"], 10, 64); err == nil {
		middle := began.Add(time.Since(began) / 2)
		r.skew = time.Unix(0, now).Sub(middle)
	}
	if r.Entry.Addr == "" {
		if f := strings.Fields(r.facts["conn"]); len(f) == 4 {
			r.Entry.Addr = f[2] // where ssh has reached it
		}
	}
	if r.Entry.Addr == "" {
		return errors.New("it does not say at which address ssh reached it: give addr in hosts.yaml")
	}
	r.Host.Name, r.Host.SSH, r.Host.Addr = r.Entry.Name, r.Entry.SSH, r.Entry.Addr
	r.Host.Dir = path.Join(r.home, ".lfactor", "agents", u.Name)
	return nil
}

func (r *remote) number(fact string) int64 {
	n, _ := strconv.ParseInt(r.facts[fact], 10, 64) // 0 where the host does not say
	return n
}

// machines are Go's names of what uname says.
var machines = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

// disk holds a host's free space to what is wanted.
func (u *Up) disk(r *remote) error {
	if free := r.number("disk") << 10; free < wantDisk {
		return fmt.Errorf("%d MB are free in %s and %d MB are wanted: make room there", free>>20, r.home,
			wantDisk>>20)
	}
	return nil
}

// files holds a host's limit of open files to what a head wants, which each may become.
func (u *Up) files(r *remote) error { return head.EnoughFiles(r.number("files")) }

// machine holds a host to this binary.
func (u *Up) machine(r *remote) error {
	if goos, arch := strings.ToLower(r.facts["os"]), machines[r.facts["arch"]]; goos != runtime.GOOS ||
		arch != runtime.GOARCH {
		return fmt.Errorf("it is %s/%s, and this binary is for %s/%s: run `cluster up` from a machine "+
			"like it", goos, r.facts["arch"],
			runtime.GOOS, runtime.GOARCH)
	}
	return nil
}

// clock holds a host's clock to this machine's.
func (u *Up) clock(r *remote) error {
	if r.skew.Abs() > maxSkew {
		return fmt.Errorf("its clock is %v off this machine's: let NTP set both", r.skew.Round(time.Second))
	}
	return nil
}

func (r *remote) binary(u *Up) string {
	return path.Join(r.home, ".lfactor", "bin", "lfactor-"+u.hash[:16])
}

// push puts the binary on a host, if it is not there. It has its name only when it is whole. The directory
// of the agent that is to run there comes first: where one is, nobody else's `down` takes the binary away.
func (u *Up) push(ctx context.Context, r *remote) error {
	to, part := quote(r.binary(u)), quote(r.part(u))
	found, err := u.shell(ctx, r,
		fmt.Sprintf(`umask 077; mkdir -p %s; mkdir %s 2>/dev/null && echo made; if [ -x %s ]; then echo have; fi`,
			quote(path.Dir(r.Host.Dir)), quote(r.Host.Dir), to), nil)
	if strings.Contains(found, "made") { // else another user's cluster may have this name
		r.began = append(r.began, r.Host.Dir)
	}
	if err != nil || strings.Contains(found, "have") {
		return err
	}
	r.pushed = true
	return u.send(ctx, r, u.self, to, part)
}

// send puts a program on a host, under the quoted name part until it is whole.
func (u *Up) send(ctx context.Context, r *remote, from, to, part string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = u.shell(ctx, r,
		fmt.Sprintf(`umask 077; mkdir -p "$HOME/.lfactor/bin" && cat > %s && chmod 700 %s && mv %s %s`, part,
			part, part, to), f)
	return err
}

// pushHead puts the program that serves as a head beside the binary on a host, if it is not there.
func (u *Up) pushHead(ctx context.Context, r *remote) error {
	to := quote(r.binary(u) + "-head")
	found, err := u.shell(ctx, r, fmt.Sprintf(`if [ -x %s ]; then echo have; fi`, to), nil)
	if err != nil || strings.Contains(found, "have") {
		return err
	}
	return u.send(ctx, r, u.head, to, quote(r.part(u)+"-head"))
}

// part is the binary's name on a host while it comes; another cluster's may come at the same time.
func (r *remote) part(u *Up) string { return r.binary(u) + "." + u.Name + ".part" }

// Install is what the binary is told on a host that it was pushed to, as JSON on its standard input.
type Install struct {
	Dir   string            `json:"dir"`
	Files map[string][]byte `json:"files"`
	Args  []string          `json:"args"` // of lfactor, to be started there
}

// install makes a directory on a host and starts what works in it.
func (u *Up) install(ctx context.Context, r *remote, in Install) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	r.began = append(r.began, in.Dir)
	_, err = u.shell(ctx, r, quote(r.binary(u))+" cluster install", bytes.NewReader(text))
	// the directory is another user's, who has taken this name
	if err != nil && strings.Contains(err.Error(), u.Name+" "+runsAlready) {
		r.began = slices.DeleteFunc(r.began, func(d string) bool { return d == in.Dir })
	}
	return err
}

// remove ends what works in directories of a host, and removes them.
func remove(ctx context.Context, command []string, host, binary string, dirs []string, andBinary bool) error {
	list := ""
	for _, d := range dirs {
		list += " " + quote(d)
	}
	// where the binary has not come yet there is nothing but a directory that says that it is to come
	script := fmt.Sprintf("if [ -x %s ]; then %s cluster uninstall%s; else rmdir%s 2>/dev/null; true; fi",
		quote(binary), quote(binary), list, list)
	if andBinary {
		root := path.Dir(path.Dir(binary))
		// if it is
		empty := func(d string) string { return "rmdir " + quote(path.Join(root, d)) + " 2>/dev/null; " }
		script += "; e=$?; " + empty("agents") + empty("heads")
		script += fmt.Sprintf("if [ ! -e %s ] && [ ! -e %s ]; then rm -f %s %s-head %s.*.part*; fi; ",
			quote(path.Join(root, "agents")), quote(path.Join(root, "heads")),
			quote(binary), quote(binary), quote(binary))
		script += empty("bin") + empty(".") + "exit $e"
	}
	_, err := overSSH(ctx, command, host, script, nil)
	return err
}

// all does something with every host at once and reports it in one line: a mark, what it was, and each fault.
func (u *Up) all(what string, hosts []*remote, f func(*remote) error) error {
	faults := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, r := range hosts {
		wg.Go(func() { faults[i] = f(r) })
	}
	wg.Wait()
	bad, first := 0, ""
	for i, err := range faults {
		if err != nil {
			bad++
			first = cmp.Or(first, fmt.Sprintf("%s: %v", hosts[i].Entry.Name, err))
			u.Say("✗ %s  %s: %v", what, hosts[i].Entry.Name, err)
		}
	}
	if bad > 0 {
		return exit.With(fmt.Errorf("%s: %d of %d hosts cannot take part, and nothing was left on any: %s", what,
			bad, len(hosts), first), exit.Unreachable)
	}
	u.Say("✓ %s  %d/%d", what, len(hosts), len(hosts))
	return nil
}
