package torch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// FileName is transformers' name of a model that is one file.
const FileName = "pytorch_model.bin"

const (
	singleName = FileName
	indexName  = "pytorch_model.bin.index.json"
)

// indexMax bounds an index, in bytes.
const indexMax = 64 << 20

// source is the tensors of files of torch.save. It implements checkpoint.Source.
type source struct {
	path  string
	files []*os.File
	infos map[string]checkpoint.Info
	of    map[string]held
}

// held is a tensor with the file that has it.
type held struct {
	t *view
	f *os.File
}

// IsFile reports whether a path is named as a file of torch.save.
func IsFile(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".bin" || ext == ".pt" || ext == ".pth"
}

// IsDir reports whether a directory has transformers' files of torch.save.
func IsDir(dir string) bool {
	for _, name := range []string{singleName, indexName} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// nests are the keys under which a training's file has the model, in the order in which they are looked for.
var nests = []string{"state_dict", "model", "module", "model_state_dict"}

// Open opens a file of torch.save, or a directory with pytorch_model.bin or its shards. A dictionary of tensors is read
// as it is; of one without any, the part under state_dict, model, module or model_state_dict.
func Open(path string) (checkpoint.Source, error) {
	s := &source{path: path, infos: map[string]checkpoint.Info{}, of: map[string]held{}}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		err = s.openDir()
	} else {
		err = s.add(path, nil)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openDir opens pytorch_model.bin, or the shards that the index names.
func (s *source) openDir() error {
	at := filepath.Join(s.path, indexName)
	info, err := os.Stat(at)
	if errors.Is(err, os.ErrNotExist) {
		return s.add(filepath.Join(s.path, singleName), nil)
	}
	if err != nil {
		return err
	}
	if info.Size() > indexMax {
		return &checkpoint.Error{File: at, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf("%d bytes, limit %d", info.Size(), indexMax)}
	}
	b, err := os.ReadFile(at)
	if err != nil {
		return err
	}
	var index struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil || len(index.Map) == 0 {
		return &checkpoint.Error{File: at, Fault: checkpoint.Malformed, Why: "has no weight_map", Err: err}
	}
	byFile := map[string][]string{}
	for name, file := range index.Map {
		if file != filepath.Base(file) || !filepath.IsLocal(file) {
			return &checkpoint.Error{File: at, Tensor: name, Fault: checkpoint.Unsafe,
				Why: fmt.Sprintf("file name %q leaves the directory", file)}
		}
		byFile[file] = append(byFile[file], name)
	}
	for _, file := range sortedKeys(byFile) {
		if err := s.add(filepath.Join(s.path, file), byFile[file]); err != nil {
			return err
		}
	}
	return nil
}

// add takes in a file, whose tensors are those of a list, nil for whatever they are.
func (s *source) add(path string, names []string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &checkpoint.Error{File: path, Fault: checkpoint.Unsafe, Why: "is not a regular file"}
	}
	if err != nil {
		return err
	}
	a, err := openArchive(f, path, 0, info.Size())
	if err == nil {
		err = refuse(a.globals, path, func(global) bool { return false })
	}
	if err != nil {
		return err
	}
	found, err := a.tensors()
	if err != nil {
		return err
	}
	for _, name := range sortedKeys(found) {
		t := found[name]
		if names != nil && !slices.Contains(names, name) {
			return &checkpoint.Error{File: path, Tensor: name, Fault: checkpoint.Extra,
				Why: "the index does not place it here"}
		}
		if _, twice := s.of[name]; twice {
			return &checkpoint.Error{File: path, Tensor: name, Fault: checkpoint.Extra, Why: "another file has it too"}
		}
		s.infos[name] = checkpoint.Info{Name: name, DType: t.dtype, Shape: t.shape, File: filepath.Base(path),
			Offset: t.offset, Bytes: t.size()}
		s.of[name] = held{t, f}
	}
	for _, name := range names {
		if found[name] == nil {
			return &checkpoint.Error{File: path, Tensor: name, Fault: checkpoint.Missing,
				Why: "the index places it here"}
		}
	}
	return nil
}

// tensors are those of the model, by name.
func (a *archive) tensors() (map[string]*view, error) {
	root, ok := a.value.(*dict)
	if !ok {
		return nil, a.fault("", "is no dictionary of tensors")
	}
	out, err := a.named(root)
	if err != nil || len(out) > 0 {
		return out, err
	}
	for _, key := range nests {
		if d, ok := root.get(key).(*dict); ok {
			if out, err := a.named(d); err != nil || len(out) > 0 {
				return out, err
			}
		}
	}
	return nil, a.fault("", fmt.Sprintf("has no tensors, nor has what lies under %s", strings.Join(nests, ", ")))
}

// named are the tensors of a dictionary; what else is in it is no weight.
func (a *archive) named(d *dict) (map[string]*view, error) {
	out := map[string]*view{}
	for i, k := range d.keys {
		name, ok := k.(string)
		t, is, err := a.view(d.values[i])
		switch {
		case err != nil:
			return nil, a.fault(name, err.Error())
		case !is:
			continue
		case !ok || name == "":
			return nil, a.fault("", "a tensor is named "+show(k))
		case out[name] != nil:
			return nil, a.fault(name, "is there twice")
		}
		out[name] = t
	}
	return out, nil
}

func (a *archive) fault(tensor, why string) error {
	return &checkpoint.Error{File: a.path, Tensor: tensor, Fault: checkpoint.Malformed,
		Why: fmt.Sprintf("at offset %d: %s", a.at, why)}
}

// Tensors implements checkpoint.Source.
func (s *source) Tensors() []checkpoint.Info { return sortedInfos(s.infos) }

// Close implements checkpoint.Source.
func (s *source) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// ReadRanges implements checkpoint.Source.
func (s *source) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	x, ok := s.of[name]
	if !ok {
		return &checkpoint.Error{File: s.path, Tensor: name, Fault: checkpoint.Missing, Why: "there is no such tensor"}
	}
	if err := checkBox(x.t.dtype, x.t.shape, ranges, dst); err != nil {
		return fmt.Errorf("%s: tensor %s: %w", s.path, name, err)
	}
	if err := x.t.read(x.f, ranges, dst); err != nil {
		return &checkpoint.Error{File: x.f.Name(), Tensor: name, Fault: checkpoint.Truncated,
			Why: fmt.Sprintf("at offset %d", x.t.offset), Err: err}
	}
	return nil
}

// checkBox holds a box to a shape, and a buffer to the box.
func checkBox(d checkpoint.DType, shape []int, box [][2]int, dst []byte) error {
	if len(box) != len(shape) {
		return fmt.Errorf("%d ranges for %d axes", len(box), len(shape))
	}
	n := d.Bits() / 8
	for i, b := range box {
		if b[0] < 0 || b[0] > b[1] || b[1] > shape[i] {
			return fmt.Errorf("ranges %v lie outside of %v", box, shape)
		}
		n *= b[1] - b[0]
	}
	if n != len(dst) {
		return fmt.Errorf("ranges %v take %d bytes, the buffer has %d", box, n, len(dst))
	}
	return nil
}

func sortedInfos(m map[string]checkpoint.Info) []checkpoint.Info {
	out := make([]checkpoint.Info, 0, len(m))
	for _, name := range sortedKeys(m) {
		out = append(out, m[name])
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m { //lfvet:order sorted below
		out = append(out, k)
	}
	slices.SortFunc(out, cmp.Compare[string])
	return out
}
