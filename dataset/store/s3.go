package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
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

func init() {
	remotes["s3"] = func(name string) (File, error) {
		c, err := shared()
		if err != nil {
			return nil, err
		}
		return c.openS3(name, s3FromEnv())
	}
	globs["s3"] = func(c *client, pattern string) ([]Listed, error) { return c.globS3(pattern, s3FromEnv()) }
}

// s3Config is where and as whom a store is asked. Without a key requests are not signed, as for public buckets.
type s3Config struct {
	endpoint, region   string
	variable           string // that names the endpoint
	key, secret, token string
	now                func() time.Time
	// bearer gives the token that requests carry, as Google's store wants it; nil for signatures, or nothing
	bearer func(ctx context.Context) (string, error)
}

// s3FromEnv reads the variables that AWS's own tools read.
func s3FromEnv() s3Config {
	first := func(names ...string) string {
		for _, n := range names {
			if v := os.Getenv(n); v != "" {
				return v
			}
		}
		return ""
	}
	c := s3Config{endpoint: os.Getenv("AWS_ENDPOINT_URL"), variable: "AWS_ENDPOINT_URL",
		region: first("AWS_REGION", "AWS_DEFAULT_REGION"), key: os.Getenv("AWS_ACCESS_KEY_ID"),
		secret: os.Getenv("AWS_SECRET_ACCESS_KEY"), token: os.Getenv("AWS_SESSION_TOKEN"), now: time.Now}
	if v := os.Getenv("AWS_ENDPOINT_URL_S3"); v != "" {
		c.endpoint, c.variable = v, "AWS_ENDPOINT_URL_S3"
	}
	if c.region == "" {
		c.region = "us-east-1"
	}
	return c
}

// url returns the address of a key of a bucket: under the endpoint's path where one is named, as most
// stores want it, or under the bucket's own host at AWS.
func (c *s3Config) url(bucket, key string) (*url.URL, error) {
	if c.endpoint == "" {
		return &url.URL{Scheme: "https", Host: bucket + ".s3." + c.region + ".amazonaws.com", Path: "/" +
			key, RawPath: "/" + s3Escape(key)}, nil
	}
	u, err := url.Parse(c.endpoint)
	if err != nil || u.Host == "" {
		return nil, errors.New(c.variable + " is no URL")
	}
	base := strings.TrimSuffix(u.Path, "/") + "/" + bucket
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: base + "/" + key, RawPath: base + "/" + s3Escape(key)}, nil
}

// s3Escape escapes a key as signatures want it: all but letters, digits, "-_.~" and "/".
func s3Escape(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_.~/", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// splitBucket cuts s3://BUCKET/KEY, and addresses of that form at other stores, into their parts; the key may be empty.
func splitBucket(name string) (bucket, key string, err error) {
	scheme := Scheme(name)
	bucket, key, _ = strings.Cut(name[len(scheme)+len("://"):], "/")
	if bucket == "" || strings.ContainsAny(bucket, "@?#: ") {
		return "", "", fmt.Errorf("%s: want %s://BUCKET/KEY", Redact(name), scheme)
	}
	return bucket, key, nil
}

// splitObject is splitBucket of an address that names a key.
func splitObject(name string) (bucket, key string, err error) {
	if bucket, key, err = splitBucket(name); err == nil && key == "" {
		err = fmt.Errorf("%s names no key in the bucket", name)
	}
	return bucket, key, err
}

// openS3 opens an object by signed requests.
func (c *client) openS3(name string, conf s3Config) (File, error) {
	bucket, key, err := splitObject(name)
	if err != nil {
		return nil, err
	}
	u, err := conf.url(bucket, key)
	if err != nil {
		return nil, err
	}
	return c.open(name, func(ctx context.Context) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, plain(err)
		}
		r.URL = u
		return r, conf.authorize(ctx, r)
	}, conf.sign)
}

// authorize puts the token into a request, where the store wants one.
func (c s3Config) authorize(ctx context.Context, r *http.Request) error {
	if c.bearer == nil {
		return nil
	}
	token, err := c.bearer(ctx)
	if err == nil {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return err
}

// emptySum is the SHA-256 of a request without a body.
const emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// sign signs a request with its range by AWS's version 4. Source: "Signature Calculations for the
// Authorization Header", Amazon S3 API reference.
func (c s3Config) sign(r *http.Request) {
	if c.key == "" {
		return
	}
	at := c.now().UTC()
	day, stamp := at.Format("20060102"), at.Format("20060102T150405Z")
	r.Header.Set("x-amz-date", stamp)
	r.Header.Set("x-amz-content-sha256", emptySum)
	if c.token != "" {
		r.Header.Set("x-amz-security-token", c.token)
	}
	names := []string{"host", "x-amz-content-sha256", "x-amz-date"}
	for _, n := range []string{"range", "x-amz-security-token"} {
		if r.Header.Get(n) != "" {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, n := range names {
		v := r.Header.Get(n)
		if n == "host" {
			v = r.URL.Host
		}
		fmt.Fprintf(&headers, "%s:%s\n", n, strings.TrimSpace(v))
	}
	signed := strings.Join(names, ";")
	scope := day + "/" + c.region + "/s3/aws4_request"
	request := sha256.Sum256([]byte(strings.Join([]string{r.Method, r.URL.EscapedPath(),
		strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"), headers.String(), signed, emptySum}, "\n")))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", stamp, scope, hex.EncodeToString(request[:])}, "\n")
	k := []byte("AWS4" + c.secret)
	for _, part := range []string{day, c.region, "s3", "aws4_request", text} {
		m := hmac.New(sha256.New, k)
		m.Write([]byte(part))
		k = m.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s,SignedHeaders=%s,Signature=%s", c.key,
		scope, signed, hex.EncodeToString(k)))
}

// globS3 lists the objects that match a pattern.
func (c *client) globS3(pattern string, conf s3Config) (out []Listed, err error) {
	return c.glob(pattern, func(ctx context.Context, bucket, prefix, token string) (*http.Request, error) {
		u, err := conf.url(bucket, "")
		if err != nil {
			return nil, err
		}
		q := url.Values{"list-type": {"2"}, "prefix": {prefix}}
		if token != "" {
			q.Set("continuation-token", token)
		}
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
		if err != nil {
			return nil, plain(err)
		}
		if err := conf.authorize(ctx, r); err != nil {
			return nil, err
		}
		conf.sign(r)
		return r, nil
	}, s3Keys)
}

// s3Keys reads an answer to ListObjectsV2.
func s3Keys(r io.Reader) (keys []Listed, next string, err error) {
	var page struct {
		List []struct {
			Key, ETag string
			Size      int64
		} `xml:"Contents"`
		Next string `xml:"NextContinuationToken"`
	}
	err = xml.NewDecoder(r).Decode(&page)
	for _, o := range page.List {
		keys = append(keys, Listed{o.Key, o.Size, o.ETag})
	}
	return keys, page.Next, err
}
