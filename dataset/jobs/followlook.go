package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// look looks at one file.
func (f *Follower) look(o offer, now time.Time) (bool, error) {
	if s, ok := f.taken[o.name]; ok {
		return false, f.again(o, s)
	}
	if o.unasked {
		f.held++
		return false, nil
	}
	f.hampered = f.hampered || o.unanswered
	s := f.seen[o.name]
	if s == nil || s.size != o.size || s.changed != o.changed || s.version != o.version {
		s = &sighting{size: o.size, changed: o.changed, version: o.version, since: now, ticket: o.ticket}
		f.seen[o.name] = s
	}
	settled := o.whole || now.Sub(s.since) >= f.cfg.Settle
	switch {
	case s.refused, o.waits == unmarked:
		return false, nil
	case o.waits != "" && now.Sub(s.since) >= f.cfg.Settle: // late, or half written
		return false, f.quarantine(o, o.waits)
	case o.waits != "", !settled:
		return false, nil
	case f.cfg.Ahead > 0 && int64(len(f.taken)) >= f.credits.Granted:
		f.held++
		return false, nil
	}
	return f.take(o, s)
}

// again looks at a shard that was taken, or at a ticket that names it once more, and notes where it is
// another one now. The data set keeps what it has.
func (f *Follower) again(o offer, s dataset.Shard) error {
	reason := "it was changed after it was taken; put what is new under a new name"
	switch {
	case o.stated != nil && *o.stated != s.Bytes:
		reason = fmt.Sprintf("it was taken before with %d bytes, and a ticket says that it has %d; put what "+
			"is new under a new name", s.Bytes, *o.stated)
	case o.sum != "":
		sum, err := f.sumOf(s)
		if err != nil || sum == o.sum {
			return err
		}
		reason = fmt.Sprintf("it was taken before with the SHA-256 %s, and a ticket says that it has %s; put "+
			"what is new under a new name", sum, o.sum)
	case o.absent, s.Bytes == o.size && s.Changed == o.changed && s.Version == o.version:
		return nil
	case store.Scheme(o.name) == "":
		print, n, err := format.PrintFile(o.name)
		if err != nil || print == s.Print && n == s.Bytes { // touched, or gone again
			return nil
		}
	}
	return errors.Join(f.quarantine(o, reason), f.tell(), f.origin.refused(o.name))
}

// sumOf is the SHA-256 of a shard that was taken, in hex.
func (f *Follower) sumOf(s dataset.Shard) (string, error) {
	if f.sums[s.Path] == "" {
		sum, err := machine.HashFile(filepath.Join(f.cfg.Output, filepath.FromSlash(s.Path)))
		if err != nil {
			return "", err
		}
		f.sums[s.Path] = sum
	}
	return f.sums[s.Path], nil
}

// quarantineName is the file with what was not taken, a JSON object a line.
const quarantineName = "quarantine.jsonl"

// quarantined is a line of it.
type quarantined struct {
	Shard   string `json:"shard"`
	Bytes   int64  `json:"bytes"`
	Changed int64  `json:"changed"`
	Reason  string `json:"reason"`
	Ticket  bool   `json:"ticket,omitempty"` // it is what should name a shard, and did not
}

// quarantine notes a file that is not taken, once for each state that it was seen in; tell writes it.
func (f *Follower) quarantine(o offer, reason string) error {
	if !o.ticket {
		f.gone[o.name] = true
	}
	line, err := json.Marshal(quarantined{Shard: o.name, Bytes: o.size, Changed: o.changed, Reason: reason,
		Ticket: o.ticket})
	if err != nil || f.told[string(line)] {
		return err
	}
	f.told[string(line)] = true
	f.events++
	f.untold = append(append(f.untold, line...), '\n')
	return nil
}

// tell writes what quarantine has noted, on disk when it returns.
func (f *Follower) tell() error {
	if len(f.untold) == 0 {
		return nil
	}
	lines := bytes.TrimSuffix(f.untold, []byte("\n"))
	f.untold = nil
	return appendLine(filepath.Join(f.cfg.Output, quarantineName), lines)
}

// appendLine puts a line behind a file, on disk when it returns.
func appendLine(path string, line []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
