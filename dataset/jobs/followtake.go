package jobs

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// take copies a file that is whole, if it can be read and is still the same behind that.
func (f *Follower) take(o offer, s *sighting) (bool, error) {
	name := fmt.Sprintf("%06d-%s", len(f.taken), baseName(o.address()))
	to := filepath.Join(f.cfg.Output, shardsDir, name)
	sum, err := copyFile(o, to)
	if err != nil {
		return false, f.untaken(o, err)
	}
	again, err := offerOf(o.address())
	if err != nil || again.size != s.size || again.changed != s.changed || again.version != s.version {
		delete(f.seen, o.name) // it is being written; looked at anew
		return false, os.Remove(to)
	}
	print, size, err := format.PrintFile(to)
	if err != nil {
		return false, err
	}
	reason := f.unusable(to)
	if o.sum != "" && o.sum != sum {
		reason = fmt.Sprintf("its SHA-256 is %s, and %s was said", sum, o.sum)
	}
	if reason != "" {
		s.refused = true
		reason = strings.ReplaceAll(reason, to, o.name)
		return false, errors.Join(f.quarantine(o, reason), os.Remove(to), f.tell(), f.origin.refused(o.name))
	}
	delete(f.seen, o.name)
	delete(f.failing, o.name)
	shard := dataset.Shard{Path: shardsDir + "/" + name, Bytes: size, Print: print, From: o.name,
		Changed: s.changed, Version: s.version}
	f.taken[o.name] = shard
	f.waiting = append(f.waiting, shard)
	return true, nil
}

// untaken hears why a shard was not copied. What this host cannot write is an error; what cannot be read
// where it lies is told of and looked at again.
func (f *Follower) untaken(o offer, err error) error {
	var place placeError
	switch {
	case !errors.As(err, &place):
		return err
	case store.Missing(err):
		return nil // it went away
	case store.Scheme(o.name) != "": // replaced meanwhile, or out of reach
		f.hampered = true
		delete(f.seen, o.name)
		if text := err.Error(); f.failing[o.name] != text {
			f.failing[o.name] = text
			f.cfg.Say(text + "; it is looked at again")
		}
		return nil
	case errors.Is(err, errReplaced):
		delete(f.seen, o.name) // it is being written; looked at anew
		return nil
	}
	f.failing[o.name] = err.Error()
	return f.quarantine(o, "it cannot be read: "+err.Error())
}

// baseMax bounds what a copy's name has of the name of its shard, in bytes: its end, which tells the format.
const baseMax = 200

// baseName is the last part of a shard's name, without what an address asks for behind "?".
func baseName(name string) string {
	if s := store.Scheme(name); s == "http" || s == "https" {
		name, _, _ = strings.Cut(name, "#")
		name, _, _ = strings.Cut(name, "?")
	}
	name = strings.Trim(filepath.Base(name), "/")
	return strings.ToValidUTF8(name[max(0, len(name)-baseMax):], "")
}

// unusable says why a shard cannot be read: as a whole, or at its end, where one that was cut off shows.
func (f *Follower) unusable(path string) string {
	s, err := dataset.Open(path, f.cfg.Open)
	if err != nil {
		return "it cannot be read, and may be half written: " + err.Error()
	}
	defer s.Close()
	if s.Len() == 0 {
		return "it has no documents"
	}
	if _, err := s.Read(s.Len() - 1); err != nil {
		return "its last document cannot be read, and may be half written: " + err.Error()
	}
	return ""
}

// copyFile copies a shard, which is there as a whole or not at all, and gives the SHA-256 of its content in hex.
func copyFile(o offer, to string) (string, error) {
	in, err := store.Open(o.address())
	if err != nil {
		return "", placeError{err}
	}
	defer in.Close()
	if v := versionOf(in); o.version != "" && v != o.version || in.Size() != o.size {
		return "", placeError{fmt.Errorf("%s: %w", store.Redact(o.address()), errReplaced)}
	}
	h := sha256.New()
	err = machine.Replace(to, 0o444, func(out *os.File) error {
		_, err := io.Copy(io.MultiWriter(out, h), &placeReader{r: io.NewSectionReader(in, 0, in.Size())})
		return errors.Join(err, out.Sync())
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// errReplaced is why a shard is not taken now that is another one than was looked at.
var errReplaced = errors.New("it was replaced while it was being taken")

// placeError is an error of the place where a shard lies, and not of the folder that it is copied to.
type placeError struct{ error }

func (e placeError) Unwrap() error { return e.error }

// placeReader reads a shard where it lies.
type placeReader struct{ r io.Reader }

func (p *placeReader) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = placeError{err}
	}
	return n, err
}
