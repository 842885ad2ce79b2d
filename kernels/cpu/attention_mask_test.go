package cpu

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// maskedCall is attention over n rows of which tiles of maskStep see themselves and the one before.
func maskedCall(a tensor.DType, n, h, d int) *kernels.Call {
	tiles := ceilDiv(n, maskStep)
	blocks := tensor.Make(tensor.I32, tiles, ceilDiv(tiles, 32))
	for i := range tiles {
		for _, j := range []int{max(0, i-1), i} {
			blocks.I32()[i*blocks.Shape[1]+j/32] |= 1 << (j % 32)
		}
	}
	cu := tensor.Of(tensor.I32, []int32{0, int32(n)}, 2)
	return &kernels.Call{Op: kernels.Attention, In: ts{filled(a, n, h, d), filled(a, n, 1, d),
		filled(a, n, 1, d), cu, cu, blocks},
		Out:  ts{tensor.Make(a, n, h, d), tensor.Make(tensor.F32, n, h)},
		Attr: kernels.Attr{I: [4]int{0, 0, maskStep}, F: [2]float64{.2}}}
}

// backward is the gradient of a call of attention that has run.
func backward(c *kernels.Call) *kernels.Call {
	do := filled(c.In[0].DType, c.Out[0].Shape...)
	g := &kernels.Call{Op: kernels.AttentionBwd,
		In: append(ts{do, c.In[0], c.In[1], c.In[2], c.Out[0], c.Out[1]}, c.In[3:]...), Attr: c.Attr}
	for _, x := range c.In[:3] {
		g.Out = append(g.Out, tensor.Make(x.DType, x.Shape...))
	}
	return g
}

// TestUnseenBlocksAreSkipped: a NaN in keys and values that only some tiles see shows in no other tile's result, which
// it would if the product with its exact zeros were computed at all; with one sequence cut for any number of threads.
func TestUnseenBlocksAreSkipped(t *testing.T) {
	const n, h, d, bad = 6 * maskStep, 2, 32, 3*maskStep + 7
	nan := func(t *tensor.Tensor, row int) {
		for i := row * d; i < (row+1)*d; i++ {
			if t.DType == tensor.F32 {
				t.F32()[i] = float32(math.NaN())
			} else {
				t.U16()[i] = 0x7fff
			}
		}
	}
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, k := range tested() {
			for _, threads := range []int{1, 3} {
				b := newBackend(k, threads)
				c := maskedCall(a, n, h, d)
				nan(c.In[1], bad)
				nan(c.In[2], bad)
				b.Run(c)
				g := backward(c)
				b.Run(g)
				b.Close()
				for i, x := range wide(c.Out[0]) {
					if tile := i / (maskStep * h * d); tile == 3 || tile == 4 {
						require.True(t, x != x, "%s %v: row %d does see it", k.name, a, i/(h*d))
						// no tile of a product reaches over the border
					} else if at := i / (h * d) % maskStep; at >= amxSide && at < maskStep-amxSide {
						require.False(t, x != x, "%s %v: row %d", k.name, a, i/(h*d))
					}
				}
				// the gradient of keys that no query of tiles 3 and 4 sees
				for i, x := range wide(g.Out[1])[:maskStep*d] {
					require.False(t, x != x, "%s %v: gradient of key %d", k.name, a, i/d)
				}
			}
		}
	}
}

// TestMaskedThreads: over several blocks of keys and ranges of queries the bits are the same for any number
// of threads, and rows that a mask hides have gradients of exactly 0.
func TestMaskedThreads(t *testing.T) {
	const n, h, d = 1300, 2, 32
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, k := range tested() {
			var first []*tensor.Tensor
			for _, threads := range []int{1, 3} {
				b := newBackend(k, threads)
				c := maskedCall(a, n, h, d)
				for i := range c.In[5].I32() {
					c.In[5].I32()[i] &^= 1 << 4 // nobody sees keys 512 to 639
				}
				b.Run(c)
				g := backward(c)
				b.Run(g)
				b.Close()
				out := append(append(ts(nil), c.Out...), g.Out...)
				if first == nil {
					first = out
				}
				for i := range out {
					require.Equal(t, first[i].Bytes(), out[i].Bytes(), "%s %v: output %d with %d threads",
						k.name, a, i, threads)
				}
				for _, o := range g.Out[1:] {
					v := wide(o)
					for i := range v {
						hidden := i/d >= 4*maskStep && i/d < 5*maskStep
						require.Equal(t, hidden, v[i] == 0, "%s %v: gradient of key %d", k.name, a, i/d)
					}
				}
			}
		}
	}
}

// BenchmarkMasked gives attention over 4096 rows where tiles see two of 32, and a window of three frames,
// over the time without a mask: the share of the work that is left.
func BenchmarkMasked(b *testing.B) {
	const n, h, d = 4096, 8, 64
	be := New(1)
	defer be.Close()
	pos := tensor.Make(tensor.I32, n, 3)
	for i := range n {
		copy(pos.I32()[3*i:], []int32{int32(i / 256), int32(i / 16 % 16), int32(i % 16)})
	}
	full, blocks, video := maskedCall(tensor.F32, n, h, d), maskedCall(tensor.F32, n, h, d),
		maskedCall(tensor.F32, n, h, d)
	full.In, full.Attr.I[2] = full.In[:5], 0
	video.In, video.Attr.I[2] = append(video.In[:5:5], nil, pos, pos,
		tensor.Of(tensor.I32, []int32{1, 1, 4, 4, 4, 4}, 6)), 0
	for name, c := range map[string]*kernels.Call{"full": full, "blocks": blocks, "video": video} {
		b.Run(name, func(b *testing.B) { bench(b, be, c, 1e9, "1/s") })
		b.Run(name+"/backward", func(b *testing.B) { bench(b, be, backward(c), 1e9, "1/s") })
	}
}
