package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"
)

// Azure's blobs: az://CONTAINER/KEY of the account in AZURE_STORAGE_ACCOUNT.
func init() {
	remotes["az"] = func(name string) (File, error) {
		c, err := shared()
		if err != nil {
			return nil, err
		}
		return c.openAzure(name, azureFromEnv())
	}
	globs["az"] = func(c *client, pattern string) ([]Listed, error) {
		return c.globAzure(pattern, azureFromEnv())
	}
}

// azureVersion is the version of the interface that requests name.
const azureVersion = "2021-08-06"

// azureConfig is where and as whom blobs are asked for. Without key and SAS requests are not signed,
// as for public containers.
type azureConfig struct {
	account, endpoint string
	key               string // base64
	sas               string // a query
	now               func() time.Time
}

// azureFromEnv reads the variables that Azure's own tools read.
func azureFromEnv() azureConfig {
	return azureConfig{account: os.Getenv("AZURE_STORAGE_ACCOUNT"), endpoint: os.Getenv("AZURE_STORAGE_ENDPOINT"),
		key: os.Getenv("AZURE_STORAGE_KEY"),
		sas: strings.TrimPrefix(os.Getenv("AZURE_STORAGE_SAS_TOKEN"), "?"),
		now: time.Now}
}

// url is the address of a blob, or of a container for no key, with what a SAS adds.
func (c *azureConfig) url(container, key string, query url.Values) (*url.URL, error) {
	if c.account == "" {
		return nil, errors.New("AZURE_STORAGE_ACCOUNT is not set; it names the account of the container")
	}
	if _, err := base64.StdEncoding.DecodeString(c.key); err != nil {
		return nil, errors.New("AZURE_STORAGE_KEY is not base64, as Azure gives keys") // the key itself is not shown
	}
	base := c.endpoint
	if base == "" {
		base = "https://" + c.account + ".blob.core.windows.net"
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" {
		return nil, errors.New("AZURE_STORAGE_ENDPOINT is no URL")
	}
	at := strings.TrimSuffix(u.Path, "/") + "/" + container
	u.Path, u.RawPath = at, at
	if key != "" {
		u.Path, u.RawPath = at+"/"+key, at+"/"+s3Escape(key)
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	if c.sas != "" && c.key == "" {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+c.sas, "&")
	}
	return u, nil
}

// request makes a request without a signature.
func (c *azureConfig) request(ctx context.Context, u *url.URL) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, plain(err)
	}
	r.URL = u
	r.Header.Set("x-ms-version", azureVersion)
	return r, nil
}

// sign signs a request with the account's key. Source: "Authorize with Shared Key", Azure Storage.
func (c azureConfig) sign(r *http.Request) {
	key, err := base64.StdEncoding.DecodeString(c.key) // url has checked it
	if c.key == "" || err != nil {
		return
	}
	r.Header.Set("x-ms-date", c.now().UTC().Format(http.TimeFormat))
	if at := r.Header.Get("Range"); at != "" { // as Azure's own library asks
		r.Header.Set("x-ms-range", at)
		r.Header.Del("Range")
	}
	var names []string
	for n := range r.Header {
		if n = strings.ToLower(n); strings.HasPrefix(n, "x-ms-") {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	text := r.Method + strings.Repeat("\n", 12)
	for _, n := range names {
		text += n + ":" + strings.TrimSpace(r.Header.Get(n)) + "\n"
	}
	text += "/" + c.account + r.URL.EscapedPath()
	query := r.URL.Query()
	keys := make([]string, 0, len(query))
	for k := range query {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		slices.Sort(query[k])
		text += "\n" + strings.ToLower(k) + ":" + strings.Join(query[k], ",")
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	r.Header.Set("Authorization", "SharedKey "+c.account+":"+base64.StdEncoding.EncodeToString(m.Sum(nil)))
}

// openAzure opens a blob.
func (c *client) openAzure(name string, conf azureConfig) (File, error) {
	container, key, err := splitObject(name)
	if err != nil {
		return nil, err
	}
	u, err := conf.url(container, key, nil)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return c.open(name, func(ctx context.Context) (*http.Request, error) { return conf.request(ctx, u) }, conf.sign)
}

// globAzure lists the blobs that match a pattern.
func (c *client) globAzure(pattern string, conf azureConfig) ([]Listed, error) {
	return c.glob(pattern, func(ctx context.Context, container, prefix, marker string) (*http.Request, error) {
		q := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {prefix}}
		if marker != "" {
			q.Set("marker", marker)
		}
		u, err := conf.url(container, "", q)
		if err != nil {
			return nil, err
		}
		r, err := conf.request(ctx, u)
		if err == nil {
			conf.sign(r)
		}
		return r, err
	}, azureKeys)
}

// azureKeys reads an answer to List Blobs.
func azureKeys(r io.Reader) (keys []Listed, next string, err error) {
	var page struct {
		List []struct {
			Name string
			Etag string `xml:"Properties>Etag"`
			Size int64  `xml:"Properties>Content-Length"`
		} `xml:"Blobs>Blob"`
		Next string `xml:"NextMarker"`
	}
	err = xml.NewDecoder(r).Decode(&page)
	for _, o := range page.List {
		keys = append(keys, Listed{o.Name, o.Size, o.Etag})
	}
	return keys, page.Next, err
}
