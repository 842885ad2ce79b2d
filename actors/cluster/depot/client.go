package depot

import (
	"bytes"
	"io"
	"net/url"
	"strconv"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

func about(dir string, step int64, name string) url.Values {
	return url.Values{"dir": {dir}, "step": {strconv.FormatInt(step, 10)}, "name": {name}}
}

// Sees implements checkpoint.Depot.
func (c *Client) Sees(dir, marker string) (sees bool, err error) {
	err = c.value("sees", about(dir, 0, marker), &sees)
	return sees, err
}

// Begin implements checkpoint.Depot.
func (c *Client) Begin(root string, step int64) error {
	return c.order("begin", about(root, step, ""), nil)
}

// Fetch implements checkpoint.Depot.
func (c *Client) Fetch(root string, step int64, name string) (io.ReadCloser, error) {
	return c.get("fetch", about(root, step, name))
}

// Store implements checkpoint.Depot.
func (c *Client) Store(root string, step int64, s checkpoint.Shard, from io.Reader) error {
	q := about(root, step, s.File)
	q.Set("bytes", strconv.FormatInt(s.Bytes, 10))
	q.Set("sha256", s.SHA256)
	return c.order("store", q, from)
}

// Settle implements checkpoint.Depot.
func (c *Client) Settle(root string, step int64, text []byte) error {
	return c.order("settle", about(root, step, ""), bytes.NewReader(text))
}

// Publish implements checkpoint.Depot.
func (c *Client) Publish(root string, step int64, keep int) error {
	q := about(root, step, "")
	q.Set("keep", strconv.Itoa(keep))
	return c.order("publish", q, nil)
}

// Holdings implements checkpoint.Depot.
func (c *Client) Holdings(root string) (h checkpoint.Holdings, err error) {
	err = c.value("holdings", about(root, 0, ""), &h)
	return h, err
}

// Append implements checkpoint.Depot.
func (c *Client) Append(dir, name string, at int64, from io.Reader) error {
	q := about(dir, 0, name)
	q.Set("at", strconv.FormatInt(at, 10))
	return c.order("append", q, from)
}

// Record implements checkpoint.Depot.
func (c *Client) Record(dir, name string) (io.ReadCloser, error) {
	return c.get("record", about(dir, 0, name))
}
