package head

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPanicEnds: a handler that panics ends the process, as its lock stays held; a head that decides nothing
// does too. A connection that the server gives up ends nothing.
func TestPanicEnds(t *testing.T) {
	h := bare(t, t.TempDir())
	crashed := make(chan any, 1)
	s := &holder{o: Options{Log: io.Discard, Crash: func(v any) { crashed <- v }}}
	s.leading.Store(h)
	h.mux.HandleFunc("GET /bad", func(http.ResponseWriter, *http.Request) {
		h.mu.Lock()
		var none []int
		_ = none[len(none)]
	})
	h.mux.HandleFunc("GET /aborted", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	ask := func(path string) { s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil)) }
	require.PanicsWithError(t, http.ErrAbortHandler.Error(), func() { ask("/aborted") })
	require.Empty(t, crashed)
	ask("/bad")
	require.ErrorContains(t, (<-crashed).(error), "index out of range")
	go s.watch(h, time.Microsecond) // the lock is held still
	require.Equal(t, "the head decides nothing", <-crashed)
	h.mu.Unlock()
}

// TestTouchedLives: what a head worked on in two lives one after the other, when these ended, is not to be
// read by the third. A life that ended otherwise begins the count anew.
func TestTouchedLives(t *testing.T) {
	dir := t.TempDir()
	life := func(last string) map[string]string {
		x, err := openTouched(dir)
		require.NoError(t, err)
		aside := x.aside()
		x.touch("jobs/1")
		x.touch("")
		x.touch(last)
		x.f.Close() // it is killed
		return aside
	}
	for _, last := range []string{"jobs/7", "jobs/8", "jobs/8", "", "jobs/8", "", "jobs/7", "jobs/7"} {
		if last == "" {
			require.Contains(t, []int{0, 1}, len(life(last)))
			continue
		}
		life(last)
	}
	aside := life("jobs/7")
	require.Contains(t, aside["jobs/7"], "it has ended the head 2 times")
	require.Len(t, aside, 1)
	require.Contains(t, life("")["jobs/7"], "3 times")
	require.Empty(t, life(""))
	require.NoError(t, os.WriteFile(filepath.Join(dir, touchedFile), []byte("torn{"), 0o600))
	require.Empty(t, life(""))
}
