package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/lfactor/lfactor/topology/machine"
)

// ChainName is the record, in log.dir, of what each step gave: a line a step, each with a hash of itself and of the
// line before, so that none can be changed, left out or put in without a change of all behind it.
const ChainName = "chain.jsonl"

// Began is what a run was when it took its first step, or the first behind a resumption with anything changed.
type Began struct {
	First  int64             `json:"first"`            // the first step that it holds for
	Own    int64             `json:"from_step"`        // the step of the run's own checkpoint that it went on from, 0 for none
	Steps  int               `json:"steps"`            // train.steps, or those of train.epochs
	Config map[string]string `json:"config,omitempty"` // all settings as they were given, as configs.Config.Flat
	Build  string            `json:"build"`            // hash of the program
	Data   string            `json:"data"`             // fingerprint of the data and their order
	From   string            `json:"from"`             // what it began with, for people
}

// Taken is a committed step. Numbers that JSON cannot hold are -1, as in metrics.jsonl.
type Taken struct {
	Step     int64   `json:"step"`
	Loss     float64 `json:"loss"`
	GradNorm float64 `json:"grad_norm"`
	LR       float64 `json:"lr"`
	Samples  string  `json:"samples,omitempty"` // hash of tokens, labels, borders and places of the step's samples
}

// SavedAs is a durable checkpoint. Its manifest has the hashes of its files.
type SavedAs struct {
	Step     int64  `json:"step"`
	Manifest string `json:"manifest"` // SHA-256 of manifest.json
}

// chained is a line of a chain, which has one of the three. Lines of checkpoints hang on their step's line and nothing
// hangs on them: when a save ends does not follow from the run.
type chained struct {
	Began *Began   `json:"began,omitempty"`
	Taken *Taken   `json:"taken,omitempty"`
	Saved *SavedAs `json:"saved,omitempty"`
}

// after is the step that a line comes behind or with.
func (l *chained) after() int64 {
	switch {
	case l.Began != nil:
		return l.Began.First - 1
	case l.Taken != nil:
		return l.Taken.Step
	case l.Saved != nil:
		return l.Saved.Step
	}
	return -1
}

// linkMark stands between a line's content and its hash.
const linkMark = `,"link":"`

// parseLine takes a line apart; false for one that is no line of a chain.
func parseLine(raw []byte) (l chained, body []byte, link string, ok bool) {
	at := bytes.LastIndex(raw, []byte(linkMark))
	if at < 0 {
		return l, nil, "", false
	}
	body = append(bytes.Clone(raw[:at]), '}')
	hash, whole := bytes.CutSuffix(raw[at+len(linkMark):], []byte("\"}\n"))
	return l, body, string(hash), whole && json.Unmarshal(body, &l) == nil && l.after() >= 0
}

func linkOf(before string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(before)) //nolint:errcheck // a hash takes everything
	h.Write(body)           //nolint:errcheck // a hash takes everything
	return hex.EncodeToString(h.Sum(nil))
}

// Chain is the chain of a run that is under way. What cannot be written must not end training: the chain ends there,
// and Err says why.
type Chain struct {
	mu     sync.Mutex
	path   string
	file   *os.File
	head   string
	step   int64            // the last
	began  Began            // the last
	recent map[int64]string // links of the last steps, for saves
	err    error
}

// recentLinks bounds how many steps a save may be behind.
const recentLinks = 1024

// OpenChain opens the chain of a run directory without the steps from first on, which are taken again.
func OpenChain(dir string, first int64) *Chain {
	c := &Chain{path: filepath.Join(dir, ChainName)}
	c.cut(first - 1)
	return c
}

