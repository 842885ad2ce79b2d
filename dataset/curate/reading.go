package curate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Reading is a step that reads models or files beside the documents.
type Reading interface {
	Step
	// Fingerprint identifies the content of what it reads.
	Fingerprint() (string, error)
}

// Of files up to printWholeMax bytes all is read for a fingerprint, of larger ones their size and
// printBytes at their beginning, middle and end.
const (
	printWholeMax = 256 << 20
	printBytes    = 1 << 20
)

// FingerprintOf identifies the content of files and folders; "" stands for none. Names that begin with
// a dot are left out of folders.
func FingerprintOf(paths ...string) (string, error) {
	h := sha256.New()
	for _, path := range paths {
		if path == "" {
			fmt.Fprint(h, "none\n")
			continue
		}
		err := filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case at != path && strings.HasPrefix(e.Name(), ".") && e.IsDir():
				return fs.SkipDir
			case at != path && strings.HasPrefix(e.Name(), "."):
				return nil
			}
			info, err := os.Stat(at) // what a link leads to
			if err != nil || !info.Mode().IsRegular() {
				return err
			}
			name, err := filepath.Rel(path, at)
			if err != nil {
				return err
			}
			fmt.Fprintf(h, "%q %d\n", filepath.ToSlash(name), info.Size())
			return printContent(h, at, info.Size())
		})
		if err != nil {
			return "", fmt.Errorf("fingerprint of %s: %w", path, err)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// printContent writes what stands for a file's content.
func printContent(w io.Writer, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if size <= printWholeMax {
		_, err = io.Copy(w, f)
		return err
	}
	for _, at := range []int64{0, size / 2, size - printBytes} {
		if _, err := io.Copy(w, io.NewSectionReader(f, at, printBytes)); err != nil {
			return err
		}
	}
	return nil
}
