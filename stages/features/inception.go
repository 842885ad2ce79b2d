package features

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// inception is Inception v3 under torchvision's names, in the form in which the Fréchet distance is computed:
// the one of TensorFlow's 2015 weights, whose means leave padding out and whose last block takes a maximum in
// its pooled branch (pytorch-fid's FIDInception blocks).
type inception struct{}

var _ = register(class{name: "Inception v3 (pytorch-fid's pt_inception-2015-12-05: Conv2d_1a_3x3.conv.weight …)",
	paper: "arXiv:1512.00567", net: inceptionOf})

// inceptionEps is under the root of its norms.
const inceptionEps = 0.001

func inceptionOf(has map[string]checkpoint.Info) (*Net, error) {
	if _, ok := has["Conv2d_1a_3x3.conv.weight"]; !ok {
		return nil, nil
	}
	if _, ok := has["Mixed_7c.branch_pool.conv.weight"]; !ok {
		return nil, fmt.Errorf("Mixed_7c.branch_pool.conv.weight is missing")
	}
	var x inception
	return &Net{Side: 299, Width: 2048, whole: x.whole}, nil
}

// win is the window of a convolution or a pooling of one axis.
func win(size, stride, pad int) kernels.Window {
	return kernels.Window{Size: size, Stride: stride, Dilation: 1, Before: pad, After: pad}
}

// layer is convolution, frozen norm and ReLU. Its windows are those of the rows and of the columns.
func layer(r *block.Rec, name string, x *grad.Value, out int, rows, columns kernels.Window) *grad.Value {
	t := r.T
	w := t.Param(name+".conv.weight", []int{out, x.Shape[3], rows.Size, columns.Size}, -1, 1, true)
	p := func(part string) *grad.Value { return t.Param(name+".bn."+part, []int{out}, -1, 1, false) }
	rows.Size, columns.Size = 0, 0 // the weights have them
	y := t.Conv(x, w, nil, rows, columns)
	return t.Act(t.FrozenNorm(y, p("weight"), p("bias"), p("running_mean"), p("running_var"), inceptionEps),
		kernels.ReLU)
}

// square is a layer whose axes have one window.
func square(r *block.Rec, name string, x *grad.Value, out, size, stride, pad int) *grad.Value {
	return layer(r, name, x, out, win(size, stride, pad), win(size, stride, pad))
}

// wide and high are layers of 1×7 and 7×1 places.
func wide(r *block.Rec, name string, x *grad.Value, out, size int) *grad.Value {
	return layer(r, name, x, out, win(1, 1, 0), win(size, 1, size/2))
}

func high(r *block.Rec, name string, x *grad.Value, out, size int) *grad.Value {
	return layer(r, name, x, out, win(size, 1, size/2), win(1, 1, 0))
}

func pooled(r *block.Rec, x *grad.Value, kind, size, stride, pad int) *grad.Value {
	return r.T.Pool(x, kind, win(size, stride, pad), win(size, stride, pad))
}

func (inception) whole(r *block.Rec, prefix string, x *grad.Value) *grad.Value {
	x = square(r, prefix+"Conv2d_1a_3x3", x, 32, 3, 2, 0)
	x = square(r, prefix+"Conv2d_2a_3x3", x, 32, 3, 1, 0)
	x = square(r, prefix+"Conv2d_2b_3x3", x, 64, 3, 1, 1)
	x = square(r, prefix+"Conv2d_3b_1x1", pooled(r, x, kernels.MaxPool, 3, 2, 0), 80, 1, 1, 0)
	x = square(r, prefix+"Conv2d_4a_3x3", x, 192, 3, 1, 0)
	x = pooled(r, x, kernels.MaxPool, 3, 2, 0)
	for i, out := range []int{32, 64, 64} {
		x = mixed5(r, fmt.Sprintf("%sMixed_5%c", prefix, 'b'+i), x, out)
	}
	x = mixed6a(r, prefix+"Mixed_6a", x)
	for i, c := range []int{128, 160, 160, 192} {
		x = mixed6(r, fmt.Sprintf("%sMixed_6%c", prefix, 'b'+i), x, c)
	}
	x = mixed7a(r, prefix+"Mixed_7a", x)
	x = mixed7(r, prefix+"Mixed_7b", x, kernels.MeanIn)
	return mean(r, mixed7(r, prefix+"Mixed_7c", x, kernels.MaxPool))
}

