package kernels

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// AdamW8 is AdamW with moments in eight bits.
const AdamW8 Op = "adamw_8bit"

var _ = register(Spec{Op: AdamW8, Sig: "g[...,k]f32 hyper[H]f64 clip[3]f64 -> p[...,k]f32 m[...,k]u8 " +
	"v[...,k]u8 ms[...,b]f32 vs[...,b]f32 q[...,k]A?", Source: "arXiv:2110.02861, as torchao.optim.AdamW8bit",
	Doc: "adamw whose moments are kept as places in a dynamic map of 256 numbers (DynamicMap: of m with, of v " +
		"without a sign), each times a scale of its block of k/b numbers along the last axis: the greatest of them, " +
		"1e-12 at least. p is made of the moments as they are computed. Arithmetic is of float32 numbers, each result " +
		"rounded, in the order of AdamW8Block."})

func init() {
	extra[AdamW8] = func(c *Call) error {
		g, s := c.In[0].Shape, c.Out[3].Shape
		if b := s[len(s)-1]; b == 0 && g[len(g)-1] > 0 || b > 0 && g[len(g)-1]%b != 0 {
			return fmt.Errorf("%d numbers in %d blocks", g[len(g)-1], b)
		}
		return nil
	}
}

// EightLeast is the least scale of a block.
const EightLeast = 1e-12

// dynamic is a map of 256 numbers in order, and how a number of [-1, 1] finds its nearest: all that begin
// with the same 16 bits have the same place, and those from the edge on the one behind it.
type dynamic struct {
	of    [256]float32
	place [1 << 16]uint8
	edge  [1 << 16]float32
}

var (
	dynamicSigned   = sync.OnceValue(func() *dynamic { return newDynamic(true) })
	dynamicUnsigned = sync.OnceValue(func() *dynamic { return newDynamic(false) })
)

// DynamicMap is the map of numbers in eight bits of arXiv:2110.02861 (bitsandbytes' create_dynamic_map):
// decades from 1e-6 on, each with twice as many steps as the one below.
func DynamicMap(signed bool) [256]float32 {
	if signed {
		return dynamicSigned().of
	}
	return dynamicUnsigned().of
}

func newDynamic(signed bool) *dynamic {
	all := []float32{0, 1}
	for i := range 7 {
		n := 1<<(i+1) + 1
		if signed {
			n = 1<<i + 1
		}
		edges := linspace(0.1, 1, n)
		for j := range n - 1 {
			x := float32(math.Pow10(i-6)) * float32(float32(edges[j]+edges[j+1])/2)
			if all = append(all, x); signed {
				all = append(all, -x)
			}
		}
	}
	slices.Sort(all)
	d := &dynamic{}
	copy(d.of[:], all)
	d.index()
	return d
}

// linspace is torch's, in float32: each product and sum is rounded once.
func linspace(from, to float32, n int) []float32 {
	out, step := make([]float32, n), float64(float32(to-from)/float32(n-1))
	for i := range out {
		if out[i] = float32(float64(from) + step*float64(i)); i >= n/2 {
			out[i] = float32(float64(to) - step*float64(n-1-i))
		}
	}
	return out
}

// nearest is the place of x by its definition: the nearest, and the upper one of two as near.
func (d *dynamic) nearest(x float32) int {
	at, found := slices.BinarySearch(d.of[:], x)
	if !found {
		at--
	}
	switch {
	case at < 0:
		return 0
	case at == 255:
		return 255
	}
	if x-d.of[at] >= float32(d.of[at+1]-d.of[at])*0.5 {
		at++
	}
	return at
}

