package rollout

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/topology"
)

// PackedIn are the parameters of a model that training keeps in few bits.
func PackedIn(c *configs.Config, m *family.Model) (map[string]kernels.Packing, error) {
	var err error
	if m.Packed, err = fit.Packed(c, m); m.Packed == nil || err != nil {
		return nil, err
	}
	defer func() { m.Packed = nil }()
	out := map[string]kernels.Packing{}
	for _, p := range m.ParamsOf(grad.Options{Sums: sumsOf(c)}, fit.Lora(c)) {
		if p.Packed.Form > 0 {
			out[p.Name] = p.Packed
		}
	}
	return out, nil
}

// SumsAs has a model take its sums as training does; of matrices in few bits ranks have whole rows.
func SumsAs(c *configs.Config, g *sample.Generator, packed map[string]kernels.Packing) {
	g.SumAs(sumsOf(c), func(name string) bool { return packed[name].Form > 0 })
}

// sumsOf are the ranks along the axes whose members each take a part of a layer's sums.
func sumsOf(c *configs.Config) map[string]int {
	return map[string]int{topology.TP: c.Run.Plan.TP, topology.ETP: c.Run.Plan.ETP}
}

// NumbersOf are those that training has of a parameter: of one in few bits, what is kept so, else each rounded
// to the nearest, as ranks load it.
func NumbersOf(p *grad.Param, packed map[string]kernels.Packing, from family.FillFunc) ([]float32, error) {
	v := make([]float32, tensor.Len(p.Shape))
	form := packed[p.Name]
	if form.Form == 0 {
		_, err := from("param", p, family.Whole(p), v)
		return v, err
	}
	kept, k := *p, p.Columns()
	kept.Packed = form
	words := make([]float32, tensor.Len(kept.Words()))
	raw := tensor.Of(tensor.F32, words, len(words)).Bytes()
	ok, err := from(checkpoint.PackedKind(form, k), &kept, family.Whole(p), words)
	if err == nil && !ok {
		if _, err = from("param", p, family.Whole(p), v); err == nil {
			each := len(raw) / (len(v) / k)
			for i := range len(v) / k {
				form.Pack(raw[i*each:(i+1)*each], v[i*k:(i+1)*k])
			}
		}
	}
	return unpackedRows(form, raw, k), err
}

// unpackedRows are the numbers of rows of k columns that lie in few bits.
func unpackedRows(p kernels.Packing, raw []byte, k int) []float32 {
	_, words := p.Words(k)
	n := len(raw) / (4 * words)
	out := make([]float32, n*k)
	for i := range n {
		p.Decode(out[i*k:(i+1)*k], raw[4*i*words:4*(i+1)*words], k, 0)
	}
	return out
}
