package jobs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/topology/machine"
)

// CreditsName is the file in the folder of a growing data set that tells its producer how far it may go.
const CreditsName = "credits.json"

// Credits are what a producer goes by: of all its shards together, the first ones and those to come,
// so many may lie in its folder. The number never shrinks.
type Credits struct {
	Granted int64 `json:"granted"` // shards, from the beginning on
	Taken   int64 `json:"taken"`   // of them, shards that have come into the data set
	// Lost is how many shards, by their names, will not come as they are: refused, or removed before
	// they were taken. What was put less what is taken or lost is still on its way. A shard that is
	// put again under its name is on its way again.
	Lost int64 `json:"lost"`
}

// Room is how many shards more may be put.
func (c Credits) Room() int64 { return max(0, c.Granted-c.Taken) }

// ReadCredits reads what the follower of a folder has granted. A folder whose follower gives no credits is an error.
func ReadCredits(dir string) (c Credits, err error) {
	path := filepath.Join(dir, CreditsName)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, fmt.Errorf("%s: %w; start lfactor data ingest --follow with --ahead", path, os.ErrNotExist)
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Granted < 0 || c.Taken < 0 || c.Lost < 0) {
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
	path    string
	size    int64
	gen     int64 // of the last step, or the one that it waits for
	missing bool  // it has no record
	told    bool  // that it has none
}

// read looks how far a run is: in which generation its last step began, or for which it waits. A run
// that has not begun is in the first. It reports whether the run has gone on since it was read last.
func (c *consumer) read() (moved bool, err error) {
	was := *c
	waits, err := dataset.ReadGenerationMark(filepath.Dir(c.path))
	if err == nil {
		err = c.readLedger()
	}
	c.gen = max(c.gen, waits)
	c.missing = c.size == 0 && waits < 0
	return c.size != was.size || c.gen != was.gen, err
}

// readLedger reads in which generation the last step began, if steps have come.
func (c *consumer) readLedger() error {
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

// grant gives credit for the generation of the slowest consumer and the Ahead next ones, and tells the producer.
func (f *Follower) grant(now time.Time) error {
	if f.cfg.Ahead == 0 {
		return nil
	}
	if f.looked.IsZero() || now.Sub(f.looked) >= consumerLook || !now.After(f.looked) {
		f.looked = now
		if err := f.readConsumers(); err != nil {
			return err
		}
	}
	slowest := f.consumers[0].gen
	for _, c := range f.consumers {
		slowest = min(slowest, c.gen)
	}
	c := Credits{max(f.credits.Granted, f.upTo(slowest)+int64(f.cfg.Ahead)*int64(f.cfg.Shards)),
		int64(len(f.taken)), f.lost()}
	if f.credits == c && f.toldCredits {
		return nil
	}
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f.credits, f.toldCredits = c, true
	return machine.ReplaceBytes(filepath.Join(f.cfg.Output, CreditsName), 0o644, append(b, '\n'))
}

// readConsumers reads how far all consumers are.
func (f *Follower) readConsumers() error {
	for i := range f.consumers {
		moved, err := f.consumers[i].read()
		if err != nil {
			return err
		}
		f.moved = f.moved || moved
	}
	return nil
}

// upTo is how many shards the generations up to and with one have, those to come as they are made now.
func (f *Follower) upTo(gen int64) (n int64) {
	have := min(gen+1, int64(len(f.list)))
	for _, g := range f.list[:have] {
		n += int64(len(g.Shards))
	}
	return n + (gen+1-have)*int64(f.cfg.Shards)
}

// lost counts the shards that were told of in the quarantine, by their names, and that neither were
// taken nor lie there to be.
func (f *Follower) lost() (n int64) {
	for path := range f.gone {
		_, taken := f.taken[path]
		if s := f.seen[path]; !taken && (s == nil || s.refused) {
			n++
		}
	}
	return n
}

// tellMissing says once of each consumer without a record that whole shards wait for it.
func (f *Follower) tellMissing() {
	for i := range f.consumers {
		if c := &f.consumers[i]; f.held > 0 && c.missing && !c.told {
			c.told = true
			f.cfg.Say(fmt.Sprintf("%s has no record of steps: %d whole shards wait until that run learns; "+
				"name another folder with --consumer if it is none", filepath.Dir(c.path), f.held))
		}
	}
}

// loadCredits goes on with what an earlier process has granted.
func (f *Follower) loadCredits() error {
	if f.cfg.Ahead == 0 {
		return nil
	}
	for _, run := range f.cfg.Consumers {
		f.consumers = append(f.consumers, consumer{path: run})
	}
	c, err := ReadCredits(f.cfg.Output)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w; remove it", err)
	}
	f.credits = c
	return nil
}
