package deploy

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
)

// Add takes one more host into a cluster, by ssh.
func (u *Up) Add(ctx context.Context, c *user.Cluster, e Entry) (h user.Host, err error) {
	if slices.ContainsFunc(c.Hosts, func(h user.Host) bool { return h.Name == e.Name }) {
		return h, exit.Usagef("the cluster has a host %s already: give this one another --name", e.Name)
	}
	if u.self, err = os.Executable(); err != nil {
		return h, err
	}
	if u.hash, err = HashFile(u.self); err != nil {
		return h, err
	}
	cl, err := c.Client()
	if err != nil {
		return h, err
	}
	r := &remote{Entry: e}
	hosts := []*remote{r}
	if err := u.preflight(ctx, hosts); err != nil {
		u.undoRemote(hosts)
		return h, err
	}
	defer func() {
		if err != nil {
			u.undoRemote(hosts)
		}
	}()
	var made struct {
		Token string `json:"token"`
	}
	if err := cl.Do(ctx, "POST", "/v1/tokens", nil, &made); err != nil {
		return h, err
	}
	t, err := trust.ParseToken(made.Token)
	if err != nil {
		return h, err
	}
	tmp, err := os.MkdirTemp(c.Path(), "add-")
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	h = r.Host
	h.Dir = tmp
	if _, err := enter(ctx, t, h, u.hash); err != nil {
		return h, err
	}
	files, err := readAll(tmp)
	if err != nil {
		return h, err
	}
	h.Dir, h.Binary = r.Host.Dir, r.binary(u)
	args := control.AgentArgs(h.Dir, h.Addr, c.Heads)
	if e.Ports != "" {
		args = append(args, "--ports", e.Ports)
	}
	if err := u.all("start", hosts, func(r *remote) error {
		return u.install(ctx, r, Install{h.Dir, files, args})
	}); err != nil {
		return h, err
	}
	c.Hosts = append(c.Hosts, h)
	return h, errors.Join(u.joined(ctx, c), c.Save(c.Path()))
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
