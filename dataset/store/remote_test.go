package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// testClient has a cache of its own and does not wait.
func testClient(t *testing.T, cacheMax int64) *client {
	t.Helper()
	cc, err := newCache(t.TempDir(), cacheMax)
	require.NoError(t, err)
	c := newClient(cc)
	c.sleep = func(context.Context, time.Duration) error { return nil }
	return c
}

func contentOf(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{7}).Read(b)
	return b
}

func serve(t *testing.T, h http.HandlerFunc) string {
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// A file in a store reads like one on disk, by many at once; blocks come once, from the cache afterwards,
// and the cache keeps its bound.
func TestHTTPReads(t *testing.T) {
	content := contentOf(3*blockBytes + 12345)
	var requests atomic.Int64
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(content))
	})
	c := testClient(t, 2*blockBytes+1<<20)
	f, err := c.openHTTP(base + "/a.tar")
	require.NoError(t, err)
	require.EqualValues(t, len(content), f.Size())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(w)))
			for range 50 {
				at, n := rng.IntN(len(content)), rng.IntN(100_000)
				b := make([]byte, n)
				got, err := f.ReadAt(b, int64(at))
				if want := content[at:min(len(content), at+n)]; !bytes.Equal(want, b[:got]) ||
					(got < n) != (err == io.EOF) {
					t.Errorf("%d bytes at %d: %d, %v", n, at, got, err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.Close())
	require.LessOrEqual(t, c.cache.used, c.cache.max)
	list, err := os.ReadDir(c.cache.dir)
	require.NoError(t, err)
	var held int64 // two whole blocks, and the last one, which is short, or not
	for _, e := range list {
		info, err := e.Info()
		require.NoError(t, err)
		held += info.Size()
	}
	require.LessOrEqual(t, held, c.cache.max+1<<16, "blocks and what says of them")

	before := requests.Load()
	again, err := newCache(c.cache.dir, c.cache.max)
	require.NoError(t, err)
	c.cache = again
	g, err := c.openHTTP(base + "/a.tar")
	require.NoError(t, err)
	require.Equal(t, before+1, requests.Load(), "only the request that asks for the version")
	for _, e := range list { // damage costs a request
		require.NoError(t, os.WriteFile(filepath.Join(c.cache.dir, e.Name()), make([]byte, 100), 0o600))
	}
	b := make([]byte, 100)
	_, err = g.ReadAt(b, 7)
	require.NoError(t, err)
	require.Equal(t, content[7:107], b)
}

// TestWarmCache: a file whose blocks are in the cache costs bytes of its answers' heads, not of its content,
// however often it is opened.
func TestWarmCache(t *testing.T) {
	content := contentOf(2 * blockBytes)
	var sent atomic.Int64
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(&countingWriter{w, &sent}, r, "x", time.Time{}, bytes.NewReader(content))
	})
	c := testClient(t, 1<<30)
	read := func() {
		f, err := c.openHTTP(base + "/a.tar")
		require.NoError(t, err)
		got, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, got))
		require.NoError(t, f.Close())
	}
	read()
	require.EqualValues(t, 2*blockBytes+1, sent.Load(),
		"each block once, and the byte that tells size and version")
	for range 3 {
		read()
	}
	require.EqualValues(t, 2*blockBytes+4, sent.Load())
}

type countingWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.n.Add(int64(len(b)))
	return w.ResponseWriter.Write(b)
}

// TestNoETag: of an object whose version nobody tells, nothing is taken from an earlier opening, and indexes
// do not pass for its own.
func TestNoETag(t *testing.T) {
	for _, modified := range []time.Time{{}, time.Unix(1_700_000_000, 0)} {
		content := contentOf(3000)
		base := serve(t, func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x", modified, bytes.NewReader(content))
		})
		c := testClient(t, 1<<30)
		versions := map[string]bool{}
		for k := range 3 {
			content = bytes.Clone(content)
			content[1234] = byte(k)
			f, err := c.openHTTP(base + "/a.jsonl")
			require.NoError(t, err)
			b := make([]byte, len(content))
			_, err = f.ReadAt(b, 0)
			require.NoError(t, err)
			require.Equal(t, byte(k), b[1234])
			versions[f.Version()] = true
			require.NoError(t, f.Close())
		}
		require.Len(t, versions, 3)
	}
}

