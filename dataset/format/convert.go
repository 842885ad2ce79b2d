package format

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/dataset"
)

// ConvertConfig says what Convert makes of annotations. Its fields are the options of LoongForge's
// convert_to_webdataset.py.
type ConvertConfig struct {
	OutputDir string
	JSONFile  string // JSON lines or an array of objects; any format of records that is read here
	ImageDir  string // what the paths of images are relative to
	VideoDir  string
	MaxCount  int64  // samples of a shard; 0 means 10,000
	MaxSize   int64  // bytes of files of a shard, after which the next begins; 0 means 3e9
	Media     string // "image", "video" or "mix"; "" means "image"
	Messages  string // key of the messages; "" means "messages"
	// SampleType names the type written in dataset.yaml; types that are not known are written as raw
	// samples.
	SampleType string
	Tags       dataset.Tags // names of keys and roles in the annotations that are not the usual ones

	MediaBytesMax int64 // of an image or video; 0 means 1 GiB
	Workers       int   // entries read at once; 0 means 1
	Budget        dataset.Budget
	Progress      func(ConvertReport) // called after each sample that was done; nil for none
	Elsewhere     dataset.Elsewhere   // hosts that read entries
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
	read := dataset.Items(ctx, c.Elsewhere, w.state.Entry, w.records.Len(), convertBatch, w.read,
		func(err error) converted { return converted{err: err} })
	err = dataset.Ordered(ctx, w.state.Entry, w.records.Len(), w.reading, read,
		func(i int64, e converted) (err error) {
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
	kind    *SampleType // nil for a name that is not known
	records records
	state   conversionState
	resumed int64
	bad     *dataset.Quarantine
	keys    map[string]bool // of samples that are named by their data
	shard   *ShardWriter
	count   int64 // samples of the shard
	size    int64 // bytes of its files

	reading, writing *dataset.Meter
	buffers          sync.Pool
	budget           *byteBudget // nil where samples are not written
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

func newConversion(c ConvertConfig) (*conversion, error) {
	w, err := openConversion(c)
	if err != nil {
		return nil, err
	}
	if err := w.begin(); err != nil {
		return nil, errors.Join(err, w.records.Close())
	}
	return w, nil
}

// openConversion opens the annotations, and writes nothing.
func openConversion(c ConvertConfig) (w *conversion, err error) {
	w = &conversion{ConvertConfig: c, keys: map[string]bool{},
		reading: &dataset.Meter{Name: "read", Workers: max(1, c.Workers)},
		writing: &dataset.Meter{Name: "write", Workers: 1}}
	w.Media, w.Messages = or(c.Media, "image"), or(c.Messages, "messages")
	for field, otherwise := range map[*int64]int64{&w.MaxCount: 10_000, &w.MaxSize: 3e9,
		&w.MediaBytesMax: 1 << 30} {
		if *field <= 0 {
			*field = otherwise
		}
	}
	if t, err := SampleTypeOf(c.SampleType); err == nil {
		w.kind = &t
	}
	if err := w.checkFolders(); err != nil {
		return nil, err
	}
	open := openJSON
	if isParquet(c.JSONFile, nil) {
		open = openRows
	}
	if w.records, err = open(c.JSONFile, dataset.Options{}); err != nil {
		return nil, fmt.Errorf("annotations %s: %w", c.JSONFile, err)
	}
	return w, nil
}

// settings identifies the annotations and what is made of them.
func (w *conversion) settings() string {
	print := hashOf("convert 1", w.records.Fingerprint(), w.ImageDir, w.VideoDir, w.MaxCount, w.MaxSize,
		w.Media, w.Messages, w.SampleType, w.MediaBytesMax)
	if w.Tags != (dataset.Tags{}) {
		print = hashOf(print, w.Tags)
	}
	return print
}

func (w *conversion) checkFolders() error {
	switch {
	case w.SampleType == "":
		return errors.New("no sample type is given; multi_mix_qa is the usual one")
	case w.Media != "image" && w.Media != "video" && w.Media != "mix":
		return fmt.Errorf("media %q; it must be image, video or mix", w.Media)
	case w.Media == "image" && w.ImageDir == "":
		return errors.New("no folder of images is given, and the media are images")
	case w.Media == "video" && w.VideoDir == "":
		return errors.New("no folder of videos is given, and the media are videos")
	}
	for _, dir := range []string{w.ImageDir, w.VideoDir} {
		if info, err := os.Stat(dir); dir != "" && (err != nil || !info.IsDir()) {
			return fmt.Errorf("%s is not a folder", dir)
		}
	}
	return nil
}

// begin opens the folder, or goes on where an earlier run was cut off.
func (w *conversion) begin() error {
	if err := os.MkdirAll(w.OutputDir, 0o755); err != nil {
		return err
	}
	settings := w.settings()
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
			return e.Name() == energonDir ||
				strings.HasSuffix(e.Name(), ".tar")
		}); i >= 0 {
			return fmt.Errorf("%s holds %s already; name another folder", w.OutputDir, have[i].Name())
		}
	case err != nil:
		return fmt.Errorf("%s: %w; delete the folder to start again",
			filepath.Join(w.OutputDir, conversionFile), err)
	case w.state.Settings != settings:
		return fmt.Errorf("%s was begun with other annotations or settings; name another folder, or "+
			"delete it", w.OutputDir)
	}
	w.state.Settings, w.resumed = settings, w.state.Samples
	if w.kind != nil && w.named() {
		if err := w.loadKeys(); err != nil {
			return err
		}
	}
	if w.bad, err = dataset.OpenQuarantine(filepath.Join(w.OutputDir, "quarantine.jsonl")); err != nil {
		return err
	}
	return w.save()
}

