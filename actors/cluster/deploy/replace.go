package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/user"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// Replace puts a new head in the place of one whose directory or host is lost, at the same addresses, so
// that agents and users find it where they look for it. The others have to be a majority.
func (u *Up) Replace(ctx context.Context, c *user.Cluster, name string) error {
	n := slices.IndexFunc(c.Seats(), func(h user.Host) bool { return h.Name == name })
	if n < 0 || len(c.More) == 0 {
		return exit.Usagef("cluster replace: %s has no head %q among several", c.Name, name)
	}
	h := c.Seats()[n]
	if pid := machine.Holder(h.Dir); h.SSH == "" && pid > 0 {
		return exit.With(fmt.Errorf("head %s is there: process %d has %s", name, pid, h.Dir), exit.Unreachable)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	path := "/v1/heads/" + url.PathEscape(name)
	if err = u.programs(); err != nil {
		return err
	}
	var hosts []*remote
	if h.SSH != "" { // a host that was set up anew has no binary yet
		if u.hash, err = machine.HashFile(u.self); err != nil {
			return err
		}
		hosts = []*remote{{Entry: Entry{Name: h.Name, SSH: h.SSH, Addr: h.Addr}}}
		if err := u.preflight(ctx, hosts); err != nil {
			return err
		}
		if err := u.pushHead(ctx, hosts[0]); err != nil {
			return err
		}
	}
	var made head.Replacement
	if err := cl.Do(ctx, "POST", path+"/replace", nil, &made); err != nil {
		return err
	}
	args := control.HeadArgs(h.Dir, c.Heads[n])
	if h.SSH != "" {
		err = u.install(ctx, hosts[0], Install{h.Dir, made.Files, args})
	} else {
		err = u.place(h.Dir, made.Files, args)
		defer os.Remove(filepath.Join(h.Dir, control.DownFile)) // agents look after it from now on
	}
	if err != nil {
		return err
	}
	return u.follows(ctx, cl, name, path)
}

// place makes a head's directory on this machine and starts the head. Agents of this machine look for
// directories without a head: this one says that it is to have none, until it has one.
func (u *Up) place(dir string, files map[string][]byte, args []string) error {
	stage := dir + ".new"
	if err := errors.Join(os.RemoveAll(stage), os.MkdirAll(stage, 0o700)); err != nil {
		return err
	}
	for name, text := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%q is not a file of %s", name, dir)
		}
		if err := os.WriteFile(filepath.Join(stage, name), text, 0o600); err != nil {
			return err
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(stage, control.DownFile), nil, 0o600), os.RemoveAll(dir),
		os.Rename(stage, dir))
	if err != nil {
		return err
	}
	return u.start(dir, args...)
}

// follows waits until a head follows the one that leads, and lets it vote.
func (u *Up) follows(ctx context.Context, cl *control.Client, name, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		var s head.Status
		err := cl.Do(ctx, "GET", "/v1/status", nil, &s)
		if err == nil && slices.ContainsFunc(s.Heads, func(x head.SeatState) bool {
			return x.Name == name && x.State == "follows"
		}) {
			return cl.Do(ctx, "POST", path+"/promote", nil, nil)
		}
		if machine.Pause(ctx, 50*time.Millisecond) != nil {
			return exit.With(fmt.Errorf("head %s was started and does not follow within %v: `lfactor "+
				"cluster logs %s` says why; repeat this then", name, startLimit, name), exit.Unreachable)
		}
	}
}
