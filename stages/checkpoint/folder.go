package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// folder gives files by their names in it. An *os.Root is one that no link leaves.
type folder interface {
	Name() string
	Stat(name string) (os.FileInfo, error)
	Open(name string) (*os.File, error)
}

// linked is a directory of a user's, whose files may be links, as in Hugging Face's cache or where weights
// lie on another disk. Names that leave it are refused before, so that a damaged index reaches nothing;
// links may lead to anywhere below within, "" for anywhere at all.
type linked struct{ dir, within string }

// Published is the directory of a published model: what is read as tensors may be linked from anywhere.
func Published(dir string) folder { return linked{dir: dir} }

// verbatim is the directory whose files are copied as they are: links stay inside it, or inside the cache's
// folder of the repository.
func verbatim(dir string) folder {
	within := dir
	if all := filepath.Dir(filepath.Clean(dir)); filepath.Base(all) == "snapshots" {
		within = filepath.Dir(all)
	}
	return linked{dir, within}
}

func (l linked) Name() string { return l.dir }

// at is a file's own path, behind all links.
func (l linked) at(name string) (string, error) {
	path, err := filepath.EvalSymlinks(filepath.Join(l.dir, name))
	if err != nil || l.within == "" {
		return path, err
	}
	root, err := filepath.EvalSymlinks(l.within)
	if err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(root, path); err != nil || rel == ".." ||
		strings.HasPrefix(rel, ".."+string(filepath.Separator)) {
		return "", fmt.Errorf("a link leads to %s", path)
	}
	return path, nil
}

// Stat tells about the file behind the links.
func (l linked) Stat(name string) (os.FileInfo, error) {
	path, err := l.at(name)
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
}

// Open opens the file behind the links.
func (l linked) Open(name string) (*os.File, error) {
	path, err := l.at(name)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
