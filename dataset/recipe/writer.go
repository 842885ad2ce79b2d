package recipe

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/lfactor/lfactor/dataset/curate"
)

// Writer is a format that outputs are written in; each is a file that registers it.
type Writer struct {
	Name     string
	Doc      string   // one sentence for people
	Compress []string // what "compress" may be beside nothing
	// Ext is the ending of a file's name.
	Ext func(compress string) string
	// Create writes a file's content to w. The same documents give the same bytes. t is nil where no types are known.
	Create func(w io.Writer, compress string, t *Table) (DocWriter, error)
	Typed  bool // the format keeps types
	// Fits says why a document cannot be written, as a *dataset.BadSample; another error ends the recipe. nil
	// where all can.
	Fits  func(d *curate.Doc) error
	Files bool // the format keeps the files of samples
	// Finish writes what lies beside the files of an output, whose names are given; nil for nothing. An
	// output whose format has one is alone in its folder.
	Finish func(dir string, files []string) error
}

// DocWriter takes the documents of a file, and ends it.
type DocWriter interface {
	Add(d *curate.Doc) error
	Close() error
}

var writers struct {
	sync.Mutex
	list []Writer
}

// RegisterWriter adds a format; a file calls it in a variable's declaration.
func RegisterWriter(w Writer) bool {
	writers.Lock()
	defer writers.Unlock()
	if slices.ContainsFunc(writers.list, func(o Writer) bool { return o.Name == w.Name }) {
		panic(fmt.Sprintf("recipe: two formats are named %q", w.Name))
	}
	writers.list = append(writers.list, w)
	return true
}

// Writers returns what is registered, by name.
func Writers() []Writer {
	writers.Lock()
	defer writers.Unlock()
	out := slices.Clone(writers.list)
	slices.SortFunc(out, func(a, b Writer) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// findWriter returns a format and checks whether it can be compressed so.
func findWriter(name, compress string) (Writer, error) {
	var names []string
	for _, w := range Writers() {
		if w.Name == name {
			if compress != "" && !slices.Contains(w.Compress, compress) {
				return w, fmt.Errorf("%s is not compressed with %q here; use one of %q, or leave compress out", name,
					compress, w.Compress)
			}
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Writer{}, fmt.Errorf("%q is not written; use one of %s", name, strings.Join(names, ", "))
}

// compressed returns what w is written through, and what ends it.
func compressed(w io.Writer, how string) (io.Writer, func() error, error) {
	switch how {
	case "gzip":
		z := gzip.NewWriter(w)
		return z, z.Close, nil
	case "zstd":
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	case "":
		return w, func() error { return nil }, nil
	}
	return nil, nil, errors.New("compress: " + how)
}

// ending is the end of a name for a way to compress.
func ending(how string) string {
	return map[string]string{"gzip": ".gz", "zstd": ".zst"}[how]
}
