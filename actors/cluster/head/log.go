package head

import (
	"io"
	"log"
	"sync"
	"time"
)

// quietLog is for the server's complaints about its clients: one line a second, so that nobody fills
// the disk by knocking.
func quietLog(w io.Writer) *log.Logger { return log.New(&seldom{w: w}, "", log.LstdFlags) }

// seldom is a log that lets through one line in a while and counts the others, so that strangers cannot fill the disk.
type seldom struct {
	w       io.Writer
	mu      sync.Mutex
	last    time.Time
	dropped int
}

// Write implements io.Writer.
func (s *seldom) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.last) < time.Second {
		s.dropped++
		return len(b), nil
	}
	s.last = time.Now()
	return s.w.Write(b)
}
