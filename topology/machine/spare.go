package machine

import (
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// spares are files that this process keeps open so that it can close one where it may open no more.
var spares struct {
	first sync.Once
	sync.Mutex
	held []*os.File
}

// mostSpares is how many there are: as many connections as a process may lose and take up again at once.
const mostSpares = 8

// WithSpare is what open returns, which opens one file. Where this process may open no more, it gets one that was kept
// for such calls: a run that has as many files as it may have can then take up connections that it has lost.
func WithSpare[T any](open func() (T, error)) (T, error) {
	spares.first.Do(keep)
	for {
		v, err := open()
		if !errors.Is(err, syscall.EMFILE) || !give() {
			return v, err
		}
	}
}

// keep opens what is missing; as long as it may not, it tries again each second.
func keep() {
	spares.Lock()
	defer spares.Unlock()
	for len(spares.held) < mostSpares {
		f, err := os.Open(os.DevNull)
		if err != nil {
			time.AfterFunc(time.Second, keep)
			return
		}
		spares.held = append(spares.held, f)
	}
}

// give closes one and reports whether there was one. It is replaced later, when whoever wanted it has it.
func give() bool {
	spares.Lock()
	defer spares.Unlock()
	n := len(spares.held) - 1
	if n < 0 {
		return false
	}
	_ = spares.held[n].Close() // it is the null device
	if spares.held = spares.held[:n]; n == mostSpares-1 {
		time.AfterFunc(time.Second, keep)
	}
	return true
}
