package setup

import (
	"context"
	"fmt"
	"math/bits"
	"regexp"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/media"
)

// StatReport is the make-up of data.
type StatReport struct {
	Kind      dataset.Kind        `json:"kind"`
	Documents int64               `json:"documents"`
	Bad       int64               `json:"bad"`
	Unit      string              `json:"-"`         // "tokens" or "bytes"
	Units     int64               `json:"units"`     // tokens, or bytes of text or files
	Histogram []int64             `json:"histogram"` // documents of 2^(i-1) to 2^i-1 units; the first has none
	Parts     map[string]PartStat `json:"parts,omitempty"`
	Messages  int64               `json:"messages,omitempty"`
	Modality  map[string]int64    `json:"modality,omitempty"` // documents by what they hold: "text", "1 image", "2 images and 1 video"
	tokens    TokenCounter        // nil: lengths are bytes
}

// statPartsMax bounds the names that are counted apart.
const statPartsMax = 10_000

// PartStat is what there is of files of one name.
type PartStat struct {
	Count int64 `json:"count"`
	Bytes int64 `json:"bytes"`
}

// count adds a document to the statistics. Kinds of parts beyond a bound are counted together, as
// names may come from the data.
func (r *StatReport) count(d *dataset.Document) {
	tokens := int64(0)
	if r.tokens != nil {
		var err error
		if tokens, err = r.tokens(d); err != nil {
			r.Bad++
			return
		}
	}
	n := int64(len(d.Text) + len(d.Tokens))
	for _, m := range d.Messages {
		n += int64(max(len(m.Content), len(m.Raw)))
	}
	r.Messages += int64(len(d.Messages))
	if d.Parts != nil {
		m := modality(d)
		if _, ok := r.Modality[m]; !ok && len(r.Modality) >= statPartsMax {
			m = "(others)"
		}
		r.Modality[m]++
	}
	for _, p := range d.Parts {
		n += int64(len(p.Bytes))
		name := partKind(p.Name)
		if _, ok := r.Parts[name]; !ok && len(r.Parts) >= statPartsMax {
			name = "(others)"
		}
		s := r.Parts[name]
		r.Parts[name] = PartStat{s.Count + 1, s.Bytes + int64(len(p.Bytes))}
	}
	if r.tokens != nil {
		n = tokens
	}
	r.Units += n
	b := bits.Len64(uint64(n))
	for len(r.Histogram) <= b {
		r.Histogram = append(r.Histogram, 0)
	}
	r.Histogram[b]++
}

// numbered matches the names that converters give to media, the file's own name behind a number.
var numbered = regexp.MustCompile(`^s?[0-9]+_.*(\.[^.]*)$`)

// partKind is a part's name, or what the names of numbered media have in common.
func partKind(name string) string {
	if m := numbered.FindStringSubmatch(name); m != nil {
		return "*" + m[1]
	}
	return name
}

// modality tells what a sample holds by the names of its files.
func modality(d *dataset.Document) string {
	counts := map[dataset.MediaKind]int{}
	for _, p := range d.Parts {
		switch kind := format.KindOfName(p.Name); {
		case kind != dataset.Image:
			counts[kind]++
		case media.IsImage(p.Name):
			counts[dataset.Image]++
		}
	}
	var words []string
	for _, k := range []dataset.MediaKind{dataset.Image, dataset.Video, dataset.Audio} {
		if n := counts[k]; n == 1 {
			words = append(words, "1 "+string(k))
		} else if n > 1 {
			words = append(words, fmt.Sprintf("%d %ss", n, k))
		}
	}
	if len(words) == 0 {
		return "text"
	}
	return strings.Join(words, " and ")
}

// Stat counts the documents of paths, each opened by its options. With a model's folder lengths are its
// tokens, as training would see them; sampleType names the type of samples with media, "" lets each tell.
func Stat(ctx context.Context, paths []string, options []dataset.Options, model,
	sampleType string) (*StatReport, error) {
	r := &StatReport{Parts: map[string]PartStat{}, Modality: map[string]int64{}, Unit: "bytes"}
	for i, path := range paths {
		if err := r.add(ctx, path, options[i], model, sampleType); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *StatReport) add(ctx context.Context, path string, o dataset.Options, model, sampleType string) error {
	s, err := dataset.Open(path, o)
	if err != nil {
		return err
	}
	defer s.Close()
	r.Kind = s.Kind()
	r.Documents += s.Len()
	if model != "" {
		if r.tokens, err = NewTokenCounter(model, sampleType, s.Kind(), o.Tags); err != nil {
			return err
		}
	}
	if r.Kind.Form() == dataset.InTokens || r.tokens != nil {
		r.Unit = "tokens"
	}
	return EachDocument(ctx, s, func(_ int64, d *dataset.Document) { r.count(d) },
		func(int64, *dataset.BadSample) { r.Bad++ })
}
