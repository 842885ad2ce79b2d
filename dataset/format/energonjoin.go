package format

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// metaJoin is a data set among those that are joined sample by sample.
type metaJoin struct {
	Path     string `yaml:"path"`
	Nonmatch string `yaml:"nonmatch"` // what becomes of a sample of the first that this one lacks
	metaLeaf `yaml:",inline"`
}

// Ways of nonmatch.
const (
	joinError = "error" // the default
	joinSkip  = "skip"  // it is left out
	joinNone  = "none"  // it has nothing of this data set
)

// joiner is how the samples of a key become one. Without a class, which Energon does not have, their files are put
// together. A class is one of Energon's own, whose fields are taken from those of the samples, the last that has one;
// functions and classes of other modules are code in Python.
type joiner struct {
	Module   string `yaml:"__module__"`
	Class    string `yaml:"__class__"`
	Function string `yaml:"__function__"`
}

// joinParts are classes of samples that hold some fields of those that are read, and are joined alone.
var joinParts = map[string][]string{"ImageSample": {"image", "__key__"}, "TextSample": {"text", "__key__"}}

// checkJoin reads what stands under join and joiner, and refuses what cannot be done here.
func (n *metaNode) checkJoin() (list []metaJoin, by joiner, err error) {
	if n.Join.Kind != yaml.SequenceNode {
		return nil, by, errors.New("join: want a list of data sets; named ones are for joiners in Python")
	}
	if err := n.Join.Decode(&list); err != nil {
		return nil, by, fmt.Errorf("join: %w", err)
	}
	for i, item := range n.Join.Content {
		if err := knownKeys(item, "path", "nonmatch", "split_part", "split_config", "dataset_config", "subflavors",
			"shuffle_over_epochs_multiplier"); err != nil {
			return nil, by, fmt.Errorf("join %d: %w", i, err)
		}
	}
	if n.Joiner.Kind != 0 {
		if err := errors.Join(knownKeys(&n.Joiner, "__module__", "__class__", "__function__"),
			n.Joiner.Decode(&by)); err != nil {
			return nil, by, fmt.Errorf("joiner: %w", err)
		}
		known := mappedTypes[by.Class] != nil && (by.Module == "megatron.energon" ||
			strings.HasPrefix(by.Module, "megatron.energon."))
		if by.Function != "" || !known {
			return nil, by, fmt.Errorf("joiner: %s.%s is code in Python, which is not run; name one of "+
				"%s of megatron.energon, whose fields are joined by name, or leave joiner out: the "+
				"files of the samples are then put together", Clip(by.Module), Clip(or(by.Function, by.Class)),
				strings.Join(mappedClasses(), ", "))
		}
	}
	switch {
	case len(list) < 2:
		return nil, by, fmt.Errorf("join: %d data sets; want two and more", len(list))
	case n.DatasetConfig != "" || n.SplitConfig != "":
		return nil, by, errors.New("join: dataset_config and split_config are of the data sets that are joined")
	}
	for i, j := range list {
		switch {
		case j.Path == "":
			return nil, by, fmt.Errorf("join %d: it has no path", i)
		case j.Epochs != nil && *j.Epochs != 1:
			return nil, by, fmt.Errorf("join %d: shuffle_over_epochs_multiplier %d: leave it out", i, *j.Epochs)
		case j.Nonmatch != "" && !slices.Contains([]string{joinError, joinSkip, joinNone}, j.Nonmatch):
			return nil, by, fmt.Errorf("join %d: nonmatch %q: want error, skip or none", i, Clip(j.Nonmatch))
		case i == 0 && j.Nonmatch != "" && j.Nonmatch != joinError:
			return nil, by, errors.New("join 0: nonmatch is of the data sets behind the first, " +
				"whose samples all others follow")
		}
	}
	return list, by, nil
}

// knownKeys refuses keys of a mapping that are not among those that act.
func knownKeys(n *yaml.Node, known ...string) error {
	if n.Kind != yaml.MappingNode {
		return errors.New("want a mapping")
	}
	for i := 0; i < len(n.Content); i += 2 {
		if !slices.Contains(known, n.Content[i].Value) {
			return fmt.Errorf("there is no key %q", Clip(n.Content[i].Value))
		}
	}
	return nil
}

// joined is the samples of a data set with what others have under the same keys.
type joined struct {
	sets  []*joinSet
	rows  [][]int64 // of each set: its sample of each row, -1 for none
	class string    // of the samples, "" where files are put together
	print string
}

// joinSet is a data set of a join.
type joinSet struct {
	dataset.Source
	path   string
	parts  []dataset.Source // its shards
	layout *dataset.Layout  // its fields, where the join has a class
}

