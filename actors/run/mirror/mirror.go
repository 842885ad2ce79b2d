// Package mirror keeps checkpoints where the hosts of a run may share no storage: every shard lies on two
// hosts, the leading one has all, and whoever begins gathers what the hosts have together.
package mirror

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// Depots is a Fleet whose hosts may share no storage: each keeps the shards of its ranks, the leading host
// all of them, and a checkpoint is durable when every shard is on two hosts. Paths are the same on all.
type Depots interface {
	// Host is the one of this process.
	Host() string
	// Hosts are those with processes of the run, by the processes' numbers, and the others that are up.
	Hosts() (run, spare []string)
	// Depot is another host's storage.
	Depot(host string) (checkpoint.Depot, error)
}

// Options are a Mirror's.
type Options struct {
	Hosts   Depots
	Dir     string   // checkpoint.dir
	Log     string   // log.dir, with the records of the run
	Records []string // names of the records that go with checkpoints, the ledger first
	Keep    int      // checkpoints to keep
	// Say tells the user where copies go; Progress and Warnings take what else there is to say.
	Say                func(text string)
	Progress, Warnings io.Writer
	// Entered waits until the ledger has a step, at most so long.
	Entered func(step int64, most time.Duration)
}

// Mirror keeps checkpoints of a run over hosts durable. It is used by the coordinator's committer alone,
// Begin before Copy before Publish.
type Mirror struct {
	o    Options
	d    Depots
	root string // checkpoint.dir

	private map[string]checkpoint.Depot // hosts that take part in the save and see storage of their own
	shared  map[string]bool             // hosts that see this one's storage
	second  string                      // gets what is written here, "" for nobody
	said    string                      // what the user knows of where copies go

	mu   sync.Mutex
	sent map[string]int64 // bytes of each record of the run that second has
	at   string           // the second host that they are of
}

// New is the mirror of a run's checkpoints.
func New(o Options) (*Mirror, error) {
	root, err := filepath.Abs(o.Dir)
	return &Mirror{o: o, d: o.Hosts, root: root, sent: map[string]int64{}}, err
}

// Host is the host of this process.
func (m *Mirror) Host() string { return m.d.Host() }

// Begin makes room for a save on all hosts of the run, and on a spare one where the run has one only.
func (m *Mirror) Begin(step int64) error {
	if _, err := checkpoint.Begin(checkpoint.OS, m.root, step); err != nil {
		return err
	}
	marker, remove, err := mark(m.root)
	if err != nil {
		return err
	}
	defer remove()
	m.private, m.shared, m.second = map[string]checkpoint.Depot{}, map[string]bool{m.d.Host(): true}, ""
	ranks, spare := m.d.Hosts()
	for _, h := range ranks {
		if h == m.d.Host() {
			continue
		}
		if err := m.place(h, step, marker); err != nil {
			return fmt.Errorf("no room for copies: %w", err)
		}
	}
	var faults []error
	for _, h := range spare {
		if len(m.private) > 0 || len(m.shared) > 1 {
			break
		}
		faults = append(faults, m.place(h, step, marker))
	}
	hosts := slices.Sorted(maps.Keys(m.private))
	for _, h := range ranks {
		if m.private[h] != nil && m.second == "" {
			m.second = h
		}
	}
	switch {
	case len(m.shared) > 1 && len(hosts) == 0:
		m.say("checkpoints lie on storage that the hosts share: %s", m.root)
	case len(m.shared) > 1:
		m.second = ""
		m.say("checkpoints are copied from %s to storage that other hosts share", strings.Join(hosts, ", "))
	case len(hosts) > 0:
		if m.second == "" {
			m.second = hosts[0]
		}
		m.say("checkpoints are whole on %s; what is written there is copied to %s", m.d.Host(), m.second)
	case errors.Join(faults...) != nil:
		return fmt.Errorf("no second host takes copies: %w", errors.Join(faults...))
	default:
		m.say("! no other host is up: checkpoints lie on %s alone", m.d.Host())
	}
	return nil
}

// place makes room on a host that sees storage of its own.
func (m *Mirror) place(h string, step int64, marker string) error {
	d, err := m.d.Depot(h)
	if err != nil {
		return err
	}
	sees, err := d.Sees(m.root, marker)
	switch {
	case err != nil:
		return err
	case sees:
		m.shared[h] = true
		return nil
	}
	if err := d.Begin(m.root, step); err != nil {
		return err
	}
	m.private[h] = d
	return nil
}

