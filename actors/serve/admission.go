package serve

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// admission is admission control: it bounds the memory of requests before the engine has them, all of them together, in
// bodies what has come of large ones, in pixels their images. A request has room in pixels while it has some in bodies,
// and never the other way round, so that none waits for another in a circle.
type admission struct{ bodies, pixels *byteLimit }

const (
	// bodySmall is the bytes of a request that takes no room.
	bodySmall = 64 << 10
	// bodyCopies is what a body takes of memory: as it came, its messages, and its images out of base64.
	bodyCopies = 3
	// bodiesMost are the largest bodies for which there is room at once.
	bodiesMost = 4
	// pixelBytes is what a pixel takes while its image is decoded and scaled, and pixelsRoom the bytes of
	// all images together, decoded and as the model reads them.
	pixelBytes = 8
	pixelsRoom = 2 << 30
)

func newAdmission(body int64) *admission {
	return &admission{newByteLimit(bodiesMost * bodyCopies * body), newByteLimit(pixelsRoom)}
}

// byteLimit is bytes that are given out in the order in which they are asked for.
type byteLimit struct {
	most  int64
	mu    sync.Mutex
	free  int64
	waits []*waiter
}

type waiter struct {
	n     int64
	given chan struct{}
}

func newByteLimit(most int64) *byteLimit { return &byteLimit{most: most, free: most} }

// enter waits for n bytes, or all where there are fewer; the context's end is an error.
func (r *byteLimit) enter(ctx context.Context, n int64) (*stay, error) {
	n = min(n, r.most)
	w := &waiter{n, make(chan struct{})}
	r.mu.Lock()
	r.waits = append(r.waits, w)
	r.grant()
	r.mu.Unlock()
	select {
	case <-w.given:
		return &stay{r, n}, nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.Index(r.waits, w); i >= 0 {
		r.waits = slices.Delete(r.waits, i, i+1)
	} else {
		r.free += w.n
	}
	r.grant()
	return nil, ctx.Err()
}

// grant gives room to those that wait, the first first. The caller holds the lock.
func (r *byteLimit) grant() {
	for len(r.waits) > 0 && r.waits[0].n <= r.free {
		r.free -= r.waits[0].n
		close(r.waits[0].given)
		r.waits = r.waits[1:]
	}
}

// stay is room that somebody has.
type stay struct {
	r *byteLimit
	n int64
}

// keep gives back all but n bytes. More than there are are taken, whoever waits.
func (s *stay) keep(n int64) {
	if s == nil {
		return
	}
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	s.r.free += s.n - n
	s.n = n
	s.r.grant()
}

// grow takes as much as makes it n bytes, if that much is free, and says whether it was. It never waits: whoever has
// room and waits for more keeps others from theirs.
func (s *stay) grow(n int64) bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if n-s.n > s.r.free {
		return false
	}
	s.r.free -= n - s.n
	s.n = n
	return true
}

// held is what a request has of rooms.
type held struct{ body, pixels *stay }

// heldKey is where its context has it.
type heldKey struct{}

// holding has a request's room given back when it has been answered.
func holding(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h := &held{}
		defer func() { h.body.keep(0); h.pixels.keep(0) }()
		f(w, r.WithContext(context.WithValue(r.Context(), heldKey{}, h)))
	}
}

// came says that nothing of a request's body is needed any more.
func came(ctx context.Context) {
	if h, ok := ctx.Value(heldKey{}).(*held); ok {
		h.body.keep(0)
	}
}
