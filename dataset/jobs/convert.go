package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/topology/machine"
)

// ConvertConfig says what Convert makes of annotations. Its fields are the options
// of LoongForge's convert_to_webdataset.py.
type ConvertConfig struct {
	format.AnnotationOptions
	OutputDir string

	Workers   int // entries read at once; 0 means 1
	Budget    dataset.Budget
	Progress  func(ConvertReport) // called after each sample that was done; nil for none
	Elsewhere dataset.Remote      // hosts that read entries
}

// ConvertReport is what Convert has done.
type ConvertReport struct {
	Entries int64 `json:"entries"` // of the annotations
	Read    int64 `json:"read"`    // so far
	Samples int64 `json:"samples"`
	Bad     int64 `json:"bad"`
	Bytes   int64 `json:"bytes"` // of files
	Shards  int   `json:"shards"`
	Resumed int64 `json:"resumed"` // samples of an earlier run that was cut off

	Stages []dataset.Stage `json:"stages"`
}

// Convert writes the entries of annotations, with the images and videos that they name, as shards
// pretrain-0.tar, pretrain-1.tar, …, and describes them for Energon (see PrepareEnergon). A shard appears
// when it is whole. A run that was cut off goes on behind its last whole shard when it is started again with
// the same settings, and gives the same bytes. Entries that cannot be used go to quarantine.jsonl in the
// folder; over the budget the run ends with a *dataset.BudgetError.
func Convert(ctx context.Context, c ConvertConfig) (ConvertReport, error) {
	release, err := machine.HoldFolder(c.OutputDir)
	if err != nil {
		return ConvertReport{}, err
	}
	defer release()
	w, err := newConversion(c)
	if err != nil {
		return ConvertReport{}, err
	}
	defer w.close()
	if w.state.Done {
		return w.report(), nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.budget = newByteBudget(mediaBytesHeld, w.state.Entry)
	defer w.budget.closeWith(ctx)()
	w.from.Room = w.budget.take
	read := dataset.Items(ctx, c.Elsewhere, w.state.Entry, w.from.Len(), convertBatch,
		func(i int64) converted { return entryOf(w.from, i) }, func(err error) converted { return converted{err: err} })
	err = dataset.Ordered(ctx, w.state.Entry, w.from.Len(), w.reading, read, func(i int64, e converted) (err error) {
		w.writing.Do(func() { err = w.entry(i, e) })
		if w.budget.written(i); err != nil {
			cancel() // nobody waits for room any more
		}
		if err == nil {
			w.state.Entry++
			if c.Progress != nil {
				c.Progress(w.report())
			}
		}
		return err
	})
	if err != nil {
		return w.report(), errors.Join(err, w.abandon())
	}
	return w.finish()
}

// conversionState is where a conversion stands after a whole shard; convert.json in the folder keeps it.
type conversionState struct {
	Settings string `json:"settings"` // fingerprint
	Entry    int64  `json:"entry"`    // the next of the annotations
	Shards   int    `json:"shards"`
	Samples  int64  `json:"samples"`
	Bytes    int64  `json:"bytes"`
	Bad      int64  `json:"bad"`
	Done     bool   `json:"done"`
}

const conversionFile = ".convert.json"

type conversion struct {
	ConvertConfig
	from    *format.Annotations
	state   conversionState
	resumed int64
	bad     *dataset.Quarantine
	keys    map[string]bool // of samples that are named by their data
	shard   *format.ShardWriter
	count   int64 // samples of the shard
	size    int64 // bytes of its files

	reading, writing *dataset.Meter
	budget           *byteBudget
}

// mediaBytesHeld bounds the media of entries that were read and not yet written, one entry apart.
const mediaBytesHeld = 1 << 30

// convertBatch is how many entries another host reads at once: with their media they may be large.
const convertBatch = 4

// converted is an entry as a sample, or why it is none.
type converted struct {
	Key   string
	Parts []dataset.Part
	Place dataset.Place
	Fault dataset.Fault // of another host
	err   error
}

// entryOf reads entry i; its error travels with it, so that it is reported in the order of the entries.
func entryOf(from *format.Annotations, i int64) converted {
	d, err := from.Read(i)
	return converted{Key: d.Key, Parts: d.Parts, Place: d.Place, err: err}
}

// newConversion opens the annotations and goes on where an earlier conversion into the same folder stopped.
func newConversion(c ConvertConfig) (*conversion, error) {
	from, err := format.OpenAnnotations(c.AnnotationOptions)
	if err != nil {
		return nil, err
	}
	c.AnnotationOptions = from.AnnotationOptions
	w := &conversion{ConvertConfig: c, from: from, keys: map[string]bool{},
		reading: &dataset.Meter{Name: "read", Workers: max(1, c.Workers)},
		writing: &dataset.Meter{Name: "write", Workers: 1}}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, from.Close())
	}
	return w, nil
}

// begin opens the folder, or goes on where an earlier run was cut off.
func (w *conversion) begin() error {
	if err := os.MkdirAll(w.OutputDir, 0o755); err != nil {
		return err
	}
	settings := w.from.Settings()
	b, err := os.ReadFile(filepath.Join(w.OutputDir, conversionFile))
	if err == nil {
		err = json.Unmarshal(b, &w.state)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		have, err := os.ReadDir(w.OutputDir)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(have, func(e fs.DirEntry) bool {
			return e.Name() == format.EnergonDir || strings.HasSuffix(e.Name(), ".tar")
		}); i >= 0 {
			return fmt.Errorf("%s holds %s already; name another folder", w.OutputDir, have[i].Name())
		}
	case err != nil:
		return fmt.Errorf("%s: %w; delete the folder to start again", filepath.Join(w.OutputDir, conversionFile), err)
	case w.state.Settings != settings:
		return fmt.Errorf("%s was begun with other annotations or settings; name another folder, or "+
			"delete it", w.OutputDir)
	}
	w.state.Settings, w.resumed = settings, w.state.Samples
	if w.from.Known() && w.from.Named() {
		if err := w.loadKeys(); err != nil {
			return err
		}
	}
	if w.bad, err = dataset.OpenQuarantine(filepath.Join(w.OutputDir, "quarantine.jsonl")); err != nil {
		return err
	}
	return w.save()
}

