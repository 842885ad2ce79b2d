package texts

import (
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Before puts an encoder's blocks before those of a denoiser, which then reads their states in the place of
// ones that were made beforehand: the encoder is a component like any other, that a plan may cut, place and
// train. It is called once for a model. Captions come as tokens (family.Encoded.IDs).
func Before(m *family.Model, e *Model, t Take) error {
	if err := e.Check(t); err != nil {
		return err
	}
	states, pooled := In(Component, StatesPort), ""
	if t.Pooled {
		pooled = In(Component, PooledPort)
	}
	blocks := e.Blocks(Component, t)
	for i := range blocks {
		blocks[i].Of = "" // every microbatch has captions, empty ones at least
	}
	hidden := float64(m.Config.Hidden)
	for i := range blocks { // in the unit of the denoiser's blocks
		blocks[i].Weight /= max(1, 8*hidden*hidden)
	}
	read := []string{states}
	if pooled != "" {
		read = append(read, pooled)
	}
	marked := slices.ContainsFunc(m.Blocks, func(b family.Block) bool { return b.Texts })
	for i, b := range m.Blocks {
		if b.Texts || !marked && i == 0 {
			b.Takes = slices.Concat(b.Takes, read)
		}
		blocks = append(blocks, b)
	}
	m.Blocks, m.Widths = blocks, append(m.Widths, e.parts.widths()...)
	for name, p := range e.Ports(Component) {
		p.Of = ""
		m.Ports[name] = p
	}
	for _, name := range []string{states, pooled} {
		if p, ok := m.Ports[name]; ok {
			p.Whole = true // rows of it are taken by index
			m.Ports[name] = p
		}
	}
	m.Denoiser.Live = &family.Live{States: states, Pooled: pooled}
	canvas := m.Denoiser.Canvas //lfvet:kind its classes of shape have no room for a size more
	if canvas {
		m.Denoiser.Live.Tokens = Component
	}
	m.Modalities = append(m.Modalities, &captions{e, t, canvas})
	m.Parts = append(m.Parts, family.Part{Component: Component, Prefix: Component + "."})
	own := m.Source
	m.Source = func(name string) family.Source {
		if rest, ok := strings.CutPrefix(name, Component+"."); ok {
			return family.Source{Name: rest}
		}
		return own(name)
	}
	if m.Alone == nil {
		m.Alone = map[string][]func(string) family.Source{}
	}
	bare := func(name string) family.Source { // as transformers 5 writes CLIP
		s := m.Source(name)
		s.Name = strings.TrimPrefix(s.Name, "text_model.")
		return s
	}
	m.Alone[Component], m.Alone[family.Foundation] = append(m.Alone[Component], m.Source, bare),
		append(m.Alone[family.Foundation], own)
	return nil
}

// captions is the modality of an encoder before a denoiser.
type captions struct {
	e      *Model
	t      Take
	shared bool // its tokens are as many as the rows of captions of the denoiser's modality, which counts them
}

// lists are the tokens of a microbatch's captions, one a sample.
func (c *captions) lists(in *family.Inputs) [][]int32 {
	var out [][]int32
	items := family.EncodedKey.Of(in.More)
	for i := range items {
		out = append(out, items[i].IDs)
	}
	return out
}

// Classes implements family.Modality.
func (c *captions) Classes() int32 {
	if c.shared {
		return 1
	}
	return 1 << 8
}

// Class is by the tokens of all captions: never 0, since every microbatch runs the encoder.
func (c *captions) Class(in *family.Inputs) int32 {
	if c.shared {
		return 0
	}
	n := 0
	for _, ids := range c.lists(in) {
		n += len(ids)
	}
	return family.SizeClass(n)
}

// Dims implements family.Modality.
func (c *captions) Dims(_ int, class int32) map[string]int {
	return map[string]int{Component: family.ClassSize(class)}
}

// Planned implements family.Modality.
func (c *captions) Planned(_ int, dims map[string]int) int32 {
	if c.shared {
		return 0
	}
	return family.SizeClass(dims[Component])
}

// Tensors are what Blocks read, with rows of padding outside of all captions.
func (c *captions) Tensors(in *family.Inputs, s block.Shape) map[string]*tensor.Tensor {
	lists := c.lists(in)
	data := map[string]*tensor.Tensor{In(Component, "ids"): tensor.Make(tensor.I32, 0),
		In(Component, "cu_seqlens"): tensor.Of(tensor.I32, []int32{0}, 1)}
	if len(lists) > 0 {
		var err error
		if data, err = c.e.Data(Component, lists, c.t); err != nil {
			panic("texts: captions that were checked when they were made tokens of: " + err.Error())
		}
	}
	rows := map[string]int{"ids": s.Dim(Component), "positions": s.Dim(Component),
		"pool": family.Levels(s)} // a row a sample
	for name, n := range rows {
		t := data[In(Component, name)]
		if t == nil || t.Shape[0] == n {
			continue
		}
		longer := tensor.Make(tensor.I32, n)
		copy(longer.I32(), t.I32())
		data[In(Component, name)] = longer
	}
	return data
}

// Fits refuses a caption that the encoder cannot take.
func (m *Model) Fits(ids []int32) error { return m.fits(ids) }
