package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	blockBytes   = 4 << 20 // of a range request, and of an entry of the cache
	attemptsMax  = 5       // of a request
	redirectsMax = 5
)

// client makes range requests. Its fields are set apart for tests.
type client struct {
	http    *http.Client
	cache   *cache
	timeout time.Duration // of an attempt, body included: what is slower counts as broken
	backoff time.Duration // before the second attempt; twice as long before each further one
	sleep   func(context.Context, time.Duration) error
}

// newClient returns a client that follows redirects, but not to private addresses and not from https to http.
func newClient(c *cache) *client {
	dial := func(guard bool) *http.Transport {
		d := &net.Dialer{Timeout: 10 * time.Second}
		if guard {
			d.Control = refusePrivate
		}
		return &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: d.DialContext,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: 20 * time.Second, MaxIdleConnsPerHost: 32,
			IdleConnTimeout: 90 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true}
	}
	return &client{http: &http.Client{Transport: &guarded{dial(false), dial(true)}, CheckRedirect: checkRedirect},
		cache: c, timeout: 90 * time.Second, backoff: 200 * time.Millisecond, sleep: sleep}
}

// sleep waits for d, or until the context ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// guarded sends requests that a redirect led to another host through a transport that refuses private
// addresses. The host that the user named may be private: it is often a store of their own.
type guarded struct{ open, guard http.RoundTripper }

// RoundTrip sends a request. One that was redirected to another host goes the guarded way, which
// refuses private addresses.
func (g *guarded) RoundTrip(r *http.Request) (*http.Response, error) {
	if first := firstOf(r); first != r && first.URL.Host != r.URL.Host {
		return g.guard.RoundTrip(r)
	}
	return g.open.RoundTrip(r)
}

// firstOf is the request that redirects began with.
func firstOf(r *http.Request) *http.Request {
	for r.Response != nil && r.Response.Request != nil {
		r = r.Response.Request
	}
	return r
}

// errPrivate says that a redirect leads into a private network.
var errPrivate = errors.New("the redirect leads to a private address; name it directly if that is meant")

// refusePrivate refuses addresses inside of a network, so that a redirect cannot reach services that trust this host.
func refusePrivate(_, address string, _ rawConn) error {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	if err != nil || ip == nil || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() ||
		ip.IsLinkLocalMulticast() || ip.IsUnspecified() || ip.IsMulticast() {
		return errPrivate
	}
	return nil
}

// checkRedirect refuses too many redirects and those from encrypted to plain.
func checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case len(via) >= redirectsMax:
		return fmt.Errorf("over %d redirects", redirectsMax)
	case r.URL.Scheme != "https" && via[0].URL.Scheme == "https" || r.URL.Scheme != "http" && r.URL.Scheme != "https":
		return fmt.Errorf("the redirect leads from %s to %s", via[0].URL.Scheme, r.URL.Scheme)
	}
	return nil
}

// permanent is an error that trying again would not mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// remote is a file in a store.
type remote struct {
	c       *client
	name    string // without credentials
	request func(ctx context.Context) (*http.Request, error)
	sign    func(*http.Request) // after the range was set; nil for none
	size    int64
	answer  string // what the store says of the version
	version string
	ctx     context.Context
	cancel  context.CancelFunc
}

// open asks for one byte, whose answer tells the size and the version. The content comes from the cache,
// where that version is.
func (c *client) open(name string, request func(context.Context) (*http.Request, error),
	sign func(*http.Request)) (File, error) {
	f := &remote{c: c, name: name, request: request, sign: sign, size: -1}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	if _, err := f.fetch(0, 1); err != nil {
		f.cancel()
		return nil, err
	}
	return f, nil
}

func (f *remote) Name() string    { return f.name }
func (f *remote) Size() int64     { return f.size }
func (f *remote) Version() string { return f.version }

// Close ends requests that are under way.
func (f *remote) Close() error {
	f.cancel()
	return nil
}

// ReadAt implements File.
func (f *remote) ReadAt(b []byte, at int64) (n int, err error) {
	if at < 0 {
		return 0, fmt.Errorf("%s: a place of %d", f.name, at)
	}
	for n < len(b) && at < f.size {
		i := at / blockBytes
		k, err := f.c.cache.readAt(f.key(i), f.length(i), b[n:], at%blockBytes, func() ([]byte, error) {
			return f.fetch(i*blockBytes, blockBytes)
		})
		if err != nil {
			return n, err
		}
		n, at = n+k, at+int64(k)
	}
	if n < len(b) {
		err = io.EOF
	}
	return n, err
}

// key names a block in the cache.
func (f *remote) key(i int64) string { return fmt.Sprintf("%s %s %d %d", f.name, f.version, f.size, i) }

func (f *remote) length(i int64) int { return int(min(blockBytes, f.size-i*blockBytes)) }

