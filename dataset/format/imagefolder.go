package format

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// imagefolder: pictures or clips in a folder, as diffusers' examples and datasets' imagefolder have them, with what is
// said of each in a metadata.jsonl or metadata.csv beside, by its file_name; or as kohya's scripts have them, with a text
// of the same name. A sample is a picture, in the order of their paths: its parts are it, "txt" where there is one,
// and "json" with the other columns. Of columns whose names end in _file_name, that of image or target is the picture,
// and the others are given to be changed, in the order of their names.
var _ = dataset.Register(dataset.Format{
	Name:  "imagefolder",
	Doc:   "pictures in a folder, with captions in metadata.jsonl, metadata.csv, or texts of their names",
	Kind:  dataset.KindParts,
	Match: func(path string, head []byte) bool { return head == nil && isImageFolder(path) },
	Open:  openImageFolder,
})

// metadataNames are the files that say what pictures are, relative to the folder; datasets has one for each split.
var metadataNames = []string{"metadata.jsonl", "metadata.csv"}

// Bounds of a folder.
const (
	imagesMax        = 10 << 20 // pictures
	metadataBytesMax = 1 << 30
)

// isImageFolder says whether a folder is one of pictures: it has metadata with the column, or pictures at its top and no
// text but theirs.
func isImageFolder(dir string) bool {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return false
	}
	for _, name := range metadataNames {
		for _, sub := range []string{"", "train"} {
			head, err := headOf(filepath.Join(dir, sub, name))
			if err == nil && strings.Contains(string(head), "file_name") {
				return true
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	stems, texts := map[string]bool{}, []string{}
	for _, e := range entries {
		stem, end := stemOf(e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "."):
		case pictures[end] != "":
			stems[stem] = true
		case captionEnds[end]:
			texts = append(texts, stem)
		case !e.IsDir():
			return false
		}
	}
	return len(stems) > 0 && !slices.ContainsFunc(texts, func(stem string) bool { return !stems[stem] })
}

// captionEnds end the names of captions.
var captionEnds = map[string]bool{"txt": true, "caption": true}

// stemOf parts a name before its ending, which it gives in small letters.
func stemOf(name string) (stem, end string) {
	ext := path.Ext(name)
	return strings.TrimSuffix(name, ext), strings.ToLower(strings.TrimPrefix(ext, "."))
}

// headOf is the beginning of a local file.
func headOf(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, 4096)
	n, err := io.ReadFull(f, head)
	return head[:n], ignoreEOF(err)
}

// imageFolder is an open folder.
type imageFolder struct {
	dir, print string
	limit      int64
	names      []string // of pictures, with slashes
	rows       map[string]map[string]json.RawMessage
	described  bool // there is metadata
}

func openImageFolder(dir string, o dataset.Options) (dataset.Source, error) {
	if err := OnDisk(dir, "imagefolder"); err != nil {
		return nil, err
	}
	f := &imageFolder{dir: dir, limit: o.Limit(), rows: map[string]map[string]json.RawMessage{}}
	seen, print := map[string]bool{}, []any{"imagefolder 1"}
	root := dir + string(filepath.Separator) // the folder itself may be a link
	err := filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		_, end := stemOf(rel)
		switch {
		case strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return fs.SkipDir
			}
		case slices.Contains(metadataNames, e.Name()):
			text, err := f.readMetadata(name, path.Dir(rel))
			print = append(print, rel, text)
			return err
		case pictures[end] != "":
			if seen[rel] = true; len(seen) > imagesMax {
				return fmt.Errorf("it has over %d pictures; write them as webdataset's shards", imagesMax)
			}
			info, err := os.Stat(name) // of what a link of the hub's cache leads to
			if err != nil {
				return err
			}
			print = append(print, rel, info.Size())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	given := map[string]bool{}      // pictures that belong to samples of others
	for name, row := range f.rows { //lfvet:order any
		seen[name] = true
		for _, other := range f.others(row) {
			given[path.Join(path.Dir(name), other.name)] = true
		}
	}
	maps.DeleteFunc(seen, func(name string, _ bool) bool { return given[name] && f.rows[name] == nil })
	f.names = slices.Sorted(maps.Keys(seen))
	f.print = HashOf(print...)
	if len(f.names) == 0 {
		return nil, fmt.Errorf("%s has no pictures: their names end in one of %s", dir,
			strings.Join(slices.Sorted(maps.Keys(pictures)), ", "))
	}
	return f, nil
}

