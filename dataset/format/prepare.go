package format

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/dataset/store"
)

// energonVersion is the version of megatron-energon whose files are written. Versions 5 and 6 read them too.
const energonVersion = "7.4.1"

// EnergonPlan says how a folder of shards becomes an Energon data set.
type EnergonPlan struct {
	Shards  []string            // relative to the folder, in order
	Splits  map[string][]string // shards of "train", "val" and "test"; nil puts all in "train"
	Meta    map[string]any      // dataset.yaml; nil for raw ("crude") samples
	Exclude []string            // shards, or SHARD/KEY
}

// PrepareEnergon writes what `energon prepare` would for a folder of uncompressed shards: an index next to
// each shard, and .nv-meta with dataset.yaml, split.yaml, .info.json (.info.yaml for version 5),
// index.sqlite and index.uuid. It returns the number of samples. A key that comes twice, a sample that is
// cut off and a shard without samples are errors, as Energon takes none. The same shards give the same
// bytes. Source: megatron-energon 7.4.1, flavors/webdataset.
func PrepareEnergon(dir string, plan EnergonPlan) (samples int64, err error) {
	x := &energonIndex{}
	counts := map[string]int64{}
	for i, name := range plan.Shards {
		before := len(x.samples)
		if err := x.scan(filepath.Join(dir, name), int64(i)); err != nil {
			return 0, fmt.Errorf("prepare %s: %w", filepath.Join(dir, name), err)
		}
		counts[name] = int64(len(x.samples) - before)
		if counts[name] == 0 {
			return 0, fmt.Errorf("prepare %s: the shard has no samples; leave it out", filepath.Join(dir, name))
		}
	}
	if err := x.sortKeys(); err != nil {
		return 0, fmt.Errorf("prepare %s: %w", dir, err)
	}
	meta := filepath.Join(dir, EnergonDir)
	if err := os.MkdirAll(meta, 0o755); err != nil {
		return 0, err
	}
	tmp := filepath.Join(meta, "index.sqlite.tmp")
	if err := x.write(tmp); err != nil {
		return 0, errors.Join(fmt.Errorf("prepare %s: %w", dir, err), os.Remove(tmp))
	}
	if err := os.Rename(tmp, filepath.Join(meta, "index.sqlite")); err != nil {
		return 0, err
	}
	return int64(len(x.samples)), writeEnergonMeta(meta, plan, counts)
}

// writeEnergonMeta writes the small files. split.yaml comes last: without it the folder is not a data set.
func writeEnergonMeta(meta string, plan EnergonPlan, counts map[string]int64) error {
	id := sha256.New()
	var info strings.Builder
	fmt.Fprintf(&info, "{\n  \"energon_version\": %q,\n  \"shard_counts\": {", energonVersion)
	for i, name := range plan.Shards {
		fmt.Fprintf(id, "%q %d\n", name, counts[name])
		if i > 0 {
			info.WriteByte(',')
		}
		fmt.Fprintf(&info, "\n    %q: %d", name, counts[name])
	}
	info.WriteString("\n  }\n}\n")
	sum := id.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // a UUID of version 8: by content
	if plan.Meta == nil {
		plan.Meta = map[string]any{"__module__": "megatron.energon", "__class__": "CrudeWebdataset"}
	}
	if plan.Splits == nil {
		plan.Splits = map[string][]string{"train": plan.Shards}
	}
	parts := map[string][]string{"train": {}, "val": {}, "test": {}}
	for k, v := range plan.Splits {
		parts[k] = append([]string{}, v...)
	}
	kind, err := yaml.Marshal(plan.Meta)
	if err != nil {
		return err
	}
	split, err := yaml.Marshal(map[string]any{"split_parts": parts, "exclude": append([]string{}, plan.Exclude...)})
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		b    []byte
	}{
		// JSON is YAML
		{"dataset.yaml", kind}, {".info.json", []byte(info.String())}, {".info.yaml", []byte(info.String())},
		{"index.uuid", fmt.Appendf(nil, "%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10],
			sum[10:16])}, {"split.yaml", split},
	} {
		if err := WriteOwn(filepath.Join(meta, f.name), f.b); err != nil {
			return err
		}
	}
	return nil
}

// energonIndex is what index.sqlite holds.
type energonIndex struct {
	samples []energonSample
	parts   []energonPart
	byKey   []int // samples in the order of their keys
}

type energonSample struct {
	tar, index, offset, size int64
	key                      string
}

type energonPart struct {
	tar, index, offset, size int64
	name                     string
}

