package head

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
)

// other is a head that follows the one that leads: it keeps a copy of what jobs write.
type other struct {
	Seat
	conn  *control.Conn // nil while it is away
	since time.Time
	pid   int
}

// SeatState is a head as status tells of it.
type SeatState struct {
	Seat
	State string    `json:"state"` // leads, follows, away
	Since time.Time `json:"since"`
	Pid   int       `json:"pid,omitempty"`
}

// states are all heads, where there are several; the lock is held.
func (h *Head) states() (out []SeatState) {
	for _, x := range h.seats {
		s := SeatState{Seat: x, State: "away", Since: h.began}
		if o := h.others[x.Name]; o != nil {
			s.Since, s.Pid = o.since, o.pid
			if o.conn != nil {
				s.State = "follows"
			}
		}
		if x.Name == h.self.Name {
			s.State, s.Pid = "leads", pid()
		}
		out = append(out, s)
	}
	return out
}

// addrs are those of all heads.
func (h *Head) addrs() (out []string) {
	for _, x := range h.seats {
		out = append(out, x.Addr)
	}
	if len(out) == 0 {
		out = []string{h.self.Addr}
	}
	return out
}

// copyOf says how much of a job's output a head has, and what it is.
type copyOf struct {
	Size int64  `json:"size"`
	Sum  string `json:"sum"` // hexadecimal SHA-256 of it
}

// copies lists the outputs of jobs in a head's directory.
func copies(dir string) (map[string]copyOf, error) {
	files, err := filepath.Glob(filepath.Join(dir, "jobs", "*.jsonl"))
	out := map[string]copyOf{}
	for _, f := range files {
		info, e := os.Stat(f)
		if err = errors.Join(err, e); err != nil {
			break
		}
		c := copyOf{Size: info.Size()}
		c.Sum, err = sumOf(f, c.Size)
		out[strings.TrimSuffix(filepath.Base(f), ".jsonl")] = c
	}
	return out, err
}

// sumOf is the hash of the first bytes of a file.
func sumOf(file string, n int64) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(sum, f, n); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// attendHead is the connection of a head that follows: it says what it has, and gets the rest.
func (h *Head) attendHead(w http.ResponseWriter, r *http.Request) {
	c, err := control.Accept(w, r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUpgradeRequired)
		return
	}
	defer c.Close()
	hello, err := c.Receive(dialLimit)
	if err != nil || hello.Kind != control.Hello || hello.Info == nil {
		return
	}
	has := map[string]copyOf{}
	if err := json.Unmarshal(hello.Data, &has); err != nil {
		return
	}
	o, ok := h.seated(hello.Info, c)
	if !ok {
		return
	}
	done := make(chan struct{})
	go func() {
		h.copyTo(c, has, done)
		c.Close()
	}()
	for err == nil {
		_, err = c.Listen(control.HeadSilence)
	}
	close(done)
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.conn == c {
		o.conn, o.since = nil, time.Now()
		if !h.gone {
			h.stepLocked(decide.Note{Event: Event{Kind: "head", Text: fmt.Sprintf("%s at %s is away: %s",
				o.Name, o.Addr, control.Why(err))}})
		}
	}
}

// seated notes that a head follows this one.
func (h *Head) seated(info *control.Info, c *control.Conn) (*other, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, x := range h.seats {
		if x.Name != info.Name || x.Name == h.self.Name || h.gone || h.m.Ending() {
			continue
		}
		if old := h.others[x.Name]; old != nil && old.conn != nil {
			old.conn.Close()
		}
		o := &other{Seat: x, conn: c, since: time.Now(), pid: info.Pid}
		h.others[x.Name] = o
		h.stepLocked(decide.Note{Event: Event{Kind: "head", Text: fmt.Sprintf("%s at %s follows, pid %d",
			x.Name, x.Addr, o.pid)}})
		return o, true
	}
	return nil, false
}

// copyPiece bounds a message with a piece of output.
const copyPiece = 1 << 20

