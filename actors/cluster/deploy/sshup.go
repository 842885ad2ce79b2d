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
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// headPort is the head's where its host's ports are not limited.
const headPort = 7420

// SSH brings up a cluster on hosts that ssh reaches, with the head on the first. Each check is a line
// with a mark; where one fails, nothing is left on any host.
func (u *Up) SSH(ctx context.Context, entries []Entry) (c *user.Cluster, err error) {
	for _, name := range u.Heads {
		if !slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == name }) {
			return nil, exit.Usagef("cluster up: --heads: there is no host %s among those of the cluster", name)
		}
	}
	if err = u.programs(); err != nil {
		return nil, err
	}
	if u.hash, err = machine.HashFile(u.self); err != nil {
		return nil, err
	}
	if err := u.reserve(); err != nil {
		return nil, err
	}
	var hosts []*remote
	for _, e := range entries {
		hosts = append(hosts, &remote{Entry: e})
	}
	defer func() {
		if err != nil {
			u.undoRemote(hosts)
			u.undo()
		}
	}()
	if err := u.preflight(ctx, hosts); err != nil {
		return nil, err
	}
	heads, err := u.headHosts(hosts)
	if err != nil {
		return nil, err
	}
	c = &user.Cluster{Name: u.Name, SSHCommand: u.SSHCommand, Binary: hosts[0].binary(u)}
	var peers []string
	for _, r := range heads {
		h := r.Host
		h.Dir = path.Join(r.home, ".lfactor", "heads", u.Name)
		c.More, c.Heads, peers = append(c.More, h), append(c.Heads, r.headAddr(0)),
			append(peers, r.headAddr(1))
	}
	c.Head, c.More = c.More[0], c.More[1:]
	for _, r := range hosts {
		r.Host.Binary = r.binary(u)
		c.Hosts = append(c.Hosts, r.Host)
	}
	if err := u.certify(c, peers); err != nil {
		return nil, err
	}
	if err := u.launchRemote(ctx, c, hosts, heads); err != nil {
		return nil, err
	}
	if err := c.Save(u.dir); err != nil {
		return nil, err
	}
	if err := u.joined(ctx, c, c.Hosts); err != nil {
		return nil, err
	}
	u.Say("✓ agents  %d/%d, one binary", len(hosts), len(hosts))
	if err := u.ways(ctx, c); err != nil {
		return nil, err
	}
	return c, c.MakeCurrent()
}

// preflight checks the hosts and puts the binary on them.
func (u *Up) preflight(ctx context.Context, hosts []*remote) error {
	for _, step := range []struct {
		what string
		f    func(*remote) error
	}{
		{"ssh", func(r *remote) error { return u.learn(ctx, r) }},
		{"machine", u.machine},
		{"disk", u.disk},
		{"open files", u.files},
		{"clock", u.clock},
		{"binary", func(r *remote) error { return u.push(ctx, r) }},
	} {
		if err := u.all(step.what, hosts, step.f); err != nil {
			return err
		}
		if step.what == "machine" {
			for _, r := range hosts {
				u.Say("  %s  %s  %d cores  %.1f GiB  %d accelerators  %.1f GiB free", r.Entry.Name,
					r.Entry.Addr, r.number("cores"),
					float64(r.number("memory"))/(1<<20), r.number("gpus"), float64(r.number("disk"))/(1<<20))
			}
		}
	}
	return nil
}

// headHosts are the hosts that have heads: those that are named, or the first.
func (u *Up) headHosts(hosts []*remote) (out []*remote, err error) {
	if len(u.Heads) == 0 {
		return hosts[:1], nil
	}
	at := map[string]string{}
	for _, name := range u.Heads {
		r := hosts[slices.IndexFunc(hosts, func(r *remote) bool { return r.Entry.Name == name })]
		if other := at[r.Entry.Addr]; other != "" {
			return nil, exit.Usagef("cluster up: --heads: %s and %s have one address, %s: heads of one host are "+
				"lost together", other, name, r.Entry.Addr)
		}
		if p, err := ParsePorts(r.Entry.Ports); err == nil && len(u.Heads) > 1 && p[0] > 0 && p[0] == p[1] {
			return nil, exit.Usagef("cluster up: --heads: host %s may use one port, and one of several heads "+
				"wants two: give it more ports", name)
		}
		at[r.Entry.Addr] = name
		out = append(out, r)
	}
	return out, nil
}

// headAddr is where the head on this host listens: for agents and commands at the first of its ports, for
// other heads at the next.
func (r *remote) headAddr(n int) string {
	port := headPort
	if p, err := ParsePorts(r.Entry.Ports); err == nil && p[0] > 0 {
		port = p[0]
	}
	return net.JoinHostPort(r.Entry.Addr, strconv.Itoa(port+n))
}

