package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
)

// Depot is a host's storage of checkpoints, as a run on several hosts sees it that share none. A root is an
// absolute path on that host. A step under way has its shards in the directory that Save uses, so that what
// a crash leaves there is swept by the next save.
//
// The order of a save over hosts is: Begin everywhere; shards are written where their ranks are; each is
// copied to a second host; Settle everywhere; Publish everywhere. Latest thus names a step on any host only
// when every shard of it and its manifest lie on two hosts.
type Depot interface {
	// Sees reports whether the file called marker lies in dir: then the host sees the storage that whoever
	// has written the marker sees.
	Sees(dir, marker string) (bool, error)
	// Begin makes room for a step under way below root.
	Begin(root string, step int64) error
	// Fetch opens a file of a step: a shard, also of the step under way, or one of the two files with the manifest.
	Fetch(root string, step int64, name string) (io.ReadCloser, error)
	// Store takes a shard of the step under way. Size and hash are s's, and it is durable, when it returns
	// nil; otherwise nothing of it is left.
	Store(root string, step int64, s Shard, from io.Reader) error
	// Settle gives the step under way its manifest and its name.
	Settle(root string, step int64, manifest []byte) error
	// Publish moves latest to the step and removes all but the newest keep.
	Publish(root string, step int64, keep int) error
	// Holdings lists what lies below root.
	Holdings(root string) (Holdings, error)
	// Append replaces what follows the first at bytes of a record of a run; it is an error if the record has
	// fewer. Record opens one.
	Append(dir, name string, at int64, from io.Reader) error
	Record(dir, name string) (io.ReadCloser, error)
}

// Holdings are the steps below a root, whole or in part.
type Holdings struct {
	Latest int64 // step that latest names, -1 for none
	Steps  []Holding
}

// Holding is a step below a root.
type Holding struct {
	Step  int64
	Sum   string   // SHA-256 of its manifest, hex
	Files []Shard  // that the manifest lists
	Have  []string // of these, those that are here and have their size
}

// Here is the Depot of this host, on a file system.
type Here struct{ FS FS }

var _ Depot = Here{}

// Sees implements Depot.
func (h Here) Sees(dir, marker string) (bool, error) {
	if !markerName.MatchString(marker) {
		return false, fmt.Errorf("a marker is not called %q", marker)
	}
	_, err := os.Stat(filepath.Join(dir, marker))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Begin implements Depot.
func (h Here) Begin(root string, step int64) error {
	_, err := Begin(h.FS, root, step)
	return err
}

var markerName = regexp.MustCompile(`^\.tmp-seen-[0-9a-f]{16,64}$`)

// Mark writes a marker into a directory, by which a Depot finds out whether it sees the same storage.
func Mark(fs FS, dir, unique string) (marker string, remove func(), err error) {
	marker = tmpPrefix + "seen-" + unique
	path := filepath.Join(dir, marker)
	if err := writeDurable(fs, path, nil); err != nil {
		return "", nil, err
	}
	return marker, func() { _ = fs.RemoveAll(path) }, fs.SyncDir(dir) // what stays is swept by the next save
}

// fetchable reports whether a name may be asked for.
func fetchable(name string) bool {
	return localShardName.MatchString(name) || name == ManifestName || name == sumName
}

// Fetch implements Depot.
func (h Here) Fetch(root string, step int64, name string) (io.ReadCloser, error) {
	if step < 0 || !fetchable(name) {
		return nil, fmt.Errorf("no file of a checkpoint is called %q", name)
	}
	f, err := os.Open(filepath.Join(JoinSave(h.FS, root, step).tmp(), name))
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.Open(filepath.Join(StepDir(root, step), name))
	}
	return f, err
}

// Store implements Depot.
func (h Here) Store(root string, step int64, s Shard, from io.Reader) error {
	return take(h.FS, root, JoinSave(h.FS, root, step).tmp(), s, from)
}

// Take puts a shard into the directory of a step below root that lacks it, or has it damaged.
func Take(fs FS, root string, step int64, s Shard, from io.Reader) error {
	return take(fs, root, StepDir(root, step), s, from)
}