// copyTo sends a head what jobs write, and a beat now and then.
func (h *Head) copyTo(c *control.Conn, has map[string]copyOf, done <-chan struct{}) {
	at := map[string]int64{}
	for id, x := range has {
		if !filepath.IsLocal(id) || x.Size < 0 {
			continue
		}
		if sum, err := sumOf(h.outputFile(id), x.Size); err == nil && sum == x.Sum {
			at[id] = x.Size
		}
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for beat := time.Now(); ; {
		h.mu.Lock()
		sizes := map[string]int64{}
		for id, j := range h.outputs {
			if j.size > at[id] || j.size == 0 && has[id].Size > 0 && at[id] == 0 {
				sizes[id] = j.size
			}
		}
		h.mu.Unlock()
		for id, size := range sizes {
			delete(has, id)
			next, err := sendOutput(c, h.outputFile(id), id, at[id], size)
			if err != nil {
				return
			}
			at[id] = next
		}
		if time.Since(beat) > control.Beats {
			beat = time.Now()
			if c.Send(control.Message{Kind: control.Beat}) != nil {
				return
			}
		}
		select {
		case <-done:
			return
		case <-tick.C:
		}
	}
}

// sendOutput sends the bytes of a job's output between two offsets; the follower drops what it has behind the first.
func sendOutput(c *control.Conn, file, id string, from, to int64) (int64, error) {
	f, err := os.Open(file)
	if err != nil {
		return from, err
	}
	defer f.Close()
	for from < to {
		b := make([]byte, min(copyPiece, to-from))
		if _, err := f.ReadAt(b, from); err != nil {
			return from, err
		}
		if err := c.Send(control.Message{Kind: control.Output, Job: id, At: from, Data: b}); err != nil {
			return from, err
		}
		from += int64(len(b))
	}
	return from, nil
}

// follow is connected with the head that leads until that changes.
func (s *holder) follow(ctx context.Context) {
	lead, ok := s.leader()
	if ok && lead.Name != s.self.Name {
		_ = s.up() // what does not come up is tried again when the next head leads
		err := s.followAt(ctx, lead)
		if ctx.Err() == nil {
			s.o.logf("%s, which leads, at %s: %v", lead.Name, lead.Addr, err)
		}
	}
	select {
	case <-ctx.Done():
	case <-time.After(look):
	}
}

// followAt takes from the head that leads what jobs write.
func (s *holder) followAt(ctx context.Context, lead Seat) error {
	has, err := copies(s.o.Dir)
	if err != nil {
		return err
	}
	text, err := json.Marshal(has)
	if err != nil {
		return err
	}
	c, err := control.Dial(ctx, lead.Addr, s.id, "/v1/head")
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.Send(control.Message{Kind: control.Hello, Data: text,
		Info: &control.Info{Name: s.self.Name, Addr: s.self.Addr, Pid: pid(), Version: s.o.Version,
			Binary: s.o.Binary}}); err != nil {
		return err
	}
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		tick := time.NewTicker(control.Beats)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if _, elsewhere := s.elsewhere(lead); elsewhere ||
					c.Send(control.Message{Kind: control.Beat}) != nil {
					c.Close()
					return
				}
			}
		}
	}()
	for {
		m, err := c.Listen(control.HeadSilence)
		if err != nil {
			return errors.New(control.Why(err))
		}
		switch m.Kind {
		case control.Output:
			if err := s.keep(m); err != nil {
				return err
			}
		case control.Quit:
			s.ended()
		}
	}
}

// elsewhere reports whether another head leads than lead.
func (s *holder) elsewhere(lead Seat) (Seat, bool) {
	now, ok := s.leader()
	return now, ok && now.Name != lead.Name
}

// keep writes a piece of a job's output where it belongs; what was there is not what the head that leads has.
func (s *holder) keep(m control.Message) error {
	if !filepath.IsLocal(m.Job) || m.At < 0 {
		return fmt.Errorf("output of %q at %d", m.Job, m.At)
	}
	dir := filepath.Join(s.o.Dir, "jobs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, m.Job+".jsonl"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(m.Data, m.At)
	return errors.Join(err, f.Truncate(m.At+int64(len(m.Data))), f.Close())
}

// procKey names a process of a job.
type procKey struct {
	job  string
	proc int
	gen  int
}

// taken says of an agent's processes how far their output has come, so that the agent sends again what the
// head before this one has taken with it.
func (h *Head) taken(procs []control.Proc) (out []control.Proc) {
	for _, p := range procs {
		if n := h.wrote[procKey{p.Job, p.Proc, p.Gen}]; n > 0 {
			out = append(out, control.Proc{Job: p.Job, Proc: p.Proc, Gen: p.Gen, Wrote: n})
		}
	}
	return out
}

// readWritten finds how far the output of a job's processes has come, and takes off a last line that was torn.
func (h *Head) readWritten(id string) (size int64, err error) {
	f, err := os.OpenFile(h.outputFile(id), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for r := bufio.NewReader(f); ; { // a line has a message at most, and a file may be larger than memory
		line, err := r.ReadBytes('\n')
		switch {
		case err == io.EOF && len(line) > 0:
			return size, f.Truncate(size)
		case err == io.EOF:
			return size, nil
		case err != nil:
			return size, err
		}
		size += int64(len(line))
		var c Chunk
		if json.Unmarshal(line, &c) == nil && c.Seq > 0 {
			k := procKey{id, c.Proc, c.Gen}
			h.wrote[k] = max(h.wrote[k], c.Seq)
		}
	}
}
