package store

import (
	"container/list"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/lfactor/lfactor/topology/machine"
)

// openMax is how many local files are open at once; a data set may have many more shards than a process may
// have open files. Of those that it may have, a quarter at most are taken, and openMin at least.
const (
	openMax = 512
	openMin = 8
)

// openFiles is how many files may be open at a time: a part of the process's limit, as others need some too.
func openFiles(limit int64) int {
	if limit <= 0 {
		return openMax
	}
	return int(min(openMax, max(openMin, limit/4)))
}

// pool is the open files, those used last in front.
type pool struct {
	mu   sync.Mutex
	max  int
	open *list.List // of *local
}

var files = &pool{max: openFiles(machine.FileLimit()), open: list.New()}

// local is a file on disk. It is open only while it is among those used last.
type local struct {
	pool  *pool
	path  string
	size  int64
	mod   time.Time
	f     *os.File      // nil: not open
	at    *list.Element // in the pool
	users int
}

func openLocal(path string) (File, error) { return files.add(path) }

// add opens a file and enters it among the open ones, of which the longest unused may be closed for it.
func (p *pool) add(path string) (*local, error) {
	info, err := os.Stat(path) // opening a pipe would wait for a writer
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file but %s", path, kindOf(info.Mode()))
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l := &local{pool: p, path: path, size: info.Size(), mod: info.ModTime(), f: f}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.at = p.open.PushFront(l)
	p.shrink()
	return l, nil
}

// shrink closes the files used least lately that nobody reads, while too many are open.
func (p *pool) shrink() {
	for e := p.open.Back(); e != nil && p.open.Len() > p.max; {
		l, next := e.Value.(*local), e.Prev()
		if l.users == 0 {
			_ = l.f.Close() // it was only read
			l.f, l.at = nil, nil
			p.open.Remove(e)
		}
		e = next
	}
}

// acquire opens the file again if need be; release allows it to be closed.
func (p *pool) acquire(l *local) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.f == nil {
		f, err := os.Open(l.path)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && (info.Size() != l.size || !info.ModTime().Equal(l.mod)) {
			err = fmt.Errorf("%s was changed while it was in use; start again", l.path)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		l.f, l.at = f, p.open.PushFront(l)
		l.users++
		p.shrink()
		return f, nil
	}
	p.open.MoveToFront(l.at)
	l.users++
	return l.f, nil
}

// release ends one use of a file, which may then be closed to make room.
func (p *pool) release(l *local) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.users--
	p.shrink()
}

// ReadAt implements File.
func (l *local) ReadAt(b []byte, at int64) (int, error) {
	f, err := l.pool.acquire(l)
	if err != nil {
		return 0, err
	}
	defer l.pool.release(l)
	return f.ReadAt(b, at)
}

func (l *local) Name() string    { return l.path }
func (l *local) Size() int64     { return l.size }
func (l *local) Version() string { return strconv.FormatInt(l.mod.UnixNano(), 10) }

// Close implements File.
func (l *local) Close() error {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	if l.f == nil {
		return nil
	}
	l.pool.open.Remove(l.at)
	err := l.f.Close()
	l.f, l.at = nil, nil
	return err
}

// kindOf names what is not a regular file.
func kindOf(m os.FileMode) string {
	if m.IsDir() {
		return "a directory"
	}
	return "of the kind " + m.Type().String()
}
