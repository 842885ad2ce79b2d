package serve

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// sends reads a body that says it has so many bytes, and gives the status of what is made of it;
// its room is given back.
func sends(s *Server, from io.Reader, says int64) int {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", from)
	r.ContentLength = says
	holding(func(w http.ResponseWriter, r *http.Request) {
		if _, err := s.body(w, r); err != nil {
			s.fail(w, err)
		}
	})(w, r)
	return w.Code
}

// TestSlowBodies: 500 requests that say they have 8 MB, and have sent a little, keep nobody from the room
// that there is: others are read at once, as large as they may be.
func TestSlowBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{o: Options{Body: 8 << 20, Deadline: time.Minute}, now: time.Now,
			admission: newAdmission(8 << 20)}
		var ends []*io.PipeWriter
		for range 500 {
			from, to := io.Pipe()
			ends = append(ends, to)
			go sends(s, from, 8<<20)
			_, err := to.Write(make([]byte, 1000))
			require.NoError(t, err)
		}
		synctest.Wait()
		began := time.Now()
		for range 5 {
			require.Equal(t, http.StatusOK, sends(s, strings.NewReader(strings.Repeat("x", 8<<20)), 8<<20))
			require.Equal(t, http.StatusOK, sends(s, strings.NewReader(strings.Repeat("x", 8<<20)), -1))
		}
		require.Zero(t, time.Since(began), "nobody has waited")
		require.Equal(t, s.admission.bodies.most, s.admission.bodies.free)
		for _, e := range ends {
			require.NoError(t, e.Close())
		}
		synctest.Wait()
	})
}

// TestBodyRoom: a request that has room and needs more where there is none is refused, and does not wait; one
// that has none waits, and goes on where it was.
func TestBodyRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{o: Options{Body: 1 << 20, Deadline: time.Minute}, now: time.Now,
			admission: &admission{bodies: newByteLimit(bodyCopies * 256 << 10)}}
		first, begun := io.Pipe()
		codes := make(chan int, 2)
		go func() { codes <- sends(s, first, 1<<20) }()
		_, err := begun.Write(make([]byte, 200<<10)) // for which it has all the room
		require.NoError(t, err)
		go func() { codes <- sends(s, strings.NewReader(strings.Repeat("x", 100<<10)), 100<<10) }()
		synctest.Wait()
		require.Empty(t, codes)
		_, err = begun.Write(make([]byte, 56<<10)) // so that more would need more
		require.NoError(t, err)
		require.Equal(t, http.StatusServiceUnavailable, <-codes)
		require.Equal(t, http.StatusOK, <-codes)
		require.Equal(t, s.admission.bodies.most, s.admission.bodies.free)
		require.NoError(t, first.Close())
	})
}

// drip is a body of which so many bytes come at a time, and each takes a second of the clock.
type drip struct {
	clock      *time.Time
	each, left int
}

func (d *drip) Read(p []byte) (int, error) {
	*d.clock = d.clock.Add(time.Second)
	n := min(len(p), d.each, d.left)
	if d.left -= n; d.left == 0 {
		return n, io.EOF
	}
	return n, nil
}

// TestBodyRate: a body has ten seconds, and then comes with 64 KiB a second or is refused.
func TestBodyRate(t *testing.T) {
	for _, c := range []struct{ each, of, code int }{{1, 9, 200}, {1, 100, 408}, {1000, 1 << 20, 408},
		{70 << 10, 4 << 20, 200},
		{60 << 10, 8 << 20, 408}, {60 << 10, 512 << 10, 200}} {
		clock := time.Unix(1000, 0)
		s := &Server{o: Options{Body: 8 << 20, Deadline: time.Hour}, now: func() time.Time { return clock },
			admission: newAdmission(8 << 20)}
		b := &drip{&clock, c.each, c.of}
		r := httptest.NewRequest(http.MethodPost, "/", b)
		w := httptest.NewRecorder()
		r = r.WithContext(context.WithValue(r.Context(), heldKey{}, &held{}))
		if _, err := s.body(w, r); err != nil {
			s.fail(w, err)
		}
		require.Equal(t, c.code, w.Code, "%+v", c)
	}
}
