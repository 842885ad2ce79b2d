package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Format is a way to keep the parameters of a model in a directory, with its claim, the round trip: what was written to
// Create's Sink, Open returns, to the byte.
type Format struct {
	Name   string
	Spec   string                                         // where the format is described
	Open   func(dir string) (Source, error)               // parameters only, no optimizer state
	Create func(dir string, tensors []Info) (Sink, error) // Name, DType and Shape count
}

var formats = []Format{
	{
		Name: "lfactor",
		Spec: "docs/architecture.md: safetensors shards and a manifest",
		Open: func(dir string) (Source, error) {
			r, err := Open(dir)
			if err != nil {
				return nil, err
			}
			return ownSource{r.Kind(Param), r}, nil
		},
		Create: createOwn,
	},
	{
		Name: "safetensors",
		Spec: "https://github.com/huggingface/safetensors#format",
		Open: func(dir string) (Source, error) { return OpenDir(dir) },
		Create: func(dir string, tensors []Info) (Sink, error) {
			return NewWriter(dir, tensors, exportShardBytes)
		},
	},
}

// ownSource is a Reader's parameters, with the Reader's files.
type ownSource struct {
	Source
	r *Reader
}

func (s ownSource) Close() error { return s.r.Close() }

// ownSink writes a checkpoint of step 0 that has parameters only: what a conversion gives.
type ownSink struct {
	save   *Save
	file   *placedFile
	pieces []Piece
	done   bool
}

const ownShard = "params.safetensors"

// createOwn begins to write tensors as a checkpoint in this program's own form, as step 0 with one shard.
func createOwn(dir string, tensors []Info) (Sink, error) {
	save, err := Begin(OS, dir, 0)
	if err != nil {
		return nil, err
	}
	s := &ownSink{save: save}
	placed := make([]Info, len(tensors))
	for i, t := range tensors {
		s.pieces = append(s.pieces, Piece{Name: t.Name, Kind: Param, DType: t.DType, Shape: t.Shape})
		placed[i] = Info{Name: s.pieces[i].key(), DType: t.DType, Shape: t.Shape}
	}
	if s.file, err = newPlacedFile(OS, filepath.Join(save.tmp(), ownShard), placed); err != nil {
		return nil, errors.Join(err, save.Abort())
	}
	return s, nil
}

func (s *ownSink) WriteRanges(name string, ranges [][2]int, src []byte) error {
	return s.file.writeRanges(Piece{Name: name, Kind: Param}.key(), ranges, src)
}

// Commit completes the file, enters its length and hash, and makes the step valid.
func (s *ownSink) Commit() error {
	if s.done {
		return nil
	}
	if err := s.file.finish(); err != nil {
		return err
	}
	if err := OS.Rename(s.file.path+partial, s.file.path); err != nil {
		return err
	}
	shard := Shard{File: ownShard, Pieces: s.pieces}
	var err error
	if shard.Bytes, shard.SHA256, err = hashFile(s.file.path); err != nil {
		return err
	}
	s.done = true
	return s.save.Commit(shard)
}

// Abort throws away what was written; after a commit it does nothing.
func (s *ownSink) Abort() error {
	if s.done {
		return nil
	}
	s.done = true
	return errors.Join(s.file.abort(), s.save.Abort())
}

// Copy writes every tensor of src to dst, which was created for the same tensors, a few rows at a time.
func Copy(dst Sink, src Source) error {
	var buf []byte
	for _, t := range src.Tensors() {
		err := eachRows(t, func(box [][2]int, n int64) error {
			if int64(cap(buf)) < n {
				buf = make([]byte, n)
			}
			if err := src.ReadRanges(t.Name, box, buf[:n]); err != nil {
				return err
			}
			return dst.WriteRanges(t.Name, box, buf[:n])
		})
		if err != nil {
			return fmt.Errorf("copying %s: %w", quoteOdd(t.Name), err)
		}
	}
	return nil
}
