package dataset

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/store"
)

// filesOf returns what a path stands for, as ExpandPaths; and of a folder that is no data set of a
// format by itself, and has no plain text, the files that lie in it, if they are of one format: a
// folder of shards is what a pattern of them is.
func filesOf(path string, o Options) ([]string, error) {
	paths, err := ExpandPaths(path)
	if err != nil || len(paths) != 1 || store.Scheme(paths[0]) != "" ||
		o.Pattern != "" { // a pattern is of texts
		return paths, err
	}
	info, err := os.Stat(paths[0])
	if err != nil || !info.IsDir() {
		return paths, nil // what is not there is said where it is opened
	}
	f, err := formatOf(paths[0], o)
	if err != nil || !f.Any && f.Match(paths[0], nil) {
		return paths, nil
	}
	inside, err := inFolder(paths[0], o.Format)
	if len(inside) == 0 {
		return paths, err
	}
	return inside, err
}

// inFolder lists the files of the one format that a folder's files have, sorted; none where there are
// plain texts, or nothing that looks like a format. Of names that end alike the first is looked at.
func inFolder(dir, named string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	formats, found := map[string]string{}, map[string][]string{}
	listed, err := listedIn(dir)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	for _, e := range entries {
		name := e.Name()
		if listed != nil && !slices.Contains(listed, name) { // what a library keeps beside them
			continue
		}
		at := filepath.Join(dir, name)
		if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || filepath.Ext(name) == ".idx" ||
			// of shards, and Megatron's
			strings.HasPrefix(name, "dataset_info") ||
			name == "state.json" { // of datasets that are described beside their files
			continue
		}
		if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() {
			continue
		}
		_, end, _ := strings.Cut(name, ".")
		if end == "txt" && named == "" {
			return nil, nil
		}
		if _, known := formats[end]; !known {
			if formats[end], err = formatOfFile(at, named); err != nil {
				return nil, err
			}
		}
		if f := formats[end]; f != "" && (named == "" || named == f) {
			found[f] = append(found[f], at)
		}
	}
	names := slices.Sorted(maps.Keys(found))
	if len(names) > 1 {
		var each []string
		for _, f := range names {
			each = append(each, fmt.Sprintf("%s (%s)", f, filepath.Base(found[f][0])))
		}
		return nil, fmt.Errorf("open %s: the folder has files of %s: name those of one with a pattern, as %s", dir,
			strings.Join(each, " and of "), filepath.Join(dir, "*"+filepath.Ext(found[names[0]][0])))
	}
	if len(names) == 0 {
		return nil, nil
	}
	return found[names[0]], nil
}

// formatOfFile is the name of the format that a file looks like, "" where it looks like none in particular. One that can
// be what is named is.
func formatOfFile(path, named string) (string, error) {
	head, err := headOf(path)
	if err != nil {
		return "", err
	}
	look := ""
	for _, f := range Formats() {
		if f.Name == named && f.Reads != nil && f.Reads(path, head) {
			return named, nil
		}
		if look == "" && !f.Any && f.Match(path, head) {
			look = f.Name
		}
	}
	return look, nil
}

// listedIn returns the files that Hugging Face's save_to_disk says the data of a folder are, nil where
// nothing is said: its library keeps what it has computed beside them. One that is not there is an
// error: without it the data would be less than it says.
func listedIn(dir string) (out []string, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "state.json"))
	var state struct {
		Files []struct {
			Name string `json:"filename"`
		} `json:"_data_files"`
	}
	if err != nil || json.Unmarshal(b, &state) != nil {
		return nil, nil
	}
	for _, f := range state.Files {
		if f.Name != filepath.Base(f.Name) {
			return nil, fmt.Errorf("state.json lists %q, which is no file of the folder", f.Name)
		}
		if info, err := os.Stat(filepath.Join(dir, f.Name)); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("state.json lists %s, which is not there; put it back", f.Name)
		}
		out = append(out, f.Name)
	}
	return out, nil
}