// join opens data sets and joins them by key.
func (r *metaReader) join(n metaNode, in metaWithin) (out metaMix, err error) {
	list, by, err := n.checkJoin()
	if err != nil {
		return out, err
	}
	j := &joined{class: by.Class}
	for i, item := range list {
		s, err := r.joinSet(n, item, by, in)
		if err != nil {
			return out, errors.Join(fmt.Errorf("join %d: %w", i, err), j.Close())
		}
		j.sets = append(j.sets, s)
	}
	if err := j.matched(list); err != nil {
		return out, errors.Join(err, j.Close())
	}
	from, to, err := in.subset.of(j.Len())
	if err != nil {
		return out, errors.Join(fmt.Errorf("join: %w", err), j.Close())
	}
	for i := range j.rows {
		j.rows[i] = j.rows[i][from:to]
	}
	ways := make([]string, len(list))
	for i := range list {
		ways[i] = or(list[i].Nonmatch, joinError)
	}
	j.print = HashOf("joined", j.prints(), ways, by.Class, from, to)
	r.opened = append(r.opened, j)
	return metaMix{metaOne, []metaShare{{j, 1}}}, nil
}

// joinSet opens a data set of a join.
func (r *metaReader) joinSet(n metaNode, item metaJoin, by joiner, in metaWithin) (*joinSet, error) {
	path := item.Path
	if store.Scheme(path) == "" && !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	if info, err := os.Stat(filepath.Join(path, EnergonDir)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder with %s; data sets of Energon are joined", path, EnergonDir)
	}
	o := r.o
	o.Format, o.Split = "", or(item.Split, or(n.Split, r.o.Split))
	flavors := map[string]any{}
	for _, m := range []map[string]any{item.Subflavors, n.Subflavors,
		in.flavors} { // outer ones replace inner ones
		maps.Copy(flavors, m)
	}
	s := &joinSet{path: path}
	var e *Energon
	var err error
	if e, s.parts, err = openEnergonShards(path, o, energonUse{split: item.SplitConfig, class: item.DatasetConfig,
		flavors: flavors, joined: true}); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Source, err = dataset.Concat(s.parts...); err != nil {
		return nil, err
	}
	if by.Class == "" {
		return s, nil
	}
	s.layout = e.layout()
	if s.layout == nil || s.layout.Fields == nil {
		err = fmt.Errorf("%s: it has no field_map, by whose fields samples of %s are joined; leave joiner out, "+
			"which puts their files together", path, by.Class)
	} else {
		for _, f := range slices.Sorted(maps.Keys(s.layout.Fields)) {
			if !slices.Contains(mappedTypes[by.Class], f) {
				err = errors.Join(err, fmt.Errorf("%s: samples of %s have no field %q", path, by.Class, Clip(f)))
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (j *joined) Name() string {
	var names []string
	for _, s := range j.sets {
		names = append(names, s.path)
	}
	return strings.Join(names, " + ")
}

func (j *joined) prints() (out []string) {
	for _, s := range j.sets {
		out = append(out, s.Fingerprint())
	}
	return out
}

// Kind implements dataset.Source, as the methods below do.
func (j *joined) Kind() dataset.Kind  { return dataset.KindParts }
func (j *joined) Len() int64          { return int64(len(j.rows[0])) }
func (j *joined) Fingerprint() string { return j.print }

// Close closes all sets.
func (j *joined) Close() (err error) {
	for _, s := range j.sets {
		err = errors.Join(err, s.Close())
	}
	return err
}

// Read reads the samples of a row. Their place is that of the first.
func (j *joined) Read(i int64) (d dataset.Document, err error) {
	var layout *dataset.Layout
	if j.class != "" {
		layout = &dataset.Layout{Class: j.class, Fields: map[string]string{}}
	}
	for k, s := range j.sets {
		at := j.rows[k][i]
		if at < 0 {
			continue
		}
		part, err := s.Read(at)
		if k == 0 {
			d = part
			d.Parts = slices.Clone(d.Parts)
		}
		if err != nil {
			return d, err
		}
		prefix := ""
		if layout != nil {
			if k > 0 { // so that files of one name stay apart
				prefix = fmt.Sprintf("%d.", k)
			}
			for field, places := range s.layout.Fields {
				layout.Fields[field] = prefix + strings.ReplaceAll(places, ",", ","+prefix)
			}
		}
		for _, p := range part.Parts {
			if k == 0 {
				break
			}
			p.Name = prefix + p.Name
			if _, twice := d.Part(p.Name); twice {
				return d, &dataset.BadSample{Place: d.Place,
					Reason: fmt.Sprintf("sample %q: %s and a data set before it both have its file %q; "+
						"part_filter of dataset.yaml leaves one out", d.Key, s.path, Clip(p.Name))}
			}
			d.Parts = append(d.Parts, p)
		}
	}
	if layout != nil {
		d.Layout = layout
	}
	return d, nil
}
