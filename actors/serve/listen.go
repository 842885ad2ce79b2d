package serve

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"
)

// Listen answers on a listener until the context ends; requests under way may then take another moment.
func Listen(ctx context.Context, l net.Listener, handler http.Handler) error {
	h := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if h.Shutdown(end) != nil {
			_ = h.Close() // whoever is still served has had his time
		}
	})
	defer stop()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shows reports whether a request shows a token behind one of some schemes, such as "Bearer "; all show the token "".
func Shows(r *http.Request, token string, schemes ...string) bool {
	given := r.Header.Get("Authorization")
	for _, s := range schemes {
		got, ok := strings.CutPrefix(given, s)
		if ok && subtle.ConstantTimeCompare([]byte(got), []byte(token)) == 1 {
			return true
		}
	}
	return token == ""
}
