package format

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset"
)

// Megatron-Energon's data sets: a folder of webdataset shards, described in .nv-meta. split.yaml names the
// shards of each part (Options.Split, "train" by default) and what to leave out, .info.json (.info.yaml
// before version 6) the samples of each shard, dataset.yaml the kind of sample. The class it names is never
// loaded: a sample is its files. Source: megatron-energon 7.4.1, flavors/webdataset.
var _ = dataset.Register(dataset.Format{
	Name: "energon",
	Doc:  "Megatron-Energon data sets: a folder of tar shards with .nv-meta",
	Kind: dataset.KindParts,
	Match: func(path string, _ []byte) bool {
		info, err := os.Stat(filepath.Join(path, EnergonDir))
		return err == nil && info.IsDir()
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		return openEnergon(path, o, energonUse{})
	},
	Write: writeEnergon,
})

// EnergonDir is the folder of a data set's description, beside its shards.
const EnergonDir = ".nv-meta"

const (
	energonMetaMax = 256 << 20 // bytes of a description: about four million shards
)

// Energon is the description of an Energon data set.
type Energon struct {
	Dir     string
	Version string            // of Energon, "" where it is not said
	Class   string            // "module:class" of the data set, "" where dataset.yaml has none
	Sample  string            // class of the samples, from sample_type; "" for none
	Fields  map[string]string // sample field to part, from field_map
	Parts   []string          // part_filter: what is read of a sample; nil for all
	Flavors map[string]any    // subflavors
	// shards of each part, relative to Dir, without those excluded, braces expanded
	Splits  map[string][]string
	Exclude map[string]([]string) // keys to leave out of a shard
	Counts  map[string]int64      // samples of each shard; empty where there is no info file

	joined bool     // its samples are parts of others
	unread []string // keys of dataset.yaml that say what nobody can do here
}

// ReadEnergon reads the description of the data set in dir.
func ReadEnergon(dir string) (*Energon, error) { return readEnergon(dir, "", "") }

// readEnergon reads a description whose files split.yaml and dataset.yaml have other names, or "".
func readEnergon(dir, split, class string) (*Energon, error) {
	return readEnergonAs(dir, split, class, false)
}

// readEnergonAs is readEnergon of a data set whose samples may be parts of others.
func readEnergonAs(dir, split, class string, joined bool) (*Energon, error) {
	e := &Energon{Dir: dir, joined: joined, Splits: map[string][]string{}, Exclude: map[string][]string{},
		Counts: map[string]int64{}}
	splits, classes := []string{"split.yaml", "split.json"}, []string{"dataset.yaml", "dataset.json"}
	for name, into := range map[string]*[]string{split: &splits, class: &classes} {
		if name != "" && !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%q lies outside %s", name, filepath.Join(dir, EnergonDir))
		}
		if name != "" {
			*into = []string{name}
		}
	}
	if err := errors.Join(e.readSplits(splits), e.readInfo(), e.readClass(classes, class != "")); err != nil {
		return nil, err
	}
	return e, nil
}