// launchRemote starts the heads, then the agents, each with its files.
func (u *Up) launchRemote(ctx context.Context, c *user.Cluster, hosts, heads []*remote) error {
	err := u.all("head", heads, func(r *remote) error {
		n := slices.Index(heads, r)
		h := c.Seats()[n]
		if err := u.pushHead(ctx, r); err != nil {
			return err
		}
		files, err := readAll(u.staged(h))
		if err != nil {
			return err
		}
		return u.install(ctx, r, Install{h.Dir, files, control.HeadArgs(h.Dir, c.Heads[n])})
	})
	if err != nil {
		return err
	}
	start := func(r *remote) error {
		files, err := readAll(filepath.Join(u.dir, "agents", r.Host.Name))
		if err != nil {
			return err
		}
		var local []control.LocalHead
		if n := slices.Index(heads, r); n >= 0 {
			local = append(local, control.LocalHead{Dir: c.Seats()[n].Dir, Listen: c.Heads[n]})
		}
		args := append(control.AgentArgs(r.Host.Dir, r.Host.Addr, c.Heads, local...), r.Entry.args()...)
		return u.install(ctx, r, Install{r.Host.Dir, files, args})
	}
	// the first host goes ahead, so that of two clusters that want the same hosts one gets them all
	if err := start(hosts[0]); err != nil {
		return u.all("start", hosts[:1], func(*remote) error { return err })
	}
	err = u.all("start", hosts, func(r *remote) error {
		if r == hosts[0] {
			return nil
		}
		return start(r)
	})
	if err != nil {
		return err
	}
	// what is on the hosts now, keys of theirs and the authority's among it, is theirs alone
	return errors.Join(os.RemoveAll(filepath.Join(u.dir, "head")), os.RemoveAll(filepath.Join(u.dir, "heads")),
		os.RemoveAll(filepath.Join(u.dir, "agents")))
}

// undoRemote leaves nothing on the hosts of what did not come up.
func (u *Up) undoRemote(hosts []*remote) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, r := range hosts {
		if r.home == "" || !r.pushed && len(r.began) == 0 {
			continue
		}
		if err := remove(ctx, u.SSHCommand, r.Entry.SSH, r.binary(u), r.began, r.pushed); err != nil {
			u.Say("! %s: %v", r.Entry.Name, err)
		}
	}
}

// ways measures the way between every pair of hosts, both ways, and reports it.
func (u *Up) ways(ctx context.Context, c *user.Cluster) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	links, err := Check(ctx, cl)
	if err != nil {
		return err
	}
	return Report(links, u.Say)
}

// Check lets a cluster measure the ways between its hosts.
func Check(ctx context.Context, cl *control.Client) (links []control.Link, err error) {
	return links, cl.Do(ctx, "POST", "/v1/check", nil, &links)
}

// Report says how the ways between hosts are, and ends with an error if one of them does not work.
func Report(links []control.Link, say func(string, ...any)) error {
	bad, first := 0, ""
	slow, far := control.Link{}, control.Link{}
	for _, l := range links {
		if l.Fault != "" {
			bad++
			first = cmp.Or(first, fmt.Sprintf("%s cannot reach %s: %s", l.From, l.To, l.Fault))
			say("✗ ports  %s cannot reach %s: %s; let the ports of hosts.yaml through both ways", l.From,
				l.To, l.Fault)
			continue
		}
		if slow.From == "" || l.Rate < slow.Rate {
			slow = l
		}
		if l.RTT > far.RTT {
			far = l
		}
	}
	if bad > 0 {
		return exit.With(fmt.Errorf("ports: %d of %d ways between hosts are closed: %s", bad, len(links), first),
			exit.Unreachable)
	}
	say("✓ ports  %d/%d ways between hosts", len(links), len(links))
	if len(links) > 0 {
		say("✓ links  slowest %s→%s %.2f GB/s, farthest %s→%s %v", slow.From, slow.To, slow.Rate/1e9,
			far.From, far.To, far.RTT.Round(time.Microsecond))
	}
	return nil
}

// downRemote ends what ssh has started, and removes its files and the binary.
func downRemote(ctx context.Context, c *user.Cluster, say func(string, ...any)) error {
	var left []string
	for _, h := range c.Hosts {
		if h.SSH == "" {
			continue
		}
		dirs := []string{h.Dir}
		for _, x := range c.Seats() {
			if x.SSH == h.SSH {
				dirs = append(dirs, x.Dir)
			}
		}
		if err := remove(ctx, c.SSHCommand, h.SSH, h.Binary, dirs, true); err != nil {
			say("! %s: %v", h.Name, err)
			left = append(left, h.Name)
		}
	}
	if len(left) > 0 {
		return exit.With(fmt.Errorf("something may be left on %s: repeat `lfactor cluster down %s` when "+
			"it can be reached", strings.Join(left, ", "), c.Name),
			exit.Unreachable)
	}
	return nil
}
