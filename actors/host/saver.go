package host

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// CheckpointSaver writes a rank's part of lfactor's own checkpoint: one shard of every region that the rank owns.
type CheckpointSaver struct {
	FS   checkpoint.FS
	Root string
	Rank int
	Host string // that the rank runs on, "" where there is one

	pieces []checkpoint.Piece
	copies []*tensor.Tensor
}

var _ Saver = (*CheckpointSaver)(nil)

// shardPart is a rank's part of the manifest as it travels to the process that commits.
type shardPart struct {
	Shard  checkpoint.Shard
	Pieces []checkpoint.Piece
	Host   string `json:",omitempty"`
}

// Snapshot copies the rank's state to host memory, so that training goes on while it is written.
func (s *CheckpointSaver) Snapshot(_ int64, r *Rank, _ string) error {
	s.release()
	for _, p := range r.Parts() {
		iv := p.Region.Intervals(p.Param)
		n := iv[0][1] - iv[0][0]
		if n == 0 { // padding
			continue
		}
		c, err := r.snapshotOf(p.Param.Name, p.Tensor.RowSlice(p.Row, p.Row+n))
		if err != nil {
			return err
		}
		s.copies = append(s.copies, c)
		s.pieces = append(s.pieces, p.piece(c.DType))
	}
	return nil
}

// checkpointType is a type's name in files.
func checkpointType(d tensor.DType) checkpoint.DType {
	return checkpoint.DType(strings.ToUpper(d.String()))
}

// snapshotOf is a copy of rows that a later step does not change, in host memory; it takes over the reference
// to them. What stands for another rank is such a copy already.
func (r *Rank) snapshotOf(name string, rows *tensor.Tensor) (*tensor.Tensor, error) {
	if r.c.Backend == nil {
		return rows, nil
	}
	defer rows.Release()
	c, err := r.c.Host.New("copy of "+name, rows.DType, rows.Shape...)
	switch {
	case err != nil:
		return nil, err
	case r.device == nil && rows.DType.Float(): // what is in few bits is copied as it is
		r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{rows}, c)
	default:
		kernels.Read(r.c.Backend, c.Bytes(), rows)
	}
	return c, nil
}

// release gives back the copies of the tensors once they are written or not wanted any more.
func (s *CheckpointSaver) release() {
	for _, c := range s.copies {
		c.Release()
	}
	s.copies, s.pieces = nil, nil
}

// Write writes the copy as a durable shard.
func (s *CheckpointSaver) Write(step int64) (string, error) {
	defer s.release()
	save := checkpoint.JoinSave(s.FS, s.Root, step)
	shard, err := save.WriteShard(fmt.Sprintf("rank-%05d.safetensors", s.Rank), s.pieces,
		func(i int) ([]byte, error) { return s.copies[i].Bytes(), nil })
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(shardPart{shard, s.pieces, s.Host})
	return string(text), err
}

// Copier makes a checkpoint durable on a second host before latest names it, where hosts share no storage.
type Copier interface {
	// Copy brings shards to a second host each, by the host that wrote each; it returns the sections of the
	// manifest that say so.
	Copy(step int64, shards []checkpoint.Shard, hosts []string) (map[string]any, error)
	// Publish gives the other hosts the manifest and moves their latest.
	Publish(step int64, manifest []byte) error
}

// CommitShards makes a checkpoint of the ranks' parts; sections are free-form values by name. Copies may be nil.
func CommitShards(fs checkpoint.FS, root string, step int64, parts []string, sections map[string]any,
	copies Copier) error {
	save := checkpoint.JoinSave(fs, root, step)
	fail := func(err error) error {
		_ = save.Abort() // what stays is swept by the next save; the checkpoint before stays valid
		return err
	}
	shards, hosts, err := shardsOf(parts)
	if err != nil {
		return fail(err)
	}
	if copies != nil {
		more, err := copies.Copy(step, shards, hosts)
		if err != nil {
			return fail(err)
		}
		maps.Copy(sections, more)
	}
	for name, v := range sections {
		if err := save.Section(name, v); err != nil {
			return fail(err)
		}
	}
	text, err := save.Manifest(shards...)
	if err == nil {
		err = save.Settle(text)
	}
	if err == nil && copies != nil {
		err = copies.Publish(step, text)
	}
	if err == nil {
		err = save.Publish()
	}
	if err != nil {
		return fail(err)
	}
	return nil
}

// shardsOf reads the ranks' parts of the manifest.
func shardsOf(parts []string) (shards []checkpoint.Shard, hosts []string, err error) {
	for i, text := range parts {
		if why, bad := strings.CutPrefix(text, "error: "); bad {
			return nil, nil, fmt.Errorf("rank %d: %s", i, why)
		}
		var p shardPart
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return nil, nil, fmt.Errorf("rank %d: part of the manifest: %w", i, err)
		}
		p.Shard.Pieces = p.Pieces
		shards, hosts = append(shards, p.Shard), append(hosts, p.Host)
	}
	return shards, hosts, nil
}