// index fills the places and edges: in numbers that begin alike there is one edge at most, for bf16's
// numbers lie closer than the map's.
func (d *dynamic) index() {
	for i := range d.place {
		low, high := math.Float32frombits(uint32(i)<<16), math.Float32frombits(uint32(i)<<16|0xffff)
		if low < 0 {
			low, high = high, low
		}
		d.edge[i] = float32(math.NaN()) // of no number, nor of infinity, which is the last place's
		if low != low || high != high {
			d.place[i] = 255
			continue
		}
		a, b := d.nearest(low), d.nearest(high)
		d.place[i] = uint8(a)
		if a != b {
			d.edge[i] = d.first(low, high, b)
		}
	}
}

// first is the least number of [low, high] whose place is b.
func (d *dynamic) first(low, high float32, b int) float32 {
	for low < high {
		mid := low + (high-low)/2
		if mid == high {
			mid = low
		}
		if d.nearest(mid) >= b {
			high = mid
		} else if low = math.Nextafter32(mid, high); low > high {
			low = high
		}
	}
	return high
}

// find is the place of a number of [-1, 1].
func (d *dynamic) find(x float32) uint8 {
	i, up := math.Float32bits(x)>>16, uint8(0)
	if x >= d.edge[i] { // without a branch, which would be guessed wrong every other time
		up = 1
	}
	return d.place[i] + up
}

// AdamW8Hyper are the scalars of an update by AdamW8, in float32.
type AdamW8Hyper struct{ factor, keep, beta2, m1, m2, step, eps, rootInv float32 }

// AdamW8Scalars are those of a call, and whether anything is to be done.
func AdamW8Scalars(c *Call) (k AdamW8Hyper, ok bool) {
	h, clip := c.In[1].F64(), c.In[2].F64()
	decay := h[HyperDecay]
	if c.Attr.I[0] == 1 {
		decay = 0
	}
	return AdamW8Hyper{factor: float32(clip[ClipFactor]), keep: float32(1 - h[HyperLR]*decay),
		beta2: float32(h[HyperBeta2]), m1: float32(1 - h[HyperBeta1]), m2: float32(1 - h[HyperBeta2]),
		step: float32(h[HyperLR] / h[HyperCorrection1]), eps: float32(h[HyperEps]),
		rootInv: float32(1 / math.Sqrt(h[HyperCorrection2]))}, clip[ClipOverflow] != 1
}

// AdamW8Block updates block i of a call and writes all but the model's copy; room is as long as a block, twice.
func AdamW8Block(c *Call, k *AdamW8Hyper, i int, room []float32) {
	sm, sv := c.Out[3].F32(), c.Out[4].F32()
	n := c.In[0].Len() / len(sm)
	g, p := c.In[0].F32()[i*n:(i+1)*n], c.Out[0].F32()[i*n:(i+1)*n]
	cm, cv := c.Out[1].Bytes()[i*n:(i+1)*n], c.Out[2].Bytes()[i*n:(i+1)*n]
	m, v := room[:n], room[n:2*n]
	ds, du := dynamicSigned(), dynamicUnsigned()
	mostM, mostV := float32(EightLeast), float32(EightLeast)
	p, cm, cv, m, v = p[:len(g)], cm[:len(g)], cv[:len(g)], m[:len(g)], v[:len(g)]
	scaleM, scaleV, h := sm[i], sv[i], *k
	for j, x := range g {
		x = float32(x * h.factor)
		a, b := float32(ds.of[cm[j]]*scaleM), float32(du.of[cv[j]]*scaleV)
		a += float32(h.m1 * float32(x-a))
		b = float32(h.beta2*b) + float32(float32(h.m2*x)*x)
		p[j] = float32(p[j]*h.keep) - float32(float32(h.step*a)/
			float32(float32(float32(math.Sqrt(float64(b)))*h.rootInv)+h.eps))
		m[j], v[j] = a, b
		mostM, mostV = max(mostM, a, -a), max(mostV, b)
	}
	sm[i], sv[i] = min(mostM, math.MaxFloat32), min(mostV, math.MaxFloat32)
	for j := range g {
		cm[j], cv[j] = ds.find(m[j]/sm[i]), du.find(v[j]/sv[i])
	}
}
