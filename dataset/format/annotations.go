package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// AnnotationOptions says what the entries of annotations are as samples. Its fields are those options of
// LoongForge's convert_to_webdataset.py that decide what a sample holds, and in which shard it lies.
type AnnotationOptions struct {
	JSONFile string // JSON lines or an array of objects; any format of records that is read here
	ImageDir string // what the paths of images are relative to
	VideoDir string
	MaxCount int64  // samples of a shard; 0 means 10,000
	MaxSize  int64  // bytes of files of a shard, after which the next begins; 0 means 3e9
	Media    string // "image", "video" or "mix"; "" means "image"
	Messages string // key of the messages; "" means "messages"
	// SampleType names the type written in dataset.yaml; types that are not known are written as raw samples.
	SampleType string
	Tags       dataset.Tags // names of keys and roles in the annotations that are not the usual ones

	MediaBytesMax int64 // of an image or video; 0 means 1 GiB
}

// Annotations is annotations as the samples that converting them would write. It is a dataset.Source.
type Annotations struct {
	AnnotationOptions // with what 0 and "" mean in their place

	// Room, where it is set before the first Read, is told of the bytes of a file that an entry is about to
	// hold, and returns when there is room for them.
	Room func(entry, bytes int64)

	kind    *SampleType // nil for a name that is not known
	records Records
	buffers sync.Pool
}

// OpenAnnotations opens annotations, and writes nothing.
func OpenAnnotations(o AnnotationOptions) (*Annotations, error) {
	w := &Annotations{AnnotationOptions: o}
	w.Media, w.Messages = or(o.Media, "image"), or(o.Messages, "messages")
	for field, otherwise := range map[*int64]int64{&w.MaxCount: 10_000, &w.MaxSize: 3e9, &w.MediaBytesMax: 1 << 30} {
		if *field <= 0 {
			*field = otherwise
		}
	}
	if t, err := SampleTypeOf(o.SampleType); err == nil {
		w.kind = &t
	}
	if err := w.checkFolders(); err != nil {
		return nil, err
	}
	var err error
	if w.records, err = openObjects(o.JSONFile, dataset.Options{}); err != nil {
		return nil, fmt.Errorf("annotations %s: %w", o.JSONFile, err)
	}
	return w, nil
}

// Name is the file's.
func (w *Annotations) Name() string { return store.Redact(w.JSONFile) }

// Kind says that the samples are parts.
func (w *Annotations) Kind() dataset.Kind { return dataset.KindParts }

// Len counts entries.
func (w *Annotations) Len() int64 { return w.records.Len() }

// Fingerprint identifies the samples; see Settings.
func (w *Annotations) Fingerprint() string { return HashOf("annotated 1", w.Settings()) }

// Close closes the file.
func (w *Annotations) Close() error { return w.records.Close() }

// Read makes a sample of entry i. An entry that cannot be used gives a *dataset.BadSample, and the document
// has its place.
func (w *Annotations) Read(i int64) (dataset.Document, error) {
	raw, place, err := w.records.Record(i)
	d := dataset.Document{Place: place, Layout: w.layout()}
	if err == nil {
		d.Key, d.Parts, err = w.sample(i, raw, place)
	}
	return d, err
}

// Meta is Energon's dataset.yaml for the samples.
func (w *Annotations) Meta() map[string]any {
	if w.kind != nil {
		return w.kind.Meta
	}
	return CrudeMeta(w.SampleType)
}

// layout is what Meta says of the samples, nil for a type that is not known.
func (w *Annotations) layout() *dataset.Layout {
	if w.kind == nil {
		return nil
	}
	fields, _ := w.kind.Meta["field_map"].(map[string]any)
	if len(fields) == 0 {
		return &dataset.Layout{Type: w.kind.Name}
	}
	sample, _ := w.kind.Meta["sample_type"].(map[string]any)
	l := &dataset.Layout{Class: fmt.Sprint(sample["__class__"]), Fields: map[string]string{}}
	for k, v := range fields {
		l.Fields[k] = fmt.Sprint(v)
	}
	return l
}

// Settings identifies the annotations and what is made of them.
func (w *Annotations) Settings() string {
	print := HashOf("convert 1", w.records.Fingerprint(), w.ImageDir, w.VideoDir, w.MaxCount, w.MaxSize,
		w.Media, w.Messages, w.SampleType, w.MediaBytesMax)
	if w.Tags != (dataset.Tags{}) {
		print = HashOf(print, w.Tags)
	}
	return print
}

// checkFolders refuses settings that cannot be carried out, before any file is written: the folders
// of the media that are asked for must exist.
func (w *Annotations) checkFolders() error {
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

// Named says that samples are named by their data and not by number.
func (w *Annotations) Named() bool { return w.SampleType == "vqa" || w.SampleType == "caption" }

// bufferMax bounds the buffers that are used again.
const bufferMax = 1 << 20

// Reuse takes back the buffers of a sample that nobody reads any more.
func (w *Annotations) Reuse(parts []dataset.Part) {
	for _, p := range parts {
		if n := cap(p.Bytes); n <= bufferMax {
			w.buffers.Put(&p.Bytes)
		}
	}
}

// buffer returns n bytes to read a file into.
func (w *Annotations) buffer(n int) []byte {
	if b, ok := w.buffers.Get().(*[]byte); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]byte, n)
}

// readMedia reads a file under a folder.
func (w *Annotations) readMedia(entry int64, dir, flag, path string, place dataset.Place) ([]byte, error) {
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf("%q: ", Clip(path)) + fmt.Sprintf(format, args...)}
	}
	if dir == "" {
		return nil, bad("no %s is given to find it in", flag)
	}
	local := path
	if filepath.IsAbs(path) {
		root, err := filepath.Abs(dir) // no path leads from a relative one to an absolute one
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(root, path); err == nil {
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
	if w.Room != nil {
		w.Room(entry, info.Size())
	}
	b := w.buffer(int(info.Size()))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return b, nil
}

// Known says that the sample type is one that is registered.
func (w *Annotations) Known() bool { return w.kind != nil }
