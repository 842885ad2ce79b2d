package serve

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDrain: behind its end a server hears nobody new, and is there until requests under way have their answers, or until
// their time is over.
func TestDrain(t *testing.T) {
	for _, drain := range []time.Duration{time.Hour, time.Nanosecond} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		here, goOn := make(chan struct{}), make(chan struct{})
		ctx, end := context.WithCancel(context.Background())
		over := make(chan error, 1)
		go func() {
			over <- Listen(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(here)
				select {
				case <-goOn:
				case <-r.Context().Done():
				}
				_, _ = io.WriteString(w, "whole")
			}), drain)
		}()
		got := make(chan string, 1)
		go func() {
			r, err := http.Get("http://" + l.Addr().String())
			if err != nil {
				got <- "cut off"
				return
			}
			b, _ := io.ReadAll(r.Body)
			got <- string(b)
		}()
		<-here
		end()
		if drain == time.Nanosecond {
			require.NoError(t, <-over)
			require.Equal(t, "cut off", <-got)
			continue
		}
		require.Eventually(t, func() bool {
			c, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				_ = c.Close()
			}
			return err != nil
		}, time.Minute, time.Millisecond)
		require.Empty(t, over)
		close(goOn)
		require.Equal(t, "whole", <-got)
		require.NoError(t, <-over)
	}
}
