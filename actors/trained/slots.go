package trained

import (
	"fmt"
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
	g, err := sample.New(m.Model, lora, tensor.F32, b, tensor.NewPool("slots", 0), func(p *grad.Param,
		r family.Region,
		dst []float32) error {
		if own[p.Name] {
			return m.fill(p, r, dst)
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

// Save writes a slot's adapter into a folder, as PEFT has it.
func (s *Slots) Save(slot int, dir string) error {
	conf := family.AdapterConfig(s.adapter, &s.alone)
	conf.BaseModel = s.m.dir
	return writeAdapters(dir, checkpoint.AdapterPrefix, s.adapter, conf, checkpoint.NewAdapterWriter,
		func(name string, _ []int, dst []float32) error { return s.Trainer.Read(slot, name, dst) })
}

// Load makes a slot the adapter of a folder of PEFT's, which must be of the same layers, rank and scale. On an error
// the slot is as it was.
func (s *Slots) Load(slot int, dir string) error {
	conf, err := checkpoint.ReadAdapterConfig(dir)
	if err != nil {
		return err
	}
	if conf.R != s.alone.Rank || conf.Alpha != s.alone.Alpha || conf.RSLoRA {
		return fmt.Errorf("%s: its rank is %d and its alpha %g, and the server's %d and %g", dir, conf.R,
			conf.Alpha,
			s.alone.Rank, s.alone.Alpha)
	}
	f, err := checkpoint.OpenAdapter(dir)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it is only read
	have := len(f.Tensors())
	parts := map[string][]float32{}
	for _, a := range s.adapter {
		down, up := a.Tensors(checkpoint.AdapterPrefix, conf.R)
		x, err := whole(f, down)
		if err != nil {
			return err
		}
		y, err := whole(f, up)
		if err != nil {
			return err
		}
		a.Split(conf.R, x, y, parts)
		have -= 2
	}
	if have != 0 {
		return fmt.Errorf("%s has tensors of layers that have no adapter here", dir)
	}
	return s.Trainer.Write(slot, func(name string, _ []int) ([]float32, error) { return parts[name], nil })
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
