package trained

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/tenants"
)

// Slots is a model with adapters side by side that are trained and drawn with. It is for one goroutine.
type Slots struct {
	Engine  *sample.Engine
	Trainer *tenants.Trainer
	m       *Trained
	alone   block.Lora // of one slot's adapter
	adapter []family.Adapter
	close   func()
}

// Slots opens the model with lora.Slots adapters beside its weights, on a processor with all its threads, in
// float32. A sequence that is trained on has at most rows tokens; most are computed at once.
func (m *Trained) Slots(lora *block.Lora, rows, most int, o sample.EngineOptions) (*Slots, error) {
	if m.Lora != nil {
		return nil, exit.Usagef("the model has an adapter of its own: export it with lora.merge, and train on that")
	}
	s := &Slots{m: m, alone: *lora}
	s.alone.Slots = 0
	var err error
	if s.adapter, err = m.Model.PEFT(&s.alone); err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	b, err := kernels.Open(kernels.CPU, kernels.Options{})
	if err != nil {
		return nil, err
	}
	own := map[string]bool{}
	for _, p := range m.Model.Params(nil) {
		own[p.Name] = true
	}
	g, err := sample.New(m.Model, lora, tensor.F32, b, tensor.NewPool("slots", 0),
		func(p *grad.Param, r family.Region, dst []float32) error {
			if own[p.Name] {
				return m.Fill(p, r, dst)
			}
			clear(dst)
			return nil
		})
	if err == nil {
		if s.Trainer, err = tenants.New(g, rows, most); err != nil {
			g.Close()
		}
	}
	if err == nil {
		o.Lean = true
		if s.Engine, err = m.engineOf(g, o); err != nil {
			s.Trainer.Close()
		}
	}
	if err != nil {
		kernels.Close(b)
		return nil, err
	}
	s.close = func() {
		s.Trainer.Close()
		s.Engine.Close()
		kernels.Close(b)
	}
	return s, nil
}

// Close gives the memory back.
func (s *Slots) Close() { s.close() }

// optimizerFolder has what the optimizer keeps of an adapter, beside PEFT's files.
const optimizerFolder = "optimizer"

// Save writes a slot's adapter into a folder that there is not yet, as PEFT has it, and with state what its optimizer
// keeps. The folder, whose name does not begin with a dot, appears when all of it is there.
func (s *Slots) Save(slot int, dir string, state bool) error {
	partial := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".partial") // the name of no adapter
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	conf := family.AdapterConfig(s.adapter, &s.alone)
	conf.BaseModel = s.m.Dir
	err := WriteAdapters(partial, AdapterForm{s.m.Model, &s.alone, checkpoint.AdapterPrefix, checkpoint.NewAdapterWriter}, s.adapter, conf,
		func(name string, _ []int, dst []float32) error { return s.Trainer.Read(slot, name, dst) })
	if err == nil && state {
		err = s.saveState(slot, filepath.Join(partial, optimizerFolder))
	}
	if err == nil {
		err = os.Rename(partial, dir)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	return nil
}

// stepsName is the tensor of the number of updates.
const stepsName = "steps"

// saveState writes what the optimizer keeps of a slot.
func (s *Slots) saveState(slot int, dir string) error {
	shapes := s.Trainer.Shapes()
	infos := []checkpoint.Info{{Name: stepsName, DType: "I64", Shape: []int{1}}}
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		infos = append(infos, checkpoint.Info{Name: name, DType: "F32", Shape: shapes[name]})
	}
	w, err := checkpoint.NewWriter(dir, infos, 0)
	if err != nil {
		return err
	}
	state := s.Trainer.State(slot)
	for _, i := range infos {
		raw, box := binary.LittleEndian.AppendUint64(nil, uint64(state.Steps)), make([][2]int, len(i.Shape))
		if i.Name != stepsName {
			raw = make([]byte, 4*tensor.Len(i.Shape))
			tensor.Narrow(tensor.F32, state.Moments[i.Name], raw)
		}
		for k, n := range i.Shape {
			box[k][1] = n
		}
		if err := w.WriteRanges(i.Name, box, raw); err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Commit()
}

