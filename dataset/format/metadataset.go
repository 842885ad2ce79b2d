package format

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Megatron-Energon's metadatasets: a YAML file that blends data sets by weights, or by repetitions, or joins them end
// to end. Versions 1 ("Metadataset") and 2 ("MetadatasetV2"). Source: megatron-energon 7.4.1, metadataset.
var _ = dataset.Register(dataset.Format{
	Name: "metadataset",
	Doc:  "Megatron-Energon's metadatasets: a YAML file that blends data sets",
	Kind: dataset.KindParts,
	Match: func(path string, head []byte) bool {
		return HasSuffix(path, ".yaml", ".yml") && bytes.Contains(head, []byte("Metadataset"))
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		list, err := blendMetadataset(path, o)
		if err != nil {
			return nil, err
		}
		var all []dataset.Source
		for _, w := range list {
			all = append(all, w.Source)
		}
		return dataset.Concat(all...)
	},
	Blend: blendMetadataset,
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		path, set := filepath.Join(dir, "meta.yaml"), filepath.Join(dir, "set")
		if err := os.Mkdir(set, 0o755); err != nil {
			return path, dataset.Options{}, err
		}
		if _, _, err := writeEnergon(set, docs); err != nil {
			return path, dataset.Options{}, err
		}
		text := "__module__: megatron.energon\n__class__: MetadatasetV2\nsplits:\n  train:\n    path: set\n"
		return path, dataset.Options{}, os.WriteFile(path, []byte(text), 0o644)
	},
})

// metaNode is a data set, or a blend of several, of either version.
type metaNode struct {
	Path        string     `yaml:"path"`
	Weight      *float64   `yaml:"weight"`
	Repetitions *float64   `yaml:"repetitions"`
	Subset      *metaPart  `yaml:"subset"`
	Datasets    []metaNode `yaml:"datasets"`
	Blend       []metaNode `yaml:"blend"`
	Epochized   []metaNode `yaml:"blend_epochized"`
	Concat      []metaNode `yaml:"concat"`
	Join        yaml.Node  `yaml:"join"`
	Joiner      yaml.Node  `yaml:"joiner"`
	metaLeaf    `yaml:",inline"`
}

// metaLeaf is what only a node with a path has.
type metaLeaf struct {
	Split         string         `yaml:"split_part"`
	SplitConfig   string         `yaml:"split_config"`
	DatasetConfig string         `yaml:"dataset_config"`
	Subflavor     string         `yaml:"subflavor"`
	Subflavors    map[string]any `yaml:"subflavors"`
	Epochs        *int           `yaml:"shuffle_over_epochs_multiplier"`
	Aux           any            `yaml:"aux"`
}

// metaPart is a subset: percentages at any level, or numbers of samples of one data set.
type metaPart struct {
	Range [2]string `yaml:"range"`
}

// metaDepthMax bounds metadatasets that name metadatasets.
const metaDepthMax = 8

// blendMetadataset reads a mix of data sets, which may be nested, as sources with their weights.
func blendMetadataset(path string, o dataset.Options) ([]dataset.Weighted, error) {
	m, err := readMetaMix(path, o, metaDepthMax, metaWithin{})
	if err != nil {
		return nil, err
	}
	return m.weighted()
}

// readMetaMix reads a metadataset within another, or alone.
func readMetaMix(path string, o dataset.Options, depth int, in metaWithin) (out metaMix, err error) {
	b := store.Head(path, energonMetaMax)
	var m struct {
		Module string              `yaml:"__module__"`
		Class  string              `yaml:"__class__"`
		Splits map[string]metaNode `yaml:"splits"`
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		return out, err
	}
	if m.Class != "Metadataset" && m.Class != "MetadatasetV2" {
		return out, fmt.Errorf("its class is %q; Metadataset and MetadatasetV2 are read", Clip(m.Class))
	}
	part := or(o.Split, "train")
	n, ok := m.Splits[part]
	if !ok {
		return out, fmt.Errorf("it has no split %q", part)
	}
	if err := n.check(m.Class == "Metadataset", ""); err != nil {
		return out, fmt.Errorf("split %s: %w", part, err)
	}
	r := metaReader{dir: filepath.Dir(path), o: o, depth: depth}
	if out, err = r.node(n, in); err != nil {
		return out, errors.Join(fmt.Errorf("split %s: %w", part, err), r.close())
	}
	return out, nil
}

