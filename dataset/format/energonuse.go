package format

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset"
)

// energonUse says how a metadataset uses an Energon data set: other files of .nv-meta than the usual ones,
// part of the samples, and labels that replace the data set's own.
type energonUse struct {
	split, class string
	subset       subset
	flavors      map[string]any
	joined       bool // its samples are parts of others
}

// openEnergon opens the shards of one part, in the order of split.yaml. A subset counts the part's samples
// before those excluded are left out, as Energon counts them.
func openEnergon(path string, o dataset.Options, use energonUse) (dataset.Source, error) {
	_, all, err := openEnergonShards(path, o, use)
	if err != nil {
		return nil, err
	}
	return dataset.Concat(all...)
}

// openEnergonShards is openEnergon, shard by shard.
func openEnergonShards(path string, o dataset.Options, use energonUse) (*Energon, []dataset.Source, error) {
	e, err := readEnergonAs(path, use.split, use.class, use.joined)
	if err != nil {
		return nil, nil, err
	}
	if len(e.unread) > 0 {
		return nil, nil, fmt.Errorf("%s: %s", or(use.class, "dataset.yaml"), strings.Join(e.unread, "; "))
	}
	if e.Flavors == nil {
		e.Flavors = map[string]any{}
	}
	for k, v := range use.flavors {
		e.Flavors[k] = v
	}
	part := or(o.Split, "train")
	names := e.Splits[part]
	if len(names) == 0 {
		return nil, nil, fmt.Errorf("%s has no shards for the part %q", or(use.split, "split.yaml"), part)
	}
	var shards []*shard
	var all []dataset.Source
	total := int64(0)
	for _, n := range names {
		s, err := openShard(filepath.Join(e.Dir, n), o)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(all))
		}
		shards, all, total = append(shards, s), append(all, s), total+s.Len()
	}
	from, to, err := use.subset.of(total)
	for i, s := range shards {
		n := s.Len()
		if err == nil {
			all[i], err = e.openShard(s, names[i], min(max(from, 0), n), min(max(to, 0), n))
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(all))
		}
		from, to = from-n, to-n
	}
	return e, all, nil
}

// classKeys are the keys of dataset.yaml: those that act, and those about how files are decoded or in which
// order they are read, which is this program's own affair.
var classKeys = []string{"__module__", "__class__", "sample_type", "field_map", "part_filter", "subflavors", "decoder",
	"auto_decode", "image_decode", "ignore_decoder_errors", "parallel_shard_iters", "max_samples_per_sequence"}

// readClass reads dataset.yaml, or a file in its place, which has to be there.
func (e *Energon) readClass(names []string, given bool) error {
	var raw map[string]any
	err := e.readMeta(&raw, names...)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return nil
	}
	text := func(v any, key string) string {
		m, _ := v.(map[string]any)
		s, _ := m[key].(string)
		return s
	}
	if class := text(raw, "__class__"); class != "" {
		e.Class = text(raw, "__module__") + ":" + class
	}
	e.Sample = text(raw["sample_type"], "__class__")
	e.Flavors, _ = raw["subflavors"].(map[string]any)
	e.Fields = map[string]string{}
	fields, _ := raw["field_map"].(map[string]any)
	for k, v := range fields {
		e.Fields[k] = fmt.Sprint(v)
	}
	if list, ok := raw["part_filter"].([]any); ok {
		e.Parts = []string{}
		for _, p := range list {
			e.Parts = append(e.Parts, fmt.Sprint(p))
		}
	}
	e.judge(raw)
	return err
}

// judge notes what nobody can do here: code in Python, samples of classes that are no conversations.
func (e *Energon) judge(raw map[string]any) {
	note := func(format string, args ...any) { e.unread = append(e.unread, fmt.Sprintf(format, args...)) }
	keys := make([]string, 0, len(raw))
	for k := range raw {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if k == "sample_loader" || k == "part_filter" && e.Parts == nil {
			note("%s names code in Python, which is not run; write field_map, or raw samples (CrudeWebdataset)", k)
		} else if !slices.Contains(classKeys, k) {
			note("there is no key %q", Clip(k))
		}
	}
	class := e.Class[strings.Index(e.Class, ":")+1:]
	fieldsOf := mappedTypes[e.sampleClass()]
	if fieldsOf == nil && e.joined {
		fieldsOf = joinParts[e.sampleClass()]
	}
	mapped := fieldsOf != nil
	switch {
	case len(e.Fields) > 0 && !mapped:
		note("field_map is of samples of the class %q; those of %s are read", Clip(e.sampleClass()),
			strings.Join(mappedClasses(), ", "))
	case len(e.Fields) == 0 && e.Sample != "" && raw["sample_loader"] == nil:
		note("sample_type without field_map does not say which parts are its fields")
	case class == "CrudeWebdataset" && len(e.Fields) > 0:
		note("raw samples (CrudeWebdataset) have no field_map")
	}
	for field := range e.Fields {
		if mapped && !slices.Contains(fieldsOf, field) {
			note("field_map: samples of %s have no field %q", e.sampleClass(), Clip(field))
		}
	}
	slices.Sort(e.unread)
}

// sampleClass is the class of the samples; the old names of data sets say it too.
func (e *Energon) sampleClass() string {
	class := e.Class[strings.Index(e.Class, ":")+1:]
	if old, ok := strings.CutSuffix(class, "Webdataset"); ok && e.Sample == "" && class != "CrudeWebdataset" {
		return old + "Sample"
	}
	return e.Sample
}

// layout is what dataset.yaml says of the samples' parts, nil where each sample tells.
func (e *Energon) layout() *dataset.Layout {
	if len(e.Fields) > 0 {
		return &dataset.Layout{Class: e.sampleClass(), Fields: e.Fields}
	}
	name, _ := e.Flavors["sample_type"].(string)
	if t, err := SampleTypeOf(name); err == nil {
		return &dataset.Layout{Type: t.Name}
	}
	return nil
}