// readMetadata reads a metadata file whose pictures lie below a folder, and gives the hash of what it says.
func (f *imageFolder) readMetadata(name, below string) (string, error) {
	f.described = true
	info, err := os.Stat(name)
	if err == nil && info.Size() > metadataBytesMax {
		err = fmt.Errorf("it has %d bytes, over the limit of %d", info.Size(), int64(metadataBytesMax))
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return "", err
	}
	rows := csvRows
	if strings.HasSuffix(name, ".jsonl") {
		rows = jsonRows
	}
	err = rows(string(text), func(line int, row map[string]json.RawMessage) error {
		var at string
		for _, key := range []string{"file_name", "image_file_name", "target_file_name"} {
			if json.Unmarshal(row[key], &at) == nil && at != "" {
				break
			}
		}
		switch {
		case at == "":
			return fmt.Errorf("%s: line %d has no file_name, nor image_file_name or target_file_name", name, line)
		case !filepath.IsLocal(filepath.FromSlash(at)):
			return fmt.Errorf("%s: line %d: file_name %q leaves the folder", name, line, Clip(at))
		}
		at = path.Join(below, at)
		if f.rows[at] != nil {
			return fmt.Errorf("%s: line %d names %q a second time", name, line, Clip(at))
		}
		f.rows[at] = row
		return nil
	})
	return HashOf(string(text)), err
}

func jsonRows(text string, yield func(line int, row map[string]json.RawMessage) error) error {
	line := 0
	for s := range strings.Lines(text) {
		if line++; strings.TrimSpace(s) == "" {
			continue
		}
		var row map[string]json.RawMessage
		if err := json.Unmarshal([]byte(s), &row); err != nil {
			return fmt.Errorf("metadata.jsonl:%d: %w", line, err)
		}
		if err := yield(line, row); err != nil {
			return err
		}
	}
	return nil
}

func csvRows(text string, yield func(line int, row map[string]json.RawMessage) error) error {
	r := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\uFEFF")))
	head, err := r.Read()
	for err == nil {
		var cells []string
		if cells, err = r.Read(); err != nil {
			break
		}
		row := map[string]json.RawMessage{}
		for i, c := range cells {
			if row[head[i]], err = json.Marshal(c); err != nil {
				return err
			}
		}
		line, _ := r.FieldPos(0)
		if err := yield(line, row); err != nil {
			return err
		}
	}
	if err != io.EOF {
		return fmt.Errorf("metadata.csv: %w", err)
	}
	return nil
}

// given is a picture that is given to be changed, by its column and its name.
type given struct{ column, name string }

// others are the pictures of a row that are given to be changed, by the names of their columns.
func (f *imageFolder) others(row map[string]json.RawMessage) (out []given) {
	for _, key := range slices.Sorted(maps.Keys(row)) {
		var name string
		if of, ok := strings.CutSuffix(key, "_file_name"); ok && of != "image" && of != "target" && json.Unmarshal(row[key], &name) == nil {
			out = append(out, given{key, name})
		}
	}
	return out
}

func (f *imageFolder) Name() string        { return f.dir }
func (f *imageFolder) Kind() dataset.Kind  { return dataset.KindParts }
func (f *imageFolder) Len() int64          { return int64(len(f.names)) }
func (f *imageFolder) Fingerprint() string { return f.print }
func (f *imageFolder) Close() error        { return nil }

// Read implements dataset.Source. A picture of which the metadata says nothing is bad, as is one that is not there.
func (f *imageFolder) Read(i int64) (dataset.Document, error) {
	name := f.names[i]
	stem, end := stemOf(name)
	d := dataset.Document{Key: stem, Place: dataset.Place{File: filepath.Join(f.dir, filepath.FromSlash(name))}}
	bad := func(format string, args ...any) (dataset.Document, error) {
		return d, &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf(format, args...)}
	}
	row := f.rows[name]
	if f.described && row == nil {
		return bad("the folder's metadata says nothing of it")
	}
	b, err := f.file(name)
	if err != nil {
		return bad("%v", err)
	}
	d.Parts = append(d.Parts, dataset.Part{Name: end, Bytes: b})
	for k, g := range f.others(row) {
		_, end := stemOf(g.name)
		if !filepath.IsLocal(filepath.FromSlash(g.name)) || pictures[end] == "" {
			return bad("%s: %q is no picture of the folder", g.column, Clip(g.name))
		}
		b, err := f.file(path.Join(path.Dir(name), g.name))
		if err != nil {
			return bad("%s: %v", g.column, err)
		}
		d.Parts = append(d.Parts, dataset.Part{Name: fmt.Sprintf("%s%d.%s", conditionName, k, end), Bytes: b})
	}
	if row != nil {
		b, err := json.Marshal(row)
		if err != nil {
			return d, err
		}
		d.Parts = append(d.Parts, dataset.Part{Name: "json", Bytes: b})
		return d, nil
	}
	for _, end := range slices.Sorted(maps.Keys(captionEnds)) {
		b, err := f.file(stem + "." + end)
		if err == nil {
			d.Parts = append(d.Parts, dataset.Part{Name: "txt", Bytes: b})
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return bad("%v", err)
		}
	}
	return d, nil
}

// file reads a file of the folder.
func (f *imageFolder) file(name string) ([]byte, error) {
	at := filepath.Join(f.dir, filepath.FromSlash(name))
	info, err := os.Stat(at)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no file", at)
	case info.Size() > f.limit:
		return nil, fmt.Errorf("%s has %d bytes, over the limit of %d", at, info.Size(), f.limit)
	}
	return os.ReadFile(at)
}
