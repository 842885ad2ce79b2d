package serve

import (
	"net"
	"net/http"
	"net/url"
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
