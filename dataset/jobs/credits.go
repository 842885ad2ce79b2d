package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/dataset"
)

// CreditsName is the file in the folder of a growing data set that tells its producer how far it may go.
const CreditsName = "credits.json"

// Credits are what a producer goes by: of all its shards together, the first ones and those to come, so many
// may lie in its folder. The number never shrinks.
type Credits struct {
	Granted int64 `json:"granted"` // shards, from the beginning on
	Taken   int64 `json:"taken"`   // of them, shards that have come into the data set
}

// Room is how many shards more may be put.
func (c Credits) Room() int64 { return max(0, c.Granted-c.Taken) }

// ReadCredits reads what the follower of a folder has granted. A folder whose follower gives no credits is an
// error.
func ReadCredits(dir string) (c Credits, err error) {
	path := filepath.Join(dir, CreditsName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w; start lfactor data ingest --follow with --ahead", path, os.ErrNotExist)
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Granted < 0 || c.Taken < 0) {
		err = errors.New("its numbers are below 0")
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// consumerLook is how often the records of consumers are read.
const consumerLook = time.Second

// consumer is a run that learns the data set, by its record of samples.
type consumer struct {
	path string
	size int64
	gen  int64
}

// read looks how far a run is: in which generation its last step began. A run that has not begun is in the
// first.
func (c *consumer) read() error {
	info, err := os.Stat(c.path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == c.size {
		return nil
	}
	if err != nil {
		return err
	}
	l, err := dataset.ReadLedger(c.path)
	if err != nil {
		if info.Size() < 64 { // its first bytes are being written
			return nil
		}
		return err
	}
	defer l.Close()
	c.size = info.Size()
	if last, ok := l.Last(); ok {
		_, start, err := l.Blame(last)
		if err != nil {
			return err
		}
		c.gen = start.Generation
	}
	return nil
}

// grant gives credit for the generations that lie at most Ahead in front of the slowest consumer, and tells
// the producer.
func (f *Follower) grant(now time.Time) error {
	if f.cfg.Ahead == 0 {
		return nil
	}
	if f.granted > 0 && now.Sub(f.looked) < consumerLook && now.After(f.looked) &&
		f.toldTaken == len(f.taken) {
		return nil
	}
	f.looked = now
	slowest := int64(0)
	for i := range f.consumers {
		if err := f.consumers[i].read(); err != nil {
			return err
		}
		if i == 0 || f.consumers[i].gen < slowest {
			slowest = f.consumers[i].gen
		}
	}
	granted := max(f.granted, (slowest+int64(f.cfg.Ahead))*int64(f.cfg.Shards))
	if granted == f.granted && f.toldTaken == len(f.taken) {
		return nil
	}
	f.granted, f.toldTaken = granted, len(f.taken)
	b, err := json.Marshal(Credits{granted, int64(len(f.taken))})
	if err != nil {
		return err
	}
	return writeWhole(filepath.Join(f.cfg.Output, CreditsName), append(b, '\n'))
}

// writeWhole writes a file that is there as a whole or as it was.
func writeWhole(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".part-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// loadCredits goes on with what an earlier process has granted.
func (f *Follower) loadCredits() error {
	if f.cfg.Ahead == 0 {
		return nil
	}
	for _, run := range f.cfg.Consumers {
		f.consumers = append(f.consumers, consumer{path: run})
	}
	f.toldTaken = -1
	c, err := ReadCredits(f.cfg.Output)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; remove it", err)
	}
	f.granted = c.Granted
	return nil
}