func mixed5(r *block.Rec, name string, x *grad.Value, pool int) *grad.Value {
	five := square(r, name+".branch5x5_2", square(r, name+".branch5x5_1", x, 48, 1, 1, 0), 64, 5, 1, 2)
	double := square(r, name+".branch3x3dbl_1", x, 64, 1, 1, 0)
	double = square(r, name+".branch3x3dbl_2", double, 96, 3, 1, 1)
	double = square(r, name+".branch3x3dbl_3", double, 96, 3, 1, 1)
	return r.T.Concat(3, square(r, name+".branch1x1", x, 64, 1, 1, 0), five, double,
		square(r, name+".branch_pool", pooled(r, x, kernels.MeanIn, 3, 1, 1), pool, 1, 1, 0))
}

func mixed6a(r *block.Rec, name string, x *grad.Value) *grad.Value {
	double := square(r, name+".branch3x3dbl_1", x, 64, 1, 1, 0)
	double = square(r, name+".branch3x3dbl_2", double, 96, 3, 1, 1)
	double = square(r, name+".branch3x3dbl_3", double, 96, 3, 2, 0)
	return r.T.Concat(3, square(r, name+".branch3x3", x, 384, 3, 2, 0), double, pooled(r, x, kernels.MaxPool, 3, 2, 0))
}

func mixed6(r *block.Rec, name string, x *grad.Value, c int) *grad.Value {
	one := square(r, name+".branch7x7_1", x, c, 1, 1, 0)
	one = high(r, name+".branch7x7_3", wide(r, name+".branch7x7_2", one, c, 7), 192, 7)
	double := square(r, name+".branch7x7dbl_1", x, c, 1, 1, 0)
	double = wide(r, name+".branch7x7dbl_3", high(r, name+".branch7x7dbl_2", double, c, 7), c, 7)
	double = wide(r, name+".branch7x7dbl_5", high(r, name+".branch7x7dbl_4", double, c, 7), 192, 7)
	return r.T.Concat(3, square(r, name+".branch1x1", x, 192, 1, 1, 0), one, double,
		square(r, name+".branch_pool", pooled(r, x, kernels.MeanIn, 3, 1, 1), 192, 1, 1, 0))
}

func mixed7a(r *block.Rec, name string, x *grad.Value) *grad.Value {
	three := square(r, name+".branch3x3_2", square(r, name+".branch3x3_1", x, 192, 1, 1, 0), 320, 3, 2, 0)
	seven := square(r, name+".branch7x7x3_1", x, 192, 1, 1, 0)
	seven = high(r, name+".branch7x7x3_3", wide(r, name+".branch7x7x3_2", seven, 192, 7), 192, 7)
	return r.T.Concat(3, three, square(r, name+".branch7x7x3_4", seven, 192, 3, 2, 0),
		pooled(r, x, kernels.MaxPool, 3, 2, 0))
}

func mixed7(r *block.Rec, name string, x *grad.Value, pool int) *grad.Value {
	three := square(r, name+".branch3x3_1", x, 384, 1, 1, 0)
	double := square(r, name+".branch3x3dbl_2", square(r, name+".branch3x3dbl_1", x, 448, 1, 1, 0), 384, 3, 1, 1)
	return r.T.Concat(3, square(r, name+".branch1x1", x, 320, 1, 1, 0),
		wide(r, name+".branch3x3_2a", three, 384, 3), high(r, name+".branch3x3_2b", three, 384, 3),
		wide(r, name+".branch3x3dbl_3a", double, 384, 3), high(r, name+".branch3x3dbl_3b", double, 384, 3),
		square(r, name+".branch_pool", pooled(r, x, pool, 3, 1, 1), 192, 1, 1, 0))
}
