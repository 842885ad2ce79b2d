package latent

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// channels is the width of a value's last axis.
func channels(x *grad.Value) int { return x.Shape[len(x.Shape)-1] }

// same is the window of a convolution of an odd size that keeps the length of its axis.
func same(size int) kernels.Window {
	return kernels.Window{Stride: 1, Dilation: 1, Before: size / 2, After: size / 2}
}

// halve is that of a convolution of size 3 that halves its axis, with padding behind it alone.
var halve = kernels.Window{Stride: 2, Dilation: 1, After: 1}

// conv is the convolution called name of x [n s… c] to out channels, with a bias. Its sizes are kernel, an axis each.
func conv(r *block.Rec, name string, x *grad.Value, out int, kernel []int, wins ...kernels.Window) *grad.Value {
	w := r.T.Param(name+".weight", append([]int{out, channels(x)}, kernel...), -1, 1, true)
	return r.T.Conv(x, w, r.T.Param(name+".bias", []int{out}, -1, 1, false), wins...)
}

// conv2 is one of a picture x [n h w c] that keeps its size.
func conv2(r *block.Rec, name string, x *grad.Value, out, size int) *grad.Value {
	return conv(r, name, x, out, []int{size, size}, same(size), same(size))
}

// silu is x·sigmoid(x).
func silu(r *block.Rec, x *grad.Value) *grad.Value { return r.T.Act(x, kernels.SiLU) }

// twice is x [n h w c] with every row and every column twice.
func twice(r *block.Rec, x *grad.Value) *grad.Value {
	return r.T.Resize(x, kernels.Nearest, 2*x.Shape[1], 2*x.Shape[2])
}

// attend is attention of one head among the places of each of n pictures: q, k and v [n·h·w c] -> the same.
func attend(r *block.Rec, n int, q, k, v *grad.Value) *grad.Value {
	t, c, each := r.T, q.Shape[1], q.Shape[0]/n
	cu := t.Indices("pictures", n+1, func(i int) int { return i * each })
	o := t.Attention(t.Heads(q, c), t.Heads(k, c), t.Heads(v, c), cu, cu,
		grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(c))})
	return t.Flat(o)
}
