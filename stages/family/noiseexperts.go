package family

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// LowNoise is the component of the second of two models that share out the levels of noise, and the folder
// that it has in a pipeline of diffusers.
// In the words of the field: noise experts.
const LowNoise = "transformer_2"

// The dimensions of a microbatch that say which of two models it reaches: 1 where a sample of it has a level
// of the model's.
const (
	highLevels = "high_levels"
	lowLevels  = "low_levels"
)

// lowPort is the name of a port of the second model.
func lowPort(name string) string { return LowNoise + "." + name }

// Halves says that a model is two of a kind: samples of levels from time Border on are those of the first,
// and others of the second (Wan 2.2, arXiv:2503.20314). Microbatches of samples of one of them run that one
// alone; others run both on all rows, and each learns from its own.
type Halves struct {
	Border float32
	low    *Denoiser
}

// reaches says which of the models the levels of some samples are of. Samples that are none, of padding, are
// the first one's.
func (p latents) reaches(items []Encoded) (high, low bool) {
	for i := range items {
		if p.d.level(&items[i]).Time >= p.d.Halves.Border {
			high = true
		} else {
			low = true
		}
	}
	return high || !low, low
}

// The bits of a class that say which model is reached.
const (
	highBit = 1 << 14
	lowBit  = 1 << 15
)

// reach adds to a class which models samples are of.
func (p latents) reach(class int32, items []Encoded) int32 {
	if p.d.Halves == nil {
		return class
	}
	high, low := p.reaches(items)
	if high {
		class |= highBit
	}
	if low {
		class |= lowBit
	}
	return class
}

// Fill implements Filler: both models run.
func (p latents) Fill(class int32) int32 {
	if p.d.Halves != nil {
		class |= highBit | lowBit
	}
	return class
}

// halves marks the rows of each model, which only microbatches of both need.
func (p latents) halves(in *Inputs, s block.Shape, floats func(name string, shape ...int) []float32) {
	if p.d.Halves == nil || !p.d.mixed(s) {
		return
	}
	high, low := floats(highLevels, in.Rows), floats(lowLevels, in.Rows)
	for _, x := range p.items(in) {
		mark := low
		if p.d.level(&x).Time >= p.d.Halves.Border {
			mark = high
		}
		for i := range x.Tokens() {
			mark[int(x.From)+i] = 1
		}
	}
}

// mixed reports whether both models run.
func (d *Denoiser) mixed(s block.Shape) bool { return s.Dim(highLevels) > 0 && s.Dim(lowLevels) > 0 }

// own are the rows of a model that is one of two, [rows] with 1 for those and 0 for others; nil where all are.
func (d *Denoiser) own(r *block.Rec) *grad.Value {
	if d.half == "" || !d.mixed(r.Shape) {
		return nil
	}
	return r.T.Data("dif."+d.half, tensor.F32, d.Rows(r.Shape))
}

// Halved makes one model of m and low, which are alike: m has the levels of noise from time border on, and
// low, whose parameters are called LowNoise and a dot before their names in m, those below. Blocks lie by
// turns, so that a stage of a pipeline has as much of one as of the other. What m's Denoiser has of a run is
// set before, encoders of captions are put before it afterwards (Follow).
func Halved(m, low *Model, border float32) error {
	if m.Denoiser == nil || m.Denoiser.Canvas || len(m.Blocks) != len(low.Blocks) {
		return fmt.Errorf("the levels of noise of %s cannot be shared out to two models", m.Family)
	}
	m.Denoiser.Halves, m.Denoiser.half = &Halves{border, low.Denoiser}, highLevels
	var blocks []Block
	for i := range m.Blocks {
		b := m.Blocks[i]
		b.Of, b.Texts = highLevels, b.Texts || i == 0
		blocks = append(blocks, b, second(low.Blocks[i], low.Ports, i == 0))
	}
	m.Blocks = blocks
	for name, p := range low.Ports {
		p.Of = lowLevels
		m.Ports[lowPort(name)] = p
	}
	for name := range low.Ports {
		p := m.Ports[name]
		p.Of = highLevels
		m.Ports[name] = p
	}
	m.Parts = append(m.Parts, Part{Component: LowNoise, Prefix: LowNoise + "."})
	source, other, initial := m.Source, m.Other, m.Initial
	bare := func(name string) string { return strings.TrimPrefix(name, LowNoise+".") }
	m.Source = func(name string) Source { return source(bare(name)) }
	if other != nil {
		m.Other = func(name string) Source { return other(bare(name)) }
	}
	if initial != nil {
		m.Initial = func(name string) Start { return initial(bare(name)) }
	}
	if m.Alone == nil {
		m.Alone = map[string][]func(string) Source{}
	}
	for _, c := range []string{LowNoise, Foundation} {
		if m.Alone[c] = append(m.Alone[c], m.Source); other != nil {
			m.Alone[c] = append(m.Alone[c], m.Other)
		}
	}
	return nil
}

// second is a block of the second model: it takes and gives ports of its own.
func second(b Block, own map[string]Port, first bool) Block {
	record, name := b.Record, b.Name
	b.Name, b.Of, b.Texts = LowNoise+"."+name, lowLevels, b.Texts || first
	b.Takes, b.Gives = slices.Clone(b.Takes), slices.Clone(b.Gives)
	for _, list := range [][]string{b.Takes, b.Gives} {
		for i := range list {
			list[i] = lowPort(list[i])
		}
	}
	b.Record = func(r *block.Rec, env map[string]*grad.Value) {
		mine := maps.Clone(env)
		delete(mine, "logits")
		for port := range own {
			delete(mine, port)
			if v := env[lowPort(port)]; v != nil {
				mine[port] = v
			}
		}
		end := r.T.Within(LowNoise + ".")
		record(r, mine)
		end()
		for port := range own {
			if mine[port] != nil {
				env[lowPort(port)] = mine[port]
			}
		}
		if y := mine["logits"]; y != nil {
			if before := env["logits"]; before != nil {
				y = r.T.Add(before, y)
			}
			env["logits"] = y
		}
	}
	return b
}

// Follow lets the second of two models know what has been set of the first since Halved.
func (d *Denoiser) Follow() {
	if h := d.Halves; h != nil {
		*h.low = *d
		h.low.half = lowLevels
	}
}
