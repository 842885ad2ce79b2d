package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/topology/machine"
)

// MarksName is the file of a run directory with what its users say of the run. The run itself never writes it.
const MarksName = "marks.json"

// recordForm is the form of run.json that this program writes.
const recordForm = 1

// Marks are what users say of a run.
type Marks struct {
	Name     string   `json:"name,omitempty"` // in place of log.name
	Note     string   `json:"note,omitempty"`
	Tags     []string `json:"tags,omitempty"` // in order, each once
	Archived bool     `json:"archived,omitempty"`
}

// Mark reads the marks of a run directory, none where there is no file, and changes them, unless change is nil. A
// name or tag is one line of at most 100 characters, a note has at most 10,000.
func Mark(dir string, change func(*Marks)) (m Marks, err error) {
	file := filepath.Join(dir, MarksName)
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		if err = json.Unmarshal(b, &m); err != nil {
			err = fmt.Errorf("%s: %w; mend or remove it", file, err)
		}
	}
	if err != nil || change == nil {
		return m, err
	}
	if ReadRecord(dir).ID == "" {
		return m, fmt.Errorf("%s: no run's folder: it has no %s", dir, RecordName)
	}
	change(&m)
	slices.Sort(m.Tags)
	m.Tags = slices.Compact(m.Tags)
	bad := func(word string) bool { return len(word) > 100 || strings.ContainsAny(word, "\n\r\t") }
	if bad(m.Name) || slices.ContainsFunc(m.Tags, bad) || slices.Contains(m.Tags, "") || len(m.Tags) > 100 || len(m.Note) > 10_000 {
		return m, errors.New("a name or tag is one line of at most 100 characters, a note has at most 10,000, and a run at most 100 tags")
	}
	if b, err = json.Marshal(m); err != nil {
		return m, err
	}
	return m, machine.ReplaceBytes(file, 0o600, b)
}

// Delete removes the records of a run that is not under way, and its folder where nothing else lies there. What else
// lies there, such as checkpoints and the records of earlier runs, stays and is returned.
func Delete(dir string) (left []string, err error) {
	have := ReadRecord(dir)
	if have.ID == "" {
		return nil, fmt.Errorf("%s: no run's folder: it has no %s", dir, RecordName)
	}
	release, err := machine.LockDir("log.dir", dir)
	if err != nil {
		return nil, err
	}
	defer release()
	gone := filepath.Join(dir, ".deleted")
	err = errors.Join(moveRecords(dir, gone, have), os.RemoveAll(gone))
	all, _ := os.ReadDir(dir) // what cannot be listed stays
	for _, e := range all {
		if e.Name() != ".lock" {
			left = append(left, e.Name())
		}
	}
	if err == nil && left == nil {
		err = os.RemoveAll(dir)
	}
	return left, err
}
