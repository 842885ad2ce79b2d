package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
)

// Listed is an object as a listing of its store has it.
type Listed struct {
	Name    string
	Size    int64
	Version string // as File.Version of the object has it; "" where the store does not list it
}

// globs lists the objects of stores, by scheme.
var globs = map[string]func(c *client, pattern string) ([]Listed, error){}

// Glob returns the files that a pattern with wild cards names, sorted. Stores of their own kind can be
// listed: s3, gs and az.
func Glob(pattern string) (names []string, err error) {
	list, err := List(pattern)
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names, err
}

// List is Glob with sizes and versions.
func List(pattern string) ([]Listed, error) {
	list, ok := globs[Scheme(pattern)]
	if !ok {
		return nil, fmt.Errorf("%s: %s has no lists of files; name them, as in {000..009}", Redact(pattern),
			Scheme(pattern))
	}
	c, err := shared()
	if err != nil {
		return nil, err
	}
	return list(c, pattern)
}

const (
	listPagesMax = 1000 // of 1000 keys
	listBytesMax = 8 << 20
)

// lister makes the request for a page of a bucket's keys that begin with a prefix; token is what the page
// before ended with.
type lister func(ctx context.Context, bucket, prefix, token string) (*http.Request, error)

// glob lists the objects that match a pattern. The store filters by what stands before the first wildcard,
// and the rest is matched here.
func (c *client) glob(pattern string, request lister,
	parse func(io.Reader) (keys []Listed, next string, err error)) (out []Listed, err error) {
	bucket, key, err := splitBucket(pattern)
	if err != nil {
		return nil, err
	}
	prefix := key[:strings.IndexAny(key+"*", "*?[")]
	token := ""
	for range listPagesMax {
		var keys []Listed
		err := c.again(func() (err error) {
			keys, token, err = c.listOnce(bucket, prefix, token, request, parse)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		for _, k := range keys {
			if ok, err := path.Match(key, k.Name); err != nil {
				return nil, fmt.Errorf("%s: %w", pattern, err)
			} else if ok {
				k.Name = Scheme(pattern) + "://" + bucket + "/" + k.Name
				k.Version = strings.Trim(k.Version, `"`)
				out = append(out, k)
			}
		}
		if token == "" {
			slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
			return out, nil
		}
	}
	return nil, fmt.Errorf("list %s: over %d keys", pattern, 1000*listPagesMax)
}

// again tries something again after faults that may pass.
func (c *client) again(try func() error) (err error) {
	for n := range attemptsMax {
		if n > 0 {
			if e := c.sleep(context.Background(), c.backoff<<(n-1)); e != nil {
				return e
			}
		}
		var p permanent
		if err = try(); err == nil || errors.As(err, &p) {
			return err
		}
	}
	return fmt.Errorf("%w (%d attempts)", err, attemptsMax)
}

// listOnce reads one page of a listing. Answers that another try will not change are marked as permanent.
// Where it fails the token is the one of the page that was asked for.
func (c *client) listOnce(bucket, prefix, token string, request lister,
	parse func(io.Reader) ([]Listed, string, error)) (keys []Listed, next string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
	defer cancel()
	r, err := request(ctx, bucket, prefix, token)
	if err != nil {
		return nil, token, permanent{err}
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, token, plain(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		err = fmt.Errorf("the store answers %s%s", res.Status, remedy(res.StatusCode))
		if res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests {
			err = permanent{err}
		}
		return nil, token, err
	}
	if keys, next, err = parse(io.LimitReader(res.Body, listBytesMax)); err != nil {
		return nil, token, err
	}
	return keys, next, nil
}
