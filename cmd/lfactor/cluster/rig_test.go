package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Rig is hosts for tests, made out of namespaces of one Linux machine: each has processes, mounts, a name, a network and
// a /tmp, /run and /root of its own, and all are joined by a bridge of which nothing else knows. It needs root; without
// it, tests that want it are skipped by name.
type Rig struct {
	t      testing.TB
	prefix string
	Shared string // a directory that all hosts see at this path
	Hosts  []*Host
}

// Host is one of them. Its init ends all of its processes with it.
type Host struct {
	r    *Rig
	Name string
	Addr string
	ns   string
	init int
	cmd  *exec.Cmd
}

// newRig makes n hosts with addresses 10.77.0.1 and on. Shared is a directory that all of them see.
func newRig(t testing.TB, n int, shared string) *Rig {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("left out: hosts made of namespaces need Linux and root")
	}
	for _, tool := range []string{"ip", "nsenter", "unshare", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: hosts made of namespaces need %s", tool)
		}
	}
	r := &Rig{t: t, prefix: fmt.Sprintf("lfr%d", os.Getpid()), Shared: shared}
	if out, err := exec.Command("ip", "netns", "add", r.bridge()).CombinedOutput(); err != nil {
		t.Skipf("left out: this machine permits no network namespaces: %s", bytes.TrimSpace(out))
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", r.bridge()).Run() }) // it may be gone
	r.do("ip", "-n", r.bridge(), "link", "add", "br0", "type", "bridge")
	r.do("ip", "-n", r.bridge(), "link", "set", "br0", "up")
	for i := range n {
		r.add(i + 1)
	}
	return r
}

func (r *Rig) bridge() string { return r.prefix + "br" }

// do runs a command that has to succeed.
func (r *Rig) do(args ...string) {
	r.t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// add makes host number i.
func (r *Rig) add(i int) {
	h := &Host{r: r, Name: "h" + strconv.Itoa(i), Addr: "10.77.0." + strconv.Itoa(i), ns: r.prefix + "h" +
		strconv.Itoa(i)}
	r.do("ip", "netns", "add", h.ns)
	r.t.Cleanup(func() {
		h.Kill()
		_ = exec.Command("ip", "netns", "del", h.ns).Run() // it may be gone
	})
	port := "p" + strconv.Itoa(i)
	r.do("ip", "-n", h.ns, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", r.bridge())
	r.do("ip", "-n", r.bridge(), "link", "set", port, "master", "br0", "up")
	r.do("ip", "-n", h.ns, "addr", "add", h.Addr+"/24", "dev", "eth0")
	r.do("ip", "-n", h.ns, "link", "set", "eth0", "up")
	r.do("ip", "-n", h.ns, "link", "set", "lo", "up")
	r.Hosts = append(r.Hosts, h)
	h.Boot()
}

// boot gives a host its mounts. The shared directory stays where it is, though it may lie in /tmp.
const boot = `set -e
hostname "$1"
mount -t tmpfs -o mode=700 tmpfs /root
mkdir /root/keep
mount --bind "$2" /root/keep
mount -t tmpfs -o mode=1777,size=1g tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p "$2"
mount --bind /root/keep "$2"
umount /root/keep
rmdir /root/keep
touch /run/booted
exec sleep infinity`

// Boot starts the host's init; newRig has done it once.
func (h *Host) Boot() {
	h.r.t.Helper()
	h.cmd = exec.Command("nsenter", "--net=/run/netns/"+h.ns, "unshare", "-m", "-p", "-u", "-f",
		"--mount-proc", "--kill-child",
		"sh", "-c", boot, "sh", h.Name, h.r.Shared)
	var errs bytes.Buffer
	h.cmd.Stderr = &errs
	if err := h.cmd.Start(); err != nil {
		h.r.t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; <-time.After(2 * time.Millisecond) {
		// a process that has ended is found by the limit
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", h.cmd.Process.Pid, h.cmd.Process.Pid))
		if f := strings.Fields(string(text)); len(f) == 1 {
			h.init, _ = strconv.Atoi(f[0]) // the kernel writes numbers
			if _, err := os.Stat(filepath.Join("/proc", f[0], "root/run/booted")); err == nil {
				return
			}
		}
		if time.Now().After(until) {
			h.r.t.Fatalf("host %s does not boot: %s", h.Name, errs.String())
		}
	}
}

// Path is where this test finds a file of the host.
func (h *Host) Path(name string) string {
	return filepath.Join("/proc", strconv.Itoa(h.init), "root", name)
}

// Command is a command that runs on the host.
func (h *Host) Command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.init), "-n", "-m", "-p", "-u",
		"--"}, args...)...)
}

// In is a command that runs on the host in a directory of it.
func (h *Host) In(dir string, args ...string) *exec.Cmd {
	return h.Command(append([]string{"sh", "-c", `cd "$0" && exec "$@"`, dir}, args...)...)
}

// Kill ends the host as a power failure would: init is killed, and the kernel ends everything else on it.
func (h *Host) Kill() {
	if h.cmd == nil {
		return
	}
	_ = syscall.Kill(h.init, syscall.SIGKILL) // it may be dead already
	_ = h.cmd.Wait()                          // unshare ends with it, and says so by its code
	h.cmd = nil
}

// Cut drops what other hosts send to this one, so that a partition is one-way; Heal undoes it.
func (h *Host) Cut(from ...*Host) {
	for _, o := range from {
		h.r.do("ip", "-n", h.ns, "route", "add", "blackhole", o.Addr+"/32")
	}
}

// Heal undoes Cut.
func (h *Host) Heal(from ...*Host) {
	for _, o := range from {
		h.r.do("ip", "-n", h.ns, "route", "del", "blackhole", o.Addr+"/32")
	}
}

// Link takes the host's network up or down.
func (h *Host) Link(up bool) {
	state := map[bool]string{true: "up", false: "down"}[up]
	h.r.do("ip", "-n", h.ns, "link", "set", "eth0", state)
}

// Rate limits what the host sends, in bits a second.
func (h *Host) Rate(bits int64) {
	h.r.do("ip", "netns", "exec", h.ns, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
		strconv.FormatInt(bits, 10), "burst", "256k", "latency", "50ms")
}

// Lose drops so many of a hundred packets that the host receives, drawn at random; 0 drops none. It needs nft.
func (h *Host) Lose(percent int) {
	h.r.t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		h.r.t.Skip("left out: packets are dropped by nft")
	}
	in := []string{"nsenter", "--net=/run/netns/" + h.ns, "nft"}
	_ = exec.Command(in[0], append(in[1:], "delete", "table", "ip", "lossy")...).Run() // there may be none
	if percent > 0 {
		h.r.do(append(in, fmt.Sprintf("table ip lossy { chain in { type filter hook input priority 0; "+
			"numgen random mod 100 lt %d drop; }; }", percent))...)
	}
}