// readMeta reads the first of some files of .nv-meta that exists. JSON is YAML too.
func (e *Energon) readMeta(into any, names ...string) error {
	for _, name := range names {
		path := filepath.Join(e.Dir, EnergonDir, name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Size() > energonMetaMax {
			err = fmt.Errorf("%d bytes, over the limit of %d", info.Size(), energonMetaMax)
		}
		var b []byte
		if err == nil {
			b, err = os.ReadFile(path)
		}
		if err == nil {
			err = yaml.Unmarshal(b, into)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	return fmt.Errorf("%s: %w; `energon prepare` makes it", filepath.Join(e.Dir, EnergonDir, names[0]), fs.ErrNotExist)
}

// readSplits reads which shards make up each split and what is left out: whole shards, or single
// samples as "shard.tar/key". A shard outside of the folder is refused.
func (e *Energon) readSplits(names []string) error {
	var raw struct {
		Parts   map[string][]string `yaml:"split_parts"`
		Exclude []string            `yaml:"exclude"`
	}
	if err := e.readMeta(&raw, names...); err != nil {
		return err
	}
	var keys map[string]any
	if err := e.readMeta(&keys, names...); err != nil {
		return err
	}
	for k := range keys {
		if k != "split_parts" && k != "exclude" {
			return fmt.Errorf("%s: there is no key %q; split_parts and exclude are read", names[0], Clip(k))
		}
	}
	excluded, err := dataset.ExpandBraces(raw.Exclude...)
	if err != nil {
		return fmt.Errorf("split.yaml: exclude: %w", err)
	}
	whole := map[string]bool{}
	for _, x := range excluded {
		if shard, key, ok := strings.Cut(x, ".tar/"); ok {
			e.Exclude[shard+".tar"] = append(e.Exclude[shard+".tar"], key)
		} else {
			whole[x] = true
		}
	}
	for part, patterns := range raw.Parts {
		names, err := dataset.ExpandBraces(patterns...)
		if err != nil {
			return fmt.Errorf("split.yaml: %s: %w", part, err)
		}
		for _, n := range names {
			if !filepath.IsLocal(n) {
				return fmt.Errorf("split.yaml: %s: the shard %q lies outside the data set's folder", part, n)
			}
		}
		e.Splits[part] = slices.DeleteFunc(names, func(n string) bool { return whole[n] })
	}
	return nil
}

// readInfo reads the counts of samples per shard. The file may be absent, since older data sets have none.
func (e *Energon) readInfo() error {
	var raw struct {
		Version string           `yaml:"energon_version"`
		Counts  map[string]int64 `yaml:"shard_counts"`
	}
	err := e.readMeta(&raw, ".info.json", ".info.yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	e.Version = raw.Version
	if raw.Counts != nil {
		e.Counts = raw.Counts
	}
	return err
}

// openShard opens samples from to to-1 of a shard, without those excluded.
func (e *Energon) openShard(s *shard, name string, from, to int64) (dataset.Source, error) {
	keys := e.Exclude[name]
	if from == 0 && to == s.Len() && len(keys) == 0 && e.Parts == nil && e.layout() == nil {
		return s, nil
	}
	drop := map[string]bool{}
	for _, k := range keys {
		drop[k] = true
	}
	c := &chosen{shard: s, parts: e.Parts, layout: e.layout()}
	for i := from; i < to; i++ {
		key := ""
		if len(keys) > 0 {
			var err error
			if key, err = s.key(i); err != nil {
				return nil, err
			}
		}
		if !drop[key] || key == "" { // one that is bad stays, to show
			c.numbers = append(c.numbers, i)
		}
	}
	slices.Sort(keys)
	if len(keys) > 0 {
		s.print = HashOf("without", s.print, keys)
	}
	if from > 0 || to < s.Len() {
		s.print = HashOf("from", s.print, from, to)
	}
	if c.parts != nil || c.layout != nil {
		s.print = HashOf("read as", s.print, c.parts, c.layout.String())
	}
	return c, nil
}

// chosen is some of a shard's samples, or some of their parts.
type chosen struct {
	*shard
	numbers []int64
	parts   []string // nil for all
	layout  *dataset.Layout
}

func (c *chosen) Len() int64 { return int64(len(c.numbers)) }

// key implements keyed.
func (c *chosen) key(i int64) (string, error) { return c.shard.key(c.numbers[i]) }

// Read reads a chosen sample, with those parts alone that the data set's field map wants.
func (c *chosen) Read(i int64) (dataset.Document, error) {
	d, err := c.shard.Read(c.numbers[i])
	d.Layout = c.layout
	if c.parts != nil {
		d.Parts = slices.DeleteFunc(d.Parts, func(p dataset.Part) bool {
			return !slices.Contains(c.parts, p.Name)
		})
	}
	return d, err
}

// key returns the key of a sample from its first header, "" where that is broken.
func (s *shard) key(i int64) (key string, err error) {
	if s.size == 0 {
		return "", nil
	}
	at, err := s.index.at(i)
	if err != nil {
		return "", err
	}
	first := func(in io.ReaderAt, size int64) error {
		m, err := (&tarReader{in: in, at: at.start, size: size}).next()
		var broken *brokenError
		if err == io.EOF || errors.As(err, &broken) {
			return nil
		}
		if err == nil {
			key, _, _ = judge(&m)
		}
		return err
	}
	if s.spill == nil {
		return key, first(s.file, s.size)
	}
	return key, s.spill.readAt(s.file, first)
}

// writeEnergon writes two shards and their description.
func writeEnergon(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
	half := len(docs) / 2
	var names []string
	for i, part := range [][]dataset.Document{docs[:half], docs[half:]} {
		if len(part) == 0 {
			continue
		}
		name := fmt.Sprintf("shard-%06d.tar", i)
		w, err := CreateShard(filepath.Join(dir, name))
		if err != nil {
			return dir, o, err
		}
		for _, d := range part {
			err = errors.Join(err, w.Add(d.Key, d.Parts))
		}
		if err = errors.Join(err, w.Close()); err != nil {
			return dir, o, err
		}
		names = append(names, name)
	}
	_, err = PrepareEnergon(dir, EnergonPlan{Shards: names})
	return dir, o, err
}

// Shards lists the shards of all parts, each once, in order.
func (e *Energon) Shards() (out []string) {
	for _, names := range e.Splits {
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Count counts the samples of every shard, bad ones too.
func (e *Energon) Count() (map[string]int64, error) {
	out := map[string]int64{}
	for _, n := range e.Shards() {
		s, err := openShard(filepath.Join(e.Dir, n), dataset.Options{})
		if err != nil {
			return nil, err
		}
		out[n] = s.Len()
		if err := s.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
