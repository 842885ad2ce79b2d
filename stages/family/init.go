package family

import (
	"hash/fnv"
	"math"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Region is the part of a logical parameter that a rank holds: rows [From, To) of its tensor-parallel slice TP of Of.
type Region struct {
	TP, Of   int
	From, To int
}

// Box gives the region's first element and extent in the logical tensor seen as [rows, cols]; rows of padding are no part of it.
func (g Region) Box(p *grad.Param) (row, rows, col, cols int) {
	cols = tensor.Len(p.Shape[1:])
	row, rows = g.From, g.To-g.From
	if len(p.Place.Cuts(0)) > 0 {
		row = min(row+g.TP*p.Local[0], p.Shape[0])
		rows = min(rows, p.Shape[0]-row)
	}
	if len(p.Place.Cuts(1)) > 0 {
		cols = tensor.Len(p.Local[1:])
		col = g.TP * cols
	}
	return
}

// Init fills dst, row by row, with the initial values of a region of parameter p: ones for norms (less what they add to their weights), zeros for biases and
// adapters' B, else normal values with InitStd, divided by sqrt(2·layers) for projections into the residual stream, as
// Megatron-LM does. Values depend on seed, name and logical place only, so every plan starts from the same model.
func (m *Model) Init(seed uint64, p *grad.Param, g Region, dst []float32) {
	s := m.Spec
	std := s.InitStd
	if std == 0 {
		std = 0.02
	}
	switch {
	case m.Vision != nil && strings.Contains(p.Name, ".scale"):
		fill32(dst, float32(m.Vision.Config.Scale))
		return
	case len(p.Shape) == 1 && strings.HasSuffix(p.Name, ".weight"): // norms
		plus := 0.0
		if m.Component(p.Name) == Foundation {
			plus = s.Norm.Plus
		}
		fill32(dst, float32(1-plus))
		return
	case strings.HasSuffix(p.Name, ".bias"), strings.HasSuffix(p.Name, "lora_B.weight"):
		fill32(dst, 0)
		return
	case strings.HasSuffix(p.Name, "lora_A.weight"): // kaiming_uniform(a=sqrt 5) has this standard deviation
		std = 1 / math.Sqrt(3*float64(p.Shape[1]))
	case strings.HasSuffix(p.Name, "o_proj.weight"), strings.HasSuffix(p.Name, "down_proj.weight"):
		std /= math.Sqrt(2 * float64(s.Layers))
	}
	h := fnv.New64a()
	h.Write([]byte(p.Name))
	key := mix(seed ^ h.Sum64())
	width := tensor.Len(p.Shape[1:])
	row, rows, col, cols := g.Box(p)
	for i := range rows {
		for k := range cols {
			dst[i*cols+k] = float32(std * normal(key, uint64((row+i)*width+col+k)))
		}
	}
}

func fill32(dst []float32, v float32) {
	for i := range dst {
		dst[i] = v
	}
}

// mix is SplitMix64's finaliser.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normal is the i-th value of a stream: Box and Muller's transform of two counter-based uniforms.
func normal(key, i uint64) float64 {
	pair := i / 2
	a := mix(key + (2*pair+1)*0x9e3779b97f4a7c15)
	b := mix(key + (2*pair+2)*0x9e3779b97f4a7c15)
	r := math.Sqrt(-2 * math.Log((float64(a>>11)+0.5)/(1<<53)))
	phi := 2 * math.Pi * float64(b>>11) / (1 << 53)
	if i%2 == 0 {
		return r * math.Cos(phi)
	}
	return r * math.Sin(phi)
}
