package family

import (
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// Packing is how a matrix of so many columns can lie in memory as the checkpoint keeps it, without another
// rounding; the zero value is one that cannot.
func (w *Weights) Packing(param string, columns int) kernels.Packing {
	s := w.from(param)
	if s.Stack {
		return w.packingOfEach(s, columns)
	}
	g := quant.GridAt(w.src, s.Name)
	if g == nil || g.Cols != columns || s.Turned || s.Lead > 0 || s.Flat || s.Tail != nil || s.Step > 0 {
		return kernels.Packing{}
	}
	return g.Packing()
}

// packingOfEach is how the matrices of experts that a checkpoint has one by one can lie in memory, all alike.
func (w *Weights) packingOfEach(s Source, columns int) (p kernels.Packing) {
	for e := 0; ; e++ {
		name := s.element(e)
		if _, there := w.infos[name]; !there {
			return p
		}
		g := quant.GridAt(w.src, name)
		if g == nil || g.Cols != columns || s.Turned || s.Step > 0 || s.Within != [2]int{} ||
			e > 0 && g.Packing() != p {
			return kernels.Packing{}
		}
		p = g.Packing()
	}
}

// PackedIn tells by parameter how those that a directory keeps in few bits lie in memory; cannot names a
// tensor that is kept so and that cannot, "" for none.
func (m *Model) PackedIn(dir string) (at map[string]kernels.Packing, cannot string, err error) {
	src, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return nil, "", err
	}
	defer src.Close()
	w, err := m.OpenWeights(src, dir)
	if err != nil {
		return nil, "", err
	}
	at = map[string]kernels.Packing{}
	for _, p := range m.Params(nil) {
		if len(p.Shape) == 3 { // experts, which else are numbers
			if form := w.Packing(p.Name, p.Shape[2]); form.Form > 0 {
				at[p.Name] = form
			}
			continue
		}
		name := w.from(p.Name).Name
		if len(p.Shape) != 2 || !quant.QuantizedAt(w.src, name) {
			continue
		}
		if at[p.Name] = w.Packing(p.Name, p.Shape[1]); at[p.Name].Form == 0 {
			return nil, name, nil
		}
	}
	return at, "", nil
}

// ReadPacked fills dst with the bits of whole rows of a parameter as they lie in memory; false for one
// that the checkpoint does not keep in the parameter's packing.
func (w *Weights) ReadPacked(p *grad.Param, g Region, dst []float32) (bool, error) {
	s, k := w.from(p.Name), p.Columns()
	if w.part != "" && w.m.Component(p.Name) != w.part || w.Packing(p.Name, k) != p.Packed {
		return false, nil
	}
	_, words := p.Packed.Words(k)
	if s.Stack {
		n := p.Shape[1]
		for e := g.Intervals(p)[0][0]; len(dst) > 0; e++ {
			rows := dst[:n*words]
			if err := quant.GridAt(w.src, s.element(e)).Pack([2]int{0, n},
				tensor.Of(tensor.F32, rows, len(rows)).Bytes()); err != nil {
				return false, err
			}
			dst = dst[len(rows):]
		}
		return true, nil
	}
	grid := quant.GridAt(w.src, s.Name)
	for _, r := range s.cover(g.From, g.To) {
		at := (r.logical - g.From) * words
		rows := dst[at : at+r.n*words]
		if err := grid.Pack([2]int{r.file, r.file + r.n}, tensor.Of(tensor.F32, rows, len(rows)).Bytes()); err != nil {
			return false, err
		}
	}
	return true, nil
}

// Linears are the tensors of a checkpoint that have the weights of linear layers which can be kept in few
// bits: not embeddings, heads, routers or experts.
func (m *Model) Linears() map[string]bool {
	asked, before := map[string]bool{}, m.Packed
	m.Packed = func(param string, _ int) kernels.Packing {
		asked[param] = true
		return kernels.Packing{}
	}
	defer func() { m.Packed = before }()
	out := map[string]bool{}
	for _, p := range m.Params(nil) {
		s := m.Source(p.Name)
		if asked[p.Name] && len(p.Shape) == 2 && !s.Turned && s.Lead == 0 && !s.Flat && s.Tail == nil && !s.Stack &&
			s.Step == 0 {
			out[s.Name] = true
		}
	}
	return out
}

// Rounded tells of parameters whose weights can be kept in few bits: those of linear layers, and of experts
// that the checkpoint has one by one. Tensors are those of a checkpoint that they lie in.
func (m *Model) Rounded() (params, tensors map[string]bool) {
	linear := m.Linears()
	params, tensors = map[string]bool{}, map[string]bool{}
	for _, p := range m.Params(nil) {
		s := m.Source(p.Name)
		each := s.Stack && len(p.Shape) == 3 && !s.Turned && s.Step == 0 && s.Within == [2]int{} &&
			strings.HasSuffix(p.Name, ".weight")
		if !linear[s.Name] && !each {
			continue
		}
		params[p.Name] = true
		for _, name := range s.Names(p) {
			tensors[name] = true
		}
	}
	return params, tensors
}
