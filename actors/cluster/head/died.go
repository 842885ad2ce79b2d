package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// touched is a file of a head's directory that says which stored thing the head works on. One that has ended
// the head twice, one life after the other, is not read by the third. The file is not synced: it has to
// outlive the process, and not the machine.
type touched struct {
	mu   sync.Mutex
	f    *os.File
	last rites
}

// rites are what the file has.
type rites struct {
	Key   string `json:"key"`   // that ended the life before
	Count int    `json:"count"` // lives one after the other that it has ended
	Now   string `json:"now"`   // what is worked on
}

const (
	touchedFile = "touched"
	touchedSize = 1 << 10
	// killsTwice is how many lives of a head a stored thing may end before it is set aside.
	killsTwice = 2
)

// openTouched reads what the life before this one worked on when it ended.
func openTouched(dir string) (*touched, error) {
	f, err := os.OpenFile(filepath.Join(dir, touchedFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	t := &touched{f: f}
	b := make([]byte, touchedSize)
	n, _ := f.ReadAt(b, 0) // a new file is empty
	if json.Unmarshal(b[:n], &t.last) != nil || t.last.Now == "" {
		t.last = rites{}
	}
	if t.last.Now != t.last.Key {
		t.last.Key, t.last.Count = t.last.Now, 0
	}
	if t.last.Key != "" {
		t.last.Count++
	}
	t.last.Now = ""
	return t, t.write()
}

// aside is what is not to be read.
func (t *touched) aside() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.Count < killsTwice {
		return nil
	}
	return map[string]string{t.last.Key: fmt.Sprintf("it has ended the head %d times, one after the other",
		t.last.Count)}
}

// touch notes what is worked on from now; "" is nothing.
func (t *touched) touch(key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last.Now != key {
		t.last.Now = key
		_ = t.write() // on a disk that takes nothing a head goes on
	}
}

func (t *touched) write() error {
	text, err := json.Marshal(t.last)
	if err != nil || len(text) >= touchedSize {
		return errors.Join(err, os.ErrInvalid)
	}
	_, err = t.f.WriteAt(append(text, strings.Repeat(" ", touchedSize-len(text))...), 0)
	return err
}

// end says that this life ended by itself.
func (t *touched) end() {
	t.touch("")
	t.f.Close()
}

// guard ends the process where a handler panics: the server would go on without it, and the lock that it
// held would be held for ever. Whoever looks after the head starts it again.
func (s *holder) guard(r *http.Request) {
	v := recover()
	switch err, _ := v.(error); {
	case v == nil:
	case errors.Is(err, http.ErrAbortHandler):
		panic(v) // the server's own word for a connection that is given up
	default:
		s.o.logf("! %s %s: %v\n%s", r.Method, r.URL.Path, v, debug.Stack())
		s.crash(v)
	}
}

// crash ends the process.
func (s *holder) crash(v any) {
	if s.o.Crash != nil {
		s.o.Crash(v)
		return
	}
	go panic(v) // no server is around it
	select {}
}

// stuckLimit is how many seconds a head may decide nothing. They are counted while this process runs, so
// that one that was stopped has not been stuck.
const stuckLimit = 30

// watch ends a process whose head decides nothing any more, as one whose lock is held for ever.
func (s *holder) watch(h *Head, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		free := make(chan struct{})
		go func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			close(free)
		}()
		for n, held := 0, true; held; n++ {
			select {
			case <-h.left:
				return
			case <-free:
				held = false
				<-tick.C
			case <-tick.C:
			}
			if n == stuckLimit {
				s.o.logf("! the head has decided nothing for %v: it ends, to be started again", stuckLimit*every)
				s.crash("the head decides nothing")
				return
			}
		}
	}
}
