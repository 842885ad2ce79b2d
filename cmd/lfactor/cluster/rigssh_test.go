package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// SSH starts a real sshd on each host, with host keys of its own, and writes a configuration for ssh
// into the shared directory, in which hosts have their names. It returns the configuration's path.
func (r *Rig) SSH() string {
	r.t.Helper()
	for _, tool := range []string{"/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/ssh-keygen"} {
		if _, err := os.Stat(tool); err != nil {
			r.t.Skipf("left out: hosts with ssh need %s", tool)
		}
	}
	in := func(name string) string { return filepath.Join(r.Shared, name) }
	keygen := func(file string) {
		r.do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file)
	}
	keygen(in("userkey"))
	var known, conf strings.Builder
	for _, h := range r.Hosts {
		keygen(in("hostkey." + h.Name))
		pub, err := os.ReadFile(in("hostkey." + h.Name + ".pub"))
		if err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(&known, "%s %s", h.Addr, pub)
		fmt.Fprintf(&conf, "Host %s\n  HostName %s\n", h.Name, h.Addr)
		h.sshd(in("userkey.pub"), in("hostkey."+h.Name))
	}
	fmt.Fprintf(&conf, "Host *\n  User root\n  IdentityFile %s\n  IdentitiesOnly yes\n  "+
		"UserKnownHostsFile %s\n", in("userkey"), in("known_hosts"))
	for name, text := range map[string]string{"known_hosts": known.String(), "ssh_config": conf.String()} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	return in("ssh_config")
}

// SSHD starts the sshd of a host that was booted anew, after SSH.
func (h *Host) SSHD() {
	h.r.t.Helper()
	h.sshd(filepath.Join(h.r.Shared, "userkey.pub"), filepath.Join(h.r.Shared, "hostkey."+h.Name))
}

// sshd starts a host's sshd and waits until it answers.
func (h *Host) sshd(authorized, key string) {
	h.r.t.Helper()
	h.must("sh", "-c", "mkdir -p /run/sshd /root/.ssh && cp "+authorized+" /root/.ssh/authorized_keys "+
		"&& chmod 700 /root/.ssh")
	d := h.Command("/usr/sbin/sshd", "-D", "-f", "/dev/null", "-h", key, "-o", "ListenAddress="+h.Addr, "-o",
		"PidFile=none",
		"-o", "UsePAM=no", "-o", "PermitRootLogin=yes", "-o", "StrictModes=no", "-E", "/tmp/sshd.log")
	if err := d.Start(); err != nil {
		h.r.t.Fatal(err)
	}
	h.r.t.Cleanup(func() {
		h.Kill()
		_ = d.Wait() // it ended with its host
	})
	for until := time.Now().Add(10 * time.Second); ; <-time.After(5 * time.Millisecond) {
		if h.Command("sh", "-c", "grep -q 'Server listening' /tmp/sshd.log").Run() == nil {
			return
		}
		if time.Now().After(until) {
			text, _ := h.Command("cat", "/tmp/sshd.log").CombinedOutput() // what there is helps
			h.r.t.Fatalf("sshd of %s does not listen: %s", h.Name, text)
		}
	}
}

// must runs a command on the host that has to succeed.
func (h *Host) must(args ...string) string {
	h.r.t.Helper()
	out, err := h.Command(args...).CombinedOutput()
	if err != nil {
		h.r.t.Fatalf("%s: %s: %v: %s", h.Name, strings.Join(args, " "), err, out)
	}
	return string(out)
}
