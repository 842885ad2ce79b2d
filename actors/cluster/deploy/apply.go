package deploy

import (
	"context"
	"net/url"
	"slices"

	"github.com/lfactor/lfactor/actors/cluster/user"
)

// Change is what makes a cluster have a host, or not, as a file says.
type Change struct {
	Host string `json:"host"`
	Do   string `json:"do"` // add, rejoin, remove
}

// What is done to a host.
const (
	doAdd    = "add"    // it is no member
	doRejoin = "rejoin" // it is one, and away
	doRemove = "remove" // it is one, was added by ssh, and the file does not have it
)

// Changes are what makes a cluster have the hosts of a file, in the file's order, removals last. Hosts that
// have joined with a token are in no file, and stay.
func Changes(c *user.Cluster, states map[string]string, want []Entry) (out []Change) {
	for _, e := range want {
		switch state, member := states[e.Name]; {
		case !member:
			out = append(out, Change{e.Name, doAdd})
		case state == away:
			out = append(out, Change{e.Name, doRejoin})
		}
	}
	for _, h := range c.Hosts {
		wanted := slices.ContainsFunc(want, func(e Entry) bool { return e.Name == h.Name })
		if _, member := states[h.Name]; member && !wanted && h.SSH != "" {
			out = append(out, Change{h.Name, doRemove})
		}
	}
	return out
}

// Apply makes a cluster have the hosts of a file: it adds those that are no members, takes those in again
// that are away, and removes those that the file does not have. Where all is as written it does nothing. It
// ends at the first host for which it cannot, with what it has done before.
func (u *Up) Apply(ctx context.Context, c *user.Cluster, want []Entry) (done []Change, err error) {
	cl, err := c.Client()
	if err != nil {
		return nil, err
	}
	states, err := statesOf(ctx, cl)
	if err != nil {
		return nil, err
	}
	done = []Change{}
	for _, x := range Changes(c, states, want) {
		if x.Do == doRemove {
			err = cl.Do(ctx, "DELETE", "/v1/hosts/"+url.PathEscape(x.Host), nil, nil)
			if err == nil {
				Forget(c, x.Host)
				err = c.Save(c.Path())
			}
		} else {
			i := slices.IndexFunc(want, func(e Entry) bool { return e.Name == x.Host })
			_, err = u.Add(ctx, c, want[i])
		}
		if err != nil {
			return done, err
		}
		done = append(done, x)
	}
	return done, nil
}
