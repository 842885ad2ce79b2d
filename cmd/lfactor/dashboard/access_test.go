package dashboard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const at = "127.0.0.1:8265"

// call asks a server as a browser would; set changes the request.
func call(s *Server, method, path, cookie string, set func(*http.Request)) *http.Response {
	r := httptest.NewRequest(method, "http://"+at+path, nil)
	r.Host = at
	if cookie != "" {
		r.Header.Set("Cookie", "lfactor-8265="+cookie)
	}
	if set != nil {
		set(r)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result()
}

// enter uses a link, and returns the session's cookie.
func enter(t *testing.T, s *Server, role Role) string {
	t.Helper()
	u, err := url.Parse(s.Link(role))
	require.NoError(t, err)
	r := call(s, "GET", u.RequestURI(), "", nil)
	require.Equal(t, 200, r.StatusCode)
	require.Len(t, r.Cookies(), 1)
	c := r.Cookies()[0]
	require.True(t, c.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, c.SameSite)
	require.Equal(t, "0; url=/", r.Header.Get("Refresh"), "the token leaves the address")
	return c.Value
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}

// TestStrangers: without a session nothing is told, whatever the method and the path.
func TestStrangers(t *testing.T) {
	s := New(8265, Options{Dirs: []string{t.TempDir()}})
	for _, method := range methods {
		for _, path := range []string{"/", "/page/app.js", "/api/runs", "/api/stream", "/api/cluster",
			"/api/runs/0/logs", "/api/runs/0/graph",
			"/api/runs/0/stop", "/runs/0/rows",
			"/nothing", "/debug/pprof/"} {
			for _, cookie := range []string{"", "wrong"} {
				r := call(s, method, path, cookie, nil)
				require.Equal(t, http.StatusUnauthorized, r.StatusCode, "%s %s", method, path)
				require.Contains(t, r.Header.Get("Content-Security-Policy"), "default-src 'none'")
				require.Contains(t, r.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
				require.Equal(t, "DENY", r.Header.Get("X-Frame-Options"))
			}
		}
	}
}

// TestForeign: other hosts' names, as of a page that has made its name mean this host, and other origins
// are refused on every method, also with a session.
func TestForeign(t *testing.T) {
	s := New(8265, Options{Dirs: []string{t.TempDir()}, Stop: func(string) error { return nil }})
	cookie := enter(t, s, Admin)
	link, err := url.Parse(s.Link(Viewer))
	require.NoError(t, err)
	for _, method := range methods {
		for name, c := range map[string]struct {
			set  func(*http.Request)
			want int
		}{
			"host":    {func(r *http.Request) { r.Host = "evil.example:8265" }, 421},
			"port":    {func(r *http.Request) { r.Host = "127.0.0.1:8266" }, 421},
			"no host": {func(r *http.Request) { r.Host = "" }, 421},
			"origin":  {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, 403},
			"null":    {func(r *http.Request) { r.Header.Set("Origin", "null") }, 403},
			"two": {func(r *http.Request) {
				r.Header["Origin"] = []string{"http://" + at,
					"http://evil.example"}
			}, 403},
			"scheme":    {func(r *http.Request) { r.Header.Set("Origin", "https://"+at) }, 403},
			"site":      {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403},
			"same site": {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }, 403},
		} {
			for _, path := range []string{"/", "/api/runs", "/api/runs/0/stop"} {
				require.Equal(
					t,
					c.want,
					call(s, method, path, cookie, c.set).StatusCode,
					"%s: %s %s",
					name,
					method,
					path,
				)
			}
		}
		foreign := func(r *http.Request) { r.Host = "evil.example:8265" }
		require.Equal(t, 421, call(s, method, link.RequestURI(), "", foreign).StatusCode, "the login too")
	}
	require.Equal(t, 200, call(s, "GET", link.RequestURI(), "", nil).StatusCode, "nobody used it up")
	require.Equal(t, 200, call(s, "GET", "/api/runs", cookie, func(r *http.Request) {
		r.Host = "localhost:8265"
		r.Header.Set("Origin", "http://localhost:8265")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}).StatusCode)
}

// TestRoles: a viewer changes nothing, and an admin only from the page itself; other methods are none.
func TestRoles(t *testing.T) {
	dir, stopped := t.TempDir(), ""
	s := New(8265, Options{Dirs: []string{dir}, Stop: func(d string) error { stopped = d; return nil }})
	viewer, admin := enter(t, s, Viewer), enter(t, s, Admin)
	page := func(r *http.Request) { r.Header.Set("Origin", "http://"+at) }
	require.Equal(t, 403, call(s, "POST", "/api/runs/0/stop", viewer, page).StatusCode)
	require.Equal(
		t,
		403,
		call(s, "POST", "/api/runs/0/stop", admin, nil).StatusCode,
		"browsers say where a POST comes from",
	)
	r := call(s, "POST", "/api/runs/0/stop", admin, page)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, 422, r.StatusCode, "no run is under way")
	require.Contains(t, string(text), "no run is under way here")
	require.Empty(t, stopped)
	for _, method := range []string{"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
		require.Equal(t, 405, call(s, method, "/api/runs/0/stop", admin, page).StatusCode, method)
	}
	require.Equal(t, 405, call(s, "GET", "/api/runs/0/stop", admin, page).StatusCode)
}

