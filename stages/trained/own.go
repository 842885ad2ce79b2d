package trained

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/torch"
	"github.com/lfactor/lfactor/stages/family"
)

// ConvertedSection is what a checkpoint says that no run has saved: it was converted from another form.
const ConvertedSection = "converted"

// Converted is that section.
type Converted struct {
	Types map[string]string `json:"types"` // of each tensor, by its name in Hugging Face's files
}

// ownModel is the folder of an own checkpoint that was converted, with configuration and tokenizer of the model.
const ownModel = "model"

// WriteOwn writes the weights of src, of the model whose config.json is in the directory like, as a checkpoint of
// lfactor's own below dst, with what a training keeps beside them, nil for nothing. A run whose checkpoint.dir is dst
// goes on from it: with the number of its steps and its moments, and with the data from its beginning.
func WriteOwn(dst, like string, src checkpoint.Source, st *torch.States) error {
	c, err := configs.ReadModel(like)
	if err != nil {
		return err
	}
	if c.Denoises() { //lfvet:kind such checkpoints are made by training
		return fmt.Errorf("%s is of a model of diffusion or of actions, whose checkpoint is made by training", like)
	}
	m, err := build(c)
	if err != nil {
		return err
	}
	w, err := m.OpenWeights(src, like)
	if err != nil {
		return err
	}
	o := owner{m: m, weights: map[string]*family.Weights{checkpoint.Param: w}}
	step, updates := int64(0), int64(0)
	if st != nil {
		step, updates = st.Step, st.Updates
		for kind, src := range st.Kinds { //lfvet:order each by itself
			if o.weights[kind], err = m.OpenWeights(src, like); err != nil {
				return fmt.Errorf("%s of the optimizer: %w", kind, err)
			}
		}
	}
	model, err := filepath.Abs(filepath.Join(dst, ownModel))
	if err != nil {
		return err
	}
	if _, err := checkpoint.CopySideFiles(like, model); err != nil {
		return err
	}
	save, err := checkpoint.Begin(checkpoint.OS, dst, step)
	if err != nil {
		return err
	}
	types := map[string]string{}
	for _, t := range m.HFShapes() {
		types[t.Name] = w.SourceDType(t.Name)
	}
	shard, err := o.write(save, w)
	err = errors.Join(err, save.Section("config", map[string]string{"model.path": model, "model.init": "random"}),
		save.Section("state", []float64{float64(updates), 0, 0, 0}), save.Section(ConvertedSection, Converted{types}))
	if err != nil {
		return err
	}
	return save.Commit(shard)
}

// owner reads parameters of a model and what is kept of each.
type owner struct {
	m       *family.Model
	weights map[string]*family.Weights
}

// write writes them all.
func (o *owner) write(save *checkpoint.Save, w *family.Weights) (checkpoint.Shard, error) {
	var pieces []checkpoint.Piece
	var params []*grad.Param
	for _, p := range o.m.Params(nil) {
		for _, kind := range []string{checkpoint.Param, checkpoint.Master, checkpoint.ExpAvg, checkpoint.ExpAvgSq} {
			if o.weights[kind] == nil {
				continue
			}
			d := checkpoint.F32
			if kind == checkpoint.Param {
				d = checkpoint.DType(w.SourceDType(o.m.Source(p.Name).Names(p)[0]))
			}
			if !slices.Contains([]checkpoint.DType{checkpoint.F32, checkpoint.F16, checkpoint.BF16}, d) {
				d = checkpoint.F32
			}
			pieces = append(pieces, checkpoint.Piece{Name: p.Name, Kind: kind, DType: d, Shape: p.Shape})
			params = append(params, p)
		}
	}
	var raw []byte // used again, as no result is kept
	return save.WriteShard("rank-00000.safetensors", pieces, func(i int) ([]byte, error) {
		var err error
		raw, err = o.fill(raw[:0], params[i], pieces[i])
		return raw, err
	})
}

// fillElements is how many numbers are float32 at a time, unless a row has more.
const fillElements = 4 << 20

// fill appends the bytes of a parameter of a kind, a few rows at a time.
func (o *owner) fill(raw []byte, p *grad.Param, piece checkpoint.Piece) ([]byte, error) {
	d, err := tensor.ParseDType(strings.ToLower(string(piece.DType)))
	if err != nil {
		return nil, err
	}
	n := tensor.Len(p.Shape)
	raw = slices.Grow(raw, n*d.Size())
	row := n / max(1, p.Shape[0])
	step := max(1, fillElements/max(1, row))
	v := make([]float32, min(step, p.Shape[0])*row)
	for at := 0; at < p.Shape[0]; at += step {
		to := min(at+step, p.Shape[0])
		part := v[:(to-at)*row]
		ok, err := o.weights[piece.Kind].Read(p, family.Region{From: at, To: to}, part)
		if err == nil && !ok {
			err = fmt.Errorf("%s of %s is not in the source", piece.Kind, p.Name)
		}
		if err != nil {
			return nil, err
		}
		from := len(raw)
		raw = raw[:from+len(part)*d.Size()]
		tensor.Narrow(d, part, raw[from:])
	}
	return raw, nil
}

// ExportStates writes what the training of an own checkpoint has beside the weights, by the names of
// Hugging Face, as float32 below dir, and opens it; nil where it has no moments of AdamW.
func (e *Exporter) ExportStates(dir string) (*torch.States, error) {
	s := &torch.States{Kinds: map[string]checkpoint.Source{}, Step: e.Saved.Step()}
	have := e.Saved.Kinds()
	if !slices.Contains(have, checkpoint.ExpAvg) || !slices.Contains(have, checkpoint.ExpAvgSq) {
		return nil, nil
	}
	var state []float64
	if err := e.Saved.Section("state", &state); err != nil {
		return nil, err
	}
	if len(state) > 0 {
		s.Updates = int64(state[0])
	}
	for _, kind := range []string{checkpoint.Master, checkpoint.ExpAvg, checkpoint.ExpAvgSq} {
		if !slices.Contains(have, kind) {
			continue
		}
		f32 := func(string) string { return "F32" }
		sink, err := checkpoint.NewWriter(filepath.Join(dir, kind), e.Model.HFTensors(f32), ShardBytes)
		if err != nil {
			return nil, err
		}
		err = e.Model.Export(sink, f32, func(p *grad.Param, v []float32) error {
			return e.readKinds(p.Name, p.Shape, v, kind)
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s of the optimizer: %w", kind, err), sink.Abort())
		}
		src, err := checkpoint.OpenDir(filepath.Join(dir, kind))
		if err != nil {
			return nil, err
		}
		s.Kinds[kind] = src
		s.Closing(src.Close)
	}
	return s, nil
}

// convertedTypes are those that the source of a converted checkpoint had, nil for a run's.
func convertedTypes(saved *checkpoint.Reader) map[string]string {
	var c Converted
	if saved == nil || saved.Section(ConvertedSection, &c) != nil {
		return nil
	}
	return c.Types
}
