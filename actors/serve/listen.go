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

// Drain is the time that requests under way have behind the end of a server, where it is not said.
const Drain = 5 * time.Second

// Listen answers on a listener until the context ends. Then nobody new is heard, and requests under way may take as long
// as drain.
func Listen(ctx context.Context, l net.Listener, handler http.Handler, drain time.Duration) error {
	h := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if h.Shutdown(end) != nil {
			_ = h.Close() // whoever is still served has had his time
		}
	})
	err := h.Serve(l)
	if !stop() { // Serve is over when the end begins
		<-done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
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
