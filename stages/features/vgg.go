package features

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// vgg is a network of 3×3 convolutions with a maximum of 2×2 places between groups of them: VGG 11, 13, 16 and 19
// without batch norms, under torchvision's names, in which every activation and every maximum counts as a layer.
type vgg struct {
	widths []int
	pools  map[int]bool // layers that are maxima
	layers []int        // those that are convolutions
	lins   bool
}

var _ = register(class{name: "VGG (torchvision's features.0.weight …, LPIPS' lin0.model.1.weight …)",
	paper: "arXiv:1409.1556; LPIPS arXiv:1801.03924", net: vggOf})

// imageNet are the means and deviations of ImageNet's pixels from 0 to 1, which torchvision's networks read.
var imageMean, imageStd = [3]float32{0.485, 0.456, 0.406}, [3]float32{0.229, 0.224, 0.225}

const vggMost = 64 // layers

// vggOf finds convolutions by their numbers: a layer that is no convolution is an activation if a convolution
// stands before it, and else a maximum.
func vggOf(has map[string]checkpoint.Info) (*Net, error) {
	first, ok := has["features.0.weight"]
	if _, norm := has["features.1.running_mean"]; !ok || norm || len(first.Shape) != 4 || first.Shape[2] != 3 {
		return nil, nil
	}
	v := &vgg{pools: map[int]bool{}}
	for i, from := 0, 3; i < vggMost; i++ {
		w, ok := has[fmt.Sprintf("features.%d.weight", i)]
		switch {
		case ok:
			if b := has[fmt.Sprintf("features.%d.bias", i)]; len(w.Shape) != 4 || w.Shape[1] != from ||
				w.Shape[2] != 3 || w.Shape[3] != 3 || len(b.Shape) != 1 || b.Shape[0] != w.Shape[0] {
				return nil, fmt.Errorf("features.%d is %v behind %d channels", i, w.Shape, from)
			}
			from = w.Shape[0]
			v.layers, v.widths = append(v.layers, i), append(v.widths, from)
			i++ // its activation
		case i+1 < vggMost && has[fmt.Sprintf("features.%d.weight", i+1)].Name != "":
			v.pools[i] = true
		default:
			i = vggMost
		}
	}
	n := &Net{Side: 224, Width: v.widths[len(v.widths)-1], maps: v.maps, whole: v.whole}
	for i, layer := range v.layers {
		in := 3
		if i > 0 {
			in = v.widths[i-1]
		}
		n.Work += float64(9*in*v.widths[i]) / float64(int(1)<<(2*len(n.Widths)))
		if i+1 == len(v.layers) || v.pools[layer+2] {
			n.Widths = append(n.Widths, v.widths[i])
		}
	}
	for i, width := range n.Widths {
		w, ok := has[linName("", i)]
		if ok && (len(w.Shape) != 4 || w.Shape[1] != width) {
			return nil, fmt.Errorf("%s is %v for a map of %d channels", w.Name, w.Shape, width)
		}
		if i > 0 && ok != v.lins {
			return nil, fmt.Errorf("there are weights of LPIPS for some of its %d maps", len(n.Widths))
		}
		v.lins = ok
	}
	n.Lins = v.lins
	return n, nil
}

// maps are what stands behind the last activation before each maximum, and behind the last of all.
func (v *vgg) maps(r *block.Rec, prefix string, x *grad.Value) (all []*grad.Value) {
	t := r.T
	x = scaled(r, x)
	win := kernels.Window{Stride: 1, Dilation: 1, Before: 1, After: 1}
	for i, layer := range v.layers {
		name := fmt.Sprintf("%sfeatures.%d", prefix, layer)
		c := x.Shape[len(x.Shape)-1]
		w := t.Param(name+".weight", []int{v.widths[i], c, 3, 3}, -1, 1, true)
		x = t.Act(t.Conv(x, w, t.Param(name+".bias", []int{v.widths[i]}, -1, 1, false), win, win), kernels.ReLU)
		if i+1 == len(v.layers) || v.pools[layer+2] {
			all = append(all, x)
		}
		if v.pools[layer+2] {
			half := kernels.Window{Size: 2, Stride: 2, Dilation: 1}
			x = t.Pool(x, kernels.MaxPool, half, half)
		}
	}
	return all
}

// whole is the mean of the last map.
func (v *vgg) whole(r *block.Rec, prefix string, x *grad.Value) *grad.Value {
	all := v.maps(r, prefix, x)
	return mean(r, all[len(all)-1])
}

// scaled brings pixels from -1 to 1 to ImageNet's mean and deviation.
func scaled(r *block.Rec, x *grad.Value) *grad.Value {
	t := r.T
	var middle, variance [3]float32
	for c := range 3 {
		middle[c], variance[c] = 2*imageMean[c]-1, 4*imageStd[c]*imageStd[c]
	}
	return t.FrozenNorm(x, t.ConstOf("ones", []float32{1, 1, 1}, 3), t.ConstOf("zeros", make([]float32, 3), 3),
		t.Const("pixels.mean", middle[:]), t.Const("pixels.variance", variance[:]), 0)
}

// mean is that over the places of each image of x [n h w c], [n c].
func mean(r *block.Rec, x *grad.Value) *grad.Value {
	h, w := x.Shape[1], x.Shape[2]
	all := func(n int) kernels.Window { return kernels.Window{Size: n, Stride: n, Dilation: 1} }
	return r.T.View(r.T.Pool(x, kernels.MeanPool, all(h), all(w)), x.Shape[0], x.Shape[3])
}
