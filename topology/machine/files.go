package machine

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// PartFiles are files that Replace has not renamed yet: what is left of one is of a process that was killed.
const PartFiles = ".part-*"

// Replace writes a file through f under another name in the same folder and renames it when it is whole, so that nobody
// sees half of it. Others may write it at the same time. It is on disk only if f syncs it.
func Replace(path string, mode fs.FileMode, f func(w *os.File) error) error {
	part, err := os.CreateTemp(filepath.Dir(path), PartFiles)
	if err != nil {
		return err
	}
	err = f(part)
	if err = errors.Join(err, part.Chmod(mode), part.Close()); err == nil {
		err = os.Rename(part.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	return nil
}

// ReplaceBytes is Replace by bytes, which are on disk when it returns.
func ReplaceBytes(path string, mode fs.FileMode, b []byte) error {
	return Replace(path, mode, func(w *os.File) error {
		_, err := w.Write(b)
		return errors.Join(err, w.Sync())
	})
}

// Create writes a file through f.
func Create(name string, f func(w *bufio.Writer)) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	f(w)
	if err := w.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

// Exists reports whether there is something at path.
func Exists(path string) bool { _, err := os.Stat(path); return err == nil }

// HashFile is the hexadecimal SHA-256 of a file: binaries are told apart by it.
func HashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
