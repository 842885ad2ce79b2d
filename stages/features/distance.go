package features

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// linName is that of LPIPS' weights of map i by channel, [1 c 1 1].
func linName(prefix string, i int) string { return fmt.Sprintf("%slin%d.model.1.weight", prefix, i) }

func lin(r *block.Rec, prefix string, i, width int) *grad.Value {
	return r.T.Param(linName(prefix, i), []int{1, width, 1, 1}, -1, 1, true)
}

// Distance is how far y lies from x, both pixels [n h w 3] from -1 to 1, of which y learns:
// the distance of LPIPS (arXiv:1801.03924) of each image times its weight [n] in float32, summed, [1] in float32.
// Of every map of the network the channels of a place are brought to length 1; the squares of their differences count
// by the weights of the file, or by 1 where it has none, and their sum's mean over places is added up over the maps.
func (n *Net) Distance(r *block.Rec, prefix string, y, x, weight *grad.Value) *grad.Value {
	t := r.T
	ours, theirs := n.Maps(r, prefix, y), n.Maps(r, prefix, x)
	var sum *grad.Value
	for i, a := range ours {
		b, c := theirs[i], n.Widths[i]
		places := a.Shape[1] * a.Shape[2]
		each := t.Scale(weight, 1/float64(places))
		a, b = unit(r, a), unit(r, b)
		var d *grad.Value
		if n.Lins {
			off := t.Add(a, t.Scale(b, -1))
			point := kernels.Window{Stride: 1, Dilation: 1}
			off = t.Conv(t.Mul(off, off), lin(r, prefix, i, c), nil, point, point)
			zero := t.ConstOf("zeros", make([]float32, a.Shape[0]*places), off.Shape...)
			d = t.PointLoss(off, zero, each, nil, kernels.AbsoluteLoss, 0) // none is negative
		} else {
			d = t.PointLoss(a, b, each, nil, kernels.SquaredLoss, 0)
		}
		if sum == nil {
			sum = d
		} else {
			sum = t.Add(sum, d)
		}
	}
	return sum
}

// unit brings the channels of each place to length 1.
func unit(r *block.Rec, x *grad.Value) *grad.Value {
	c := x.Shape[len(x.Shape)-1]
	w := make([]float32, c)
	for i := range w {
		w[i] = float32(invSqrt(c))
	}
	return r.T.ChannelNorm(x, r.T.ConstOf("unit", w, c))
}