// scan walks over a shard and writes its index.
func (x *energonIndex) scan(path string, tar int64) error {
	f, err := store.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if compressed, err := isCompressed(f); err != nil || compressed {
		return errors.Join(err, errors.New("the shard is compressed: there is no seeking in it; unpack "+
			"it to .tar first"))
	}
	size, i := f.Size(), int64(0)
	pages := &pageReader{in: f}
	again := tarReader{in: pages, size: size}
	var idx []byte
	end := int64(0)
	err = scanSamples(&tarReader{in: &pageReader{in: f}, size: size}, shardSamplesMax, func(s span) error {
		again.at = s.start
		var g gathered
		if err := g.read(&again, s.end); err != nil {
			return err
		}
		if fault := g.fault(1 << 62); fault != "" {
			return fmt.Errorf("sample %q: %s", g.key, fault)
		}
		x.samples = append(x.samples, energonSample{tar: tar, index: i, offset: s.start, size: s.end - s.start,
			key: g.key})
		for _, e := range g.entries {
			x.parts = append(x.parts, energonPart{tar: tar, index: i, offset: e.data, size: e.size,
				name: e.name[len(g.key)+1:]})
		}
		idx, end = binary.LittleEndian.AppendUint64(idx, uint64(s.start)), s.end
		i++
		return nil
	})
	if err != nil {
		return err
	}
	return WriteOwn(idxPath(path), binary.LittleEndian.AppendUint64(idx, uint64(end)))
}

// sortKeys orders the keys and refuses doubles.
func (x *energonIndex) sortKeys() error {
	x.byKey = make([]int, len(x.samples))
	for i := range x.byKey {
		x.byKey[i] = i
	}
	slices.SortFunc(x.byKey, func(a, b int) int {
		return cmp.Or(strings.Compare(x.samples[a].key, x.samples[b].key), cmp.Compare(a, b))
	})
	for k := 1; k < len(x.byKey); k++ {
		if a, b := x.samples[x.byKey[k-1]], x.samples[x.byKey[k]]; a.key == b.key {
			return fmt.Errorf("the key %q comes twice, in shards %d and %d; Energon takes a key once in "+
				"a data set", Clip(a.key), a.tar, b.tar)
		}
	}
	return nil
}

// write writes index.sqlite.
func (x *energonIndex) write(path string) error {
	w, err := createSQLite(path)
	if err != nil {
		return err
	}
	row := func(i int) int64 { return int64(i + 1) }
	w.define("table", "samples", "samples", w.table(len(x.samples), func(i int) []byte {
		s := &x.samples[i]
		return sqliteRecord(s.tar, s.key, s.index, s.offset, s.size)
	}), "CREATE TABLE samples (tar_file_id INTEGER NOT NULL, sample_key TEXT NOT NULL UNIQUE, "+
		"sample_index INTEGER NOT NULL, byte_offset INTEGER, byte_size INTEGER)")
	w.define("index", "sqlite_autoindex_samples_1", "samples", w.index(len(x.byKey), func(i int) []byte {
		return sqliteRecord(x.samples[x.byKey[i]].key, row(x.byKey[i]))
	}), "")
	w.define("table", "sample_parts", "sample_parts", w.table(len(x.parts), func(i int) []byte {
		p := &x.parts[i]
		return sqliteRecord(p.tar, p.index, p.name, p.offset, p.size)
	}), "CREATE TABLE sample_parts (tar_file_id INTEGER, sample_index INTEGER, part_name TEXT, "+
		"content_byte_offset INTEGER, content_byte_size INTEGER)")
	w.define("index", "idx_samples_by_tar_and_idx", "samples", w.index(len(x.samples), func(i int) []byte {
		return sqliteRecord(x.samples[i].tar, x.samples[i].index, row(i))
	}), "CREATE INDEX idx_samples_by_tar_and_idx ON samples(tar_file_id, sample_index)")
	w.define("index", "idx_sample_parts_seq", "sample_parts", w.index(len(x.parts), func(i int) []byte {
		return sqliteRecord(x.parts[i].tar, x.parts[i].index, x.parts[i].offset, row(i))
	}), "CREATE INDEX idx_sample_parts_seq ON sample_parts(tar_file_id, sample_index, content_byte_offset)")
	order := x.partsByName()
	w.define("index", "idx_sample_parts_full", "sample_parts", w.index(len(order), func(i int) []byte {
		p := &x.parts[order[i]]
		return sqliteRecord(p.tar, p.index, p.name, p.offset, p.size, row(order[i]))
	}), "CREATE INDEX idx_sample_parts_full ON sample_parts(tar_file_id, sample_index, part_name, "+
		"content_byte_offset, content_byte_size)")
	return w.close()
}

// partsByName orders parts by shard, sample and name.
func (x *energonIndex) partsByName() []int {
	order := make([]int, len(x.parts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		p, q := &x.parts[a], &x.parts[b]
		return cmp.Or(cmp.Compare(p.tar, q.tar), cmp.Compare(p.index, q.index),
			strings.Compare(p.name, q.name), cmp.Compare(a, b))
	})
	return order
}
