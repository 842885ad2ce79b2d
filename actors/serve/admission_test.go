package serve

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRoom: what is given out at once is never more than there is, in the order in which it was asked
// for; one that goes away leaves its place to others, and all comes back.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newByteLimit(10)
		large, err := r.enter(context.Background(), 99) // all that there is
		require.NoError(t, err)
		short, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		var now, most atomic.Int64
		for i, n := range []int64{9, 1, 7, 4} {
			all.Go(func() {
				ctx := context.Background()
				if i == 0 {
					ctx = short
				}
				s, err := r.enter(ctx, n)
				if i == 0 {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					return
				}
				require.NoError(t, err)
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				most.Store(max(most.Load(), now.Add(n)))
				<-time.After(time.Minute)
				now.Add(-n)
				s.keep(0)
			})
			synctest.Wait()
		}
		require.Empty(t, order, "the first has all")
		<-time.After(2 * time.Second)
		synctest.Wait()
		require.Empty(t, order)
		large.keep(2)
		synctest.Wait()
		require.ElementsMatch(t, []int{1, 2}, order)
		large.keep(0)
		all.Wait()
		require.Equal(t, 3, order[2], "the fourth has waited for the third's")
		require.EqualValues(t, 8, most.Load())
		require.EqualValues(t, 10, r.free)
	})
}

// TestBodies: large requests are read while there is room for all that are at once, others wait, and
// those whose time is over are told; small ones take none.
func TestBodies(t *testing.T) {
	s := &Server{o: Options{Body: 1 << 20, Deadline: 4 * time.Minute}, now: time.Now}
	s.admission = newAdmission(s.o.Body)
	send := func(n int) (int, *stay) {
		w := httptest.NewRecorder()
		text := `{"user": "` + strings.Repeat("x", n) + `"}`
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(text))
		h := &held{}
		var v struct {
			User string `json:"user"`
		}
		if err := s.read(w, r.WithContext(context.WithValue(r.Context(), heldKey{}, h)), &v); err != nil {
			s.fail(w, err)
		}
		return w.Code, h.body
	}
	var have []*stay
	for range bodiesMost {
		code, stay := send(1<<20 - 100)
		require.Equal(t, http.StatusOK, code)
		have = append(have, stay)
	}
	s.o.Deadline = 50 * time.Millisecond
	code, _ := send(1<<20 - 100)
	require.Equal(t, http.StatusGatewayTimeout, code, "there is room for no more")
	s.o.Deadline = 4 * time.Minute
	code, none := send(100)
	require.Equal(t, http.StatusOK, code)
	require.Nil(t, none)
	have[0].keep(0)
	code, _ = send(1<<20 - 100)
	require.Equal(t, http.StatusOK, code)
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(make([]byte, 2<<20)))
	holding(func(w http.ResponseWriter, r *http.Request) {
		s.admission.bodies = newByteLimit(9 << 20)
		var v any
		s.fail(w, s.read(w, r, &v))
		require.EqualValues(t, 9<<20, s.admission.bodies.free, "what it says of itself is enough")
	})(w, r)
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	require.EqualValues(t, 9<<20, s.admission.bodies.free, "it has been answered")
}
