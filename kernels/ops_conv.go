package kernels

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Convolutions along one, two or three axes of space. Activations have channels last, [n, s…, c]: they are
// rows of channels like all others here, so that norms by row, linear layers and attention read them as they
// lie, and a product with the weights writes rows. Weights are [f, c/g, k…] as PyTorch has them, so that
// checkpoints and their gradients need no other order; a backend packs them for its products.
//
// A transposed convolution is the gradient to the input of a convolution: conv_transpose of x with weights [in, out/g,
// k…] is conv_dx, its gradient to x is conv, and that to its weights conv_dw with x and dy in each other's place.
const (
	Conv   Op = "conv"
	ConvDX Op = "conv_dx"
	ConvDW Op = "conv_dw"
)

// Space is the number of axes of space that operations on [n, s…, c] take at most.
const Space = 3

// convProducts is the one product that a convolution is: for each output position and group, a row of c/g·k…
// inputs times the group's rows of the weights.
func convProducts(y, w []int) []Product {
	if len(w) == 0 || w[0] == 0 {
		return nil
	}
	return []Product{{Count: 1, M: prod(y) / int64(y[len(y)-1]), N: int64(w[0]), K: prod(w[1:])}}
}

var _ = register(Spec{Op: Conv, Sig: "x[*]A w[*]A bias[f]A? -> y[*]A",
	Products: func(in, out [][]int) []Product { return convProducts(out[0], in[1]) },
	Source:   "torch.nn.functional.conv1d, conv2d, conv3d", Doc: "x [n, s…, c], w [f, c/g, k…], y [n, o…, f], with " +
		"one, two or three axes of space: y[n, o, j] = bias[j] + Σ x[n, o·stride - before + κ·dilation, c] · w[j, c, " +
		"κ] over κ and the channels c of output j's group; inputs outside x are 0. The g groups of channels follow " +
		"from the shapes. I[1], I[2] and I[3] are the windows of the axes (Window.Pack), the outermost first; sizes " +
		"are those of w. Sums in float32, rounded once."}, Spec{Op: ConvDX, Sig: "dy[*]A w[*]A bias[c]A? -> dx[*]A",
	Products: func(in, out [][]int) []Product { return convProducts(in[0], in[1]) },
	Source:   "torch.nn.functional.conv_transpose1d and its kin", Doc: "dx[n, i, c] = bias[c] + Σ dy[n, o, j] " +
		"· w[j, c, κ] over all o and κ with o·stride - before + κ·dilation = i: the gradient of conv to x, where " +
		"bias is absent, and a transposed convolution. The size of dx is the caller's, since a stride leaves several."},
	Spec{Op: ConvDW, Sig: "dy[*]A x[*]A -> dw[*]f32",
		Products: func(in, out [][]int) []Product { return convProducts(in[0], out[0]) },
		Doc: "dw[j, c, κ] = Σ dy[n, o, j] · x[n, o·stride - before + κ·dilation, c] over n and o: the gradient " +
			"of conv to w. I[0] = Accumulate adds into dw. The gradient of bias is col_sum."})

func init() {
	extra[Conv] = func(c *Call) error { return checkConv(c, c.In[0], c.In[1], c.Out[0]) }
	extra[ConvDX] = func(c *Call) error { return checkConv(c, c.Out[0], c.In[1], c.In[0]) }
	extra[ConvDW] = func(c *Call) error { return checkConv(c, c.In[1], c.Out[0], c.In[0]) }
}

// Windows are those of a convolution with weights w, an axis each.
func Windows(at Attr, w []int) []Window {
	l := make([]Window, len(w)-2)
	for i := range l {
		l[i] = WindowOf(at.I[1+i])
		l[i].Size = w[2+i]
	}
	return l
}

// checkConv wants shapes that belong together, of x, w and y of conv.
func checkConv(c *Call, x, w, y *tensor.Tensor) error {
	rank := len(w.Shape) - 2
	if rank < 1 || rank > Space || len(x.Shape) != rank+2 || len(y.Shape) != rank+2 {
		return fmt.Errorf("%v, weights %v and %v: want [n, s…, c], [f, c/g, k…] and [n, o…, f], 1 to %d axes",
			x, w, y, Space)
	}
	if err := checkGroupsOf(x.Shape[rank+1], w, y.Shape[rank+1]); err != nil {
		return err
	}
	if x.Shape[0] != y.Shape[0] {
		return fmt.Errorf("%v and %v: as many samples of both are wanted", x, y)
	}
	for i, win := range Windows(c.Attr, w.Shape) {
		if err := win.check(); err != nil {
			return err
		}
		if have, want := y.Shape[1+i], win.Out(x.Shape[1+i]); have != want {
			return fmt.Errorf("axis %d of space has %d outputs, a window %+v gives %d of %d", i, have, win, want,
				x.Shape[1+i])
		}
	}
	if b := optional(c.In, 2); b != nil && b.Len() != lastOf(c.Out[0]) {
		return fmt.Errorf("bias %v of %d channels", b, lastOf(c.Out[0]))
	}
	return nil
}

func lastOf(t *tensor.Tensor) int { return t.Shape[len(t.Shape)-1] }

// checkGroupsOf wants channels that the groups of a convolution share out.
func checkGroupsOf(c int, w *tensor.Tensor, f int) error {
	each := w.Shape[1]
	switch {
	case w.Shape[0] != f:
		return fmt.Errorf("weights %v for %d outputs", w, f)
	case each == 0 && c == 0:
		return nil
	case each == 0 || c%each != 0 || f%max(1, c/each) != 0:
		return fmt.Errorf("weights %v do not share %d channels out to %d in groups", w, c, f)
	}
	return nil
}

// Groups is the number of groups of a convolution of c channels with weights w; 1 where there are none.
func Groups(c int, w []int) int {
	if w[1] == 0 {
		return 1
	}
	return max(1, c/w[1])
}
