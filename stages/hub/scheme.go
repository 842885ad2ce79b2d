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

// Have is the directory of a repository that is named as hf://OWNER/NAME or with @REVISION: its snapshot
// in the cache where that is whole, without a question to the hub; else it is fetched.
func Have(ctx context.Context, name string, getenv func(string) string) (string, error) {
	r, err := ParseRepo(name)
	if err != nil {
		return "", err
	}
	named := r.Name + "@" + r.Revision
	if dir, err := hf.Resolve(named, getenv); err == nil && dir != named {
		return dir, nil
	}
	c := New(hf.CacheDir(getenv), getenv)
	c.Say = func(format string, a ...any) { fmt.Fprintf(os.Stderr, format+"\n", a...) }
	c.Say("fetching %s from %s", named, c.Endpoint)
	return c.Get(ctx, r, nil)
}
