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
	open    func(dir string) (Talked, error)
	opening sync.Mutex // held while a model is opened
	mu      sync.Mutex
	now     *talking
}

// talking is a model that is open. One that another takes the place of is closed when its answers have ended.
type talking struct {
	Talked
	run     *folder
	of      string // checkpoint and step
	idle    *time.Timer
	answers sync.RWMutex // held for reading while it answers
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
	now := s.talks.begin(runs[id])
	if now == nil {
		http.Error(w, `{"error": {"message": "the model was closed, as nobody asked it or another run's was opened: load the page again"}}`,
			http.StatusGone)
		return
	}
	defer now.answers.RUnlock()
	http.StripPrefix(root, now).ServeHTTP(w, r)
}

// begin gives a run's model if it is the one that is open, held for an answer.
func (t *talks) begin(f *folder) *talking {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now == nil || t.now.run != f {
		return nil
	}
	t.now.answers.RLock()
	t.now.idle.Reset(talkIdle)
	return t.now
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
	return t.show(f, dir, of)
}

// show has a checkpoint of a run open, if it is not.
func (t *talks) show(f *folder, dir, of string) error {
	t.opening.Lock()
	defer t.opening.Unlock()
	if held := t.begin(f); held != nil {
		defer held.answers.RUnlock()
		if held.of == of {
			return nil
		}
	}
	open, err := t.open(dir)
	if err != nil {
		return err
	}
	now := &talking{Talked: open, run: f, of: of}
	t.mu.Lock()
	defer t.mu.Unlock()
	now.idle = time.AfterFunc(talkIdle, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.now == now {
			t.put(nil)
		}
	})
	t.put(now)
	return nil
}

// put has another model open, or none; the caller holds the lock.
func (t *talks) put(now *talking) {
	if old := t.now; old != nil {
		old.idle.Stop()
		go func() {
			old.answers.Lock()
			old.Close()
		}()
	}
	t.now = now
}