// loadKeys reads the keys of the shards that an earlier run wrote.
func (w *conversion) loadKeys() error {
	for i := range w.state.Shards {
		err := format.ShardKeys(w.path(i), func(key string) { w.keys[key] = true })
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *conversion) path(shard int) string {
	return filepath.Join(w.OutputDir, fmt.Sprintf("pretrain-%d.tar", shard))
}

// report tells how far the conversion is, with the time that its stages took.
func (w *conversion) report() ConvertReport {
	return ConvertReport{Entries: w.from.Len(), Read: w.state.Entry, Samples: w.state.Samples,
		Bad: w.state.Bad, Bytes: w.state.Bytes, Shards: w.state.Shards, Resumed: w.resumed,
		Stages: []dataset.Stage{w.reading.Stage(), w.writing.Stage()}}
}

// entry writes one entry, or quarantines it.
func (w *conversion) entry(i int64, e converted) error {
	err := e.err
	if err == nil {
		err = e.Fault.Err()
	}
	if err == nil {
		err = w.add(e.Key, e.Parts, e.Place)
	}
	w.from.Reuse(e.Parts)
	var bad *dataset.BadSample
	if !errors.As(err, &bad) {
		return err
	}
	w.state.Bad++
	b := dataset.Bad{Source: w.JSONFile, Document: i, Place: bad.Place, Reason: bad.Reason}
	if err := w.bad.Add(b); err != nil {
		return err
	}
	if w.Budget.Allows(w.state.Bad, i+1) {
		return nil
	}
	return &dataset.BudgetError{Budget: w.Budget, Bad: w.state.Bad, Read: i + 1, Last: b}
}

// add writes a sample, into the next shard if this one is full.
func (w *conversion) add(key string, parts []dataset.Part, place dataset.Place) error {
	if w.keys[key] {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("the key %q is there before", format.Clip(key))}
	}
	if w.shard != nil && (w.count >= w.MaxCount || w.size >= w.MaxSize) {
		if err := w.endShard(); err != nil {
			return err
		}
	}
	if w.shard == nil {
		s, err := format.CreateShard(w.path(w.state.Shards) + ".partial")
		if err != nil {
			return err
		}
		w.shard, w.count, w.size = s, 0, 0
	}
	if err := w.shard.Check(key, parts); err != nil {
		return &dataset.BadSample{Place: place, Reason: err.Error()}
	}
	if err := w.shard.Add(key, parts); err != nil {
		return err
	}
	if w.from.Named() {
		w.keys[key] = true
	}
	w.count++
	w.state.Samples++
	for _, p := range parts {
		w.size += int64(len(p.Bytes))
		w.state.Bytes += int64(len(p.Bytes))
	}
	return nil
}

// endShard gives the shard its name when it is on disk, and then moves the state behind it.
func (w *conversion) endShard() error {
	path := w.path(w.state.Shards)
	s := w.shard
	w.shard = nil
	if err := s.CloseSynced(); err != nil {
		return err
	}
	if err := os.Rename(path+".partial", path); err != nil {
		return err
	}
	w.state.Shards++
	return w.save()
}

// save writes the state from which the conversion can go on.
func (w *conversion) save() error {
	b, err := json.Marshal(w.state)
	if err != nil {
		return err
	}
	return format.WriteOwn(filepath.Join(w.OutputDir, conversionFile), append(b, '\n'))
}

// abandon leaves the folder as a later run can go on with it.
func (w *conversion) abandon() error {
	if w.shard == nil {
		return nil
	}
	s := w.shard
	w.shard = nil
	return errors.Join(s.Close(), os.Remove(w.path(w.state.Shards)+".partial"))
}

// close closes what was read and the list of bad entries.
func (w *conversion) close() {
	_ = w.from.Close() // it was only read
	_ = w.bad.Close()  // each line was written
}

// finish describes the shards.
func (w *conversion) finish() (ConvertReport, error) {
	if w.shard != nil {
		if err := w.endShard(); err != nil {
			return w.report(), err
		}
	}
	if w.state.Shards == 0 {
		why := "there are none"
		if bad := w.bad.List(); len(bad) > 0 {
			why = fmt.Sprintf("the first, %s, because %s", bad[0].Place, bad[0].Reason)
		}
		return w.report(), fmt.Errorf("%s: no entry becomes a sample: %s (%w)", w.JSONFile, why, dataset.ErrNoTokens)
	}
	plan := format.EnergonPlan{Meta: w.from.Meta()}
	for i := range w.state.Shards {
		plan.Shards = append(plan.Shards, filepath.Base(w.path(i)))
	}
	if _, err := format.PrepareEnergon(w.OutputDir, plan); err != nil {
		return w.report(), err
	}
	w.state.Done = true
	return w.report(), w.save()
}

// ConvertOf returns what Convert is to make of source i of a job, which is annotations, in a folder.
func ConvertOf(j *format.Job, i int, dir string) ConvertConfig {
	return ConvertConfig{AnnotationOptions: j.Annotations(i), OutputDir: dir, Workers: j.Workers,
		Budget: dataset.Budget{Count: j.Quarantine}}
}
