package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
)

// Budget is how many documents of a run may be bad before it stops. A run goes on while either allowance holds.
// In the words of the field: dead-letter queue.
type Budget struct {
	Count    int64   // so many bad documents are fine
	Fraction float64 // so many for each document read are fine
}

// Allows says whether bad ones among read documents are within the budget.
func (b Budget) Allows(bad, read int64) bool {
	return bad <= b.Count || float64(bad) <= b.Fraction*float64(read)
}

// Bad is one quarantined document.
type Bad struct {
	Source   string `json:"source"`
	Document int64  `json:"document"` // number in the source
	Place
	Reason string `json:"reason"`
}

// BudgetError says that more documents were bad than the budget allows. The command line exits with 4.
type BudgetError struct {
	Budget Budget
	Bad    int64 // documents quarantined
	Read   int64 // documents read
	Last   Bad   // the one that broke the budget
}

func (e *BudgetError) Error() string {
	return fmt.Sprintf("%d of %d documents are bad, over the budget of %d or a fraction of %g; the last "+
		"was %s: %s; mend the data or raise the budget",
		e.Bad, e.Read, e.Budget.Count, e.Budget.Fraction, e.Last.Place, e.Last.Reason)
}

// Quarantine remembers bad documents, each once however often it is met, and writes them to a file of JSON
// lines. It is safe for concurrent use.
type Quarantine struct {
	mu   sync.Mutex
	file *os.File // nil: memory only
	seen map[badKey]bool
	list []Bad
}

type badKey struct {
	source   string
	document int64
}

// quarantineBytesMax bounds the file that is read at the start.
const quarantineBytesMax = 1 << 30

// OpenQuarantine opens or creates the file at path; "" keeps the quarantine in memory. What an earlier run
// wrote counts on. A last line that was cut off by a crash is dropped.
func OpenQuarantine(path string) (*Quarantine, error) {
	q := &Quarantine{seen: map[badKey]bool{}}
	if path == "" {
		return q, nil
	}
	size, err := q.load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	q.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("quarantine: %w", err)
	}
	if err := q.file.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("quarantine %s: %w", path, err), q.file.Close())
	}
	_, err = q.file.Seek(size, 0)
	return q, err
}

// ReadQuarantine returns what a file holds, without a change to it: also one that a run is writing.
func ReadQuarantine(path string) ([]Bad, error) {
	q := &Quarantine{seen: map[badKey]bool{}}
	if _, err := q.load(path); err != nil {
		return nil, err
	}
	return q.list, nil
}

// load reads a file and returns how many bytes of it are whole lines.
func (q *Quarantine) load(path string) (size int64, err error) {
	if info, err := os.Stat(path); err == nil && info.Size() > quarantineBytesMax {
		return 0, fmt.Errorf("quarantine %s: %d bytes, over the limit of %d", path, info.Size(), quarantineBytesMax)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("quarantine: %w", err)
	}
	whole := b[:bytes.LastIndexByte(b, '\n')+1]
	line := 0
	for l := range bytes.Lines(whole) {
		line++
		var bad Bad
		if err := json.Unmarshal(l, &bad); err != nil {
			return 0, fmt.Errorf("quarantine %s:%d: %w", path, line, err)
		}
		q.remember(bad)
	}
	return int64(len(whole)), nil
}

// remember enters a document and reports whether it is new.
func (q *Quarantine) remember(b Bad) bool {
	k := badKey{b.Source, b.Document}
	if q.seen[k] {
		return false
	}
	q.seen[k] = true
	q.list = append(q.list, b)
	return true
}

// Add quarantines a document, if it is not there already.
func (q *Quarantine) Add(b Bad) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.remember(b) || q.file == nil {
		return nil
	}
	line, err := json.Marshal(b)
	if err == nil {
		_, err = q.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("quarantine: write: %w", err)
	}
	return nil
}

// List returns the quarantined documents in the order they were met.
func (q *Quarantine) List() []Bad {
	q.mu.Lock()
	defer q.mu.Unlock()
	return append([]Bad(nil), q.list...)
}

// Close closes the file.
func (q *Quarantine) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.file == nil {
		return nil
	}
	return q.file.Close()
}
