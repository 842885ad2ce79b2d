package family

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Cut is one cut of a tensor: part At of Of along an axis.
type Cut struct{ Axis, At, Of int }

// CutsOf lists how a parameter is cut for the rank at pos of a mesh, outermost first.
func CutsOf(o *grad.Options, p *grad.Param, pos []int) (out []Cut) {
	for m, a := range o.Mesh {
		if x := p.Place.On(m); x.Kind == grad.Sharded {
			out = append(out, Cut{int(x.Axis), pos[m], a.Size})
		}
	}
	return
}

// Region is the part of a logical parameter that a rank holds: of the slice that its cuts leave, rows [From, To).
type Region struct {
	Cuts     []Cut // outermost first; each slices what the ones before have left
	From, To int
}

// Whole is a parameter as one rank alone holds it.
func Whole(p *grad.Param) Region { return Region{To: p.Shape[0]} }

// Place says in hyper-parameters of an update where the region's numbers lie in the whole tensor, for what rounds them by
// chance: no plan changes that. Of a tensor that is cut along two axes behind the first it is what the last one says.
func (g Region) Place(p *grad.Param, h []float64) {
	run, pitch, first := 0, 0, 0
	for axis, n := range p.Shape {
		iv := g.Intervals(p)[axis]
		first = first*n + iv[0]
		if run, pitch = run*p.Local[axis], pitch*n; axis > 0 && p.Local[axis] < n {
			run, pitch = p.Local[axis], n
		}
	}
	h[kernels.HyperFirst], h[kernels.HyperRun], h[kernels.HyperPitch] = float64(first), float64(run), float64(pitch)
}

// Intervals is the region as half-open intervals, one an axis of the logical tensor; rows of padding are no part of it.
func (g Region) Intervals(p *grad.Param) [][2]int {
	out := make([][2]int, len(p.Shape))
	for axis, n := range p.Shape {
		at := 0
		for _, c := range g.Cuts {
			if c.Axis == axis {
				n = (n + c.Of - 1) / c.Of
				at += c.At * n
			}
		}
		out[axis] = [2]int{min(at, p.Shape[axis]), min(at+n, p.Shape[axis])}
		if axis == 0 {
			out[0] = [2]int{min(at+g.From, p.Shape[0]), min(at+g.To, p.Shape[0])}
		}
	}
	return out
}

// Box gives the region's first element and extent in the logical tensor seen as [rows, cols]; rows of
// padding are no part of it. A cut behind the second axis has no such view: Intervals serves every region.
func (g Region) Box(p *grad.Param) (row, rows, col, cols int) {
	iv := g.Intervals(p)
	row, rows, cols = iv[0][0], iv[0][1]-iv[0][0], 1
	for axis, x := range iv {
		switch {
		case axis == 0:
		case axis == 1:
			col, cols = x[0], x[1]-x[0]
		case x[1]-x[0] < p.Shape[axis]:
			panic(fmt.Sprintf("family: %s is cut along axis %d", p.Name, axis))
		default:
			col, cols = col*p.Shape[axis], cols*p.Shape[axis]
		}
	}
	return
}

// Start is how a parameter begins: with one value everywhere, with one of each place, or with normal values
// of a deviation.
type Start struct {
	Value *float32
	Std   float64
	At    func(place int) float32 // a value for each place; nil for none
	Even  float64                 // uniform values up to so much on both sides of 0
	Like  string                  // a parameter of the same shape whose values they are, "" for its own
}

// InitStd is the deviation of first values where a model says none.
const InitStd = 0.02

