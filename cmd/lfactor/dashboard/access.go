package dashboard

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Role is what whoever has logged in may do.
type Role int

// Roles: a viewer sees all, an admin may also stop a run.
const (
	Viewer Role = iota + 1
	Admin
)

const (
	linksMax    = 16             // links that were given out and not used
	sessionsMax = 64             // the oldest ends for another
	sessionLife = 24 * time.Hour // behind the login
	linkLife    = 10 * time.Minute
)

// grant is a link, or a session: what it lets do, and until when.
type grant struct {
	role  Role
	until time.Time
}

// access decides who may see what: one-use links that begin sessions, and the hosts and origins under which alone the
// server answers. A page of another site cannot ask it, even if a name of that site is made to mean this host.
type access struct {
	hosts  []string // host:port, as browsers name this server
	cookie string   // its name: cookies are of a host, whatever the port
	now    func() time.Time
	used   func(Role) // hears that a link has been used; nil for nobody

	mu       sync.Mutex
	links    map[[32]byte]grant // by hash
	sessions map[[32]byte]grant // by hash
}

// secret makes a token of 256 random bits, and its hash.
func secret() (string, [32]byte) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	s := base64.RawURLEncoding.EncodeToString(b[:])
	return s, sha256.Sum256([]byte(s))
}

// link gives out a token that begins one session.
func (a *access) link(role Role) string {
	s, h := secret()
	a.mu.Lock()
	defer a.mu.Unlock()
	keep(a.links, linksMax, a.now())
	a.links[h] = grant{role, a.now().Add(linkLife)}
	return s
}

// keep drops what is over, and the oldest ones above a bound, so that one more has room.
func keep(m map[[32]byte]grant, most int, now time.Time) {
	for k, g := range m {
		if now.After(g.until) {
			delete(m, k)
		}
	}
	for len(m) >= most {
		var oldest [32]byte
		until := time.Time{}
		for k, g := range m {
			if until.IsZero() || g.until.Before(until) {
				oldest, until = k, g.until
			}
		}
		delete(m, oldest)
	}
}

// login trades a link's token for a session, once.
func (a *access) login(token string) (session string, role Role, ok bool) {
	h := sha256.Sum256([]byte(token))
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.links[h]
	delete(a.links, h)
	if !ok || a.now().After(g.until) {
		return "", 0, false
	}
	session, h = secret()
	keep(a.sessions, sessionsMax, a.now())
	a.sessions[h] = grant{g.role, a.now().Add(sessionLife)}
	return session, g.role, true
}

// who is the role of a request, 0 for a stranger.
func (a *access) who(r *http.Request) Role {
	c, err := r.Cookie(a.cookie)
	if err != nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.sessions[sha256.Sum256([]byte(c.Value))]
	if !ok || a.now().After(g.until) {
		return 0
	}
	return g.role
}

// headers keep browsers from running, framing, caching or passing on what is not this page's.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
	"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	"Cache-Control": "no-store",
}

// guard lets through what comes from this server's own page and from somebody who has logged in, on every
// method and path but the login's.
func (a *access) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for k, v := range headers {
			w.Header().Set(k, v)
		}
		if !slices.Contains(a.hosts, r.Host) {
			http.Error(w, "this server answers under its own address alone", http.StatusMisdirectedRequest)
			return
		}
		if o := r.Header["Origin"]; len(o) > 0 && (len(o) > 1 || o[0] != "http://"+r.Host) {
			http.Error(w, "this request comes from another page", http.StatusForbidden)
			return
		}
		if r.URL.Path == "/login" && r.Method == http.MethodGet {
			a.enter(w, r)
			return
		}
		if s := r.Header.Get("Sec-Fetch-Site"); s == "cross-site" || s == "same-site" {
			http.Error(w, "this request comes from another site", http.StatusForbidden)
			return
		}
		role := a.who(r)
		switch {
		case role == 0:
			http.Error(w, "open the link that lfactor has printed; each works once", http.StatusUnauthorized)
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			next.ServeHTTP(w, r)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", "GET, HEAD, POST")
			http.Error(w, "no such method", http.StatusMethodNotAllowed)
		case role != Admin || r.Header.Get("Origin") == "":
			http.Error(w, "this session may look and change nothing: lfactor ui --admin prints a link that may",
				http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// enter begins a session, and leads to the page without the token in its address.
func (a *access) enter(w http.ResponseWriter, r *http.Request) {
	session, role, ok := a.login(r.URL.Query().Get("token"))
	if !ok {
		http.Error(w, "this link has been used or is over; lfactor has printed another", http.StatusUnauthorized)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: a.cookie, Value: session, Path: "/", HttpOnly: true,
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLife.Seconds())})
	if a.used != nil {
		a.used(role)
	}
	// Browsers leave a Strict cookie out of a redirect that began elsewhere, as in a terminal's link: the
	// page loads itself once more.
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Refresh", "0; url=/")
	_, _ = w.Write([]byte("<!doctype html><title>lfactor</title>")) // who asks may have gone
}