// named says that samples are named by their data and not by number.
func (w *conversion) named() bool { return w.SampleType == "vqa" || w.SampleType == "caption" }

// loadKeys reads the keys of the shards that an earlier run wrote.
func (w *conversion) loadKeys() error {
	for i := range w.state.Shards {
		s, err := openShard(w.path(i), dataset.Options{})
		if err != nil {
			return err
		}
		for k := range s.Len() {
			key, err := s.key(k)
			if err != nil {
				return errors.Join(err, s.Close())
			}
			w.keys[key] = true
		}
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (w *conversion) path(shard int) string {
	return filepath.Join(w.OutputDir, fmt.Sprintf("pretrain-%d.tar", shard))
}

func (w *conversion) report() ConvertReport {
	return ConvertReport{Entries: w.records.Len(), Read: w.state.Entry, Samples: w.state.Samples,
		Bad: w.state.Bad, Bytes: w.state.Bytes, Shards: w.state.Shards, Resumed: w.resumed,
		Stages: []dataset.Stage{w.reading.Stage(), w.writing.Stage()}}
}

// read makes a sample of an entry.
func (w *conversion) read(i int64) (e converted) {
	raw, place, err := w.records.Record(i)
	e.Place = place
	if e.err = err; err == nil {
		e.Key, e.Parts, e.err = w.sample(i, raw, place)
	}
	return e
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
	for _, p := range e.Parts {
		if n := cap(p.Bytes); n <= bufferMax {
			w.buffers.Put(&p.Bytes)
		}
	}
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

// bufferMax bounds the buffers that are used again.
const bufferMax = 1 << 20

// buffer returns n bytes to read a file into.
func (w *conversion) buffer(n int) []byte {
	if b, ok := w.buffers.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// add writes a sample, into the next shard if this one is full.
func (w *conversion) add(key string, parts []dataset.Part, place dataset.Place) error {
	if w.keys[key] {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("the key %q is there before", clip(key))}
	}
	if w.shard != nil && (w.count >= w.MaxCount || w.size >= w.MaxSize) {
		if err := w.endShard(); err != nil {
			return err
		}
	}
	if w.shard == nil {
		s, err := CreateShard(w.path(w.state.Shards) + ".partial")
		if err != nil {
			return err
		}
		w.shard, w.count, w.size = s, 0, 0
	}
	if err := w.shard.check(key, parts); err != nil {
		return &dataset.BadSample{Place: place, Reason: err.Error()}
	}
	if err := w.shard.Add(key, parts); err != nil {
		return err
	}
	if w.named() {
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

func (w *conversion) save() error {
	b, err := json.Marshal(w.state)
	if err != nil {
		return err
	}
	return writeOwn(filepath.Join(w.OutputDir, conversionFile), append(b, '\n'))
}

// abandon leaves the folder as a later run can go on with it.
func (w *conversion) abandon() error {
	if w.shard == nil {
		return nil
	}
	s := w.shard
	w.shard = nil
	return errors.Join(s.Close(), os.Remove(s.path))
}

func (w *conversion) close() {
	_ = w.records.Close() // it was only read
	_ = w.bad.Close()     // each line was written
}

// finish describes the shards.
func (w *conversion) finish() (ConvertReport, error) {
	if w.shard != nil {
		if err := w.endShard(); err != nil {
			return w.report(), err
		}
	}
	if w.state.Shards == 0 {
		return w.report(), fmt.Errorf("%s: %w", w.JSONFile, dataset.ErrNoTokens)
	}
	plan := EnergonPlan{Meta: crude(w.SampleType)}
	if w.kind != nil {
		plan.Meta = w.kind.Meta
	}
	for i := range w.state.Shards {
		plan.Shards = append(plan.Shards, filepath.Base(w.path(i)))
	}
	if _, err := PrepareEnergon(w.OutputDir, plan); err != nil {
		return w.report(), err
	}
	w.state.Done = true
	return w.report(), w.save()
}

// readMedia reads a file under a folder.
func (w *conversion) readMedia(entry int64, dir, flag, path string, place dataset.Place) ([]byte, error) {
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("%q: ", clip(path)) +
			fmt.Sprintf(format, args...)}
	}
	if dir == "" {
		return nil, bad("no %s is given to find it in", flag)
	}
	local := path
	if filepath.IsAbs(path) {
		if rel, err := filepath.Rel(dir, path); err == nil {
			local = rel
		}
	}
	if !filepath.IsLocal(local) {
		return nil, bad("it leads out of %s", flag)
	}
	f, err := os.Open(filepath.Join(dir, local))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil, bad("%v", errors.Unwrap(err))
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, bad("it is not a file")
	case info.Size() == 0:
		return nil, bad("it is empty")
	case info.Size() > w.MediaBytesMax:
		return nil, bad("it has %d bytes, over the limit of %d", info.Size(), w.MediaBytesMax)
	}
	if w.budget != nil {
		w.budget.take(entry, info.Size())
	}
	b := w.buffer(int(info.Size()))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return b, nil
}
