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
	Open:  openEnergon,
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
	Class   string            // "module:class" of the samples, "" where there is no dataset.yaml
	Fields  map[string]string // sample field to part, from field_map
	Flavors map[string]any    // subflavors
	// shards of each part, relative to Dir, without those excluded, braces expanded
	Splits  map[string][]string
	Exclude map[string]([]string) // keys to leave out of a shard
	Counts  map[string]int64      // samples of each shard; empty where there is no info file
}

// ReadEnergon reads the description of the data set in dir.
func ReadEnergon(dir string) (*Energon, error) {
	e := &Energon{Dir: dir, Splits: map[string][]string{}, Exclude: map[string][]string{},
		Counts: map[string]int64{}}
	if err := errors.Join(e.readSplits(), e.readInfo(), e.readClass()); err != nil {
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
	return fmt.Errorf("%s: %w; `energon prepare` makes it", filepath.Join(e.Dir, EnergonDir, names[0]),
		fs.ErrNotExist)
}

func (e *Energon) readSplits() error {
	var raw struct {
		Parts   map[string][]string `yaml:"split_parts"`
		Exclude []string            `yaml:"exclude"`
	}
	if err := e.readMeta(&raw, "split.yaml", "split.json"); err != nil {
		return err
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

func (e *Energon) readClass() error {
	var raw struct {
		Module  string         `yaml:"__module__"`
		Class   string         `yaml:"__class__"`
		Fields  map[string]any `yaml:"field_map"`
		Flavors map[string]any `yaml:"subflavors"`
	}
	err := e.readMeta(&raw, "dataset.yaml", "dataset.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if raw.Class != "" {
		e.Class = raw.Module + ":" + raw.Class
	}
	e.Flavors, e.Fields = raw.Flavors, map[string]string{}
	for k, v := range raw.Fields {
		e.Fields[k] = fmt.Sprint(v)
	}
	return err
}

// openEnergon opens the shards of one part, in the order of split.yaml.
func openEnergon(path string, o dataset.Options) (dataset.Source, error) {
	e, err := ReadEnergon(path)
	if err != nil {
		return nil, err
	}
	part := o.Split
	if part == "" {
		part = "train"
	}
	names := e.Splits[part]
	if len(names) == 0 {
		return nil, fmt.Errorf("split.yaml has no shards for the part %q", part)
	}
	var all []dataset.Source
	for _, n := range names {
		s, err := e.openShard(n, o)
		if err != nil {
			return nil, errors.Join(err, closeAll(all))
		}
		all = append(all, s)
	}
	return dataset.Concat(all...)
}

func (e *Energon) openShard(name string, o dataset.Options) (dataset.Source, error) {
	s, err := openShard(filepath.Join(e.Dir, name), o)
	if err != nil {
		return nil, err
	}
	keys := e.Exclude[name]
	if len(keys) == 0 {
		return s, nil
	}
	f, err := s.without(keys)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return f, nil
}

// chosen is some of a shard's samples.
type chosen struct {
	*shard
	numbers []int64
}

// without leaves out the samples of some keys. A sample that is bad stays, to show.
func (s *shard) without(keys []string) (*chosen, error) {
	drop := map[string]bool{}
	for _, k := range keys {
		drop[k] = true
	}
	c := &chosen{shard: s}
	for i := range s.Len() {
		key, err := s.key(i)
		if err != nil {
			return nil, err
		}
		if !drop[key] {
			c.numbers = append(c.numbers, i)
		}
	}
	slices.Sort(keys)
	s.print = HashOf("without", s.print, keys)
	return c, nil
}

func (c *chosen) Len() int64                             { return int64(len(c.numbers)) }
func (c *chosen) Read(i int64) (dataset.Document, error) { return c.shard.Read(c.numbers[i]) }

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
