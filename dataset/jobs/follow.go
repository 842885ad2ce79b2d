package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/topology/machine"
)

// FollowConfig says where shards come from, and when they are taken.
type FollowConfig struct {
	Pattern string // of the files that a producer puts, as in "incoming/*.jsonl.gz"
	Output  string // the folder of the growing data set
	Shards  int    // of a generation
	// Settle is how long a file must have stayed as it is before it is taken for whole. A clock that
	// jumps makes it wait longer, never shorter: what counts is the time of this process.
	Settle time.Duration
	Marker string          // what is put beside a file when it is whole, as ".done"; "" goes by Settle alone
	Open   dataset.Options // how shards are read
	// Ahead is how many generations the data set may be in front of the slowest of its consumers, whose
	// records of samples are named: further shards are left where they lie, and the producer is told in
	// CreditsName. 0 is without a bound.
	Ahead     int
	Consumers []string
	Say       func(note string) // hears what a person should know; nil hears nothing
}

// FollowReport is what has been done.
type FollowReport struct {
	Generations int64 `json:"generations"`
	Shards      int64 `json:"shards"`
	Bytes       int64 `json:"bytes"`
	Waiting     int   `json:"waiting"`     // files that are taken and belong to no generation yet
	Quarantined int64 `json:"quarantined"` // events in quarantine.jsonl, of this and earlier processes
	Ended       bool  `json:"ended"`
	Held        int   `json:"held"` // files that are whole and wait for consumers
}

// Follower takes shards as they come into a data set that grows: it copies what is whole, and says in
// the ledger which shards have come together. What a producer does to a file afterwards changes
// nothing. It is for one goroutine.
type Follower struct {
	cfg     FollowConfig
	release func()
	list    []dataset.Generation
	before  string                   // hash of the last line
	taken   map[string]dataset.Shard // by where they came from
	waiting []dataset.Shard          // taken, and in no generation
	seen    map[string]*sighting
	told    map[string]bool // events in quarantine.jsonl
	events  int64

	gone      map[string]bool // shards that were told of in the quarantine
	consumers []consumer
	credits   Credits // as the producer was told last, by this process once toldCredits
	looked    time.Time
	held      int  // whole files that wait for credit
	moved     bool // a consumer has gone on since this was set false

	toldCredits bool
}

// sighting is a file that has not been taken.
type sighting struct {
	size, changed int64
	since         time.Time
	refused       bool // it is whole as it is and cannot be used
}

