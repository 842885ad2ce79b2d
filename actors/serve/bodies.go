package serve

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// bodyGrace is the time that any body has, and bodyRate the bytes a second that it comes with from then
	// on, so that a slow client has room for no longer than it needs.
	bodyGrace = 10 * time.Second
	bodyRate  = 64 << 10
)

// body reads a request's body. It has room for what has come and not for what it says will: of a large one,
// which it waits for before it has any, and which grows while there is some. One that cannot grow is refused,
// as its client may come again.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	most := s.o.Body
	if r.ContentLength > most {
		return nil, tooLarge(most)
	}
	if r.ContentLength >= 0 {
		most = r.ContentLength
	}
	h, _ := r.Context().Value(heldKey{}).(*held)
	c := http.NewResponseController(w)
	defer c.SetReadDeadline(time.Time{}) //nolint:errcheck // of a connection that has one
	began := s.now()
	b := make([]byte, 0, min(most+1, 4<<10))
	for {
		if len(b) == cap(b) {
			more := min(2*int64(cap(b)), most+1)
			waited, err := s.room(r, h, more)
			if err != nil {
				return nil, err
			}
			began = began.Add(waited)
			b = append(make([]byte, 0, more), b...)
		}
		late := began.Add(bodyGrace + time.Duration(len(b))*time.Second/bodyRate)
		_ = c.SetReadDeadline(late) // the same
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > s.o.Body:
			return nil, tooLarge(s.o.Body)
		case err == io.EOF:
			if h != nil && h.body != nil {
				h.body.keep(min(h.body.n, bodyCopies*int64(len(b))))
			}
			return b, nil
		case s.now().After(late):
			return nil, fault{http.StatusRequestTimeout, "timeout_error", fmt.Sprintf("the request's body "+
				"comes too slowly: %d bytes in %v, and less than %d bytes a second behind the first %v", len(b),
				s.now().Sub(began).Round(time.Second), bodyRate, bodyGrace), "", "slow_body"}
		case err != nil:
			return nil, bad("", "the request did not come: %v", err)
		}
	}
}

// room has a body of n bytes have room, and gives the time that it has waited for it.
func (s *Server) room(r *http.Request, h *held, n int64) (waited time.Duration, err error) {
	if h == nil || n <= bodySmall {
		return 0, nil
	}
	if h.body == nil {
		ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
		defer cancel()
		began := s.now()
		if h.body, err = s.admission.bodies.enter(ctx, bodyCopies*n); err != nil {
			return 0, s.refusal(err)
		}
		return s.now().Sub(began), nil
	}
	if !h.body.grow(bodyCopies * n) {
		return 0, fault{http.StatusServiceUnavailable, "server_error",
			"the bodies of requests that are on their way take all the room that there is; send it again",
			"", "no_room"}
	}
	return 0, nil
}

func tooLarge(most int64) error {
	return fault{http.StatusRequestEntityTooLarge, "invalid_request_error",
		fmt.Sprintf("the request has more than %d bytes", most), "", ""}
}
