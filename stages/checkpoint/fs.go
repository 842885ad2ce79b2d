package checkpoint

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// FS is what saving needs of a file system. Tests pass one that fails or stops at a chosen operation;
// everything else uses OS.
type FS interface {
	// MkdirAll makes a directory and those above it; one that exists is not an error.
	MkdirAll(path string) error
	// Create opens a new file for writing; one that exists is an error.
	Create(path string) (WFile, error)
	// Rename moves a file or directory within one file system, replacing a file.
	Rename(from, to string) error
	// RemoveAll removes a file or tree; one that does not exist is not an error.
	RemoveAll(path string) error
	// SyncDir makes the entries of a directory durable.
	SyncDir(path string) error
}

// WFile is a file open for writing.
type WFile interface {
	io.Writer
	io.WriterAt
	// Sync returns when the bytes written are durable.
	Sync() error
	Close() error
}

// OS is the operating system's file system.
var OS FS = osFS{}

// osFS is the file system of the machine; tests put others in its place, which fail or crash on purpose.
type osFS struct{}

func (osFS) MkdirAll(path string) error   { return os.MkdirAll(path, 0o755) }
func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) RemoveAll(path string) error  { return os.RemoveAll(path) }

func (osFS) Create(path string) (WFile, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// SyncDir makes renames within a directory survive a loss of power, which syncing the files alone does not.
func (osFS) SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeDurable creates a file with the given content and returns when it is durable. Its directory is not synced.
func writeDurable(fs FS, path string, data []byte) error {
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceFile puts data at path so that a reader, also after a crash, finds either the old content or the new.
func replaceFile(fs FS, path string, data []byte) error {
	tmp := path + ".tmp"
	if err := fs.RemoveAll(tmp); err != nil {
		return err
	}
	if err := writeDurable(fs, tmp, data); err != nil {
		return err
	}
	if err := fs.Rename(tmp, path); err != nil {
		return err
	}
	return fs.SyncDir(filepath.Dir(path))
}
