package dashboard

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Talked answers for a checkpoint's model: lfactor serve's page and API. Close gives its memory back.
type Talked interface {
	http.Handler
	Close()
}

// talkIdle is how long a model that nobody asks is kept.
const talkIdle = 10 * time.Minute

// talks has the model of one run's newest checkpoint at a time, for people to talk to while the run goes on.
type talks struct {
	open func(dir string) (Talked, error)
	mu   sync.RWMutex // held for reading while it answers
	of   string       // checkpoint and step
	now  Talked
	idle *time.Timer
}

// talk opens the page for a run's newest checkpoint, and answers what it asks. Only who may change things may talk: it
// takes memory and the processor.
func (s *Server) talk(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.Atoi(r.PathValue("id"))
	runs := s.all()
	switch {
	case err != nil || id < 0 || id >= len(runs) || runs[id].simulated():
		http.Error(w, "there is no such run", http.StatusNotFound)
		return
	case s.o.Talk == nil || s.access.who(r) != Admin:
		http.Error(w, "this session may not talk to models: lfactor ui --admin prints a link that may", http.StatusForbidden)
		return
	}
	root := fmt.Sprintf("/runs/%d/talk", id)
	if r.URL.Path == root+"/" && r.Method == http.MethodGet { // the page is loaded, perhaps again
		if err := s.talks.turn(runs[id]); err != nil {
			http.Error(w, "no model to talk to: "+err.Error(), http.StatusUnprocessableEntity)
			return
		}
	}
	s.talks.mu.RLock()
	defer s.talks.mu.RUnlock()
	if s.talks.now == nil {
		http.Error(w, `{"error": {"message": "the model was closed, as nobody asked it: load the page again"}}`, http.StatusGone)
		return
	}
	s.talks.idle.Reset(talkIdle)
	http.StripPrefix(root, s.talks.now).ServeHTTP(w, r)
}

// turn has the newest checkpoint of a run open, and no other.
func (t *talks) turn(f *folder) error {
	cfg, err := f.config()
	if err != nil {
		return err
	}
	dir := cfg.Run.Checkpoint.Dir
	list, err := checkpoint.List(dir)
	if err != nil {
		return err
	}
	of := ""
	for _, e := range list {
		if e.Err == nil && e.Latest {
			of = fmt.Sprintf("%s at step %d", dir, e.Step)
		}
	}
	if of == "" {
		return errors.New("the run has no checkpoint yet")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == of {
		return nil
	}
	t.drop()
	if t.now, err = t.open(dir); err != nil {
		t.now = nil
		return err
	}
	if t.of = of; t.idle == nil {
		t.idle = time.AfterFunc(talkIdle, func() {
			t.mu.Lock()
			defer t.mu.Unlock()
			t.drop()
		})
	}
	t.idle.Reset(talkIdle)
	return nil
}

// drop closes what is open; the caller holds the lock.
func (t *talks) drop() {
	if t.now != nil {
		t.now.Close()
	}
	t.of, t.now = "", nil
}
