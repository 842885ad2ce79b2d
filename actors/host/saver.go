package host

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// CheckpointSaver writes a rank's part of lfactor's own checkpoint: one shard of every region that the rank
// owns.
type CheckpointSaver struct {
	FS   checkpoint.FS
	Root string
	Rank int

	pieces []checkpoint.Piece
	copies []*tensor.Tensor
}

var _ Saver = (*CheckpointSaver)(nil)

// shardPart is a rank's part of the manifest as it travels to the process that commits.
type shardPart struct {
	Shard  checkpoint.Shard
	Pieces []checkpoint.Piece
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
		rows := p.Tensor.RowSlice(0, n)
		c, err := r.c.Host.New("copy of "+p.Param.Name, rows.DType, rows.Shape...)
		switch {
		case err != nil:
		case rows.OnHost():
			r.kernel(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{rows}, c)
		default:
			kernels.Read(r.c.Backend, c.Bytes(), rows)
		}
		rows.Release()
		if err != nil {
			return err
		}
		s.copies = append(s.copies, c)
		s.pieces = append(s.pieces, checkpoint.Piece{Name: p.Param.Name, Kind: p.Kind,
			DType: checkpoint.DType(strings.ToUpper(c.DType.String())), Shape: p.Param.Shape,
			Box: p.Region.Intervals(p.Param)})
	}
	return nil
}

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
	text, err := json.Marshal(shardPart{shard, s.pieces})
	return string(text), err
}

// CommitShards makes a checkpoint of the ranks' parts; sections are free-form values by name.
func CommitShards(fs checkpoint.FS, root string, step int64, parts []string, sections map[string]any) error {
	save := checkpoint.JoinSave(fs, root, step)
	var shards []checkpoint.Shard
	for i, text := range parts {
		if why, bad := strings.CutPrefix(text, "error: "); bad {
			_ = save.Abort() // what stays is swept by the next save
			return fmt.Errorf("rank %d: %s", i, why)
		}
		var p shardPart
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			return fmt.Errorf("rank %d: part of the manifest: %w", i, err)
		}
		p.Shard.Pieces = p.Pieces
		shards = append(shards, p.Shard)
	}
	for name, v := range sections {
		if err := save.Section(name, v); err != nil {
			return err
		}
	}
	if err := save.Commit(shards...); err != nil {
		_ = save.Abort() // the checkpoint before stays valid
		return err
	}
	return nil
}

// FromCheckpoint fills parameters and state from an own checkpoint, whatever plan wrote it.
func FromCheckpoint(r *checkpoint.Reader, optimizer bool) FillFunc {
	have := map[[2]string]checkpoint.Info{}
	for _, kind := range r.Kinds() {
		for _, t := range r.Kind(kind).Tensors() {
			have[[2]string{kind, t.Name}] = t
		}
	}
	return func(kind string, p *grad.Param, g family.Region, dst []float32) (bool, error) {
		info, ok := have[[2]string{kind, p.Name}]
		switch {
		case !ok && kind == "param":
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Missing,
				Why: "the model needs it"}
		case !ok && kind == "master" || kind != "param" && !optimizer:
			return false, nil
		case !ok:
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Missing,
				Why: "the checkpoint has no " + kind +
					" of it; set checkpoint.load_optimizer=false to start the optimizer afresh"}
		}
		if fmt.Sprint(info.Shape) != fmt.Sprint(p.Shape) {
			return false, &checkpoint.Error{File: r.Path(), Tensor: p.Name, Fault: checkpoint.Misshapen,
				Why: fmt.Sprintf("shape %v, the model needs %v", info.Shape, p.Shape)}
		}
		d, err := tensor.ParseDType(strings.ToLower(string(info.DType)))
		if err != nil {
			return false, err
		}
		raw := make([]byte, len(dst)*d.Size())
		if err := r.ReadLogical(p.Name, kind, g.Intervals(p), raw); err != nil {
			return false, err
		}
		tensor.Widen(d, raw, dst)
		return true, nil
	}
}
