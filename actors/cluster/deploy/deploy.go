// Package deploy brings clusters up and takes them down.
package deploy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/actors/exit"
	"github.com/lfactor/lfactor/actors/process"
)

// HashFile is the hexadecimal SHA-256 of a file: binaries are told apart by it.
func HashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// Up is what brings a cluster up.
type Up struct {
	Name string
	Say  func(format string, a ...any) // hears of each step
	// SSHCommand is what is run for ssh, with its arguments; nil for ssh itself.
	SSHCommand []string
	self       string
	hash       string // of this binary
	dir        string
	began      []int // processes that it has started on this machine
}

// Local brings up a head and n agents on this machine. Addr is where other hosts that join reach it.
func (u *Up) Local(ctx context.Context, n int, addr string) (c *user.Cluster, err error) {
	if err := own(addr); err != nil {
		return nil, err
	}
	if u.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := u.reserve(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			u.undo()
		}
	}()
	c = &user.Cluster{Name: u.Name, Head: user.Host{Name: trust.HeadName, Addr: addr,
		Dir: filepath.Join(u.dir, "head")}}
	for i := 1; i <= n; i++ {
		name := "h" + strconv.Itoa(i)
		c.Hosts = append(c.Hosts, user.Host{Name: name, Addr: addr,
			Dir: filepath.Join(u.dir, "agents", name)})
	}
	if err := u.certify(c); err != nil {
		return nil, err
	}
	if err := u.headAddr(c); err != nil {
		return nil, err
	}
	local := head.LocalAgents{}
	for _, h := range c.Hosts {
		local[h.Name] = head.LocalAgent{Dir: h.Dir, Args: control.AgentArgs(h.Dir, h.Addr, c.Heads,
			c.Head.Dir)}
	}
	if err := local.Save(c.Head.Dir); err != nil {
		return nil, err
	}
	if err := u.start(c.Head.Dir, control.HeadArgs(c.Head.Dir, c.Heads[0])...); err != nil {
		return nil, err
	}
	for _, a := range local {
		if err := u.start(a.Dir, a.Args...); err != nil {
			return nil, err
		}
	}
	if err := c.Save(u.dir); err != nil {
		return nil, err
	}
	if err := u.joined(ctx, c); err != nil {
		return nil, err
	}
	return c, c.MakeCurrent()
}

// reserve makes the cluster's directory; of two that bring up one name, one does.
func (u *Up) reserve() error {
	dir, err := user.Dir(u.Name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return exit.With(fmt.Errorf("there is a cluster %s already, or another `up` makes it: `lfactor "+
				"cluster status %s` shows it, `lfactor cluster down %s` ends "+
				"it", u.Name, u.Name, u.Name), exit.Unreachable)
		}
		return err
	}
	u.dir = dir
	return nil
}

// certify makes the authority, the certificates of head, agents and user, and the list of members.
func (u *Up) certify(c *user.Cluster) error {
	now := time.Now()
	ca, err := trust.NewCA(c.Name, now)
	if err != nil {
		return err
	}
	issue := func(dir string, s trust.Subject, life time.Duration) (string, error) {
		key, err := trust.NewKey()
		if err != nil {
			return "", err
		}
		cert, err := ca.Issue(s, &key.PublicKey, now, life)
		if err != nil {
			return "", err
		}
		return trust.Serial(cert), trust.SaveIdentity(dir, ca.Cert, cert, key)
	}
	admin := "admin"
	if name := os.Getenv("USER"); name != "" {
		admin = name
	}
	if _, err := issue(u.dir, trust.Subject{Name: admin, Role: trust.Admin}, trust.UserLife); err != nil {
		return err
	}
	headDir := filepath.Join(u.dir, "head")
	if _, err := issue(headDir, trust.Subject{Name: trust.HeadName, Role: trust.Head,
		Hosts: []string{c.Head.Addr}}, trust.CALife); err != nil {
		return err
	}
	if err := ca.Save(headDir); err != nil {
		return err
	}
	members := map[string]string{}
	for _, h := range c.Hosts {
		dir := filepath.Join(u.dir, "agents", h.Name)
		if members[h.Name], err = issue(dir, trust.Subject{Name: h.Name, Role: trust.Agent,
			Hosts: []string{h.Addr}}, trust.NodeLife); err != nil {
			return err
		}
	}
	return head.Enroll(headDir, members)
}

// headAddr chooses the address that the head has for ever: agents and users find it there again.
func (u *Up) headAddr(c *user.Cluster) error {
	port, err := freePort(c.Head.Addr)
	c.Heads = []string{net.JoinHostPort(c.Head.Addr, strconv.Itoa(port))}
	return err
}

// own checks that this machine has an address.
func own(addr string) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return exit.With(fmt.Errorf("%s is not an address of this machine (%w): give one of its own with "+
			"--addr", addr, err), exit.Unreachable)
	}
	return ln.Close()
}

func freePort(addr string) (int, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port, nil
}

// start runs lfactor as a process that outlives this one, its words in dir/log.
func (u *Up) start(dir string, args ...string) error {
	pid, err := process.Detached(dir, append([]string{u.self}, args...)...)
	if err == nil {
		u.began = append(u.began, pid)
	}
	return err
}

// undo leaves nothing of what did not come up.
func (u *Up) undo() {
	for _, pid := range u.began {
		_ = syscall.Kill(pid, syscall.SIGKILL) // its processes end with it
	}
	if u.dir != "" {
		_ = os.RemoveAll(u.dir) // nobody has used it
	}
}

// joined waits until all hosts are connected.
func (u *Up) joined(ctx context.Context, c *user.Cluster) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	limit := time.Now().Add(30 * time.Second)
	var last error
	var missing []string
	for time.Now().Before(limit) {
		var s head.Status
		if last = cl.Do(ctx, "GET", "/v1/status", nil, &s); last == nil {
			missing = nil
			for _, h := range s.Hosts {
				if h.State == "away" {
					missing = append(missing, h.Name)
				}
			}
			if len(missing) == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	if last != nil {
		return last
	}
	return exit.With(fmt.Errorf("%s did not join within 30 s", strings.Join(missing, ", ")),
		exit.Unreachable)
}