// Init fills dst, row by row, with the initial values of a region of parameter p: ones for norms (less what
// they add to their weights), zeros for biases and adapters' B, else normal values with InitStd, divided by
// sqrt(2·layers) for projections into the residual stream, as Megatron-LM does. Values depend on seed, name
// and logical place only, so every plan starts from the same model.
func (m *Model) Init(seed uint64, p *grad.Param, g Region, dst []float32) {
	s := m.Spec
	std := s.InitStd
	if std == 0 {
		std = InitStd
	}
	var start Start
	if m.Initial != nil {
		switch start = m.Initial(p.Name); {
		case start.Value != nil:
			fill32(dst, *start.Value)
			return
		case start.At != nil:
			at := 0
			Places(g.Intervals(p), p.Shape, 0, func(from, n int) {
				for i := range n {
					dst[at+i] = start.At(from + i)
				}
				at += n
			})
			return
		case start.Std > 0:
			std = start.Std
		}
	}
	switch {
	case p.IsState():
		fill32(dst, 0)
		return
	case m.Vision != nil && strings.Contains(p.Name, ".scale"):
		fill32(dst, float32(m.Vision.FirstScale))
		return
	case len(p.Shape) == 1 && strings.HasSuffix(p.Name, ".weight"): // norms
		plus := 0.0
		// but of the delta rule
		if m.Component(p.Name) == Foundation && !strings.HasSuffix(p.Name, ".self_attn.norm.weight") {
			plus = s.Norm.Plus
		}
		fill32(dst, float32(1-plus))
		return
	case strings.HasSuffix(p.Name, ".dt_bias"):
		fill32(dst, 1)
		return
	case strings.HasSuffix(p.Name, ".bias"), strings.HasSuffix(p.Name, "correction_bias"),
		strings.HasSuffix(p.Name, "lora_B.weight"):
		fill32(dst, 0)
		return
	case strings.HasSuffix(p.Name, "lora_A.weight"): // kaiming_uniform(a=sqrt 5) has this standard deviation
		std = 1 / math.Sqrt(3*float64(p.Shape[len(p.Shape)-1]))
	case strings.HasSuffix(p.Name, "o_proj.weight"), strings.HasSuffix(p.Name, "down_proj.weight"):
		std /= math.Sqrt(2 * float64(s.Layers))
	}
	value := func(z float64) float64 { return std * z }
	if start.Even > 0 {
		value = func(z float64) float64 { return start.Even * math.Erf(z/math.Sqrt2) }
	}
	// the logarithm of what is uniform up to 16, as in transformers
	if strings.HasSuffix(p.Name, ".self_attn.decay") {
		value = func(z float64) float64 { return math.Log(0.01 + 15.99*0.5*(1+math.Erf(z/math.Sqrt2))) }
	}
	h := fnv.New64a()
	h.Write([]byte(cmp.Or(start.Like, p.Name)))
	key := kernels.SplitMix(seed ^ h.Sum64())
	eachShare(g.Intervals(p), p.Shape, dst, func(from int, dst []float32) {
		for i := range dst {
			dst[i] = float32(value(normal(key, uint64(from+i))))
		}
	})
}

// eachShare calls f for the runs of neighbours that intervals of a tensor have, with the part of dst that is
// of each, in shares of rows that goroutines take: a billion values would else take a minute.
func eachShare(iv [][2]int, shape []int, dst []float32, f func(from int, dst []float32)) {
	rows, width := iv[0][1]-iv[0][0], 1
	for _, x := range iv[1:] {
		width *= x[1] - x[0]
	}
	shares := max(1, min(runtime.GOMAXPROCS(0), rows, rows*width>>shareBits))
	var all sync.WaitGroup
	for s := range shares {
		part := slices.Clone(iv)
		from, to := rows*s/shares, rows*(s+1)/shares
		part[0] = [2]int{iv[0][0] + from, iv[0][0] + to}
		all.Go(func() {
			at := from * width
			Places(part, shape, 0, func(place, n int) {
				f(place, dst[at:at+n])
				at += n
			})
		})
	}
	all.Wait()
}

// shareBits is the binary logarithm of the fewest values that are worth a goroutine.
const shareBits = 15

// Places calls f for the runs of neighbours that intervals of a tensor have, in order.
func Places(iv [][2]int, shape []int, base int, f func(from, n int)) {
	if len(iv) == 1 {
		f(base+iv[0][0], iv[0][1]-iv[0][0])
		return
	}
	for i := iv[0][0]; i < iv[0][1]; i++ {
		Places(iv[1:], shape[1:], base+i*tensor.Len(shape[1:]), f)
	}
}

// fill32 sets all of dst to v, as the weights of norms begin with 1 and biases with 0.
func fill32(dst []float32, v float32) {
	for i := range dst {
		dst[i] = v
	}
}

// normal is the i-th value of a stream: Box and Muller's transform of two counter-based uniforms.
func normal(key, i uint64) float64 {
	pair := i / 2
	a := kernels.SplitMix(key + (2*pair+1)*0x9e3779b97f4a7c15)
	b := kernels.SplitMix(key + (2*pair+2)*0x9e3779b97f4a7c15)
	r := math.Sqrt(-2 * math.Log((float64(a>>11)+0.5)/(1<<53)))
	phi := 2 * math.Pi * float64(b>>11) / (1 << 53)
	if i%2 == 0 {
		return r * math.Cos(phi)
	}
	return r * math.Sin(phi)
}
