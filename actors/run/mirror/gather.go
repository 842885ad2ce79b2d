package mirror

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// found is a step that the hosts of a cluster have together.
type found struct {
	step    int64
	sum     string              // of its manifest
	files   []checkpoint.Shard  // that it has
	where   map[string][]string // hosts that have a file
	holders []string            // hosts with its manifest
}

// whole reports whether every file is on some host.
func (f *found) whole() bool {
	return !slices.ContainsFunc(f.files, func(s checkpoint.Shard) bool { return len(f.where[s.File]) == 0 })
}

// newest is the newest step that latest names on some host and that the hosts have whole, or an older one; nil for
// none. What differs in its manifest is another step: a host that was away may have one that the run has given up.
func newest(all map[string]checkpoint.Holdings) *found {
	latest, steps := int64(-1), map[string]*found{}
	for _, h := range slices.Sorted(maps.Keys(all)) {
		latest = max(latest, all[h].Latest)
		for _, x := range all[h].Steps {
			key := fmt.Sprint(x.Step, x.Sum)
			if steps[key] == nil {
				steps[key] = &found{step: x.Step, sum: x.Sum, files: x.Files, where: map[string][]string{}}
			}
			f := steps[key]
			f.holders = append(f.holders, h)
			for _, name := range x.Have {
				f.where[name] = append(f.where[name], h)
			}
		}
	}
	var best *found
	for _, key := range slices.Sorted(maps.Keys(steps)) {
		f := steps[key]
		if f.step <= latest && f.whole() && (best == nil || f.step > best.step ||
			f.step == best.step && len(f.holders) > len(best.holders)) {
			best = f
		}
	}
	return best
}

// Recover opens the newest whole checkpoint that the hosts have together, and brings the records up to it;
// skipped says what was wrong with newer ones.
func (m *Mirror) Recover() (saved *checkpoint.Reader, skipped []error, err error) {
	if err := m.gather(false); err != nil {
		return nil, nil, err
	}
	saved, skipped, err = checkpoint.Recover(m.o.Dir)
	if len(skipped) > 0 && m.gather(true) == nil { // another host has it unharmed
		if err == nil {
			_ = saved.Close() // it was read only, and the one beside it is opened instead
		}
		saved, skipped, err = checkpoint.Recover(m.o.Dir)
	}
	if err == nil {
		err = m.bringRecords(saved.Step())
	}
	return saved, skipped, err
}

// gather makes the newest checkpoint that the hosts of the cluster have together whole on this one. With again,
// files that are here are held to their hashes, and replaced by other hosts' copies where they are damaged.
func (m *Mirror) gather(again bool) error {
	all := map[string]checkpoint.Holdings{}
	here := checkpoint.Here{FS: checkpoint.OS}
	var err error
	if all[m.d.Host()], err = here.Holdings(m.root); err != nil {
		return err
	}
	ranks, spare := m.d.Hosts()
	for _, h := range append(ranks, spare...) {
		d, err := m.d.Depot(h)
		if h == m.d.Host() {
			continue
		}
		if err == nil {
			all[h], err = d.Holdings(m.root)
		}
		if err != nil {
			fmt.Fprintf(m.o.Warnings, "! checkpoints of %s are left out: %v\n", h, err)
		}
	}
	best := newest(all)
	if best == nil {
		return nil
	}
	mine := slices.Contains(best.holders, m.d.Host())
	for _, s := range best.files {
		mine = mine && slices.Contains(best.where[s.File], m.d.Host())
	}
	if mine && all[m.d.Host()].Latest == best.step && !again {
		return nil
	}
	unlock, err := machine.LockDir("checkpoint.dir", m.root)
	if err != nil {
		return err
	}
	defer unlock()
	r, err := m.part(best.step, best.holders)
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := r.Complete()
	if err != nil {
		return err
	}
	if n > 0 {
		fmt.Fprintf(m.o.Progress, "resume  %d of %d shards of step %d came from other hosts\n", n,
			len(best.files), best.step)
	}
	return checkpoint.JoinSave(checkpoint.OS, m.root, best.step).Publish()
}

// part opens a step of checkpoint.dir whose shards other hosts may have, by the manifest of the first of
// these hosts that has one.
func (m *Mirror) part(step int64, hosts []string) (*checkpoint.Reader, error) {
	var faults []error
	for _, h := range hosts {
		if h != m.d.Host() {
			if err := m.adopt(step, h); err != nil {
				faults = append(faults, err)
				continue
			}
		}
		r, err := checkpoint.OpenPart(checkpoint.StepDir(m.root, step), func(s checkpoint.Shard) error {
			return m.fetch(step, s, hosts)
		})
		if err == nil {
			return r, nil
		}
		faults = append(faults, err)
	}
	return nil, fmt.Errorf("no host has the checkpoint of step %d: %w", step, errors.Join(faults...))
}

// adopt takes the manifest of a step from a host.
func (m *Mirror) adopt(step int64, h string) error {
	d, err := m.d.Depot(h)
	if err != nil {
		return err
	}
	f, err := d.Fetch(m.root, step, checkpoint.ManifestName)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	return checkpoint.Adopt(checkpoint.OS, m.root, step, text)
}

// fetch takes a shard from whichever host has it.
func (m *Mirror) fetch(step int64, s checkpoint.Shard, hosts []string) error {
	var faults []error
	for _, h := range hosts {
		if h == m.d.Host() {
			continue
		}
		d, err := m.d.Depot(h)
		var f io.ReadCloser
		if err == nil {
			f, err = d.Fetch(m.root, step, s.File)
		}
		if err == nil {
			err = errors.Join(checkpoint.Take(checkpoint.OS, m.root, step, s, f), f.Close())
		}
		if err == nil {
			return nil
		}
		faults = append(faults, err)
	}
	return fmt.Errorf("%s of step %d is on no host that is up: %w", s.File, step, errors.Join(faults...))
}

// Open opens a step that the run has saved, in a process of any host. The leading host, the first, has it whole.
func (m *Mirror) Open(step int64) (*checkpoint.Reader, error) {
	ranks, spare := m.d.Hosts()
	return m.part(step, append(ranks, spare...))
}

// bringRecords takes ledger and metrics from another host, if this one has none that reach so far.
func (m *Mirror) bringRecords(step int64) error {
	dir, err := filepath.Abs(m.o.Log)
	if err != nil || reaches(dir, m.o.Records[0], step) {
		return err
	}
	here := checkpoint.Here{FS: checkpoint.OS}
	ranks, spare := m.d.Hosts()
	for _, h := range append(ranks, spare...) {
		if h == m.d.Host() || reaches(dir, m.o.Records[0], step) {
			continue
		}
		d, err := m.d.Depot(h)
		for _, name := range m.o.Records {
			var f io.ReadCloser
			if err == nil {
				f, err = d.Record(dir, name)
			}
			if err == nil {
				err = errors.Join(here.Append(dir, name, 0, f), f.Close())
			}
		}
	}
	if !reaches(dir, m.o.Records[0], step) {
		fmt.Fprintf(m.o.Warnings, "! no host that is up has the records of the steps before %d: ledger and "+
			"metrics begin anew in %s\n", step+1, dir)
	}
	return nil
}

// reaches reports whether a ledger, the file name of dir, has a step.
func reaches(dir, name string, step int64) bool {
	l, err := dataset.ReadLedger(filepath.Join(dir, name))
	if err != nil {
		return false
	}
	defer l.Close()
	last, ok := l.Last()
	return ok && last >= step
}