// NewFollower opens or begins a growing data set, and holds its folder for this process. What a
// process that was cut off has copied without saying so is taken again.
func NewFollower(c FollowConfig) (*Follower, error) {
	if c.Shards < 1 {
		c.Shards = 1
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	release, err := machine.LockDir("output", c.Output)
	if err != nil {
		return nil, err
	}
	f := &Follower{cfg: c, release: release, taken: map[string]dataset.Shard{}, seen: map[string]*sighting{},
		told: map[string]bool{}, gone: map[string]bool{}}
	if err := errors.Join(f.load(), f.loadCredits()); err != nil {
		release()
		return nil, err
	}
	return f, nil
}

// Close gives the folder back.
func (f *Follower) Close() { f.release() }

func (f *Follower) manifest() string { return filepath.Join(f.cfg.Output, dataset.ManifestName) }

// shardsDir is where shards lie in the output.
const shardsDir = "shards"

// load reads what earlier processes have done.
func (f *Follower) load() error {
	if err := os.MkdirAll(filepath.Join(f.cfg.Output, shardsDir), 0o755); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(f.cfg.Output, quarantineName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for l := range strings.Lines(string(text)) {
		f.told[strings.TrimSpace(l)] = true
		f.events++
		var e quarantined
		if json.Unmarshal([]byte(l), &e) == nil {
			f.gone[e.Shard] = true
		}
	}
	list, whole, err := dataset.ReadManifest(f.manifest())
	if errors.Is(err, os.ErrNotExist) {
		return f.clean()
	}
	if err != nil {
		return err
	}
	if err := os.Truncate(f.manifest(), whole); err != nil { // a line that was cut off
		return err
	}
	b, err := os.ReadFile(f.manifest())
	if err != nil {
		return err
	}
	for l := range strings.Lines(string(b)) {
		f.before = dataset.LineHash([]byte(l))
	}
	f.list = list
	for _, g := range list {
		for _, s := range g.Shards {
			f.taken[s.From] = s
		}
	}
	if len(list) > 0 && list[len(list)-1].End {
		return fmt.Errorf("%s has ended; name another output for what comes later", f.manifest())
	}
	return f.clean()
}

// clean removes copies that no line of the ledger names: they are taken again.
func (f *Follower) clean() error {
	named := map[string]bool{}
	for _, s := range f.taken {
		named[filepath.Base(s.Path)] = true
	}
	dir := filepath.Join(f.cfg.Output, shardsDir)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !named[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Look looks once at what is there at a time, and takes what is whole. It reports whether anything was
// taken.
func (f *Follower) Look(now time.Time) (bool, error) {
	files, err := filepath.Glob(f.cfg.Pattern)
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.cfg.Pattern, err)
	}
	slices.Sort(files)
	if err := f.grant(now); err != nil {
		return false, err
	}
	there := map[string]bool{}
	any := false
	f.held = 0
	for _, path := range files {
		if f.cfg.Marker != "" && strings.HasSuffix(path, f.cfg.Marker) {
			continue
		}
		there[path] = true
		took, err := f.look(path, now)
		if err != nil {
			return any, err
		}
		any = any || took
	}
	for _, path := range sortedKeys(f.seen) {
		if !there[path] {
			s := f.seen[path]
			delete(f.seen, path)
			if err := f.quarantine(path, s.size, s.changed,
				"it was removed before it was taken"); err != nil {
				return any, err
			}
		}
	}
	if err := f.close(f.cfg.Shards); err != nil {
		return any, err
	}
	f.tellMissing()
	return any, f.grant(now)
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// look looks at one file.
func (f *Follower) look(path string, now time.Time) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return false, nil // it went away, or is nothing to take
	}
	if err != nil {
		return false, err
	}
	size, changed := info.Size(), info.ModTime().UnixNano()
	if s, ok := f.taken[path]; ok {
		if s.Bytes == size && s.Changed == changed {
			return false, nil
		}
		return false, f.later(path, s, size, changed)
	}
	s := f.seen[path]
	if s == nil || s.size != size || s.changed != changed {
		s = &sighting{size: size, changed: changed, since: now}
		f.seen[path] = s
	}
	switch {
	case s.refused, now.Sub(s.since) < f.cfg.Settle:
		return false, nil
	case f.cfg.Marker != "" && !machine.Exists(path+f.cfg.Marker):
		return false, nil
	case f.cfg.Ahead > 0 && int64(len(f.taken)) >= f.credits.Granted:
		f.held++
		return false, nil
	}
	return f.take(path, s)
}

// later notes that a file that was taken is another one now. The data set keeps what it has.
func (f *Follower) later(path string, s dataset.Shard, size, changed int64) error {
	print, n, err := format.PrintFile(path)
	if err != nil || print == s.Print && n == s.Bytes { // touched, or gone again
		return nil
	}
	return f.quarantine(path, size, changed,
		"it was changed after it was taken; put what is new under a new name")
}

// take copies a file that is whole, if it can be read and is still the same behind that.
func (f *Follower) take(path string, s *sighting) (bool, error) {
	name := fmt.Sprintf("%06d-%s", len(f.taken), filepath.Base(path))
	to := filepath.Join(f.cfg.Output, shardsDir, name)
	if err := copyFile(path, to); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return false, nil // it went away
		}
		return false, err
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() != s.size || info.ModTime().UnixNano() != s.changed {
		delete(f.seen, path) // it is being written; looked at anew
		return false, nil
	}
	print, size, err := format.PrintFile(to)
	if err != nil {
		return false, err
	}
	if reason := f.unusable(to); reason != "" {
		s.refused = true
		reason = strings.ReplaceAll(reason, to, path)
		return false, errors.Join(f.quarantine(path, s.size, s.changed, reason), os.Remove(to))
	}
	delete(f.seen, path)
	shard := dataset.Shard{Path: shardsDir + "/" + name, Bytes: size, Print: print, From: path,
		Changed: s.changed}
	f.taken[path] = shard
	f.waiting = append(f.waiting, shard)
	return true, nil
}

