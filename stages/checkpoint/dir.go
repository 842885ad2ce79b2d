package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

// Names of a Hugging Face directory.
const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// Stems are how the names of a directory's model files begin: transformers' way, and diffusers' for all but
// the encoders of captions.
const (
	Stem          = "model"
	DiffusersStem = "diffusion_pytorch_model"
)

// names are those of the files of one way.
type names struct{ single, index string }

func namesOf(stem string) names {
	return names{stem + ".safetensors", stem + ".safetensors.index.json"}
}

// in are the names that a directory has: transformers' if it has files of neither.
func in(dir string) names {
	for _, stem := range []string{Stem, DiffusersStem} {
		n := namesOf(stem)
		for _, name := range []string{n.index, n.single} {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return n
			}
		}
	}
	return namesOf(Stem)
}

const indexBytesMax = 64 << 20

// shardName matches the files an index accounts for; others (an adapter, a vendor's own file) are not its business.
var shardName = regexp.MustCompile(`^(diffusion_pytorch_)?model(-\d{5}-of-\d{5})?\.safetensors$`)

// exportShardBytes is the size of shards that transformers writes by default.
const exportShardBytes = 5e9

// IsDir reports whether a directory has model files of safetensors, and is no checkpoint of a run.
func IsDir(dir string) bool {
	n := in(dir)
	return !holds(dir, ManifestName, latestName) && holds(dir, n.index, n.single)
}

// holds reports whether a directory has a file of one of these names.
func holds(dir string, names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	})
}

// Dir is a directory of safetensors as Hugging Face writes it: one file, or shards and an index.
type Dir struct {
	path    string
	names   names
	files   map[string]*File
	tensors map[string]Info
}