// cut drops all behind a step.
func (c *Chain) cut(step int64) {
	text, err := os.ReadFile(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	c.head, c.step, c.began, c.recent = "", 0, Began{}, map[int64]string{}
	var out []byte
	for raw := range bytes.Lines(text) {
		l, _, link, ok := parseLine(raw)
		if !ok || l.after() > step {
			continue
		}
		if out = append(out, raw...); l.Saved == nil {
			c.goOn(&l, link)
		}
	}
	if c.file != nil {
		err = errors.Join(err, c.file.Close())
	}
	if err == nil && len(out) < len(text) {
		err = machine.ReplaceBytes(c.path, 0o600, out)
	}
	if err == nil {
		c.file, err = os.OpenFile(c.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	}
	c.err = err
}

// goOn makes a line the last.
func (c *Chain) goOn(l *chained, link string) {
	if c.head = link; l.Began != nil {
		c.began = *l.Began
		return
	}
	c.step, c.recent[l.Taken.Step] = l.Taken.Step, link
	delete(c.recent, c.step-recentLinks)
}

// append adds a line behind one.
func (c *Chain) append(before string, l *chained) {
	body, err := json.Marshal(l)
	if err != nil {
		panic(err) // numbers and strings
	}
	link := linkOf(before, body)
	if l.Saved == nil {
		c.goOn(l, link)
	}
	if c.err == nil { // behind a line that is lost no other counts
		_, c.err = c.file.WriteString(string(body[:len(body)-1]) + linkMark + link + "\"}\n")
	}
}

// Begin says what the run is from a step on, if that is not what it was before.
func (c *Chain) Begin(b Began) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, was := b, c.began
	is.First, is.Own, is.From, was.First, was.Own, was.From = 0, 0, "", 0, 0, ""
	if c.head == "" || !reflect.DeepEqual(is, was) {
		c.append(c.head, &chained{Began: &b})
	}
}

// Take adds a committed step; one that is taken again drops those from it on.
func (c *Chain) Take(t Taken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.Step <= c.step {
		c.cut(t.Step - 1)
	}
	c.append(c.head, &chained{Taken: &t})
}

// Back drops all behind a step, which is taken again. A nil chain, of a process that writes none, does nothing.
func (c *Chain) Back(step int64) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if step < c.step {
		c.cut(step)
	}
}

// Last is the last step.
func (c *Chain) Last() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.step
}

// Save adds the checkpoint of a step, as Back does nothing to a nil chain.
func (c *Chain) Save(step int64, manifest []byte) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.recent[step]; ok {
		c.append(at, &chained{Saved: &SavedAs{step, SHA256(manifest)}})
	}
}

// Close ends the chain, and says why it ended before.
func (c *Chain) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return c.err
	}
	return errors.Join(c.err, c.file.Close())
}

// SHA256 is a hash as text.
func SHA256(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Links are what a chain says.
type Links struct {
	Began []Began
	Taken []Taken
	Saved map[int64]string // of a checkpoint's manifest, by step
	Root  string           // the last step's hash, which stands for all lines before
	// Faults are lines that are not what was written, or have lost some before them; a last line that was cut off is
	// none.
	Faults []ChainFault
}

// ChainFault is a line of a chain that is not as it was written.
type ChainFault struct {
	Line  int
	After int64 // the step that it comes behind or with
	Why   string
}

// ReadChain reads and checks the chain of a run directory.
func ReadChain(dir string) (*Links, error) {
	text, err := os.ReadFile(filepath.Join(dir, ChainName))
	if err != nil {
		return nil, err
	}
	out, heads, n := &Links{Saved: map[int64]string{}}, map[int64]string{}, 0
	for raw := range bytes.Lines(text) {
		n++
		l, body, link, ok := parseLine(raw)
		before, after := out.Root, l.after()
		why := ""
		switch {
		case !ok && raw[len(raw)-1] != '\n':
			continue // a crash has cut it off
		case !ok:
			why = "is no line of a chain"
		case l.Saved != nil:
			before = heads[after]
			out.Saved[after] = l.Saved.Manifest
		case l.Taken != nil:
			if k := len(out.Taken); k > 0 && after <= out.Taken[k-1].Step {
				why = fmt.Sprintf("is of step %d, behind step %d", after, out.Taken[k-1].Step)
			}
			out.Taken = append(out.Taken, *l.Taken)
			out.Root, heads[after] = link, link
		default:
			out.Began = append(out.Began, *l.Began)
			out.Root = link
		}
		if ok && why == "" && linkOf(before, body) != link {
			why = "does not hang on the line before: it is not what was written, or lines before it are gone or new"
		}
		if why != "" {
			out.Faults = append(out.Faults, ChainFault{n, after, why})
		}
	}
	return out, nil
}
