//lfvet:files a format of files a file, which registers itself

package format

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Plain text: a file or a directory of files. A document is a file, or what lies between blank lines, or a
// line, as Options.Documents says.
var _ = dataset.Register(dataset.Format{
	Name: "text",
	Doc:  "plain text; a document is a file, a paragraph or a line",
	Kind: dataset.KindText,
	Any:  true,
	Match: func(path string, head []byte) bool {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return true
		}
		return HasSuffix(path, textSuffixes...) || head != nil && isText(head) &&
			!HasSuffix(path, ".yaml", ".yml", ".bin", ".idx") // parts of other formats, which lack the rest
	},
	Open: openText,
	Write: func(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
		for i, d := range docs {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%09d.txt", i)), []byte(d.Text), 0o644))
		}
		return dir, o, err
	},
})

// textSuffixes end the names of files whose text may look like anything.
var textSuffixes = []string{".txt", ".text", ".md"}

// isText says whether a file begins as UTF-8 does, but for a letter that the end of head cuts.
func isText(head []byte) bool {
	if bytes.IndexByte(head, 0) >= 0 {
		return false
	}
	for cut := range min(utf8.UTFMax, len(head)+1) {
		if utf8.Valid(head[:len(head)-cut]) {
			return true
		}
	}
	return false
}

// openText opens plain text. A document is a file, a paragraph or a line, as the options say.
func openText(path string, o dataset.Options) (dataset.Source, error) {
	files, err := textFiles(path, o.Pattern)
	if err != nil {
		return nil, err
	}
	find := map[string]scan{"blank": scanParagraphs, "line": scanLines}[o.Documents]
	if find == nil {
		if o.Documents != "" && o.Documents != "file" {
			return nil, fmt.Errorf("documents %q; they are cut by \"file\", \"blank\" or \"line\"", o.Documents)
		}
		return openFiles(path, files, o)
	}
	var all []dataset.Source
	for _, f := range files {
		r, err := openRecords(f, o.Documents, find, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, &plain{r, f})
	}
	return dataset.Concat(all...)
}

// closeAll closes all sources and joins their errors.
func closeAll(sources []dataset.Source) (err error) {
	for _, s := range sources {
		err = errors.Join(err, s.Close())
	}
	return err
}

// textFiles lists the files that a path means, sorted.
func textFiles(path, pattern string) ([]string, error) {
	if pattern == "" {
		pattern = "*.txt"
	}
	if err := OnDisk(path, "plain text"); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		return []string{path}, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	// the folder itself may be a link
	err = filepath.WalkDir(path+string(filepath.Separator), func(name string, d fs.DirEntry, err error) error {
		if ok, bad := filepath.Match(pattern, filepath.Base(name)); err == nil &&
			(bad != nil || ok && isFile(name, d)) {
			files, err = append(files, name), bad
		}
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file matches %s; name files with another ending by a pattern, as %s/*.md", pattern, path)
	}
	slices.Sort(files)
	return files, err
}

// OnDisk is an error where a URL names data of a format that is read from disk alone.
func OnDisk(path, what string) error {
	if store.Scheme(path) == "" {
		return nil
	}
	return fmt.Errorf("%s is read from disk alone, not from %s: download it (JSON lines, Parquet and shards "+
		"are read from https and s3 too)", what, store.Redact(path))
}

// isFile says whether an entry of a folder is a file, or a link to one.
func isFile(name string, d fs.DirEntry) bool {
	if d.Type()&fs.ModeSymlink == 0 {
		return d.Type().IsRegular()
	}
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// plain are records that are texts as they stand.
type plain struct {
	*fileRecords
	name string
}

func (p *plain) Name() string       { return p.name }
func (p *plain) Kind() dataset.Kind { return dataset.KindText }

func (p *plain) Read(i int64) (dataset.Document, error) {
	b, place, err := p.Record(i)
	return dataset.Document{Text: string(b), Place: place}, err
}

// files are documents that are whole files.
type files struct {
	name  string
	paths []string
	sizes []int64
	limit int64
	print string
}

// openFiles is Files with a fingerprint of all bytes where that is wanted.
func openFiles(name string, paths []string, o dataset.Options) (dataset.Source, error) {
	s, err := Files(name, paths, o.Limit())
	if err != nil || !o.Full {
		return s, err
	}
	f := s.(*files)
	for _, p := range paths {
		in, err := os.Open(p)
		if err != nil {
			return nil, err
		}
		info, err := in.Stat()
		print := ""
		if err == nil {
			print, err = FingerprintFile(in, info.Size(), true)
		}
		if err = errors.Join(err, in.Close()); err != nil {
			return nil, err
		}
		f.print = HashOf(f.print, print)
	}
	return f, nil
}

// Files returns a source whose documents are the given files, in their order. A file that is empty, is no UTF-8 or has
// over limit bytes is a bad document. The fingerprint covers names (without directories) and sizes.
func Files(name string, paths []string, limit int64) (dataset.Source, error) {
	if len(paths) == 0 {
		return nil, errors.New("no files are given")
	}
	parts := []any{"files"}
	sizes := make([]int64, len(paths))
	for i, p := range paths {
		info, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a file", p)
		}
		sizes[i] = info.Size()
		parts = append(parts, filepath.Base(p), info.Size())
	}
	return &files{name: name, paths: slices.Clone(paths), sizes: sizes, limit: limit, print: HashOf(parts...)}, nil
}

func (f *files) Name() string        { return f.name }
func (f *files) Kind() dataset.Kind  { return dataset.KindText }
func (f *files) Len() int64          { return int64(len(f.paths)) }
func (f *files) Fingerprint() string { return f.print }
func (f *files) Close() error        { return nil }

// Sizes implements dataset.Sized.
func (f *files) Sizes(from int64, out []int64) error {
	copy(out, f.sizes[from:])
	return nil
}

// Read reads a whole file as a document. An empty or too large one is a bad sample and does not end the run.
func (f *files) Read(i int64) (dataset.Document, error) {
	d := dataset.Document{Place: dataset.Place{File: f.paths[i]}}
	info, err := os.Stat(f.paths[i])
	if err != nil {
		return d, err
	}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf(format, args...)}
	}
	if info.Size() == 0 {
		return d, bad("the file is empty")
	}
	if info.Size() > f.limit {
		return d, bad("a file of %d bytes is over the limit of %d; cut it at blank lines or lines",
			info.Size(), f.limit)
	}
	b, err := os.ReadFile(f.paths[i])
	if err != nil {
		return d, err
	}
	d.Text = strings.TrimPrefix(string(b), "\uFEFF")
	return d, checkUTF8(b, d.Place)
}
