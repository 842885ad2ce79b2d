package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
)

// linkedFiles open weights that lie in a directory as one file of another form, by the file's name.
var linkedFiles = map[string]func(path string) (Source, error){}

// RegisterLinked says how weights are opened that a directory has as one file of that name.
func RegisterLinked(name string, open func(path string) (Source, error)) struct{} {
	linkedFiles[name] = open
	return struct{}{}
}

// Linked is the path of weights of another form than safetensors in a directory, "" for none.
func Linked(dir string) string {
	for _, name := range SortedKeys(linkedFiles) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			return path
		}
	}
	return ""
}

// OpenFolder is OpenDir, for directories too whose weights are one file of another form.
func OpenFolder(dir string) (Source, error) {
	if path := Linked(dir); path != "" {
		return linkedFiles[filepath.Base(path)](path)
	}
	return OpenDir(dir)
}
