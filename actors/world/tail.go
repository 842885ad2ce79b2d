package world

import "sync"

// tailMost is how much of what a command says is kept, its end.
const tailMost = 1024

// tail keeps the end of what is written. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	end []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, p...)
	t.end = t.end[max(0, len(t.end)-tailMost):]
	return len(p), nil
}

// String is what is kept.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.end)
}
