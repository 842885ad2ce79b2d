package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/topology/machine"
)

// Journal is what a conversion has done so far, so that one that was killed goes on. Its file has a line that names
// the conversion and the places of its bytes, then a line for each part that was written, with the CRC-32 of its bytes,
// and one when files get their names. A line that does not hold to its own sum counts for nothing, and bytes of a part
// that do not hold to theirs are written again: what a kill, or a loss of power, has left half-written is never taken
// for whole. A nil Journal is of a conversion that does not go on.
type Journal struct {
	path, key string
	mu        sync.Mutex
	f         *os.File
	done      map[partAt]uint32
	named     bool
}

// partAt is a part's file, by its number, and place.
type partAt struct {
	file          int
	offset, bytes int64
}

const journalMagic = "lfactor-conversion-1"

// journalMax bounds a journal, in bytes.
const journalMax = 256 << 20

// JournalPath is where the journal of a conversion to dst lies: beside it, hidden.
func JournalPath(dst string) string {
	dir, base := filepath.Split(filepath.Clean(dst))
	return filepath.Join(dir, "."+base+".journal")
}

// NewJournal is that of the conversion to dst which key names: all that its bytes follow from.
func NewJournal(dst, key string) *Journal { return &Journal{path: JournalPath(dst), key: key} }

// Begun reports whether the conversion was begun before, and another one whose journal lies there.
func (j *Journal) Begun() (same, other bool) {
	line := make([]byte, 512)
	f, err := os.Open(j.path)
	if err != nil {
		return false, false
	}
	defer f.Close()
	n, _ := f.Read(line) // what is short is none
	first, _, whole := strings.Cut(string(line[:n]), "\n")
	same = strings.HasPrefix(first, journalMagic+" "+j.key+" ")
	return same && whole, !same && whole // else nothing was written but a part of this
}

// Drop removes the journal: nothing goes on any more.
func (j *Journal) Drop() error {
	if j == nil {
		return nil
	}
	if j.f != nil {
		_ = j.f.Close() // it goes away
		j.f = nil
	}
	return OS.RemoveAll(j.path)
}

// Begin makes the journal where there is none of this conversion, before anything else is written, and
// holds it: no other process may convert to the same destination.
func (j *Journal) Begin() error {
	if j == nil || j.f != nil {
		return nil
	}
	if err := j.hold(); err != nil {
		return err
	}
	if same, _ := j.Begun(); same {
		return nil
	}
	return j.anew("-")
}

// first is the first line of the journal of a conversion with these places.
func (j *Journal) first(places string) string {
	return journalMagic + " " + j.key + " " + places + "\n"
}

// anew empties the journal, which at no moment is without its first line.
func (j *Journal) anew(places string) error {
	first := j.first(places)
	if _, err := j.f.WriteAt([]byte(first), 0); err != nil {
		return err
	}
	_, err := j.f.Seek(int64(len(first)), io.SeekStart)
	return errors.Join(err, j.f.Truncate(int64(len(first))))
}

// open reads what was done of a conversion with these places, and begins anew where it is another's.
func (j *Journal) open(places string) error {
	if err := j.Begin(); err != nil {
		return err
	}
	j.done, j.named = map[partAt]uint32{}, false
	if info, err := j.f.Stat(); err != nil || info.Size() > journalMax {
		return errors.Join(err, j.anew(places))
	}
	text, err := os.ReadFile(j.path)
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(text, []byte(j.first(places)))
	if !ok {
		return j.anew(places)
	}
	j.read(string(rest))
	_, err = j.f.WriteAt([]byte("\n"), int64(len(text))) // ends a line that was cut
	_, at := j.f.Seek(0, io.SeekEnd)
	return errors.Join(err, at)
}

// hold opens the file, which no other process may have open so.
func (j *Journal) hold() error {
	if err := OS.MkdirAll(filepath.Dir(j.path)); err != nil {
		return err
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if machine.LockFile(f) {
		f.Close()
		return fmt.Errorf("%s is held by another process, which converts to the same destination: wait for it, "+
			"or name another destination", j.path)
	}
	j.f = f
	return nil
}

// read takes in the lines behind the first.
func (j *Journal) read(text string) {
	for line := range strings.Lines(text) {
		said, sum, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " #")
		if !ok || sum != lineSum(said) {
			continue
		}
		if said == "named" {
			j.named = true
			continue
		}
		var p partAt
		var crc uint32
		if n, err := fmt.Sscanf(said, "%d %d %d %x", &p.file, &p.offset, &p.bytes, &crc); n == 4 && err == nil {
			j.done[p] = crc
		}
	}
}

func lineSum(said string) string { return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(said))) }

// line adds one.
func (j *Journal) line(said string) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	_, err := j.f.WriteString(said + " #" + lineSum(said) + "\n")
	return err
}

// wrote notes a part whose bytes are in their place.
func (j *Journal) wrote(p partAt, crc uint32) error {
	return j.line(fmt.Sprintf("%d %d %d %08x", p.file, p.offset, p.bytes, crc))
}

// names notes that all parts are there, and that files get their names.
func (j *Journal) names() error {
	if j == nil || j.named {
		return nil
	}
	if err := j.line("named"); err != nil {
		return err
	}
	return j.f.Sync()
}

// sum is what a part's bytes are to have, where it was written before.
func (j *Journal) sum(p partAt) (crc uint32, ok bool) {
	if j == nil {
		return 0, false
	}
	crc, ok = j.done[p]
	return crc, ok
}