// OpenDir opens every shard and checks that index and shards agree: no tensor or shard is missing, in two
// places, or unaccounted for. Only headers are read.
func OpenDir(dir string) (*Dir, error) {
	root := Published(dir)
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	d := &Dir{path: dir, names: in(dir), files: map[string]*File{}, tensors: map[string]Info{}}
	index, err := readIndex(root, d.names.index)
	switch {
	case errors.Is(err, os.ErrNotExist):
		err = d.openSingle(root)
	case err == nil:
		err = d.openShards(root, index)
	}
	if err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// readIndex returns the index's map from tensor to file.
func readIndex(root folder, name string) (map[string]string, error) {
	path := filepath.Join(root.Name(), name)
	text, err := ReadSmall(root, name, indexBytesMax)
	if err != nil {
		return nil, err
	}
	var index map[string]string
	seen := map[string]bool{}
	err = EachKey(text, func(key string, dec *json.Decoder) error {
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil || key != "weight_map" {
			return err
		}
		index = map[string]string{}
		return EachKey(raw, func(tensor string, dec *json.Decoder) error {
			if seen[tensor] {
				return fmt.Errorf("tensor %s appears twice", quoteOdd(tensor))
			}
			seen[tensor] = true
			var file string
			if err := dec.Decode(&file); err != nil {
				return fmt.Errorf("tensor %s: %w", quoteOdd(tensor), err)
			}
			index[tensor] = file
			return nil
		})
	})
	if err == nil && len(index) == 0 {
		err = errors.New("no weight_map")
	}
	if err != nil {
		return nil, &Error{File: path, Fault: Malformed, Why: "index", Err: err}
	}
	return index, nil
}

// ReadSmall reads a text file below root, at most limit bytes.
func ReadSmall(root folder, name string, limit int64) ([]byte, error) {
	f, size, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	path := filepath.Join(root.Name(), name)
	if size > limit {
		return nil, &Error{File: path, Fault: Malformed, Why: fmt.Sprintf("%d bytes, limit %d", size, limit)}
	}
	text := make([]byte, size)
	if err := readFull(f, text, 0); err != nil {
		return nil, &Error{File: path, Fault: Truncated, Why: "reading", Err: err}
	}
	return text, nil
}

// openSingle opens a checkpoint that is one file. Where there is neither a file nor an index, the
// error says how other formats can be converted.
func (d *Dir) openSingle(root folder) error {
	f, err := openIn(root, d.names.single)
	if errors.Is(err, os.ErrNotExist) {
		return &Error{File: d.path, Fault: Missing, Why: fmt.Sprintf("neither %s nor %s is here", d.names.single,
			d.names.index), Try: "convert other formats with: lfactor ckpt convert"}
	}
	if err != nil {
		return err
	}
	d.files[d.names.single], d.tensors = f, f.ByName
	return d.refuseStrangers(map[string][]string{d.names.single: nil})
}

// openShards opens the files that an index names. All faults are gathered, so that a user sees them
// at once. A name that leads out of the directory is refused.
func (d *Dir) openShards(root folder, index map[string]string) error {
	byFile := map[string][]string{}
	for _, tensor := range SortedKeys(index) {
		file := index[tensor]
		if !filepath.IsLocal(file) || file != filepath.Base(file) {
			return &Error{File: filepath.Join(d.path, d.names.index), Tensor: tensor, Fault: Unsafe,
				Why: fmt.Sprintf("file name %q leaves the directory", file)}
		}
		byFile[file] = append(byFile[file], tensor)
	}
	var errs []error
	for _, file := range SortedKeys(byFile) {
		errs = append(errs, d.openShard(root, file, byFile[file], index))
	}
	errs = append(errs, d.refuseStrangers(byFile))
	return errors.Join(errs...)
}

// openShard opens one shard and compares it with the tensors the index places in it.
func (d *Dir) openShard(root folder, file string, tensors []string, index map[string]string) error {
	slices.Sort(tensors)
	f, err := openIn(root, file)
	if errors.Is(err, os.ErrNotExist) {
		return &Error{File: filepath.Join(d.path, file), Fault: Missing,
			Why: fmt.Sprintf("the index places %d tensors in it, %s first", len(tensors), quoteOdd(tensors[0]))}
	}
	if err != nil {
		return err
	}
	d.files[file] = f
	var errs []error
	for _, name := range tensors {
		t, ok := f.ByName[name]
		if !ok {
			errs = append(errs, &Error{File: f.Path, Tensor: name, Fault: Missing, Why: "the index places it here"})
			continue
		}
		d.tensors[name] = t
	}
	for _, t := range f.Tensors() {
		if index[t.Name] != file {
			errs = append(errs, &Error{File: f.Path, Tensor: t.Name, Fault: Extra,
				Why: "the index does not place it here"})
		}
	}
	return errors.Join(errs...)
}

// refuseStrangers reports shards in the directory that are not among known: they belong to another checkpoint.
func (d *Dir) refuseStrangers(known map[string][]string) error {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if _, ok := known[e.Name()]; !ok && shardName.MatchString(e.Name()) {
			errs = append(errs, &Error{File: filepath.Join(d.path, e.Name()), Fault: Extra,
				Why: "no index names this shard", Try: "remove it, or restore its index"})
		}
	}
	return errors.Join(errs...)
}

// Path is the directory.
func (d *Dir) Path() string { return d.path }

// Tensors implements Source.
func (d *Dir) Tensors() []Info { return SortedInfos(d.tensors) }

// Close implements Source.
func (d *Dir) Close() error {
	var errs []error
	for _, name := range SortedKeys(d.files) {
		errs = append(errs, d.files[name].Close())
	}
	return errors.Join(errs...)
}

// ReadInto copies bytes [lo, hi) of a tensor to dst, whose length must be hi-lo.
func (d *Dir) ReadInto(name string, lo, hi int64, dst []byte) error {
	f, err := d.fileOf(name)
	if err != nil {
		return err
	}
	return f.ReadInto(name, lo, hi, dst)
}

// ReadRanges implements Source.
func (d *Dir) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	f, err := d.fileOf(name)
	if err != nil {
		return err
	}
	return f.ReadRanges(name, ranges, dst)
}

// ReadSlice copies the part [from, to) of one axis, all of the others, to dst, row-major.
func (d *Dir) ReadSlice(name string, axis, from, to int, dst []byte) error {
	f, err := d.fileOf(name)
	if err != nil {
		return err
	}
	return f.ReadSlice(name, axis, from, to, dst)
}

// fileOf is the shard that has a tensor.
func (d *Dir) fileOf(name string) (*File, error) {
	t, ok := d.tensors[name]
	if !ok {
		return nil, &Error{File: d.path, Tensor: name, Fault: Missing, Why: "no shard has it"}
	}
	return d.files[t.File], nil
}

// SortedKeys are the keys of a map in order.
func SortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
