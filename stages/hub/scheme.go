package hub

import (
	"context"
	"fmt"
	"os"

	"github.com/lfactor/lfactor/configs/hf"
)

var _ = hf.RegisterScheme(Scheme, func(name string) (string, error) {
	return Have(context.Background(), name, os.Getenv)
})

// Have is the directory of a repository that is named as hf://OWNER/NAME or ms://OWNER/NAME, or with @REVISION: its snapshot
// in the cache where that is whole, without a question to the hub; else it is fetched.
func Have(ctx context.Context, name string, getenv func(string) string) (string, error) {
	r, err := ParseRepo(name)
	if err != nil {
		return "", err
	}
	named := r.Name + "@" + r.Revision
	if r.Site == ModelScope {
		c := NewModelScope(hf.CacheDir(getenv), getenv)
		if dir := c.cached(r); dir != "" {
			return dir, nil
		}
		return c.Fetch(ctx, r)
	}
	if dir, err := hf.Resolve(named, getenv); err == nil && dir != named {
		return dir, nil
	}
	return New(hf.CacheDir(getenv), getenv).Fetch(ctx, r)
}

// Fetch is Get of what a model needs, and says so on the standard error.
func (c *Client) Fetch(ctx context.Context, r Repo) (string, error) {
	c.Say = func(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
	c.Say("fetching %s@%s from %s", r.Name, r.Revision, c.Endpoint)
	return c.Get(ctx, r, nil)
}
