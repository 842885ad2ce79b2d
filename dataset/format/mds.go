package format

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// MDS: a folder of shards with an index.json, as mosaicml-streaming writes. A column holds the texts;
// numbers, texts and JSON in others go along as columns. Pickled columns are never read.
var _ = dataset.Register(dataset.Format{
	Name: "mds",
	Doc:  "a column of texts in Mosaic's streaming shards",
	Kind: dataset.KindText,
	Match: func(path string, head []byte) bool {
		b, err := os.ReadFile(filepath.Join(path, mdsIndexName))
		return head == nil && (err == nil && bytes.Contains(b, []byte(`"mds"`)) ||
			errors.Is(err, os.ErrNotExist) && len(mdsShardFiles(path)) > 0)
	},
	Open: openMDS,
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		var w MDSWriter
		for _, d := range docs {
			w.Add(d.Text, "{}")
		}
		err := os.WriteFile(filepath.Join(dir, "shard.00000.mds"), w.Bytes(), 0o644)
		return dir, dataset.Options{}, errors.Join(err, WriteMDSIndex(dir, []string{"shard.00000.mds"}))
	},
})

const mdsIndexName = "index.json"

// mdsShard is what an index says of a shard.
type mdsShard struct {
	Encodings   []string `json:"column_encodings"`
	Names       []string `json:"column_names"`
	Sizes       []*int64 `json:"column_sizes"`
	Compression *string  `json:"compression"`
	Format      string   `json:"format"`
	Hashes      []string `json:"hashes"`
	Raw         mdsFile  `json:"raw_data"`
	Samples     int64    `json:"samples"`
	SizeLimit   *int64   `json:"size_limit"`
	Version     int      `json:"version"`
	Zip         *mdsFile `json:"zip_data"`
}

// mdsFile is a file of a shard.
type mdsFile struct {
	Name   string            `json:"basename"`
	Bytes  int64             `json:"bytes"`
	Hashes map[string]string `json:"hashes"`
}

// mds is an open data set.
type mds struct {
	name, print string
	key         string
	limit       int64
	shards      []mdsShard
	files       []store.File
	ends        []int64 // samples up to and with each shard
}

// openMDS opens a folder.
func openMDS(at string, o dataset.Options) (dataset.Source, error) {
	m := &mds{name: store.Redact(at), key: TextKey(o.TextKey), limit: o.Limit()}
	text, err := m.index(at)
	if err != nil {
		return nil, err
	}
	prints := []any{text, m.key}
	for i, s := range m.shards {
		f, err := m.openShard(at, s)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("shard %d of %s: %w", i, mdsIndexName, err), m.Close())
		}
		m.files = append(m.files, f)
		print, err := FingerprintFile(f, f.Size(), o.Full)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		prints = append(prints, print)
		m.ends = append(m.ends, m.Len()+s.Samples)
	}
	m.print = HashOf(prints...)
	return m, nil
}

