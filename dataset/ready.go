package dataset

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// Prepare makes what a model takes of a medium: v, of so many bytes of memory. n is how many media its
// sample has. An error means that the medium cannot be used. It is called by several goroutines at once.
type Prepare func(m *Media, n int) (v any, bytes int64, err error)

// ready is a medium's prepared form, or the promise of it: what finds no room in the hold is made again when
// it is taken.
type ready struct {
	hold *hold
	n    int // media of the sample

	mu     sync.Mutex
	value  any
	bytes  int64 // of value, or of what it was; hold.mu too is held where it changes
	wanted bool  // a task is to make it ahead
}

// hold keeps prepared media up to a size in bytes, and has the stage that makes them.
type hold struct {
	prepare Prepare
	pool    *pool

	mu   sync.Mutex
	room int64
	held map[*ready]bool
}

func newHold(prepare Prepare, bytes int64, p *pool) *hold {
	return &hold{prepare: prepare, pool: p, room: bytes, held: map[*ready]bool{}}
}

// attach promises the media of a sample.
func (h *hold) attach(s *Sample) {
	for i := range s.Media {
		s.Media[i].ready = &ready{hold: h, n: len(s.Media)}
	}
}

// verify makes all of a document's media for the first time; an error names the one that cannot be made.
func (h *hold) verify(media []Media) error {
	for i := range media {
		m := &media[i]
		v, bytes, err := h.prepare(m, m.ready.n)
		if err != nil {
			return fmt.Errorf("%s: %w", m.Key, err)
		}
		m.ready.mu.Lock()
		m.ready.keep(v, bytes)
		m.ready.mu.Unlock()
	}
	return nil
}

// keep holds a value where there is room. The caller has r.mu.
func (r *ready) keep(v any, bytes int64) {
	r.drop()
	h := r.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	r.bytes = bytes
	if bytes <= h.room {
		h.room -= bytes
		h.held[r] = true
		r.value = v
	}
}

// drop gives the room back and returns the value, if it was held. The caller has r.mu.
func (r *ready) drop() (v any) {
	h := r.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[r] {
		delete(h.held, r)
		h.room += r.bytes
	}
	v, r.value = r.value, nil
	return v
}

// release drops what media hold: nobody will take it, or not soon.
func release(media []Media) {
	for i := range media {
		if r := media[i].ready; r != nil {
			r.mu.Lock()
			r.wanted = false
			r.drop()
			r.mu.Unlock()
		}
	}
}

// clear drops all that is held.
func (h *hold) clear() {
	h.mu.Lock()
	var all []Media
	for r := range h.held {
		all = append(all, Media{ready: r})
	}
	h.mu.Unlock()
	release(all)
}

// ahead has the stage make what is not held, as far as there is room.
func (h *hold) ahead(m *Media) {
	r := m.ready
	if r == nil {
		return
	}
	h.mu.Lock()
	has := h.held[r] || r.bytes > h.room
	h.mu.Unlock()
	if has {
		return
	}
	r.mu.Lock()
	r.wanted = true
	r.mu.Unlock()
	h.pool.put(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.wanted || r.value != nil { // it was taken meanwhile, or is nobody's
			return
		}
		r.wanted = false
		if v, bytes, err := h.prepare(m, r.n); err == nil { // who takes it meets the error
			r.keep(v, bytes)
		}
	})
}

// Take returns what Prepare made of the medium, which is the caller's then. It is made anew where memory did not hold
// it, or where it was taken before. An error is one of the moment: it could be made once, before the sample was packed.
func (m *Media) Take() (v any, err error) {
	r := m.ready
	if r == nil {
		return nil, errors.New("the loader prepares no media")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = false
	if v = r.drop(); v != nil {
		return v, nil
	}
	r.hold.pool.do(func() { v, _, err = r.hold.prepare(m, r.n) })
	if err != nil {
		return nil, fmt.Errorf("%s could be decoded before and cannot now: %w", m.Key, err)
	}
	return v, nil
}

// hand gives a task to a stage from within a task of another, which does not count the time that passes.
func (p *pool) hand(to *pool, task func()) {
	start := time.Now()
	to.put(task)
	p.busy.Add(-int64(time.Since(start)))
}
