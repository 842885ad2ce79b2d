package agent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
)

// TestNoticed: what clouds and files say, in the forms of their documentation.
func TestNoticed(t *testing.T) {
	now := time.Date(2026, 9, 18, 8, 20, 0, 0, time.UTC)
	const azure = `{"DocumentIncarnation": 1, "Events": [{"EventType": "Preempt", "NotBefore": "Fri, 18 Sep 2026 08:20:25 GMT"}]}`
	for text, want := range map[string]time.Duration{
		`{"action": "terminate", "time": "2026-09-18T08:22:00Z"}`: 2 * time.Minute, // AWS
		azure: 25 * time.Second,
		`{"Events":[{"EventType":"Redeploy","NotBefore":""}]}`: noticeLeast,
		"TRUE":                   noticeLeast, // Google
		"2026-09-18T08:20:07Z\n": 7 * time.Second,
		"2026-09-18T08:00:00Z":   time.Second, // it is late
		"FALSE":                  0, "": 0, "\n": 0,
		`{"DocumentIncarnation":1,"Events":[]}`:              0,
		`{"Events":[{"EventType":"Freeze","NotBefore":""}]}`: 0,
	} {
		got, ok := noticed(text, now)
		require.Equal(t, want, got, text)
		require.Equal(t, want > 0, ok, text)
	}
}

// TestNotice: a file that comes, and an address that has a page by then, tell an agent to leave within the time that they give.
func TestNotice(t *testing.T) {
	asked, file := make(chan http.Header, 1), filepath.Join(t.TempDir(), "spot")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(file); err != nil {
			http.NotFound(w, r)
			return
		}
		select {
		case asked <- r.Header:
		default:
		}
		_, _ = w.Write([]byte("TRUE"))
	}))
	defer s.Close()
	for _, at := range []string{file, s.URL} {
		require.NoError(t, os.RemoveAll(file))
		out := make(chan decide.Leave, 1)
		require.Empty(t, read(t.Context(), at))
		go heardFrom(t.Context(), at, out)
		require.NoError(t, os.WriteFile(file, []byte("TRUE"), 0o600))
		require.Equal(t, decide.Leave{Within: noticeLeast, Why: "it is taken back in 30s, says " + at}, <-out)
	}
	h := <-asked
	require.Equal(t, "true", h.Get("Metadata"))
	require.Equal(t, "Google", h.Get("Metadata-Flavor"))
}
