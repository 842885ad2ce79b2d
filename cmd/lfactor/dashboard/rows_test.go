package dashboard

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// slow is a browser that takes nothing until it is let.
type slow struct {
	*httptest.ResponseRecorder
	writes, let chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	s.writes <- struct{}{}
	<-s.let
	return s.ResponseRecorder.Write(b)
}

// TestRowsSlow: who takes a page of rows slowly keeps nobody else from one.
func TestRowsSlow(t *testing.T) {
	s := New(8265, Options{Dirs: []string{t.TempDir()}})
	ask := func(w http.ResponseWriter) {
		r := httptest.NewRequest(http.MethodGet, "/runs/0/rows", nil)
		r.SetPathValue("id", "0")
		s.rows(w, r)
	}
	first := &slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	done := make(chan struct{})
	go func() { defer close(done); ask(first) }()
	<-first.writes
	next := httptest.NewRecorder()
	ask(next)
	require.Equal(t, http.StatusUnprocessableEntity, next.Code, next.Body)
	require.Contains(t, next.Body.String(), "no step is recorded yet")
	close(first.let)
	<-done
	require.Equal(t, http.StatusUnprocessableEntity, first.Code)
}
