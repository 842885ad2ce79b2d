package serve

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/dataset/media"
)

// pixelsMost bounds the images of a request together, by what their headers say: what one image has at most.
const pixelsMost = media.PixelsMax

// imageAdmission bounds the work on images before a request comes to the engine: so many requests are at it at once,
// and as many wait as may wait for the engine.
type imageAdmission struct {
	places chan struct{}
	inside atomic.Int64
	most   int64
}

func newImageAdmission(queue int) *imageAdmission {
	n := max(1, runtime.GOMAXPROCS(0)/2) // the engine computes meanwhile
	return &imageAdmission{places: make(chan struct{}, n), most: int64(n + queue)}
}

// enter waits for a place, which leave gives back; it is an error where too many wait, or the context ends.
func (l *imageAdmission) enter(ctx context.Context) (leave func(), err error) {
	if l.inside.Add(1) > l.most {
		l.inside.Add(-1)
		return nil, queue.ErrFull
	}
	select {
	case l.places <- struct{}{}:
		return func() { <-l.places; l.inside.Add(-1) }, nil
	case <-ctx.Done():
		l.inside.Add(-1)
		return nil, ctx.Err()
	}
}

// look puts the images of a request where its prompt has marks of them.
func (s *Server) look(ctx context.Context, a *asked) error {
	defer came(ctx)
	if len(a.files) == 0 {
		return nil
	}
	h, _ := ctx.Value(heldKey{}).(*held)
	var err error
	if h != nil {
		if h.pixels, err = s.admission.pixels.enter(ctx, pixelBytes*a.pixels); err != nil {
			return err
		}
	}
	leave, err := s.imageAdmission.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	ids, pics, err := s.imageProcessor.Read(ctx, a.prompts[0], a.files)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return bad("messages", "%v", err)
	}
	if a.prompts, a.images, a.files = [][]int32{ids}, pics, nil; h != nil {
		h.pixels.keep(4 * int64(len(pics.Values)))
	}
	return nil
}
