package kernels

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Norms over channels and space, and what changes the size or the order of [n, s…, c].
//
// Trained batch norm is group_norm of [1, n·s…, c] with a group for each channel; the norm of channels that
// video autoencoders have, x/max(‖x‖, ε)·√c·w, is rmsnorm with ε²/c under the root.
const (
	GroupNorm    Op = "group_norm"
	GroupNormDX  Op = "group_norm_dx"
	GroupNormDW  Op = "group_norm_dw"
	GroupMoments Op = "group_moments"
	GroupJoin    Op = "group_join"
	GroupScale   Op = "group_scale"
	GroupScaleDX Op = "group_scale_dx"
	FrozenNorm   Op = "frozen_norm"
	FrozenNormDX Op = "frozen_norm_dx"
	Resize       Op = "resize"
	ResizeBwd    Op = "resize_bwd"
	Pool         Op = "pool"
	PoolBwd      Op = "pool_bwd"
	Pad          Op = "pad"
	Permute      Op = "permute"
)

// Kinds of resize, I[0].
const (
	Nearest  = iota // the input at ⌊o·in/out⌋
	Bilinear        // between the two inputs about (o+½)·in/out - ½, which is at least 0
)

// Kinds of pool, I[0].
const (
	MaxPool  = iota // the first of the largest; -Inf of nothing but padding
	MeanPool        // the sum over the size of the kernel: padding counts as zeros
	MeanIn          // the mean of those within the input, 0 of none
)

var _ = register(Spec{Op: GroupNorm, Sig: "x[n,...,c]A w[c]A b[c]A? -> y[n,...,c]A rstd[n,g]f32 mean[n,g]f32",
	Source: "arXiv:1803.08494", Doc: "With mean and rstd = 1/sqrt(var + F[0]) of each sample's " +
		"groups of c/g channels over all places: y = (x - mean)·rstd·w + b. In float32, rounded once."},
	Spec{Op: GroupNormDX, Sig: "dy[n,...,c]A x[n,...,c]A w[c]A rstd[n,g]f32 mean[n,g]f32 -> dx[n,...,c]A",
		Doc: "With e = dy·w and z = (x - mean)·rstd: dx = rstd·(e - mean(e) - z·mean(e·z)), means over what x's are."},
	Spec{Op: GroupNormDW, Sig: "dy[n,...,c]A x[n,...,c]A rstd[n,g]f32 mean[n,g]f32 -> dw[c]f32",
		Doc: "dw = Σ over samples and places of dy·z. I[0] = Accumulate adds into dw. The gradient of b is col_sum."},
	Spec{Op: GroupMoments, Sig: "x[n,...,c]A -> mean[n,g]f32 square[n,g]f32", Doc: "The statistics of " +
		"group_norm by themselves, of places that are a part of all: mean, and the mean of (x - mean)² over the part."},
	Spec{Op: GroupJoin, Sig: "mean[m,g]f32 square[m,g]f32 -> rstd[n,g]f32 mean[n,g]f32",
		Doc: "Those of all of m/n parts of as many places each, row k·n + i of part k of sample i: " +
			"mean is the parts' mean, var that of square + (part's mean - mean)², rstd = 1/sqrt(var + F[0])."},
	Spec{Op: GroupScale, Sig: "x[n,...,c]A w[c]A b[c]A? rstd[n,g]f32 mean[n,g]f32 -> y[n,...,c]A",
		Doc: "group_norm by given statistics: y = (x - mean)·rstd·w + b. In float32, rounded once."},
	Spec{Op: GroupScaleDX, Sig: "dy[1,...,c]A x[1,...,c]A w[c]A rstd[1,g]f32 mean[1,g]f32 dw[c]f32 db[c]f32 " +
		"-> dx[1,...,c]A", Doc: "group_norm_dx of one sample of which this is a part: dw = Σ dy·z and db = Σ dy over " +
		"all of its I[0] places. With N = I[0]·c/g: dx = rstd·(dy·w - Σ w·db/N - z·Σ w·dw/N), sums over the channels " +
		"of a group."}, Spec{Op: FrozenNorm, Sig: "x[...,c]A w[c]A b[c]A mean[c]A|f32 var[c]A|f32 -> y[...,c]A " +
		"rstd[1,c]f32 center[1,c]f32", Doc: "Batch norm of statistics that do not change: rstd = 1/sqrt(var " +
		"+ F[0]), center = mean, y = (x - mean)·rstd·w + b. The gradient to w is group_norm_dw of [1, …, c]."},
	Spec{Op: FrozenNormDX, Sig: "dy[...,c]A w[c]A rstd[1,c]f32 -> dx[...,c]A", Doc: "dx = dy·rstd·w."},
	Spec{Op: Resize, Sig: "x[n,...,c]A -> y[*]A", Source: "torch.nn.functional.interpolate, align_corners = False",
		Doc: "[n, s…, c] to another size of its one to three axes of space, that of y. I[0] is the " +
			"kind, Nearest or Bilinear, of each axis by itself. Weights and sums in float32, rounded once."},
	Spec{Op: ResizeBwd, Sig: "dy[n,...,c]A -> dx[*]A", Doc: "The gradient of resize; dx has the size of x."},
	Spec{Op: Pool, Sig: "x[n,...,c]A -> y[*]A", Source: "torch.nn.functional.max_pool2d, avg_pool2d and their kin",
		Doc: "What a window of [n, s…, c] has, by channel. I[0] is the kind; I[1], I[2], I[3] are the windows of " +
			"the axes (Window.Pack), the outermost first, as of conv but that padding counts as nothing, or as zeros."},
	Spec{Op: PoolBwd, Sig: "dy[*]A x[n,...,c]A? -> dx[*]A", Doc: "The gradient of pool; x is wanted with " +
		"MaxPool alone, whose dy goes to the input that was taken."}, Spec{Op: Pad, Sig: "x[n,...,c]T -> y[*]T",
		Doc: "[n, s…, c] between zeros: I[1], I[2], I[3] are windows (Window.Pack) of which " +
			"Before and After count; negative ones leave places out. The gradient is pad by as much less."},
	Spec{Op: Permute, Sig: "x[*]T -> y[*]T", Doc: "Axis i of y is axis p of x, where p is the i-th of the digits " +
		"of I[0] to the base 16, the lowest first. The gradient is the same with the inverse order."})

