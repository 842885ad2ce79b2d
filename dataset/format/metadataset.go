package format

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Megatron-Energon's metadatasets: a YAML file that blends data sets by weights, or by repetitions, or joins
// them end to end. Versions 1 ("Metadataset") and 2 ("MetadatasetV2"). Source: megatron-energon 7.4.1,
// metadataset.
var _ = dataset.Register(dataset.Format{
	Name: "metadataset",
	Doc:  "Megatron-Energon's metadatasets: a YAML file that blends data sets",
	Kind: dataset.KindParts,
	Match: func(path string, head []byte) bool {
		return hasSuffix(path, ".yaml", ".yml") && bytes.Contains(head, []byte("Metadataset"))
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
	Split       string     `yaml:"split_part"`
	Subset      *metaPart  `yaml:"subset"`
	Datasets    []metaNode `yaml:"datasets"`
	Blend       []metaNode `yaml:"blend"`
	Epochized   []metaNode `yaml:"blend_epochized"`
	Concat      []metaNode `yaml:"concat"`
	Join        any        `yaml:"join"`

	// What follows does not concern the samples' files.

	Subflavor     any `yaml:"subflavor"`
	Subflavors    any `yaml:"subflavors"`
	Epochs        any `yaml:"shuffle_over_epochs_multiplier"`
	DatasetConfig any `yaml:"dataset_config"`
	SplitConfig   any `yaml:"split_config"`
	Aux           any `yaml:"aux"`
	Joiner        any `yaml:"joiner"`
	NonMatch      any `yaml:"nonmatch"`
}

type metaPart struct {
	Range [2]string `yaml:"range"`
}

// metaDepthMax bounds metadatasets that name metadatasets.
const metaDepthMax = 8

func blendMetadataset(path string, o dataset.Options) ([]dataset.Weighted, error) {
	return readMetadataset(path, o, metaDepthMax)
}

func readMetadataset(path string, o dataset.Options, depth int) ([]dataset.Weighted, error) {
	b := store.Head(path, energonMetaMax)
	var m struct {
		Module string              `yaml:"__module__"`
		Class  string              `yaml:"__class__"`
		Splits map[string]metaNode `yaml:"splits"`
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(&m); err != nil {
		return nil, err
	}
	if m.Class != "Metadataset" && m.Class != "MetadatasetV2" {
		return nil, fmt.Errorf("its class is %q; Metadataset and MetadatasetV2 are read", Clip(m.Class))
	}
	part := or(o.Split, "train")
	n, ok := m.Splits[part]
	if !ok {
		return nil, fmt.Errorf("it has no split %q", part)
	}
	r := metaReader{dir: filepath.Dir(path), o: o, depth: depth}
	out, err := r.node(n)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("split %s: %w", part, err), r.close())
	}
	return out, nil
}

// metaReader opens the data sets of a metadataset.
type metaReader struct {
	dir    string
	o      dataset.Options
	depth  int
	opened []dataset.Source
}

func (r *metaReader) close() error { return closeAll(r.opened) }

// node returns the sources of a node, whose weights add up to 1.
func (r *metaReader) node(n metaNode) ([]dataset.Weighted, error) {
	given := 0
	for _, list := range [][]metaNode{n.Datasets, n.Blend, n.Epochized, n.Concat} {
		if list != nil {
			given++
		}
	}
	if n.Path != "" {
		given++
	}
	switch {
	case n.Join != nil:
		return nil, errors.New("it joins data sets sample by sample, which is not read; write the " +
			"joined samples as shards")
	case given != 1:
		return nil, errors.New("a node must have one of path, datasets, blend, blend_epochized and concat")
	case n.Path != "":
		return r.leaf(n)
	case n.Datasets != nil:
		return r.blend(n.Datasets, byWeight)
	case n.Blend != nil:
		return r.blend(n.Blend, byWeight)
	case n.Epochized != nil:
		return r.blend(n.Epochized, func(n metaNode, documents float64) float64 {
			return documents * orOne(n.Repetitions)
		})
	}
	return r.blend(n.Concat, func(_ metaNode, documents float64) float64 { return documents })
}

func byWeight(n metaNode, _ float64) float64 { return orOne(n.Weight) }

func orOne(x *float64) float64 {
	if x == nil {
		return 1
	}
	return *x
}

// blend returns the sources of several nodes, each node with a share by its weight.
func (r *metaReader) blend(list []metaNode,
	weigh func(n metaNode, documents float64) float64) (out []dataset.Weighted, err error) {
	var groups [][]dataset.Weighted
	var weights []float64
	sum := 0.0
	for i, n := range list {
		g, err := r.node(n)
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i, err)
		}
		documents := 0.0
		for _, w := range g {
			documents += float64(w.Source.Len())
		}
		w := weigh(n, documents)
		if !(w >= 0) || w > 1e300 {
			return nil, fmt.Errorf("%d: a weight of %g", i, w)
		}
		if w == 0 {
			continue
		}
		groups, weights, sum = append(groups, g), append(weights, w), sum+w
	}
	if sum == 0 {
		return nil, errors.New("all weights are 0")
	}
	for i, g := range groups {
		for _, w := range g {
			out = append(out, dataset.Weighted{Source: w.Source, Weight: w.Weight * weights[i] / sum})
		}
	}
	return out, nil
}

// leaf opens a data set or another metadataset.
func (r *metaReader) leaf(n metaNode) ([]dataset.Weighted, error) {
	path := n.Path
	if store.Scheme(path) == "" && !filepath.IsAbs(path) {
		path = filepath.Join(r.dir, path)
	}
	o := r.o
	o.Format, o.Split = "", or(n.Split, o.Split)
	var list []dataset.Weighted
	if hasSuffix(path, ".yaml", ".yml") {
		if r.depth == 0 {
			return nil, fmt.Errorf("%s: metadatasets lie over %d deep", path, metaDepthMax)
		}
		inner, err := readMetadataset(path, o, r.depth-1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = inner
	} else {
		s, err := dataset.Open(path, o)
		if err != nil {
			return nil, err
		}
		list = []dataset.Weighted{{Source: s, Weight: 1}}
	}
	for i, w := range list {
		r.opened = append(r.opened, w.Source)
		if n.Subset != nil {
			s, err := n.Subset.of(w.Source)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			list[i].Source = s
		}
	}
	return list, nil
}

// of returns part of a source: from and to as percentages or numbers of samples. Percentages give whole
// samples as Energon counts them, rounded down.
func (p *metaPart) of(s dataset.Source) (dataset.Source, error) {
	var at [2]int64
	for i, text := range p.Range {
		number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
		x, err := strconv.ParseFloat(number, 64)
		if i == 1 && text == "end" {
			x, percent, err = 100, true, nil
		}
		if percent {
			x = x / 100 * float64(s.Len())
		}
		if err != nil || !(x >= 0 && x <= float64(s.Len())) {
			return nil, fmt.Errorf("subset: the range %q", p.Range)
		}
		at[i] = int64(x)
	}
	if at[0] >= at[1] {
		return nil, fmt.Errorf("subset: the range %q is empty", p.Range)
	}
	return dataset.Slice(s, at[0], at[1]), nil
}