// TestWaits: a read that hangs is told by name and place, without credentials.
func TestWaits(t *testing.T) {
	come, leave := make(chan bool), make(chan bool)
	base := serve(t, func(http.ResponseWriter, *http.Request) { come <- true; <-leave })
	u, err := url.Parse(base)
	require.NoError(t, err)
	u.User, u.Path = url.UserPassword("me", "secret"), "/a.tar"
	done := make(chan error)
	go func() {
		_, err := testClient(t, 1<<20).openHTTP(u.String())
		done <- err
	}()
	<-come
	require.Condition(t, func() bool {
		for _, w := range Waits() {
			if w.Name == base+"/a.tar" && w.At == 0 && !w.Since.IsZero() {
				return true
			}
		}
		return false
	}, "%v", Waits())
	close(leave)
	require.NoError(t, <-done)
	require.NotContains(t, fmt.Sprint(Waits()), base)
}

// Errors of the moment are tried again, others are not; each ends in one error that names the place and no secret.
//
//lfvet:long one case per fault
func TestHTTPErrors(t *testing.T) {
	content := contentOf(1000)
	ok := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "x", time.Unix(1, 0), bytes.NewReader(content))
	}
	private := serve(t, ok)
	for _, c := range []struct {
		name     string
		h        func(n int64, w http.ResponseWriter, r *http.Request)
		requests int64
		want     string // of the error, "" for none
	}{
		{"busy twice", func(n int64, w http.ResponseWriter, r *http.Request) {
			if n < 3 {
				w.Header().Set("Retry-After", "2")
				http.Error(w, "busy", http.StatusServiceUnavailable)
				return
			}
			ok(w, r)
		}, 3, ""},
		{"gone for good", func(_ int64, w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "x",
				http.StatusBadGateway)
		}, 5, "502 Bad Gateway (5 attempts); is the store there?"},
		{"missing", func(_ int64, w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "x",
				http.StatusNotFound)
		}, 1, "404 Not Found; check the path"},
		{"forbidden", func(_ int64, w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "x",
				http.StatusForbidden)
		}, 1, "check the credentials"},
		{"breaks off", func(n int64, w http.ResponseWriter, r *http.Request) {
			if n == 1 {
				w.Header().Set("Content-Range", "bytes 0-0/1000")
				w.Header().Set("Content-Length", "1")
				w.Header().Set("Last-Modified", time.Unix(1, 0).UTC().Format(http.TimeFormat))
				w.WriteHeader(http.StatusPartialContent)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			ok(w, r)
		}, 2, ""},
		{"slow", func(_ int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-0/1000")
			w.WriteHeader(http.StatusPartialContent)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, 5, "did not come within"},
		{"endless", func(_ int64, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-0/1000")
			w.WriteHeader(http.StatusPartialContent)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}, 1, "more bytes come than were asked for"},
		{"no ranges", func(_ int64, w http.ResponseWriter, _ *http.Request) {
			_, _ =
				w.Write(make([]byte, blockBytes+1))
		}, 1, "answers no range requests"},
		{"lies about the range", func(_ int64, w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-5/99999999999999")
			w.WriteHeader(http.StatusPartialContent)
		}, 1, "answers the range"},
		{"to a private address", func(_ int64, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, private+"/x?token=secret", http.StatusFound)
		}, 1, "leads to a private address"},
		{"round in circles", func(_ int64, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, 5, "over 5 redirects"},
		{"to another scheme", func(_ int64, w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		}, 1, "the redirect leads from http to file"},
	} {
		var n atomic.Int64
		base := serve(t, func(w http.ResponseWriter, r *http.Request) { c.h(n.Add(1), w, r) })
		cl := testClient(t, 1<<20)
		if c.name == "slow" {
			cl.timeout = 300 * time.Millisecond
		}
		u, err := url.Parse(base + "/a.tar?token=secret")
		require.NoError(t, err)
		u.User = url.UserPassword("me", "secret")
		f, err := cl.openHTTP(u.String())
		require.Equal(t, c.requests, n.Load(), c.name)
		if c.want == "" {
			require.NoError(t, err, c.name)
			b := make([]byte, 1000)
			_, err = f.ReadAt(b, 0)
			require.NoError(t, err, c.name)
			require.Equal(t, content, b, c.name)
			require.NotContains(t, f.Name(), "secret")
			continue
		}
		require.ErrorContains(t, err, c.want, c.name)
		require.ErrorContains(t, err, base+"/a.tar", c.name)
		require.NotContains(t, err.Error(), "secret", c.name)
	}
}

