package store

import (
	"fmt"
	"io"
	"net/url"
	"strings"
)

// File is content of a fixed length that is read by offset. It may be used by several goroutines at once.
type File interface {
	// ReadAt reads as io.ReaderAt says. An error that is not io.EOF is one of the moment: what could be retried was.
	io.ReaderAt
	// Name is where it lies, for people: without credentials.
	Name() string
	// Size is the number of bytes.
	Size() int64
	// Version changes when the content is replaced: a time of modification, or the ETag of a store.
	Version() string
	// Close releases what it holds. No method may be called afterwards.
	Close() error
}

// Open opens a file by path or URL. A folder is an error.
func Open(name string) (File, error) {
	if open, ok := remotes[Scheme(name)]; ok {
		return open(name)
	}
	if s := Scheme(name); s != "" {
		return nil, fmt.Errorf("open %s: nothing here reads %s://; there are files, https, s3, gs and az",
			Redact(name), s)
	}
	return openLocal(name)
}

// remotes opens URLs, by scheme.
var remotes = map[string]func(string) (File, error){}

// Scheme returns the scheme of a URL in lower case, "" for a path.
func Scheme(name string) string {
	s, _, ok := strings.Cut(name, "://")
	if !ok || s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.") != "" {
		return ""
	}
	return strings.ToLower(s)
}

// Redact returns a path or URL without what must not be shown: user, password, query and fragment.
func Redact(name string) string {
	if Scheme(name) == "" {
		return name
	}
	words, back := marked(name)
	u, err := url.Parse(words)
	if err != nil {
		return Scheme(name) + "://…"
	}
	return back.Replace((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String())
}

// Head returns the first bytes of a file, at most n, and nil where there is nothing to read.
func Head(name string, n int) []byte {
	f, err := Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, min(int64(n), f.Size()))
	got, _ := f.ReadAt(b, 0) // what could not be read is not there
	return b[:got]
}

// Told is what a version says that stays when the file is opened again: of a file without an ETag its date, and
// nothing where it has none either.
func Told(version string) string {
	told, _, _ := strings.Cut(version, unknownVersion)
	return strings.TrimSpace(told)
}

// unknownVersion stands in versions of files that nothing tells apart.
const unknownVersion = " unknown "
