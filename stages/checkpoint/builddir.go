package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// BuildDir writes all tensors of src as a Hugging Face directory, in files of at most shardBytes of data, 0 meaning
// one, as NewWriter lays them out; the index is last. Of a conversion that was interrupted it writes what j has not.
func BuildDir(j *Journal, dir string, src Source, shardBytes int64) error {
	groups, err := splitShards(src.Tensors(), shardBytes)
	if err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	names := namesOf(Stem)
	var files []Planned
	index, total := map[string]string{}, int64(0)
	for i, group := range groups {
		name := names.single
		if len(groups) > 1 {
			name = fmt.Sprintf("%s-%05d-of-%05d.safetensors", Stem, i+1, len(groups))
		}
		f, err := plannedShard(filepath.Join(dir, name), src, group)
		if err != nil {
			return err
		}
		files = append(files, f)
		for _, t := range group {
			if index[t.Name] != "" {
				return fmt.Errorf("%s: two tensors have the name %s", dir, quoteOdd(t.Name))
			}
			n, _ := ByteSize(t.DType, t.Shape) // it was taken above
			index[t.Name] = name
			total += n
		}
	}
	if len(groups) > 1 {
		text, err := indexText(index, total)
		if err != nil {
			return err
		}
		files = append(files, FixedFile(filepath.Join(dir, names.index), text))
	}
	return Build(j, files, func() error { return removeOld(OS, dir, names) })
}

// RemovePartial removes what a conversion to a directory, which another takes the place of, has left under
// temporary names there and below: files of other names and numbers would stay for ever.
func RemovePartial(dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || e.IsDir() || filepath.Ext(path) != partial:
			return err
		}
		return OS.RemoveAll(path)
	})
}

// FixedFile is a file that is known whole.
func FixedFile(path string, data []byte) Planned {
	return Planned{Path: path, Size: int64(len(data)), Rest: func([]uint32) []Fixed {
		return []Fixed{{0, data}}
	}}
}

// plannedShard is a safetensors file of tensors of src.
func plannedShard(path string, src Source, tensors []Info) (Planned, error) {
	head, placed, err := layout(tensors, map[string]string{"format": "pt"})
	if err != nil {
		return Planned{}, fmt.Errorf("%s: %w", path, err)
	}
	f := FixedFile(path, head)
	for _, t := range placed {
		parts, err := PartsOf(src, t, t.Offset)
		if err != nil {
			return Planned{}, fmt.Errorf("%s: %w", path, err)
		}
		f.Parts = append(f.Parts, parts...)
		f.Size = t.Offset + t.Bytes
	}
	return f, nil
}

// indexText is which file has which tensor, in the form of Hugging Face.
func indexText(files map[string]string, total int64) ([]byte, error) {
	text, err := json.MarshalIndent(map[string]any{"metadata": map[string]int64{"total_size": total},
		"weight_map": files}, "", "  ")
	return append(text, '\n'), err
}

// removeOld removes the model files of an earlier export, index first: it accounts for files that are about to change.
func removeOld(fs FS, dir string, names names) error {
	if err := fs.RemoveAll(filepath.Join(dir, names.index)); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if shardName.MatchString(e.Name()) {
			if err := fs.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