// spaceShape wants shapes of samples and channels alike with one to three axes of space between.
func spaceShape(x, y *tensor.Tensor) error {
	n := len(x.Shape)
	if n < 3 || n > Space+2 || len(y.Shape) != n || x.Shape[0] != y.Shape[0] || lastOf(x) != lastOf(y) {
		return fmt.Errorf("%v and %v: want [n, s…, c] of one to %d axes, both of as many samples and channels",
			x, y, Space)
	}
	return nil
}

// checkWindowed wants the size that windows of a call give of that of x; pooled tells whether they have a size.
func checkWindowed(c *Call, x, y *tensor.Tensor, pooled bool) error {
	if err := spaceShape(x, y); err != nil {
		return err
	}
	for i := range len(x.Shape) - 2 {
		w := WindowOf(c.Attr.I[1+i])
		if !pooled {
			w = Window{Size: 1, Stride: 1, Dilation: 1, Before: w.Before, After: w.After}
		}
		if err := w.check(); err != nil {
			return err
		}
		if pooled && w.Size < 1 {
			return fmt.Errorf("axis %d of space has a window of size %d", i, w.Size)
		}
		if want := w.Out(x.Shape[1+i]); y.Shape[1+i] != want {
			return fmt.Errorf("axis %d of space has %d places, a window %+v gives %d of %d", i, y.Shape[1+i], w,
				want, x.Shape[1+i])
		}
	}
	return nil
}

// Order is the order of axes that a permute of so many has.
func Order(at Attr, n int) []int {
	l := make([]int, n)
	for i := range l {
		l[i] = at.I[0] >> (4 * i) & 15
	}
	return l
}

// PermuteAttr is the attribute of an order of axes, at most 15.
func PermuteAttr(order []int) (at Attr) {
	for i, p := range order {
		at.I[0] |= p << (4 * i)
	}
	return at
}

// checkPermute checks that the order names each axis once and that the output has the axes in that order.
func checkPermute(c *Call) error {
	x, y := c.In[0], c.Out[0]
	order := Order(c.Attr, len(x.Shape))
	sorted := slices.Sorted(slices.Values(order))
	for i, p := range order {
		if sorted[i] != i || len(y.Shape) != len(order) || y.Shape[i] != x.Shape[p] {
			return fmt.Errorf("%v in the order %v is not %v", x, order, y)
		}
	}
	return nil
}

// checkGroupsIn checks that channels fall into whole groups; no channels at all are allowed.
func checkGroupsIn(c, g int) error {
	if c > 0 && (g == 0 || c%g != 0) {
		return fmt.Errorf("%d channels in %d groups", c, g)
	}
	return nil
}

func init() {
	extra[GroupNorm] = func(c *Call) error { return checkGroupsIn(c.In[1].Len(), lastOf(c.Out[1])) }
	extra[GroupNormDX] = func(c *Call) error { return checkGroupsIn(c.In[2].Len(), lastOf(c.In[3])) }
	extra[GroupNormDW] = func(c *Call) error { return checkGroupsIn(c.Out[0].Len(), lastOf(c.In[2])) }
	extra[GroupMoments] = func(c *Call) error { return checkGroupsIn(lastOf(c.In[0]), lastOf(c.Out[0])) }
	extra[GroupJoin] = func(c *Call) error {
		if m, n := c.In[0].Shape[0], c.Out[0].Shape[0]; n == 0 || m < n || m%n != 0 {
			return fmt.Errorf("%d rows are no whole number of parts of %d samples", m, n)
		}
		return nil
	}
	extra[GroupScale] = func(c *Call) error { return checkGroupsIn(c.In[1].Len(), lastOf(c.In[3])) }
	extra[GroupScaleDX] = func(c *Call) error {
		if c.Attr.I[0] < 1 {
			return fmt.Errorf("I[0] is %d places", c.Attr.I[0])
		}
		return checkGroupsIn(c.In[2].Len(), lastOf(c.In[3]))
	}
	resize := func(c *Call) error {
		if k := c.Attr.I[0]; k != Nearest && k != Bilinear {
			return fmt.Errorf("resize I[0] is %d, want %d or %d", k, Nearest, Bilinear)
		}
		return spaceShape(c.In[0], c.Out[0])
	}
	extra[Resize], extra[ResizeBwd] = resize, resize
	pool := func(c *Call, x, y *tensor.Tensor) error {
		if k := c.Attr.I[0]; k < MaxPool || k > MeanIn {
			return fmt.Errorf("pool I[0] is %d, want %d to %d", k, MaxPool, MeanIn)
		}
		return checkWindowed(c, x, y, true)
	}
	extra[Pool] = func(c *Call) error { return pool(c, c.In[0], c.Out[0]) }
	extra[PoolBwd] = func(c *Call) error {
		if have := optional(c.In, 1) != nil; have != (c.Attr.I[0] == MaxPool) {
			return fmt.Errorf("x is there: %v, with kind %d", have, c.Attr.I[0])
		}
		return pool(c, c.Out[0], c.In[0])
	}
	extra[Pad] = func(c *Call) error { return checkWindowed(c, c.In[0], c.Out[0], false) }
	extra[Permute] = checkPermute
}