// check refuses keys that have no meaning where they stand. parent is the key of the list that has the node.
func (n *metaNode) check(first bool, parent string) error {
	leaf := reflect.ValueOf(n.metaLeaf)
	for i := range leaf.NumField() {
		if n.Path == "" && n.Join.Kind == 0 && !leaf.Field(i).IsZero() {
			return fmt.Errorf("%s is of nodes with a path", leaf.Type().Field(i).Tag.Get("yaml"))
		}
	}
	switch {
	case n.Aux != nil:
		return errors.New("aux names data that only cookers in Python read; write what they make of it as shards")
	case n.Epochs != nil && *n.Epochs != 1:
		return fmt.Errorf("shuffle_over_epochs_multiplier %d: every pass has its own order here, each sample once; "+
			"leave it out", *n.Epochs)
	case n.Weight != nil && parent != "blend" && parent != "datasets":
		return errors.New("weight is of the parts of a blend")
	case n.Repetitions != nil && parent != "blend_epochized":
		return errors.New("repetitions are of the parts of a blend_epochized")
	case first && (n.Blend != nil || n.Epochized != nil || n.Concat != nil || n.Join.Kind != 0 || n.Subset != nil):
		return errors.New("blend, blend_epochized, concat, join and subset are of MetadatasetV2")
	case !first && n.Subflavor != "":
		return errors.New("subflavor is of Metadataset; write subflavors")
	case !first && n.Datasets != nil:
		return errors.New("datasets is of Metadataset; write blend in MetadatasetV2")
	case first && parent == "" && n.Path != "":
		return errors.New("a split of Metadataset has datasets; a path alone is of MetadatasetV2")
	}
	for _, list := range []struct {
		name  string
		nodes []metaNode
	}{{"datasets", n.Datasets}, {"blend", n.Blend}, {"blend_epochized", n.Epochized}, {"concat", n.Concat}} {
		for i := range list.nodes {
			if err := list.nodes[i].check(first, list.name); err != nil {
				return fmt.Errorf("%s %d: %w", list.name, i, err)
			}
		}
	}
	return nil
}

// metaWithin is what the nodes around a node say of its samples.
type metaWithin struct {
	subset  subset
	flavors map[string]any // outer ones replace inner ones
}

// metaShare is a source of a blend: a share of its weights, or times that it is repeated.
type metaShare struct {
	source dataset.Source
	weight float64
}

// Modes of a blend, which are not mixed: one source, weights, or repetitions.
const (
	metaOne    = ""
	metaWeight = "blend"
	metaTimes  = "blend_epochized"
)

// metaReader opens the data sets of a metadataset.
type metaReader struct {
	dir    string
	o      dataset.Options
	depth  int
	opened []dataset.Source
}

func (r *metaReader) close() error { return closeAll(r.opened) }

// node returns the sources of a node and how they are mixed.
func (r *metaReader) node(n metaNode, in metaWithin) (out metaMix, err error) {
	given := 0
	for _, list := range [][]metaNode{n.Datasets, n.Blend, n.Epochized, n.Concat} {
		if list != nil {
			given++
		}
	}
	if n.Path != "" {
		given++
	}
	if n.Join.Kind != 0 {
		given++
	}
	if n.Subset != nil {
		inner, err := n.Subset.read()
		if err == nil {
			in.subset, err = inner.within(in.subset)
		}
		if err != nil {
			return out, fmt.Errorf("subset: %w", err)
		}
	}
	switch {
	case given != 1:
		return out, errors.New("a node must have one of path, join, datasets, blend, blend_epochized and concat")
	case n.Join.Kind == 0 && n.Joiner.Kind != 0:
		return out, errors.New("joiner is of nodes with a join")
	case n.Join.Kind != 0:
		return r.join(n, in)
	case n.Path != "":
		return r.leaf(n, in)
	case n.Datasets != nil:
		return r.blend(n.Datasets, in, metaWeight)
	case n.Blend != nil:
		return r.blend(n.Blend, in, metaWeight)
	case n.Epochized != nil:
		return r.blend(n.Epochized, in, metaTimes)
	}
	return r.blend(n.Concat, in, metaTimes)
}

// metaMix is the sources of a node.
type metaMix struct {
	mode   string
	shares []metaShare
}