// unusable says why a shard cannot be read: as a whole, or at its end, where one that was cut off shows.
func (f *Follower) unusable(path string) string {
	s, err := dataset.Open(path, f.cfg.Open)
	if err != nil {
		return "it cannot be read, and may be half written: " + err.Error()
	}
	defer s.Close()
	if s.Len() == 0 {
		return "it has no documents"
	}
	if _, err := s.Read(s.Len() - 1); err != nil {
		return "its last document cannot be read, and may be half written: " + err.Error()
	}
	return ""
}

// copyFile copies a file, which is there as a whole or not at all.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".part-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil {
		err = errors.Join(out.Chmod(0o444), out.Sync())
	}
	if err = errors.Join(err, out.Close()); err == nil {
		return os.Rename(out.Name(), to)
	}
	return errors.Join(err, os.Remove(out.Name()))
}

// quarantineName is the file with what was not taken, a JSON object a line.
const quarantineName = "quarantine.jsonl"

// quarantined is a line of it.
type quarantined struct {
	Shard   string `json:"shard"`
	Bytes   int64  `json:"bytes"`
	Changed int64  `json:"changed"`
	Reason  string `json:"reason"`
}

// quarantine notes a file that is not taken, once for each state that it was seen in.
func (f *Follower) quarantine(path string, size, changed int64, reason string) error {
	f.gone[path] = true
	line, err := json.Marshal(quarantined{path, size, changed, reason})
	if err != nil || f.told[string(line)] {
		return err
	}
	f.told[string(line)] = true
	f.events++
	return appendLine(filepath.Join(f.cfg.Output, quarantineName), line)
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

// close makes generations of what waits, as long as it is at least n shards.
func (f *Follower) close(n int) error {
	for len(f.waiting) >= n && len(f.waiting) > 0 {
		k := min(len(f.waiting), f.cfg.Shards)
		if err := f.append(dataset.Generation{Shards: slices.Clone(f.waiting[:k])}); err != nil {
			return err
		}
		f.waiting = f.waiting[k:]
	}
	return nil
}

// append writes a line of the ledger.
func (f *Follower) append(g dataset.Generation) error {
	g.Number, g.Before = int64(len(f.list)), f.before
	line, err := json.Marshal(g)
	if err != nil {
		return err
	}
	if err := appendLine(f.manifest(), line); err != nil {
		return err
	}
	f.before = dataset.LineHash(line)
	f.list = append(f.list, g)
	return nil
}

// End says that nothing follows: what waits becomes a last generation, though it be a small one.
func (f *Follower) End() error {
	if err := f.close(1); err != nil {
		return err
	}
	return f.append(dataset.Generation{End: true})
}

// Report says what has been done.
func (f *Follower) Report() FollowReport {
	r := FollowReport{Waiting: len(f.waiting), Quarantined: f.events, Held: f.held}
	for _, g := range f.list {
		if r.Ended = g.End; !g.End {
			r.Generations++
		}
		for _, s := range g.Shards {
			r.Shards++
			r.Bytes += s.Bytes
		}
	}
	return r
}

// Follow looks again and again until ctx ends, which is no error, or nothing has been taken for idle
// (0: for ever): then the data set ends, without what waits for consumers of which none has gone on
// for so long. see hears of each change.
func Follow(ctx context.Context, c FollowConfig, every, idle time.Duration,
	see func(FollowReport)) (FollowReport,
	error) {
	f, err := NewFollower(c)
	if err != nil {
		return FollowReport{}, err
	}
	defer f.Close()
	last := time.Now()
	for {
		took, err := f.Look(time.Now())
		if err != nil {
			return f.Report(), err
		}
		if took || f.held > 0 && f.moved { // what waits for consumers that learn has come
			last = time.Now()
		}
		f.moved = false
		if took {
			see(f.Report())
		}
		if idle > 0 && time.Since(last) > idle {
			err := f.End()
			return f.Report(), err
		}
		select {
		case <-ctx.Done():
			return f.Report(), nil
		case <-time.After(every):
		}
	}
}
