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
)

// take copies a file that is whole, if it can be read and is still the same behind that.
func (f *Follower) take(o offer, s *sighting) (bool, error) {
	name := fmt.Sprintf("%06d-%s", len(f.taken), filepath.Base(o.name))
	to := filepath.Join(f.cfg.Output, shardsDir, name)
	sum, err := copyFile(o, to)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return false, nil // it went away
		}
		if store.Scheme(o.name) != "" { // replaced meanwhile, or out of reach
			f.cfg.Say(err.Error() + "; it is looked at again")
			delete(f.seen, o.name)
			return false, nil
		}
		return false, err
	}
	again, err := offerOf(o.name)
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
		return false, errors.Join(f.quarantine(o.name, s.size, s.changed, reason), os.Remove(to),
			f.origin.refused(o.name))
	}
	delete(f.seen, o.name)
	shard := dataset.Shard{Path: shardsDir + "/" + name, Bytes: size, Print: print, From: o.name,
		Changed: s.changed, Version: s.version}
	f.taken[o.name] = shard
	f.waiting = append(f.waiting, shard)
	return true, nil
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

// copyFile copies a shard, which is there as a whole or not at all, and gives the SHA-256 of its
// content in hex.
func copyFile(o offer, to string) (string, error) {
	in, err := store.Open(o.name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	if v := strings.Trim(in.Version(), `"`); o.version != "" && v != o.version || in.Size() != o.size {
		return "", fmt.Errorf("%s: it was replaced while it was being taken", store.Redact(o.name))
	}
	out, err := os.CreateTemp(filepath.Dir(to), ".part-*")
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(io.MultiWriter(out, h), io.NewSectionReader(in, 0, in.Size()))
	if err == nil {
		err = errors.Join(out.Chmod(0o444), out.Sync())
	}
	if err = errors.Join(err, out.Close()); err == nil {
		return hex.EncodeToString(h.Sum(nil)), os.Rename(out.Name(), to)
	}
	return "", errors.Join(err, os.Remove(out.Name()))
}