// A file that changes between two requests is not read as one.
func TestHTTPChanged(t *testing.T) {
	version := atomic.Int64{}
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", fmt.Sprintf(`"v%d"`, version.Load()))
		http.ServeContent(w, r, "x", time.Time{}, bytes.NewReader(make([]byte, 2*blockBytes)))
	})
	f, err := testClient(t, 1<<30).openHTTP(base)
	require.NoError(t, err)
	version.Add(1)
	_, err = f.ReadAt(make([]byte, 10), blockBytes)
	require.ErrorContains(t, err, "changed while it was in use")
}

// The signature of AWS's own example: GET of a range, in "Signature Calculations for the Authorization Header".
func TestS3Signature(t *testing.T) {
	c := s3Config{region: "us-east-1", key: "AKIAIOSFODNN7EXAMPLE",
		secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		now:    func() time.Time { return time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC) }}
	r, err := http.NewRequest(http.MethodGet, "https://examplebucket.s3.amazonaws.com/test.txt", nil)
	require.NoError(t, err)
	r.Header.Set("Range", "bytes=0-9")
	c.sign(r)
	require.Equal(t, "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"+
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41", r.Header.Get("Authorization"))
}

// A bucket under an endpoint is listed over several pages and read; requests without credentials are not signed.
func TestS3(t *testing.T) {
	content := contentOf(5000)
	keys := []string{"data/a b+c.tar", "data/x-000.tar", "data/x-001.tar", "data/x-001.txt",
		"data/deeper/x-002.tar"}
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		require.True(t, strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=key/"),
			r.URL)
		if r.URL.Query().Get("list-type") == "2" {
			require.Equal(t, "/store/bucket/", r.URL.Path)
			require.Equal(t, "data/x-", r.URL.Query().Get("prefix"))
			at := 0
			if r.URL.Query().Get("continuation-token") == "two+ words" {
				at = 2
			}
			fmt.Fprint(w, "<ListBucketResult>")
			for _, k := range keys[at : at+2] {
				fmt.Fprintf(w, "<Contents><Key>%s</Key><ETag>&quot;e1&quot;</ETag><Size>5</Size></Contents>",
					k)
			}
			if at == 0 {
				fmt.Fprint(w, "<NextContinuationToken>two+ words</NextContinuationToken>")
			}
			fmt.Fprint(w, "</ListBucketResult>")
			return
		}
		require.Equal(t, "/store/bucket/data/a%20b%2Bc.tar", r.URL.EscapedPath())
		http.ServeContent(w, r, "x", time.Unix(1, 0), bytes.NewReader(content))
	})
	conf := s3Config{endpoint: base + "/store/", region: "here", key: "key", secret: "secret",
		token: "session", now: time.Now}
	c := testClient(t, 1<<20)
	found, err := c.globS3("s3://bucket/data/x-*.tar", conf)
	require.NoError(t, err)
	require.Equal(t, []Listed{{"s3://bucket/data/x-000.tar", 5, "e1"}, {"s3://bucket/data/x-001.tar", 5,
		"e1"}}, found)
	f, err := c.openS3("s3://bucket/data/a b+c.tar", conf)
	require.NoError(t, err)
	b := make([]byte, 100)
	_, err = f.ReadAt(b, 900)
	require.NoError(t, err)
	require.Equal(t, content[900:1000], b)
	_, err = c.openS3("s3://user:secret@bucket/x", conf)
	require.ErrorContains(t, err, "want s3://BUCKET/KEY")
	require.NotContains(t, err.Error(), "secret")
	_, err = c.openS3("s3://bucket", conf)
	require.ErrorContains(t, err, "names no key")
	_, err = Glob("https://host/x-*.tar")
	require.ErrorContains(t, err, "no lists of files")
}
