package recipe

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
)

// webdataset: a sample of a shard keeps its files, of which only those are written anew that steps have changed;
// a record becomes a txt, a json of its other columns, and its images.
var _ = RegisterWriter(Writer{Name: "webdataset",
	Doc: "webdataset's tar shards: samples with their files as they were, of records a txt, a " +
		"json and their images",
	Compress: []string{"gzip", "zstd"},
	Files:    true,
	Fits:     func(d *curate.Doc) error { _, _, err := sampleOf(d); return err },
	Ext:      func(c string) string { return ".tar" + ending(c) },
	Create: func(w io.Writer, c string, _ *Table) (DocWriter, error) {
		s, err := format.NewShard("of the output.tar"+ending(c), w)
		return &shardWriter{w: s}, err
	}})

type shardWriter struct {
	w    *format.ShardWriter
	last string
}

// Add implements DocWriter.
func (s *shardWriter) Add(d *curate.Doc) error {
	key, parts, err := sampleOf(d)
	if err != nil {
		return fmt.Errorf("document %d of %q: %w", d.Number, d.Input, err)
	}
	if key == s.last { // of another input
		key = fmt.Sprintf("%s-%s-%d", key, keyOf(d.Input), d.Number)
	}
	s.last = key
	return s.w.Add(key, parts)
}

// Close implements DocWriter.
func (s *shardWriter) Close() error { return s.w.Close() }

// sampleOf is a document as a sample.
func sampleOf(d *curate.Doc) (key string, parts []dataset.Part, err error) {
	if d.Sample == nil {
		return recordSample(d)
	}
	s, err := d.Sample()
	if err != nil {
		return "", nil, err
	}
	columns := slices.EqualFunc(d.Fields, s.Columns, func(a, b curate.Field) bool {
		return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
	})
	text := d.Derived || d.Text == s.Text
	record := func() []byte {
		if s.TextKey == "" {
			return appendRecord(nil, d, "")
		}
		return appendRecord(nil, d, s.TextKey)
	}
	for _, p := range s.Parts {
		switch {
		case p.Name == "json" && !(columns && (text || s.TextKey == "")):
			if len(s.Columns) == 0 && s.TextKey == "" && bytes.HasPrefix(bytes.TrimSpace(p.Bytes), []byte("[")) {
				return "", nil, unfit(d, "the json of sample %q is a list, which has no room for columns", s.Key)
			}
			p.Bytes = record()
		case p.Name == curate.TextPart && s.TextKey == "" && !text:
			p.Bytes = []byte(d.Text)
		}
		parts = append(parts, p)
	}
	if _, ok := s.Part("json"); !ok && len(d.Fields) > 0 {
		parts = append(parts, dataset.Part{Name: "json", Bytes: record()})
	}
	return s.Key, parts, nil
}

// unfit is why a document is no sample.
func unfit(d *curate.Doc, why string, args ...any) error {
	return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf(why, args...)}
}

// recordSample is a record as a sample: its text, the other columns, and the images of its column image or images.
func recordSample(d *curate.Doc) (key string, parts []dataset.Part, err error) {
	list, column, err := curate.Images(d)
	if err != nil {
		return "", nil, unfit(d, "its images: %v", err)
	}
	for i, b := range list {
		ext := media.Suffix(b)
		if ext == "" {
			return "", nil, unfit(d, "column %q has no image that is known", column)
		}
		if len(list) > 1 {
			ext = fmt.Sprintf("%d.%s", i, ext)
		}
		parts = append(parts, dataset.Part{Name: ext, Bytes: b})
	}
	if !d.Derived {
		parts = append(parts, dataset.Part{Name: curate.TextPart, Bytes: []byte(strings.ToValidUTF8(d.Text, "\uFFFD"))})
	}
	rest := *d
	rest.Fields = slices.DeleteFunc(slices.Clone(d.Fields), func(f curate.Field) bool { return f.Name == column })
	if len(rest.Fields) > 0 {
		parts = append(parts, dataset.Part{Name: "json", Bytes: appendRecord(nil, &rest, "")})
	}
	return fmt.Sprintf("%s-%09d", keyOf(d.Input), d.Number), parts, nil
}

// keyOf makes of a name what a key may have.
func keyOf(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, name)
}
