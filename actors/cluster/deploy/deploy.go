// Package deploy brings clusters up and takes them down.
package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Up is what brings a cluster up.
type Up struct {
	Name string
	Say  func(format string, a ...any) // hears of each step
	// SSHCommand is what is run for ssh, with its arguments; nil for ssh itself.
	SSHCommand []string
	// Heads are the names of the heads, where there are to be several: those of their hosts, or, on this machine, any.
	Heads []string
	// Wait is how long hosts may take to join; 0 is 30 s.
	Wait  time.Duration
	self  string
	head  string // the program that serves as a head
	hash  string // of this binary
	dir   string
	began []int // processes that it has started on this machine
}

// Local brings up a head and n agents on this machine. Addr is where other hosts that join reach it.
func (u *Up) Local(ctx context.Context, n int, addr string) (c *user.Cluster, err error) {
	if err := errors.Join(own(addr), head.EnoughFiles(machine.FileLimit())); err != nil {
		return nil, err
	}
	if err = u.programs(); err != nil {
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
	c = &user.Cluster{Name: u.Name}
	for _, name := range u.headNames() {
		h := user.Host{Name: name, Addr: addr}
		h.Dir = u.staged(h)
		c.More = append(c.More, h)
	}
	c.Head, c.More = c.More[0], c.More[1:]
	for i := 1; i <= n; i++ {
		name := "h" + strconv.Itoa(i)
		c.Hosts = append(c.Hosts, user.Host{Name: name, Addr: addr,
			Dir: filepath.Join(u.dir, "agents", name)})
	}
	peers, err := u.headAddrs(c)
	if err != nil {
		return nil, err
	}
	if err := u.certify(c, peers); err != nil {
		return nil, err
	}
	var heads []control.LocalHead
	for i, h := range c.Seats() {
		heads = append(heads, control.LocalHead{Dir: h.Dir, Listen: c.Heads[i]})
	}
	local := head.LocalAgents{}
	for _, h := range c.Hosts {
		local[h.Name] = head.LocalAgent{Dir: h.Dir, Args: control.AgentArgs(h.Dir, h.Addr, c.Heads, heads...)}
	}
	for _, h := range heads {
		if err := local.Save(h.Dir); err != nil {
			return nil, err
		}
		if err := u.start(h.Dir, control.HeadArgs(h.Dir, h.Listen)...); err != nil {
			return nil, err
		}
	}
	for _, a := range local {
		if err := u.start(a.Dir, a.Args...); err != nil {
			return nil, err
		}
	}
	if err := c.Save(u.dir); err != nil {
		return nil, err
	}
	if err := u.joined(ctx, c, c.Hosts); err != nil {
		return nil, err
	}
	return c, c.MakeCurrent()
}

// programs finds this program and the one that serves as a head.
func (u *Up) programs() (err error) {
	if u.self, err = os.Executable(); err != nil {
		return err
	}
	u.head, err = MakeHead(u.self, u.Say)
	return err
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

// headNames are those of the heads: one, unless several are wanted.
func (u *Up) headNames() []string {
	if len(u.Heads) > 1 {
		return u.Heads
	}
	return []string{trust.HeadName}
}

// staged is the directory on this machine in which a head's files are made.
func (u *Up) staged(h user.Host) string {
	if len(u.Heads) > 1 {
		return filepath.Join(u.dir, "heads", h.Name)
	}
	return filepath.Join(u.dir, "head")
}

// certify makes the authority, the certificates of heads, agents and user, and the list of members. Peers
// are the addresses at which several heads reach each other.
func (u *Up) certify(c *user.Cluster, peers []string) error {
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
	if name := os.Getenv("USER"); name != "" && name != trust.HeadName {
		admin = name
	}
	if _, err := issue(u.dir, trust.Subject{Name: admin, Role: trust.Admin}, trust.UserLife); err != nil {
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
	var seats []head.Seat
	for i, h := range c.Seats() {
		seats = append(seats, head.Seat{Name: h.Name, Addr: c.Heads[i], Peer: peers[i]})
	}
	for _, h := range c.Seats() {
		dir := u.staged(h)
		if _, err := issue(dir, trust.Subject{Name: trust.HeadName, Role: trust.Head,
			Hosts: []string{h.Addr}}, trust.HeadLife); err != nil {
			return err
		}
		if err := errors.Join(ca.Save(dir), head.Enroll(dir, members)); err != nil {
			return err
		}
		if len(seats) > 1 {
			if err := (head.Seats{Self: h.Name, Heads: seats}).Save(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// headAddrs chooses the addresses that the heads have for ever: agents and users find them there again.
// Peers are those at which heads reach each other.
func (u *Up) headAddrs(c *user.Cluster) (peers []string, err error) {
	for _, h := range c.Seats() {
		for _, to := range []*[]string{&c.Heads, &peers} {
			ln, err := net.Listen("tcp", net.JoinHostPort(h.Addr, "0"))
			if err != nil {
				return nil, err
			}
			defer ln.Close() // held until all are chosen
			*to = append(*to, ln.Addr().String())
		}
	}
	return peers, nil
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

// start runs lfactor as a process that outlives this one, its words in dir/log.
func (u *Up) start(dir string, args ...string) error {
	pid, err := machine.Detached(dir, append([]string{u.self}, args...)...)
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

// joinLimit is how long hosts may take to join where Up.Wait does not say.
const joinLimit = 30 * time.Second

// joined waits until hosts are connected. The error says of the first hosts that are not, or of the heads where none
// answers, what their logs end in.
func (u *Up) joined(ctx context.Context, c *user.Cluster, hosts []user.Host) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	wait := cmp.Or(u.Wait, joinLimit)
	limit := time.Now().Add(wait)
	var last error
	var missing []string
	for time.Now().Before(limit) {
		var states map[string]string
		if states, last = statesOf(ctx, cl); last == nil {
			if missing = absent(hosts, states); len(missing) == 0 {
				return nil
			}
		}
		if machine.Pause(ctx, 20*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	what := fmt.Sprintf("%s did not join within %v", strings.Join(missing, ", "), wait)
	if last != nil {
		what, hosts, missing = fmt.Sprintf("no head leads within %v: %v", wait, last), c.Seats(), nil
	}
	told := 0
	for _, h := range hosts {
		if told < toldMost && (last != nil || slices.Contains(missing, h.Name)) {
			what += fmt.Sprintf("; the log of %s (%s) ends in: %s", h.Name, h.Addr, u.lastWord(ctx, h))
			told++
		}
	}
	return exit.With(errors.New(what), exit.Unreachable)
}

// toldMost is of how many hosts that do not come the logs are told.
const toldMost = 4

// lastWord is what the log of a head or an agent ends in.
func (u *Up) lastWord(ctx context.Context, h user.Host) string {
	if h.SSH == "" {
		return lastLine(filepath.Join(h.Dir, "log"))
	}
	said, err := overSSH(ctx, u.SSHCommand, h.SSH, "tail -n 1 "+quote(path.Join(h.Dir, "log")), nil)
	if err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(strings.TrimSpace(said), "error: ")
}

// absent are the names of hosts that are not connected.
func absent(hosts []user.Host, states map[string]string) (out []string) {
	for _, h := range hosts {
		if state, ok := states[h.Name]; !ok || state == away {
			out = append(out, h.Name)
		}
	}
	return out
}
