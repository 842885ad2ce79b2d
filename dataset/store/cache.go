package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// cacheBytesDefault bounds the cache where LFACTOR_CACHE_BYTES does not.
const cacheBytesDefault = 8 << 30

// cache keeps blocks of remote files on disk, those used last, up to a number of bytes. Each is a file named by what it
// holds, with a check sum in front, so that runs after each other share them and damage costs a request.
type cache struct {
	mu    sync.Mutex
	dir   string
	max   int64
	used  int64
	turn  int64
	known map[string]*cached
	busy  map[string]*fetching
}

type cached struct {
	bytes, turn int64
	verified    bool // by this process: parts of it may be read
}

// fetching is a block that somebody asks the store for.
type fetching struct {
	done chan struct{}
	b    []byte
	err  error
}

// newCache opens a cache in a folder; "" means LFACTOR_CACHE, or a folder of the user's caches. max 0 means
// LFACTOR_CACHE_BYTES, or 8 GiB.
func newCache(dir string, max int64) (*cache, error) {
	if dir == "" {
		dir = os.Getenv("LFACTOR_CACHE")
	}
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			base = os.TempDir()
		}
		dir = filepath.Join(base, "lfactor", "blocks")
	}
	if text := os.Getenv("LFACTOR_CACHE_BYTES"); max == 0 && text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("LFACTOR_CACHE_BYTES=%s is not a number of bytes", text)
		}
		max = n
	}
	if max == 0 {
		max = cacheBytesDefault
	}
	c := &cache{dir: dir, max: max, known: map[string]*cached{}, busy: map[string]*fetching{}}
	return c, c.load()
}

// load finds what earlier runs left, the oldest first.
func (c *cache) load() error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("cache of remote files: %w; set LFACTOR_CACHE to a folder that can be written", err)
	}
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, e := range list {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && strings.HasSuffix(e.Name(), cacheSuffix) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		c.turn++
		c.known[info.Name()] = &cached{bytes: info.Size(), turn: c.turn}
		c.used += info.Size()
	}
	c.shrink()
	return nil
}

const cacheSuffix = ".block"

// blockName names the file of a block.
func blockName(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:]) + cacheSuffix
}

// readAt copies what stands at a place of the block of a key, n bytes long, into p: from disk where the
// block was verified before, or else by get.
func (c *cache) readAt(key string, n int, p []byte, at int64, fetch func() ([]byte, error)) (int, error) {
	name := blockName(key)
	c.mu.Lock()
	have := c.known[name]
	verified := have != nil && have.verified
	if verified {
		c.turn++
		have.turn = c.turn
	}
	c.mu.Unlock()
	want := min(len(p), n-int(at))
	if verified {
		if f, err := os.Open(filepath.Join(c.dir, name)); err == nil {
			got, _ := f.ReadAt(p[:want], at+sha256.Size) // what is short is fetched again
			_ = f.Close()                                // it was only read
			if got == want {
				return got, nil
			}
		}
	}
	b, err := c.get(key, n, fetch)
	if err != nil {
		return 0, err
	}
	return copy(p, b[at:]), nil
}

// anyLength stands for a block whose length is not known before it is read.
const anyLength = -1

// get returns the block of a key, n bytes or anyLength, from disk or by fetch, which one caller at a time makes for all.
// The bytes may not be changed.
func (c *cache) get(key string, n int, fetch func() ([]byte, error)) ([]byte, error) {
	name := blockName(key)
	c.mu.Lock()
	if f := c.busy[name]; f != nil {
		c.mu.Unlock()
		<-f.done
		return f.b, f.err
	}
	f := &fetching{done: make(chan struct{})}
	c.busy[name] = f
	have := c.known[name]
	if have != nil {
		c.turn++
		have.turn = c.turn
	}
	c.mu.Unlock()
	if have != nil {
		if f.b = c.read(name, n); f.b != nil {
			c.mu.Lock()
			have.verified = true
			c.mu.Unlock()
		}
	}
	if f.b == nil {
		if f.b, f.err = fetch(); f.err == nil {
			c.write(name, f.b)
		}
	}
	c.mu.Lock()
	delete(c.busy, name)
	c.mu.Unlock()
	close(f.done)
	return f.b, f.err
}

// read returns a block, nil where it is not whole.
func (c *cache) read(name string, n int) []byte {
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil || len(b) != n+sha256.Size && (n != anyLength || len(b) < sha256.Size) {
		return nil
	}
	if sum := sha256.Sum256(b[sha256.Size:]); string(sum[:]) != string(b[:sha256.Size]) {
		return nil
	}
	return b[sha256.Size:]
}

// write keeps a block. A disk that is full costs requests, and no more.
func (c *cache) write(name string, b []byte) {
	if int64(len(b)) > c.max {
		return
	}
	f, err := os.CreateTemp(c.dir, "*.tmp")
	if errors.Is(err, fs.ErrNotExist) && os.MkdirAll(c.dir, 0o700) == nil { // somebody emptied the caches
		f, err = os.CreateTemp(c.dir, "*.tmp")
	}
	if err != nil {
		return
	}
	sum := sha256.Sum256(b)
	_, err = f.Write(sum[:])
	if err == nil {
		_, err = f.Write(b)
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(c.dir, name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is a temporary file
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.known[name]; old != nil {
		c.used -= old.bytes
	}
	c.turn++
	c.known[name] = &cached{int64(len(b) + sha256.Size), c.turn, true}
	c.used += int64(len(b) + sha256.Size)
	c.shrink()
}

// shrink deletes the blocks used least lately while there are too many bytes.
func (c *cache) shrink() {
	if c.used <= c.max {
		return
	}
	names := make([]string, 0, len(c.known))
	for n := range c.known {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, b string) int { return int(c.known[a].turn - c.known[b].turn) })
	for _, n := range names {
		if c.used <= c.max*9/10 {
			return
		}
		_ = os.Remove(filepath.Join(c.dir, n)) // another process may have
		c.used -= c.known[n].bytes
		delete(c.known, n)
	}
}
