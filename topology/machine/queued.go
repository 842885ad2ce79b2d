package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// queuedEvery is how long what QueuedSeconds has read holds good: it costs a file a thread.
const queuedEvery = 100 * time.Millisecond

// waits are what threads have waited for processors.
type waits struct {
	sync.Mutex
	read  time.Time
	total float64
	by    map[string]float64 // thread
}

var queued waits

// QueuedSeconds is the time that the threads of this process wanted to run, and other work had the
// processors: the sum over its threads, some hundred milliseconds late. It is 0 where the system does not
// tell. Time in which a process is stopped, or over its quota, does not count.
func QueuedSeconds() float64 {
	q := &queued
	q.Lock()
	defer q.Unlock()
	if time.Since(q.read) >= queuedEvery {
		q.update()
	}
	return q.total
}

// readQueued is QueuedSeconds of this moment.
func readQueued() float64 {
	queued.Lock()
	defer queued.Unlock()
	queued.update()
	return queued.total
}

// update reads what the system has counted; the lock is held.
func (q *waits) update() {
	q.read = time.Now()
	now := map[string]float64{}
	files, _ := filepath.Glob("/proc/self/task/*/schedstat") // the pattern is right
	for _, f := range files {
		text, err := os.ReadFile(f)
		fields := bytes.Fields(text)
		if err != nil || len(fields) < 2 {
			continue // the thread has ended
		}
		if n, err := strconv.ParseFloat(string(fields[1]), 64); err == nil {
			now[f] = n / 1e9
			q.total += max(0, now[f]-q.by[f])
		}
	}
	q.by = now
}