// blend returns the sources of several nodes.
func (r *metaReader) blend(list []metaNode, in metaWithin, mode string) (metaMix, error) {
	out := metaMix{mode: mode}
	sum := 0.0
	for i, n := range list {
		w := orOne(n.Weight)
		if mode == metaTimes {
			w = orOne(n.Repetitions)
		}
		if !(w >= 0) || w > 1e300 {
			return out, fmt.Errorf("%d: a weight of %g", i, w)
		}
		g, err := r.node(n, in)
		if err != nil {
			return out, fmt.Errorf("%d: %w", i, err)
		}
		if g.mode != metaOne && g.mode != mode {
			return out, fmt.Errorf("%d: a %s within a %s; Energon mixes by weights or by repetitions, "+
				"not by both", i, g.mode, mode)
		}
		for _, s := range g.shares {
			out.shares = append(out.shares, metaShare{s.source, s.weight * w})
		}
		sum += w
	}
	if sum == 0 {
		return out, errors.New("all weights are 0")
	}
	if mode == metaWeight {
		for i := range out.shares {
			out.shares[i].weight /= sum
		}
	}
	return out, nil
}

// weighted returns the sources that have samples, with weights that add up to 1.
func (m metaMix) weighted() ([]dataset.Weighted, error) {
	var out []dataset.Weighted
	var idle []dataset.Source
	sum := 0.0
	for _, s := range m.shares {
		w := s.weight
		if m.mode == metaTimes {
			w *= float64(s.source.Len())
		}
		if w == 0 || s.source.Len() == 0 {
			idle = append(idle, s.source)
			continue
		}
		out, sum = append(out, dataset.Weighted{Source: s.source, Weight: w}), sum+w
	}
	if err := closeAll(idle); err != nil || len(out) == 0 {
		return nil, errors.Join(err, errors.New("no samples are left of it"))
	}
	for i := range out {
		out[i].Weight /= sum
	}
	return out, nil
}

// orOne is the weight that is given, or 1.
func orOne(x *float64) float64 {
	if x == nil {
		return 1
	}
	return *x
}

// leaf opens a data set or another metadataset.
func (r *metaReader) leaf(n metaNode, in metaWithin) (out metaMix, err error) {
	path := n.Path
	if store.Scheme(path) == "" && !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	o := r.o
	o.Format, o.Split = "", or(n.Split, o.Split)
	flavors := maps.Clone(n.Subflavors)
	if flavors == nil {
		flavors = map[string]any{}
	}
	maps.Copy(flavors, in.flavors)
	in.flavors = flavors
	if HasSuffix(path, ".yaml", ".yml") {
		if r.depth == 0 {
			return out, fmt.Errorf("%s: metadatasets lie over %d deep", path, metaDepthMax)
		}
		if n.SplitConfig != "" || n.DatasetConfig != "" {
			return out, fmt.Errorf("%s: split_config and dataset_config are of data sets, not of metadatasets", path)
		}
		if out, err = readMetaMix(path, o, r.depth-1, in); err != nil {
			return out, fmt.Errorf("%s: %w", path, err)
		}
	} else {
		s, err := r.set(path, o, n, in)
		if err != nil {
			return out, err
		}
		out = metaMix{metaOne, []metaShare{{s, 1}}}
	}
	for _, s := range out.shares {
		r.opened = append(r.opened, s.source)
	}
	return out, nil
}

// set opens a data set: an Energon one as the metadataset uses it, or one of another format.
func (r *metaReader) set(path string, o dataset.Options, n metaNode, in metaWithin) (dataset.Source, error) {
	if info, err := os.Stat(filepath.Join(path, EnergonDir)); err == nil && info.IsDir() {
		s, err := openEnergon(path, o, energonUse{split: n.SplitConfig, class: n.DatasetConfig,
			subset: in.subset, flavors: in.flavors})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return s, nil
	}
	if n.SplitConfig != "" || n.DatasetConfig != "" {
		return nil, fmt.Errorf("%s: split_config and dataset_config are of folders with %s", path, EnergonDir)
	}
	s, err := dataset.Open(path, o)
	if err != nil {
		return nil, err
	}
	if in.subset == (subset{}) {
		return s, nil
	}
	from, to, err := in.subset.of(s.Len())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), s.Close())
	}
	return dataset.Slice(s, from, to), nil
}