// fetch asks for up to n bytes from a place on, several times if need be.
func (f *remote) fetch(at, n int64) (b []byte, err error) {
	leave := waits.enter(f.name, at)
	defer leave()
	for k := range attemptsMax {
		if k > 0 {
			wait := f.c.backoff << (k - 1)
			var later *retryAfter
			if errors.As(err, &later) {
				wait = max(wait, later.wait)
			}
			// so that many readers do not come back at once
			wait += time.Duration(rand.Int64N(int64(wait)/2 + 1))
			if e := f.c.sleep(f.ctx, wait); e != nil {
				return nil, e
			}
		}
		if b, err = f.attempt(at, n); err == nil {
			return b, nil
		}
		var p permanent
		if errors.As(err, &p) || f.ctx.Err() != nil {
			return nil, fmt.Errorf("read %s: %w", f.name, err)
		}
	}
	return nil, fmt.Errorf("read %s at byte %d: %w (%d attempts); is the store there?", f.name, at, err, attemptsMax)
}

// attempt makes one request and checks all that comes back.
func (f *remote) attempt(at, n int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(f.ctx, f.c.timeout)
	defer cancel()
	r, err := f.request(ctx)
	if err != nil {
		return nil, permanent{err}
	}
	r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, at+n-1))
	if f.sign != nil {
		f.sign(r)
	}
	res, err := f.c.http.Do(r)
	if err != nil {
		return nil, plain(err)
	}
	defer res.Body.Close()
	size, err := f.check(res, at, n)
	if err != nil || size == 0 {
		return nil, err
	}
	if res.StatusCode == http.StatusOK { // the whole file, which is small
		n = blockBytes
	}
	b := make([]byte, min(n, size-at))
	if _, err := io.ReadFull(res.Body, b); err != nil {
		if ctx.Err() != nil && f.ctx.Err() == nil {
			return nil, fmt.Errorf("%d bytes did not come within %v", len(b), f.c.timeout)
		}
		return nil, fmt.Errorf("the body breaks off: %w", plain(err))
	}
	if more, _ := res.Body.Read(make([]byte, 1)); more > 0 { // an end is what is looked for
		return nil, permanent{errors.New("more bytes come than were asked for; the store does not keep to ranges")}
	}
	return b, nil
}

// retryAfter is a store's wish to be asked later.
type retryAfter struct {
	error
	wait time.Duration
}

const retryAfterMax = 30 * time.Second

// check looks at an answer's head, and returns the size of the file.
func (f *remote) check(res *http.Response, at, n int64) (int64, error) {
	if res.StatusCode == http.StatusRequestedRangeNotSatisfiable && at == 0 &&
		strings.HasSuffix(res.Header.Get("Content-Range"), "/0") {
		return 0, f.is(0, res)
	}
	switch code := res.StatusCode; {
	case code == http.StatusOK:
		if at > 0 || res.ContentLength < 0 || res.ContentLength > blockBytes {
			return 0, permanent{errors.New("the store answers no range requests; download the file, and " +
				"read it from disk")}
		}
		return res.ContentLength, f.is(res.ContentLength, res)
	case code == http.StatusTooManyRequests || code >= 500:
		wait, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date, or nothing, is no wait
		return 0, &retryAfter{fmt.Errorf("the store answers %s", res.Status),
			min(time.Duration(max(wait, 0))*time.Second, retryAfterMax)}
	case code == http.StatusNotFound || code == http.StatusGone:
		return 0, permanent{missing{fmt.Errorf("the store answers %s%s", res.Status, remedy(code))}}
	case code != http.StatusPartialContent:
		return 0, permanent{fmt.Errorf("the store answers %s%s", res.Status, remedy(code))}
	}
	var from, to, size int64
	if k, err := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size); k != 3 ||
		err != nil || from != at || size <= from || to != min(size, at+n)-1 {
		return 0, permanent{fmt.Errorf("the store answers the range %q", res.Header.Get("Content-Range"))}
	}
	return size, f.is(size, res)
}

// missing is an error of a file that its store says is not there.
type missing struct{ error }

// Missing says whether an error is that a file is not there, on disk or by the word of its store.
func Missing(err error) bool {
	var m missing
	return errors.As(err, &m) || errors.Is(err, fs.ErrNotExist)
}

// remedy is what to do about a status, as the end of an error; nothing if there is no advice.
func remedy(code int) string {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return "; check the credentials"
	case http.StatusNotFound:
		return "; check the path"
	}
	return ""
}

// is holds the file to the size and version that it had first.
func (f *remote) is(size int64, res *http.Response) error {
	version := res.Header.Get("ETag")
	if version == "" {
		version = res.Header.Get("Last-Modified")
	}
	if f.size < 0 {
		f.size, f.answer, f.version = size, version, version
		// nothing tells an edit, or none within a second: what is cached is for this file alone
		if res.Header.Get("ETag") == "" {
			f.version = fmt.Sprintf("%s%s%016x", version, unknownVersion, rand.Uint64())
		}
		return nil
	}
	if size != f.size || version != f.answer {
		return permanent{errors.New("it was changed while it was in use; start again")}
	}
	return nil
}

// plain takes the URL out of an error of the http package: its query may hold credentials.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, errPrivate) {
		return permanent{errPrivate}
	}
	if strings.Contains(err.Error(), "redirect") {
		return permanent{err}
	}
	return err
}