// take writes a shard beside dir first: nobody may find half of it under its name.
func take(fs FS, root, dir string, s Shard, from io.Reader) error {
	if !localShardName.MatchString(s.File) || s.Bytes < 0 {
		return fmt.Errorf("no shard is called %q and has %d bytes", s.File, s.Bytes)
	}
	name := filepath.Join(root, fmt.Sprintf("%stake-%d-%s", tmpPrefix, os.Getpid(), s.File))
	if err := fs.RemoveAll(name); err != nil {
		return err
	}
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	h := &hashedFile{f: f, sum: sha256.New()}
	n, err := io.Copy(writerFunc(func(b []byte) (int, error) { h.write(b); return len(b), h.err }),
		io.LimitReader(from, s.Bytes+1))
	if err == nil && (n != s.Bytes || hex.EncodeToString(h.sum.Sum(nil)) != s.SHA256) {
		err = &Error{File: filepath.Join(dir, s.File), Fault: Altered,
			Why: fmt.Sprintf("%d bytes came whose hash is not the one of the %d that were written", n,
				s.Bytes), Try: "the copy is made again with the next save"}
	}
	if err = errors.Join(err, h.finish()); err == nil {
		err = fs.Rename(name, filepath.Join(dir, s.File))
	}
	if err == nil {
		return fs.SyncDir(dir)
	}
	return errors.Join(err, fs.RemoveAll(name))
}

// writerFunc lets a function be an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Settle implements Depot. Shards that other hosts keep need not be here.
func (h Here) Settle(root string, step int64, text []byte) error {
	m, err := parseManifest(text)
	if err == nil && m.Step != step {
		err = fmt.Errorf("it is of step %d", m.Step)
	}
	if err != nil {
		return fmt.Errorf("the manifest of step %d: %w", step, err)
	}
	return JoinSave(h.FS, root, step).Settle(text)
}

// Publish implements Depot.
func (h Here) Publish(root string, step int64, keep int) error {
	r, err := newReader(StepDir(root, step))
	if err != nil {
		return err
	}
	if err := errors.Join(r.Close(), JoinSave(h.FS, root, step).Publish()); err != nil {
		return err
	}
	_, err = Prune(h.FS, root, keep)
	return err
}

// Holdings implements Depot. A step whose manifest is damaged is left out.
func (h Here) Holdings(root string) (Holdings, error) {
	out := Holdings{Latest: -1}
	if name, err := latestStep(root); err == nil {
		out.Latest = stepNumber(name)
	}
	entries, err := List(root)
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		if e.Err != nil {
			continue
		}
		if x, err := holding(e); err == nil {
			out.Steps = append(out.Steps, x)
		}
	}
	return out, nil
}

// holding tells what of a saved step lies here: its files by the manifest, and those of them that are present in full
// length. The sum is that of the manifest, which in turn has those of the files.
func holding(e Entry) (x Holding, err error) {
	r, err := newReader(e.Path)
	if err != nil {
		return x, err
	}
	defer r.Close()
	_, sum, err := hashFile(filepath.Join(e.Path, ManifestName))
	if err != nil {
		return x, err
	}
	x = Holding{Step: e.Step, Sum: sum, Files: r.m.Files}
	for _, s := range x.Files {
		if info, err := os.Stat(filepath.Join(e.Path, s.File)); err == nil && info.Size() == s.Bytes {
			x.Have = append(x.Have, s.File)
		}
	}
	return x, nil
}

// Adopt gives a root the manifest of a step that other hosts have, in a directory of its own. Shards may come later.
func Adopt(fs FS, root string, step int64, manifest []byte) error {
	if _, err := newReader(StepDir(root, step)); err == nil { // whole, and held to its hash
		have, err := os.ReadFile(filepath.Join(StepDir(root, step), ManifestName))
		if err != nil || bytes.Equal(have, manifest) {
			return err
		}
	}
	s := JoinSave(fs, root, step)
	if err := errors.Join(fs.RemoveAll(s.tmp()), fs.MkdirAll(s.tmp())); err != nil {
		return err
	}
	if err := fs.RemoveAll(s.old()); err != nil {
		return err
	}
	return Here{fs}.Settle(root, step, manifest)
}

// recordName is how a record of a run may be called: its ledger and its metrics.
var recordName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*\.(ledger|jsonl)$`)

// record is the path of a record of a run. Names come from other hosts, so anything but a plain known form is refused.
func record(dir, name string) (string, error) {
	if !recordName.MatchString(name) || !filepath.IsAbs(dir) {
		return "", fmt.Errorf("no record of a run is called %q", name)
	}
	return filepath.Join(dir, name), nil
}

// Append implements Depot.
func (h Here) Append(dir, name string, at int64, from io.Reader) error {
	path, err := record(dir, name)
	if err != nil {
		return err
	}
	if err := h.FS.MkdirAll(dir); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() < at || at < 0 {
		return fmt.Errorf("%s has %d bytes, and what follows the first %d was sent", path, info.Size(), at)
	}
	if err := f.Truncate(at); err != nil {
		return err
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return err
	}
	if _, err := io.Copy(f, from); err != nil {
		return err
	}
	return f.Sync()
}

// Record implements Depot.
func (h Here) Record(dir, name string) (io.ReadCloser, error) {
	path, err := record(dir, name)
	if err != nil {
		return nil, err
	}
	return os.Open(path)
}
