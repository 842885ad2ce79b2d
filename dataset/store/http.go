package store

import (
	"context"
	"net/http"
	"sync"
	"syscall"
)

// rawConn is what a dialer's control function gets.
type rawConn = syscall.RawConn

// blocks is the cache of the process, made when it is first needed.
var blocks = sync.OnceValues(func() (*cache, error) { return newCache("", 0) })

// Kept returns what make made for a key in this process or an earlier one, from the cache of remote files,
// whose bound it counts towards. Where nothing can be kept it is made. The bytes may not be changed.
func Kept(key string, make func() ([]byte, error)) ([]byte, error) {
	c, err := blocks()
	if err != nil {
		return make()
	}
	return c.get("kept\x00"+key, anyLength, make)
}

// shared is the client of the process, made when it is first needed.
var shared = sync.OnceValues(func() (*client, error) {
	c, err := blocks()
	if err != nil {
		return nil, err
	}
	return newClient(c), nil
})

func init() {
	remotes["http"], remotes["https"] = openHTTP, openHTTP
}

func openHTTP(name string) (File, error) {
	c, err := shared()
	if err != nil {
		return nil, err
	}
	return c.openHTTP(name)
}

// openHTTP opens a URL. A user and password in it are sent as basic authentication, and shown nowhere, as are
// secrets that it refers to.
func (c *client) openHTTP(name string) (File, error) {
	return c.open(Redact(name), func(ctx context.Context) (*http.Request, error) {
		full, err := resolved(name)
		if err != nil {
			return nil, permanent{err}
		}
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, full, nil)
		if err != nil {
			return nil, plain(err)
		}
		return r, nil
	}, nil)
}
