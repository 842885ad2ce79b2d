package serve

import (
	"bufio"
	"context"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"runtime"
	"strings"
)

// Own lets through what does not come from the page of another site. Without a token, which no page has, it
// is asked by the names of this host alone: a name of another site may be made to mean it. With a token any
// name will do, as behind a proxy.
func Own(token string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token == "" && !local(r.Host) {
			http.Error(w, "without a token this server answers under the names of its own host alone: localhost, "+
				"127.0.0.1 and ::1", http.StatusMisdirectedRequest)
			return
		}
		for _, o := range r.Header["Origin"] {
			if u, err := url.Parse(o); err != nil || u.Host != r.Host || u.Host == "" {
				http.Error(w, "this request comes from another page", http.StatusForbidden)
				return
			}
		}
		if s := r.Header.Get("Sec-Fetch-Site"); s == "cross-site" || s == "same-site" {
			http.Error(w, "this request comes from another site", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether a request's host, with its port or without, is this one's own name or address.
func local(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	if n := len(name); n > 2 && name[0] == '[' && name[n-1] == ']' {
		name = name[1 : n-1]
	}
	ip := net.ParseIP(name)
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// keyLeast is the letters of a client's key.
const keyLeast = 16

var clientName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ReadKeys reads a file of clients' keys: a line is NAME KEY, and one that begins with # says nothing. The result has
// the names by their keys.
func ReadKeys(path string) (map[string]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s has keys, and others may read it: chmod 600 %s", path, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	keys, names := map[string]string{}, map[string]bool{}
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		words := strings.Fields(in.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if len(words) != 2 || !clientName.MatchString(words[0]) || len(words[1]) < keyLeast {
			return nil, fmt.Errorf("%s:%d: a line is NAME KEY, the key of at least %d letters", path, n, keyLeast)
		}
		if names[words[0]] || keys[words[1]] != "" {
			return nil, fmt.Errorf("%s:%d: the name, or the key, stands in a line before", path, n)
		}
		keys[words[1]], names[words[0]] = words[0], true
	}
	if in.Err() == nil && len(keys) == 0 {
		return nil, fmt.Errorf("%s has no keys", path)
	}
	return keys, in.Err()
}

// secret is not "" where clients are to show a key.
func (o *Options) secret() string {
	if len(o.Keys) > 0 {
		return "keys"
	}
	return o.Token
}

// shareKey is where a request's context has for whom it is.
type shareKey struct{}

// shareOf is for whom a request is.
func shareOf(ctx context.Context) string {
	name, _ := ctx.Value(shareKey{}).(string)
	return name
}

// client finds whose key a request shows, as OpenAI's clients do or as Anthropic's.
func (s *Server) client(r *http.Request) (*http.Request, bool) {
	if r.Context().Value(shareKey{}) != nil { // of a batch, which was let in
		return r, true
	}
	given, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if key := r.Header.Get("X-Api-Key"); !bearer {
		given = key
	}
	name, ok := "", s.o.secret() == "" || s.o.Token != "" && subtle.ConstantTimeCompare([]byte(given), []byte(s.o.Token)) == 1
	for key, whose := range s.o.Keys {
		if subtle.ConstantTimeCompare([]byte(given), []byte(key)) == 1 {
			name, ok = whose, true
		}
	}
	return r.WithContext(context.WithValue(r.Context(), shareKey{}, name)), ok
}