// mark leaves a marker in a directory that other hosts may see.
func mark(dir string) (marker string, remove func(), err error) {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime ends the process instead
	return checkpoint.Mark(checkpoint.OS, dir, hex.EncodeToString(b[:]))
}

// say tells where copies go, when that has changed.
func (m *Mirror) say(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); text != m.said {
		m.said = text
		m.o.Say(text)
	}
}

var _ host.Copier = (*Mirror)(nil)

// Copy implements host.Copier.
func (m *Mirror) Copy(step int64, shards []checkpoint.Shard, hosts []string) (map[string]any, error) {
	places := map[string][]string{}
	work := map[string][]checkpoint.Shard{} // by the host at the other end
	for i, s := range shards {
		h := hosts[i]
		places[s.File] = []string{h}
		switch {
		case m.private[h] != nil:
			places[s.File] = append(places[s.File], m.d.Host())
			work[h] = append(work[h], s)
		case !m.shared[h]:
			return nil, fmt.Errorf("rank %d wrote its part on %s, where no room was made for it", i, h)
		case m.second != "":
			places[s.File] = append(places[s.File], m.second)
		}
	}
	if m.second != "" {
		for i, s := range shards {
			if m.shared[hosts[i]] {
				work[m.second] = append(work[m.second], s)
			}
		}
	}
	err := each(slices.Sorted(maps.Keys(work)), func(h string) error {
		for _, s := range work[h] {
			if err := m.copy(step, s, h, !slices.Contains(places[s.File][:1], h)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || len(m.private) == 0 {
		return nil, err
	}
	return map[string]any{checkpoint.PlacesSection: places}, nil
}

// copy brings a shard from this host to another, or to this one.
func (m *Mirror) copy(step int64, s checkpoint.Shard, h string, away bool) error {
	from, to := m.private[h], checkpoint.Depot(checkpoint.Here{FS: checkpoint.OS})
	if away {
		from, to = to, from
	}
	f, err := from.Fetch(m.root, step, s.File)
	if err != nil {
		return err
	}
	defer f.Close()
	return to.Store(m.root, step, s, f)
}

// each calls f for all hosts at once.
func each(hosts []string, f func(h string) error) error {
	faults := make([]error, len(hosts))
	var wg sync.WaitGroup
	for i, h := range hosts {
		wg.Go(func() { faults[i] = f(h) })
	}
	wg.Wait()
	return errors.Join(faults...)
}

// Publish implements host.Copier.
func (m *Mirror) Publish(step int64, manifest []byte) error {
	hosts := slices.Sorted(maps.Keys(m.private))
	if err := each(hosts, func(h string) error {
		return m.private[h].Settle(m.root, step, manifest)
	}); err != nil {
		return err
	}
	if m.second != "" { // before latest moves: whoever resumes from this step wants the ledger up to it
		if err := m.records(step); err != nil {
			return fmt.Errorf("the run's records: %w", err)
		}
	}
	return each(hosts, func(h string) error {
		return m.private[h].Publish(m.root, step, m.o.Keep)
	})
}

// recordsWait is how long the ledger may take to have the step that is saved.
const recordsWait = 5 * time.Second

// records brings what the ledger and the metrics have grown by to the second host.
func (m *Mirror) records(step int64) error {
	dir, err := filepath.Abs(m.o.Log)
	if err != nil {
		return err
	}
	m.o.Entered(step, recordsWait)
	marker, remove, err := mark(dir)
	if err != nil {
		return err
	}
	defer remove()
	d := m.private[m.second]
	if sees, err := d.Sees(dir, marker); err != nil || sees {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at != m.second {
		m.at, m.sent = m.second, map[string]int64{}
	}
	for _, name := range m.o.Records {
		n, err := grow(d, dir, name, m.sent[name])
		if err != nil && m.sent[name] > 0 { // it may have lost it
			n, err = grow(d, dir, name, 0)
		}
		if err != nil {
			return err
		}
		m.sent[name] = n
	}
	return nil
}

// grow sends what a record has behind the first at bytes; the result is its size.
func grow(d checkpoint.Depot, dir, name string, at int64) (int64, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	at = min(at, info.Size())
	return info.Size(), d.Append(dir, name, at, io.NewSectionReader(f, at, info.Size()-at))
}

// WentBack says that records may have lost their ends: the next save sends them whole.
func (m *Mirror) WentBack() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sent = map[string]int64{}
}
