package checkpoint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Names in a checkpoint root that are no checkpoints.
const (
	latestName = "latest"
	tmpPrefix  = ".tmp-"
	oldPrefix  = ".old-"
)

// ErrExists says that the step to be saved is the one that latest names already: it is durable, and
// replacing it would leave a moment in which latest names nothing.
var ErrExists = errors.New("the latest checkpoint has this step already")

// Save writes one checkpoint. Shards go to a temporary directory; Commit makes everything durable, moves the
// directory to its name and then latest to it. A crash at any moment before that leaves the checkpoint that
// latest named, and rubbish that the next Begin removes.
type Save struct {
	fs       FS
	root     string
	step     int64
	sections map[string]json.RawMessage
}

// Begin starts the checkpoint of a step below root, which is made if needed. Only one save may be under way in a root.
func Begin(fs FS, root string, step int64) (*Save, error) {
	if step < 0 {
		return nil, fmt.Errorf("%s: step %d is negative", root, step)
	}
	if err := fs.MkdirAll(root); err != nil {
		return nil, err
	}
	if at, err := latestStep(root); err == nil && at == stepName(step) {
		return nil, fmt.Errorf("%s: %w", StepDir(root, step), ErrExists)
	}
	if err := sweep(fs, root); err != nil {
		return nil, err
	}
	s := JoinSave(fs, root, step)
	return s, fs.MkdirAll(s.tmp())
}

// JoinSave returns a Save for a rank in another process: it may only WriteShard, between the Begin and the
// Commit of the process that leads, on storage that both see or where a Depot has begun the save too.
func JoinSave(fs FS, root string, step int64) *Save {
	return &Save{fs: fs, root: root, step: step, sections: map[string]json.RawMessage{}}
}

// sweep removes what crashed saves and prunings left.
func sweep(fs FS, root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) || strings.HasPrefix(e.Name(), oldPrefix) {
			if err := fs.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Save) tmp() string { return filepath.Join(s.root, tmpPrefix+stepName(s.step)) }

func (s *Save) old() string { return filepath.Join(s.root, oldPrefix+stepName(s.step)) }

// Section adds a named JSON value: configuration, data position, random state and whatever else a run needs to go on.
func (s *Save) Section(key string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("section %s: %w", key, err)
	}
	s.sections[key] = text
	return nil
}

// WriteShard writes one file, named like rank-00003.safetensors, and returns when it is durable.
// data(i) returns the bytes of pieces[i]; it is called once a piece, in file order, and its result is not
// kept. Shards of one Save may be written by several goroutines at once.
func (s *Save) WriteShard(name string, pieces []Piece, data func(i int) ([]byte, error)) (Shard, error) {
	path := filepath.Join(s.tmp(), name)
	fail := func(err error) (Shard, error) { return Shard{}, fmt.Errorf("%s: %w", path, err) }
	if !localShardName.MatchString(name) {
		return fail(errors.New("a shard's name has letters, digits, '.', '_' and '-', and ends in .safetensors"))
	}
	at := map[string]int{}
	infos := make([]Info, len(pieces))
	for i, p := range pieces {
		if _, err := p.checkedBytes(); err != nil {
			return fail(fmt.Errorf("%s %s: %w", p.Kind, p.Name, err))
		}
		at[p.key()] = i
		infos[i] = Info{Name: p.key(), DType: p.DType, Shape: p.storedShape()}
	}
	head, placed, err := layout(infos, map[string]string{"format": "pt"})
	if err != nil {
		return fail(err)
	}
	f, err := s.fs.Create(path)
	if err != nil {
		return Shard{}, err
	}
	h := &hashedFile{f: f, sum: sha256.New()}
	h.write(head)
	for _, t := range placed {
		if h.err == nil {
			h.writePiece(t, at[t.Name], data)
		}
	}
	if err := h.finish(); err != nil {
		return fail(err)
	}
	return Shard{File: name, Bytes: h.n, SHA256: hex.EncodeToString(h.sum.Sum(nil)), Pieces: pieces}, nil
}

// Commit writes the manifest over the shards of all ranks, makes everything durable, and moves latest here.
// When it returns nil the checkpoint survives the loss of power; otherwise latest is what it was.
func (s *Save) Commit(shards ...Shard) error {
	text, err := s.Manifest(shards...)
	if err != nil {
		return err
	}
	if err := s.Settle(text); err != nil {
		return err
	}
	return s.Publish()
}

// Manifest is the text of the manifest over the shards of all ranks.
func (s *Save) Manifest(shards ...Shard) ([]byte, error) {
	m, err := newManifest(s.step, shards, s.sections)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.tmp(), err)
	}
	return m.encode(), nil
}

// Settle writes the manifest beside the shards and gives the checkpoint its name, durably. Latest does not name it yet.
func (s *Save) Settle(text []byte) error {
	if err := writeDurable(s.fs, filepath.Join(s.tmp(), ManifestName), text); err != nil {
		return err
	}
	if err := writeDurable(s.fs, filepath.Join(s.tmp(), sumName), sumLine(text)); err != nil {
		return err
	}
	if err := s.fs.SyncDir(s.tmp()); err != nil {
		return err
	}
	if err := s.setAside(); err != nil {
		return err
	}
	if err := s.fs.Rename(s.tmp(), StepDir(s.root, s.step)); err != nil {
		return err
	}
	return s.fs.SyncDir(s.root)
}

// Publish moves latest to the checkpoint that Settle has written.
func (s *Save) Publish() error {
	if err := replaceFile(s.fs, filepath.Join(s.root, latestName), []byte(stepName(s.step)+"\n")); err != nil {
		return err
	}
	_ = s.fs.RemoveAll(s.old()) // what stays is swept by the next Begin
	return nil
}

// setAside moves away a directory that has our name but that latest does not name: a save that was
// interrupted after its rename, or a future that a rewind gave up.
func (s *Save) setAside() error {
	dir := StepDir(s.root, s.step)
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if at, err := latestStep(s.root); err == nil && at == stepName(s.step) {
		return fmt.Errorf("%s: %w", dir, ErrExists)
	}
	return s.fs.Rename(dir, s.old())
}

// Abort removes what was written so far.
func (s *Save) Abort() error { return s.fs.RemoveAll(s.tmp()) }

// hashedFile writes a file front to back and hashes it on the way; the first error sticks.
type hashedFile struct {
	f   WFile
	sum interface {
		Write([]byte) (int, error)
		Sum([]byte) []byte
	}
	n   int64
	err error
}

// write appends b to the file and to its hash. After an error it does nothing, so that callers look at the error once.
func (h *hashedFile) write(b []byte) {
	if h.err != nil {
		return
	}
	h.sum.Write(b)
	n, err := h.f.Write(b)
	h.n += int64(n)
	h.err = err
}

// writePiece appends the data of the i-th piece, whose length must be that of the header, since all
// later offsets depend on it.
func (h *hashedFile) writePiece(t Info, i int, data func(int) ([]byte, error)) {
	b, err := data(i)
	if err == nil && int64(len(b)) != t.Bytes {
		err = fmt.Errorf("%s has %d bytes, want %d", quoteOdd(t.Name), len(b), t.Bytes)
	}
	if err != nil {
		h.err = err
		return
	}
	h.write(b)
}

// finish makes the file durable and closes it.
func (h *hashedFile) finish() error {
	if h.err == nil {
		h.err = h.f.Sync()
	}
	return errors.Join(h.err, h.f.Close())
}