// index reads what the index says of the shards, or what they say themselves where there is none, and gives it as text.
func (m *mds) index(at string) (string, error) {
	index, err := store.Open(mdsPath(at, mdsIndexName))
	if errors.Is(err, os.ErrNotExist) && store.Scheme(at) == "" {
		m.shards, err = mdsUnindexed(at)
		return "", err
	}
	if err != nil {
		return "", err
	}
	defer index.Close()
	text := make([]byte, index.Size())
	if _, err := index.ReadAt(text, 0); err != nil && err != io.EOF {
		return "", err
	}
	var list struct {
		Version int        `json:"version"`
		Shards  []mdsShard `json:"shards"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return "", fmt.Errorf("%s: %w", mdsIndexName, err)
	}
	if list.Version != 2 {
		return "", fmt.Errorf("%s is of version %d; version 2 is read", mdsIndexName, list.Version)
	}
	m.shards = list.Shards
	return string(text), nil
}

// mdsPath is a file of a data set.
func mdsPath(at, name string) string {
	if store.Scheme(at) != "" {
		return strings.TrimSuffix(at, "/") + "/" + name
	}
	return filepath.Join(at, filepath.FromSlash(name))
}

// openShard opens the content of a shard and checks it against the index.
func (m *mds) openShard(at string, s mdsShard) (store.File, error) {
	text := slices.Index(s.Names, m.key)
	switch {
	case s.Format != "mds" || s.Version != 2:
		return nil, fmt.Errorf("it is %q of version %d; mds of version 2 is read", s.Format, s.Version)
	case len(s.Names) != len(s.Encodings) || len(s.Names) != len(s.Sizes) || s.Samples < 0:
		return nil, errors.New("it has not as many names as encodings and sizes")
	case text < 0 || s.Encodings[text] != "str":
		return nil, fmt.Errorf("it has no column %q of texts; its columns are %s (%s)", m.key,
			strings.Join(s.Names, ", "), strings.Join(s.Encodings, ", "))
	}
	name := s.Raw.Name
	if s.Zip != nil && s.Zip.Name != "" {
		name = s.Zip.Name
	}
	if name == "" || path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
		return nil, fmt.Errorf("%q is no name of a file in the folder", Clip(name))
	}
	f, err := openContent(mdsPath(at, name))
	if err != nil {
		return nil, err
	}
	var n [4]byte
	if _, err = f.ReadAt(n[:], 0); err == nil {
		switch have := int64(binary.LittleEndian.Uint32(n[:])); {
		case f.Size() != s.Raw.Bytes:
			err = fmt.Errorf("%s has %d bytes, and the index says %d; copy it again", name, f.Size(), s.Raw.Bytes)
		case have != s.Samples:
			err = fmt.Errorf("%s has %d samples, and the index says %d; copy it again", name, have, s.Samples)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (m *mds) Name() string        { return m.name }
func (m *mds) Kind() dataset.Kind  { return dataset.KindText }
func (m *mds) Fingerprint() string { return m.print }

// Len implements dataset.Source.
func (m *mds) Len() int64 {
	if len(m.ends) == 0 {
		return 0
	}
	return m.ends[len(m.ends)-1]
}

// Close implements dataset.Source.
func (m *mds) Close() (err error) {
	for _, f := range m.files {
		err = errors.Join(err, f.Close())
	}
	return err
}

// sample reads the columns of sample i, as they lie in the shard.
func (m *mds) sample(i int64) (s *mdsShard, values [][]byte, place dataset.Place, err error) {
	k := sort.Search(len(m.ends), func(k int) bool { return m.ends[k] > i })
	s = &m.shards[k]
	f := m.files[k]
	if k > 0 {
		i -= m.ends[k-1]
	}
	place = dataset.Place{File: f.Name(), Offset: i}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Place: place, Reason: fmt.Sprintf(format, args...)}
	}
	var at [8]byte
	if _, err := f.ReadAt(at[:], 4+4*i); err != nil {
		return s, nil, place, err
	}
	from, to := int64(binary.LittleEndian.Uint32(at[:])), int64(binary.LittleEndian.Uint32(at[4:]))
	place.Offset = from
	if from > to || to > f.Size() || to-from > m.limit {
		return s, nil, place, bad("it lies at %d to %d of %d bytes, or is over the limit of %d", from, to,
			f.Size(), m.limit)
	}
	b := make([]byte, to-from)
	if _, err := f.ReadAt(b, from); err != nil && err != io.EOF {
		return s, nil, place, err
	}
	sizes := make([]int64, len(s.Names))
	for c, size := range s.Sizes {
		if size != nil {
			sizes[c] = *size
			continue
		}
		if len(b) < 4 {
			return s, nil, place, bad("it ends within its sizes")
		}
		sizes[c] = int64(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	for c, size := range sizes {
		if size < 0 || size > int64(len(b)) {
			return s, nil, place, bad("its column %q is longer than the sample", s.Names[c])
		}
		values = append(values, b[:size])
		b = b[size:]
	}
	return s, values, place, nil
}

// Sizes implements dataset.Sized: of whole samples, as their places tell.
func (m *mds) Sizes(from int64, out []int64) error {
	for k := range out {
		i := from + int64(k)
		s := sort.Search(len(m.ends), func(k int) bool { return m.ends[k] > i })
		if s > 0 {
			i -= m.ends[s-1]
		}
		var at [8]byte
		if _, err := m.files[s].ReadAt(at[:], 4+4*i); err != nil {
			return err
		}
		out[k] = max(0, int64(binary.LittleEndian.Uint32(at[4:]))-int64(binary.LittleEndian.Uint32(at[:])))
	}
	return nil
}

// Read implements dataset.Source.
func (m *mds) Read(i int64) (dataset.Document, error) {
	s, values, place, err := m.sample(i)
	d := dataset.Document{Place: place}
	if err != nil {
		return d, err
	}
	text := values[slices.Index(s.Names, m.key)]
	d.Text = string(text)
	return d, checkUTF8(text, place)
}

// Columns implements dataset.Columned: texts, numbers and JSON; what holds bytes is left out.
func (m *mds) Columns(i int64) ([]byte, dataset.Place, error) {
	s, values, place, err := m.sample(i)
	if err != nil {
		return nil, place, err
	}
	out := []byte{'{'}
	for c, name := range s.Names {
		v := mdsValue(s.Encodings[c], values[c])
		if v == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, place, err
		}
		out = append(append(append(out, key...), ':'), v...)
	}
	return append(out, '}'), place, nil
}

// mdsValue writes a column's value as JSON, nil where it is none of texts, numbers and JSON.
func mdsValue(encoding string, b []byte) []byte {
	u := uint64(0)
	for i, c := range b[:min(8, len(b))] {
		u |= uint64(c) << (8 * i)
	}
	number := func(bits int, v string) []byte {
		if len(b) != bits/8 {
			return nil
		}
		return []byte(v)
	}
	switch encoding {
	case "str":
		if v, err := json.Marshal(string(b)); err == nil {
			return v
		}
	case "json":
		if json.Valid(b) {
			return b
		}
	case "str_int", "str_float", "str_decimal":
		if _, err := strconv.ParseFloat(string(b), 64); err == nil && json.Valid(b) {
			return b
		}
	case "int", "int64":
		return number(64, strconv.FormatInt(int64(u), 10))
	case "int32":
		return number(32, strconv.FormatInt(int64(int32(u)), 10))
	case "int16":
		return number(16, strconv.FormatInt(int64(int16(u)), 10))
	case "int8":
		return number(8, strconv.FormatInt(int64(int8(u)), 10))
	case "uint64", "uint32", "uint16", "uint8":
		bits, _ := strconv.Atoi(encoding[4:]) // one of these four
		return number(bits, strconv.FormatUint(u, 10))
	case "float64":
		return number(64, mdsFloat(math.Float64frombits(u), 64))
	case "float32":
		return number(32, mdsFloat(float64(math.Float32frombits(uint32(u))), 32))
	}
	return nil
}

// mdsFloat writes a number that JSON has, else null.
func mdsFloat(v float64, bits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "null"
	}
	return strconv.FormatFloat(v, 'g', -1, bits)
}

// MDSWriter makes a shard of the columns "metadata" (JSON) and "text". A shard is below 4 GiB.
type MDSWriter struct {
	sizes []uint32
	data  []byte
}

// Add appends a sample.
func (w *MDSWriter) Add(text, metadata string) {
	n := len(w.data)
	w.data = binary.LittleEndian.AppendUint32(w.data, uint32(len(metadata)))
	w.data = binary.LittleEndian.AppendUint32(w.data, uint32(len(text)))
	w.data = append(append(w.data, metadata...), text...)
	w.sizes = append(w.sizes, uint32(len(w.data)-n))
}

// Len is how many bytes the shard has so far.
func (w *MDSWriter) Len() int64 {
	return int64(len(w.data)) + 4*int64(len(w.sizes)+2) + int64(len(mdsConfig))
}

// mdsConfig stands between the places of samples and the samples, as mosaicml-streaming writes it.
const mdsConfig = `{"column_encodings": ["json", "str"], "column_names": ["metadata", "text"], "column_sizes": [null, null], ` +
	`"compression": null, "format": "mds", "hashes": [], "size_limit": null, "version": 2}`

// Bytes is the shard's file.
func (w *MDSWriter) Bytes() []byte {
	out := binary.LittleEndian.AppendUint32(nil, uint32(len(w.sizes)))
	at := uint32(4 + 4*(len(w.sizes)+1) + len(mdsConfig))
	out = binary.LittleEndian.AppendUint32(out, at)
	for _, n := range w.sizes {
		at += n
		out = binary.LittleEndian.AppendUint32(out, at)
	}
	return append(append(out, mdsConfig...), w.data...)
}

// WriteMDSIndex writes the index of shards that MDSWriter has made and that lie in a folder.
func WriteMDSIndex(dir string, names []string) error {
	list := struct {
		Shards  []mdsShard `json:"shards"`
		Version int        `json:"version"`
	}{[]mdsShard{}, 2}
	for _, name := range names {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		var n [4]byte
		_, err = f.ReadAt(n[:], 0)
		info, bad := f.Stat()
		if err = errors.Join(err, bad, f.Close()); err != nil {
			return err
		}
		list.Shards = append(list.Shards,
			mdsShard{Encodings: []string{"json", "str"}, Names: []string{"metadata", "text"}, Sizes: []*int64{nil, nil},
				Format: "mds", Hashes: []string{}, Version: 2, Raw: mdsFile{name, info.Size(), map[string]string{}},
				Samples: int64(binary.LittleEndian.Uint32(n[:]))})
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, mdsIndexName), b, 0o644)
}
