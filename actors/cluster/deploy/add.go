package deploy

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Add takes one more host into a cluster, by ssh, or one again that is away: the head says which hosts there
// are, not what this user remembers.
func (u *Up) Add(ctx context.Context, c *user.Cluster, e Entry) (h user.Host, err error) {
	if u.self, err = os.Executable(); err != nil {
		return h, err
	}
	if u.hash, err = machine.HashFile(u.self); err != nil {
		return h, err
	}
	cl, err := c.Client()
	if err != nil {
		return h, err
	}
	states, err := statesOf(ctx, cl)
	if err != nil {
		return h, err
	}
	was, member := states[e.Name]
	if member && was != away {
		return h, exit.Usagef("the cluster has a host %s already, which is %s: give this one another --name",
			e.Name, was)
	}
	r := &remote{Entry: e}
	hosts := []*remote{r}
	if err := u.preflight(ctx, hosts); err != nil {
		u.undoRemote(hosts)
		return h, err
	}
	entered := false
	defer func() {
		if err == nil {
			return
		}
		u.undoRemote(hosts)
		if entered && !member { // nobody waits for it
			undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
			defer cancel()
			if e := cl.Do(undo, "DELETE", "/v1/hosts/"+url.PathEscape(h.Name), nil, nil); e != nil {
				u.Say("! host %s stays in the list of members: %v", h.Name, e)
			}
		}
	}()
	h = r.Host
	files, err := u.certified(ctx, c, cl, h, func() { entered = true })
	if err != nil {
		return h, err
	}
	h.Dir, h.Binary = r.Host.Dir, r.binary(u)
	args := append(control.AgentArgs(h.Dir, h.Addr, c.Heads), e.args()...)
	if err := u.all("start", hosts, func(r *remote) error {
		return u.install(ctx, r, Install{h.Dir, files, args})
	}); err != nil {
		return h, err
	}
	if err := u.joined(ctx, c, []user.Host{h}); err != nil {
		return h, err
	}
	Forget(c, h.Name)
	c.Hosts = append(c.Hosts, h)
	return h, c.Save(c.Path())
}

// certified makes a host a member by a token, and returns the files of its directory; entered is called once
// it is in the list.
func (u *Up) certified(ctx context.Context, c *user.Cluster, cl *control.Client, h user.Host,
	entered func()) (files map[string][]byte, err error) {
	var made struct {
		Token string `json:"token"`
	}
	if err := cl.Do(ctx, "POST", "/v1/tokens", nil, &made); err != nil {
		return nil, err
	}
	t, err := trust.ParseToken(made.Token)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(c.Path(), "add-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	h.Dir = tmp
	if _, err := enter(ctx, t, h, u.hash); err != nil {
		return nil, err
	}
	entered()
	return readAll(tmp)
}

// undoLimit is how long taking a host back out of the list may take that did not come.
const undoLimit = 10 * time.Second

// away is the state of a host that is not connected with the head.
const away = "away"

// statesOf are the states of a cluster's hosts, as its head says.
func statesOf(ctx context.Context, cl *control.Client) (map[string]string, error) {
	var s head.Status
	if err := cl.Do(ctx, "GET", "/v1/status", nil, &s); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, h := range s.Hosts {
		out[h.Name] = h.State
	}
	return out, nil
}

// Forget takes a host out of what the user knows of a cluster.
func Forget(c *user.Cluster, name string) {
	c.Hosts = slices.DeleteFunc(c.Hosts, func(h user.Host) bool { return h.Name == name })
}

// readAll reads the files of a directory.
func readAll(dir string) (map[string][]byte, error) {
	out := map[string][]byte{}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		if err == nil {
			out[filepath.Base(f)], err = os.ReadFile(f)
		}
	}
	return out, err
}
