package gguf

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// linkName is the link to the file in the directory that shows it.
const linkName = "weights" + Ext

var (
	_ = hf.RegisterFile(Ext, Folder)
	_ = checkpoint.RegisterLinked(linkName, func(path string) (checkpoint.Source, error) {
		return Open(path)
	})
)

// Folder is a directory in the user's cache that shows a file as Hugging Face would have it: config.json, the
// tokenizer's files, and a link to the file, which is not copied. A file that was changed has another.
func Folder(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d\n", path, info.Size(), info.ModTime().UnixNano()))
	dir := filepath.Join(cache, "lfactor", "gguf", fmt.Sprintf("%x", sum[:12]))
	if _, err := os.Stat(filepath.Join(dir, linkName)); err == nil {
		return dir, nil
	}
	m, err := Open(path)
	if err != nil {
		return "", err
	}
	defer m.Close()
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	made, err := os.MkdirTemp(filepath.Dir(dir), ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(made)
	if err := m.Sides(made, ""); err != nil {
		return "", err
	}
	if err := os.Symlink(path, filepath.Join(made, linkName)); err != nil {
		return "", err
	}
	if err := os.Chmod(made, 0o755); err != nil {
		return "", err
	}
	if err := os.Rename(made, dir); err != nil && !errors.Is(err, os.ErrExist) {
		if _, there := os.Stat(filepath.Join(dir, linkName)); there != nil { // another process was first
			return "", err
		}
	}
	return dir, nil
}