// loadState reads what saveState has written.
func loadState(dir string) (state tenants.State, err error) {
	f, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return state, fmt.Errorf("the adapter was saved without state: %w", err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	state.Moments = map[string][]float32{}
	for _, t := range f.Tensors() {
		if t.Name != stepsName {
			if state.Moments[t.Name], err = readFloats(f, t); err != nil {
				return state, err
			}
			continue
		}
		var raw [8]byte
		if err := f.ReadInto(stepsName, 0, 8, raw[:]); err != nil {
			return state, err
		}
		state.Steps = int64(binary.LittleEndian.Uint64(raw[:]))
	}
	return state, nil
}

// Load makes a slot the adapter of a folder of PEFT's, which must be of the same layers, rank and scale, and with state
// takes up what its optimizer kept, without which that begins anew. On an error the slot is as it was.
func (s *Slots) Load(slot int, dir string, state bool) error {
	var kept tenants.State
	if state {
		var err error
		if kept, err = loadState(filepath.Join(dir, optimizerFolder)); err != nil {
			return err
		}
	}
	conf, err := checkpoint.ReadAdapterConfig(dir)
	if err != nil {
		return err
	}
	if conf.R != s.alone.Rank || conf.Alpha != s.alone.Alpha || conf.RSLoRA {
		return fmt.Errorf("%s: its rank is %d and its alpha %g, and the server's %d and %g", dir, conf.R, conf.Alpha,
			s.alone.Rank, s.alone.Alpha)
	}
	f, err := checkpoint.OpenAdapter(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	if err := conf.Check(f); err != nil {
		return err
	}
	have := len(f.Tensors())
	parts := map[string][]float32{}
	for _, a := range s.adapter {
		infos := a.Tensors(checkpoint.AdapterPrefix)
		x, err := whole(f, infos[0])
		if err != nil {
			return err
		}
		y, err := whole(f, infos[1])
		if err != nil {
			return err
		}
		a.Split(x, y, parts)
		have -= 2
	}
	if have != 0 {
		return fmt.Errorf("%s has tensors of layers that have no adapter here", dir)
	}
	put := func(name string, _ []int) ([]float32, error) { return parts[name], nil }
	if !state {
		return s.Trainer.Write(slot, put)
	}
	if err := s.Trainer.Fits(kept); err != nil {
		return err
	}
	if err := s.Trainer.Write(slot, put); err != nil {
		return err
	}
	return s.Trainer.SetState(slot, kept)
}

// whole reads a matrix of a file as float32.
func whole(f *checkpoint.File, want checkpoint.Info) ([]float32, error) {
	for _, t := range f.Tensors() {
		if t.Name != want.Name {
			continue
		}
		if len(t.Shape) != 2 || t.Shape[0] != want.Shape[0] || t.Shape[1] != want.Shape[1] {
			return nil, fmt.Errorf("%s has the shape %v, and not %v", t.Name, t.Shape, want.Shape)
		}
		return readFloats(f, t)
	}
	return nil, fmt.Errorf("there is no %s", want.Name)
}

// readFloats reads a tensor as float32.
func readFloats(f *checkpoint.File, t checkpoint.Info) ([]float32, error) {
	d, err := tensor.ParseDType(strings.ToLower(string(t.DType)))
	if err != nil {
		return nil, err
	}
	raw := make([]byte, tensor.Len(t.Shape)*d.Size())
	if err := f.ReadInto(t.Name, 0, int64(len(raw)), raw); err != nil {
		return nil, err
	}
	out := make([]float32, tensor.Len(t.Shape))
	tensor.Widen(d, raw, out)
	return out, nil
}