// TestLinks: a link works once and for ten minutes, a session for a day; the oldest of too many ends.
func TestLinks(t *testing.T) {
	var used []Role
	s := New(8265, Options{Dirs: []string{t.TempDir()}, Used: func(r Role) { used = append(used, r) }})
	now := time.Unix(1000, 0)
	s.access.now = func() time.Time { return now }
	u, err := url.Parse(s.Link(Viewer))
	require.NoError(t, err)
	require.Equal(t, 401, call(s, "POST", u.RequestURI(), "", nil).StatusCode)
	require.Equal(t, 200, call(s, "GET", u.RequestURI(), "", nil).StatusCode)
	require.Equal(t, 401, call(s, "GET", u.RequestURI(), "", nil).StatusCode, "it was used")
	require.Equal(t, []Role{Viewer}, used)
	u, err = url.Parse(s.Link(Viewer))
	require.NoError(t, err)
	now = now.Add(linkLife + time.Second)
	require.Equal(t, 401, call(s, "GET", u.RequestURI(), "", nil).StatusCode, "it is over")
	first := enter(t, s, Viewer)
	require.Equal(t, 200, call(s, "GET", "/", first, nil).StatusCode)
	for range sessionsMax {
		now = now.Add(time.Second)
		enter(t, s, Viewer)
	}
	require.Equal(t, 401, call(s, "GET", "/", first, nil).StatusCode, "others took its place")
	last := enter(t, s, Viewer)
	now = now.Add(sessionLife + time.Second)
	require.Equal(t, 401, call(s, "GET", "/", last, nil).StatusCode, "its day is over")
}

// TestFiles: the page's files have their types, nothing else of the binary or the disk is given, and all
// together they are small.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"),
		[]byte("data: {paths: [\"https://me:secret@host/x?X-Amz-Signature=secret\"]}\n"), 0o600))
	s := New(8265, Options{Dirs: []string{dir}})
	cookie := enter(t, s, Viewer)
	size := 0
	for path, kind := range map[string]string{"/": "text/html", "/page/app.js": "text/javascript",
		"/page/lib.js":    "text/javascript",
		"/page/curves.js": "text/javascript", "/page/graph.js": "text/javascript",
		"/page/timeline.js": "text/javascript",
		"/page/panels.js":   "text/javascript", "/page/uplot/uPlot.js": "text/javascript",
		"/page/app.css":         "text/css",
		"/page/uplot/uPlot.css": "text/css"} {
		r := call(s, "GET", path, cookie, nil)
		require.Equal(t, 200, r.StatusCode, path)
		require.True(t, strings.HasPrefix(r.Header.Get("Content-Type"), kind), path)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		size += len(text)
		_, rest, cut := strings.Cut(string(text), "*/") // uPlot's own address stands in its comment
		if !cut {
			rest = string(text)
		}
		require.False(t, strings.Contains(rest, "https://"), "%s reaches other hosts", path)
	}
	require.Less(t, size, 400_000)
	for _, path := range []string{"/page/", "/page/uplot/LICENSE", "/page/..%2fserver.go",
		"/page/%2e%2e/server.go", "/server.go",
		"/debug/pprof/", "/api/runs/1/graph", "/api/runs/-1/graph", "/api/runs/x/graph",
		"/api/runs/0/nothing"} {
		require.Equal(t, 404, call(s, "GET", path, cookie, nil).StatusCode, path)
	}
	r := call(s, "GET", "/api/runs/0/settings", cookie, nil)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NotContains(t, string(text), "secret")
}
