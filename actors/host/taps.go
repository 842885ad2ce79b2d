package host

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/wire"
)

// Edge is what went from one actor to another so far.
type Edge struct {
	Name     string   `json:"name"`  // as Capture takes it: rank0-rank2
	From     string   `json:"from"`  // rank0, loader0.1, coordinator
	To       string   `json:"to"`    //
	Kinds    []string `json:"kinds"` // of the messages
	Way      string   `json:"way"`   // "inside", or how it leaves the process
	Proc     int      `json:"proc"`  // of the sender
	Messages int64    `json:"messages"`
	Bytes    int64    `json:"bytes"` // of their tensors
}

// tap counts what an actor sends another. It is written by the actor's goroutine alone.
type tap struct {
	from, to        actors.Ref
	messages, bytes atomic.Int64
	kinds           atomic.Uint64 // a bit a kind
	file            *captured     // nil where nobody wants it
}

// tapped counts, and keeps a message where that is wanted.
func (c *cell) tapped(to actors.Ref, m *actors.Message) {
	t := c.taps[to]
	if t == nil {
		t = c.s.tap(c.ref, to)
		c.taps[to] = t
	}
	t.messages.Add(1)
	t.kinds.Store(t.kinds.Load() | 1<<m.Kind)
	if p, ok := m.Payload.(*links.Pack); ok {
		t.bytes.Add(p.Bytes())
	}
	if t.file != nil {
		t.file.keep(m, t)
	}
}

// tap begins to count an edge.
func (s *System) tap(from, to actors.Ref) *tap {
	t := &tap{from: from, to: to}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.capture != nil && s.capture.wants(from, to) {
		t.file = &captured{c: s.capture, enc: wire.NewEncoder(), files: map[uint32]*os.File{}}
	}
	s.taps = append(s.taps, t)
	return t
}

// Edges lists what the actors of this process have sent, by sender and receiver.
func (s *System) Edges() []Edge {
	s.mu.RLock()
	taps := slices.Clone(s.taps)
	s.mu.RUnlock()
	slices.SortFunc(taps, func(a, b *tap) int {
		if a.from != b.from {
			return int(a.from - b.from)
		}
		return int(a.to - b.to)
	})
	out := make([]Edge, len(taps))
	for i, t := range taps {
		x := Edge{Name: s.edgeName(t.from, t.to), From: s.names(t.from), To: s.names(t.to), Way: "inside",
			Proc: s.proc, Messages: t.messages.Load(), Bytes: t.bytes.Load()}
		s.mu.RLock()
		_, inside := s.pids[t.to]
		s.mu.RUnlock()
		if w, ok := s.remote.(interface{ Way(to actors.Ref) string }); ok && !inside {
			x.Way = w.Way(t.to)
		}
		for k, bits := actors.Kind(0), t.kinds.Load(); bits > 0; k, bits = k+1, bits>>1 {
			if bits&1 > 0 {
				x.Kinds = append(x.Kinds, k.Name())
			}
		}
		out[i] = x
	}
	return out
}

func (s *System) edgeName(from, to actors.Ref) string { return s.names(from) + "-" + s.names(to) }

// Capture keeps the messages of edges in files, each a standard Arrow IPC stream: one a schema, named after
// the edge, EDGE-0.arrows, EDGE-1.arrows ….
type Capture struct {
	dir  string
	glob string      // of the names of edges, as path.Match has it
	fail func(error) // hears once that files cannot be written; nothing more is kept then
	name func(actors.Ref) string
	life int // of the process: what is kept of the one before stays
	over atomic.Bool
	once sync.Once
}

// NewCapture keeps the edges whose names match glob in dir, which is made. Actors are the names of the run's
// actors: a pattern that none of their edges could match is an error.
func NewCapture(glob, dir string, actors []string, fail func(error)) (*Capture, error) {
	any := false
	for _, a := range actors {
		for _, b := range actors {
			ok, err := path.Match(glob, a+"-"+b)
			if err != nil {
				return nil, fmt.Errorf("%q is not a pattern: %w", glob, err)
			}
			any = any || ok
		}
	}
	if !any {
		return nil, fmt.Errorf("no edge of this run can be called %q: its actors are %s, and an edge is called "+
			"rank0-rank1", glob, strings.Join(actors, ", "))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return &Capture{dir: dir, glob: glob, fail: fail}, nil
}

// wants tells whether the messages between these two actors are to be recorded: the pattern is
// matched against "sender-receiver".
func (c *Capture) wants(from, to actors.Ref) bool {
	ok, _ := path.Match(c.glob, c.name(from)+"-"+c.name(to)) // the pattern was checked
	return ok
}

// captured are the files of one edge.
type captured struct {
	c     *Capture
	enc   *wire.Encoder
	seq   uint64
	mu    sync.Mutex // end comes from elsewhere
	files map[uint32]*os.File
}

// keep appends a message.
func (x *captured) keep(m *actors.Message, t *tap) {
	if x.c.over.Load() {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seq++
	r, done := links.RecordOf(m, t.to, x.seq)
	defer done()
	if err := x.write(r, x.c.name(t.from)+"-"+x.c.name(t.to)); err != nil {
		x.c.over.Store(true)
		x.c.once.Do(func() { x.c.fail(err) })
	}
}

// write appends a record to the stream of its schema.
func (x *captured) write(r *wire.Record, edge string) error {
	b, n, first := x.enc.Encode(r)
	f := x.files[n]
	if f == nil {
		var err error
		if x.c.life > 0 {
			edge += fmt.Sprintf("-again%d", x.c.life)
		}
		if f, err = os.Create(filepath.Join(x.c.dir, fmt.Sprintf("%s-%d.arrows", edge, n))); err != nil {
			return err
		}
		x.files[n] = f
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if first { // a frame's header goes before each Arrow message on the wire, and not in a file
		_, _ = w.Write(b[1]) // Flush has the first error
		b = b[2:]
	}
	for _, part := range b[1:] {
		_, _ = w.Write(part) // Flush has the first error
	}
	return w.Flush()
}

// endOfStream is what ends an Arrow stream.
var endOfStream = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// end completes the streams.
func (x *captured) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, f := range x.files {
		_, err := f.Write(endOfStream)
		if err = errors.Join(err, f.Close()); err != nil {
			x.c.once.Do(func() { x.c.fail(err) })
		}
	}
	x.c.over.Store(true)
}

// endCapture completes all files.
func (s *System) endCapture() {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.taps {
		if t.file != nil {
			t.file.end()
		}
	}
}
