package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/topology/machine"
)

// FollowConfig says where shards come from, and when they are taken.
type FollowConfig struct {
	Pattern string // of the files that a producer puts, as in "incoming/*.jsonl.gz", or what From makes of it
	From    string // kind of origin: "files" where none is given
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
	Held        int   `json:"held"` // files that are whole, or named and not looked at, and wait for consumers
}

// Follower takes shards as they come into a data set that grows: it copies what is whole, and says in the ledger which
// shards have come together. What a producer does to a file afterwards changes nothing. It is for one goroutine.
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
	origin    origin
	listed    bool   // the origin has answered
	silent    string // what was said of one that does not answer now
	held      int    // whole files that wait for credit
	moved     bool   // a consumer has gone on since this was set false

	hampered bool              // some shard could not be asked for, or read, in this look
	failing  map[string]string // what was said of shards that cannot be taken now, by name
	untold   []byte            // lines for quarantine.jsonl that are not in it yet
	sums     map[string]string // SHA-256 of shards that were taken and are asked for again, by path

	toldCredits bool
}

// sighting is a file that has not been taken.
type sighting struct {
	size, changed int64
	version       string
	since         time.Time
	refused       bool // it is whole as it is and cannot be used
	ticket        bool // it names no shard, or did not yet
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
	from, err := openOrigin(c)
	if err != nil {
		return nil, err
	}
	release, err := machine.LockDir("output", c.Output)
	if err != nil {
		return nil, err
	}
	f := &Follower{cfg: c, release: release, taken: map[string]dataset.Shard{}, seen: map[string]*sighting{},
		told: map[string]bool{}, gone: map[string]bool{}, origin: from, failing: map[string]string{},
		sums: map[string]string{}}
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
		if json.Unmarshal([]byte(l), &e) == nil && !e.Ticket {
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
			f.taken[identity(s.From)] = s
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
// taken. A store that does not answer is told of, and asked again the next time.
func (f *Follower) Look(now time.Time) (any bool, err error) {
	defer func() { err = errors.Join(err, f.tell()) }()
	f.hampered = false
	if err := f.grant(now); err != nil {
		return false, err
	}
	offers, err := f.offers()
	if err != nil || offers == nil {
		return false, err
	}
	there := map[string]bool{}
	f.held = 0
	for _, o := range offers {
		there[o.name] = true
		took, err := f.look(o, now)
		if err != nil {
			return any, err
		}
		any = any || took
	}
	for _, path := range sortedKeys(f.seen) {
		if !there[path] {
			s := f.seen[path]
			delete(f.seen, path)
			if s.refused || s.ticket {
				continue // which was told of
			}
			if err := f.quarantine(offer{name: path, size: s.size, changed: s.changed},
				"it was removed before it was taken"); err != nil {
				return any, err
			}
		}
	}
	maps.DeleteFunc(f.failing, func(name, _ string) bool { return !there[name] })
	if err := f.close(f.cfg.Shards); err != nil {
		return any, err
	}
	if err := f.origin.done(f.inLedger); err != nil {
		return any, err
	}
	f.tellMissing()
	return any, f.grant(now)
}

// offers lists what a producer has put; nil where its place does not answer, though it has before.
func (f *Follower) offers() ([]offer, error) {
	out, err := f.origin.offers(func(name string) bool { _, ok := f.taken[name]; return ok }, f.room())
	var fatal fatalOrigin
	switch {
	case err == nil:
		f.listed, f.silent = true, ""
		return append([]offer{}, out...), nil
	case errors.As(err, &fatal) || !f.listed:
		return nil, err
	case f.silent != err.Error():
		f.silent = err.Error()
		f.cfg.Say(f.silent + "; it is looked at again")
	}
	return nil, nil
}

// room is how many whole shards a look has use for: those with credit, and those that cannot be taken.
func (f *Follower) room() int64 {
	if f.cfg.Ahead == 0 {
		return math.MaxInt64
	}
	n := f.credits.Granted - int64(len(f.taken)) + int64(len(f.failing))
	for _, s := range f.seen {
		if s.refused {
			n++
		}
	}
	return n
}

// inLedger says whether a shard belongs to a generation.
func (f *Follower) inLedger(name string) bool {
	_, ok := f.taken[name]
	return ok && !slices.ContainsFunc(f.waiting, func(s dataset.Shard) bool { return s.From == name })
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
	return errors.Join(f.append(dataset.Generation{End: true}), f.origin.done(f.inLedger))
}

// alive says whether a look has shown that more may come: something was taken, what waits for consumers that
// learn has come, or a place did not answer, which says nothing of what lies there.
func (f *Follower) alive(took bool) bool {
	return took || f.held > 0 && f.moved || f.silent != "" || f.hampered
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
func Follow(ctx context.Context, c FollowConfig, every, idle time.Duration, see func(FollowReport)) (FollowReport,
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
		if f.alive(took) {
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
		if machine.Pause(ctx, every) != nil {
			return f.Report(), nil
		}
	}
}
