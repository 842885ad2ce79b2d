package denoisers

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// resnet is ResNet-18 (arXiv:1512.03385) up to its last map of features, as torchvision has it, of views that
// are read whole.
type resnet struct {
	name  string // of its parameters, "" for none
	stem  int    // channels of the first layer
	d     *family.Denoiser
	names func(layer string) string // of a layer in the file; nil leaves it
	norm  func(r *block.Rec, name string, x *grad.Value) *grad.Value
}

// half is the length of an axis behind a convolution or a pool with stride 2 and its edges padded.
func half(n int) int { return (n + 1) / 2 }

// space is the height and width of the map behind layer i: 0 is the stem, with its pool.
func (n *resnet) space(i int) (h, w int) {
	h, w = half(half(n.d.Sight.Size[0])), half(half(n.d.Sight.Size[1]))
	for range max(0, i-1) {
		h, w = half(h), half(w)
	}
	return h, w
}

// channels are those of the map behind layer i.
func (n *resnet) channels(i int) int { return n.stem << max(0, i-1) }

// rows is the number of rows of the map behind layer i.
func (n *resnet) rows(s block.Shape, i int) int {
	h, w := n.space(i)
	return family.Levels(s) * n.d.Sight.Views * h * w
}

// add adds the network's blocks to a model, which take nothing and give the last map as rows, port "map".
func (n *resnet) add(m *family.Model) {
	for i := range 5 {
		to := fmt.Sprintf("map.%d", i)
		if i == 4 {
			to = "map"
		}
		b := family.Block{Name: n.name + "layer" + fmt.Sprint(i), Gives: []string{to}, Recompute: i > 0,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env[to] = r.T.Rows(n.layer(r, i, env))
			}}
		if i > 0 {
			b.Takes = []string{fmt.Sprintf("map.%d", i-1)}
		}
		m.Ports[to] = family.Port{Width: n.channels(i), Whole: true,
			Rows: func(s block.Shape) int { return n.rows(s, i) }}
		m.Add(b)
	}
}

// layer records layer i: the stem, or two blocks.
func (n *resnet) layer(r *block.Rec, i int, env map[string]*grad.Value) *grad.Value {
	t, v := r.T, n.d.Sight
	images := family.Levels(r.Shape) * v.Views
	if i == 0 {
		pixels := t.Cast(n.d.Views(r))
		x := t.Space(pixels, images, v.Size[0], v.Size[1])
		x = t.Act(n.norm(r, n.name+"bn1", n.conv(r, "conv1", x, n.stem, 7, 2)), kernels.ReLU)
		win := kernels.Window{Size: 3, Stride: 2, Dilation: 1, Before: 1, After: 1}
		return t.Pool(x, kernels.MaxPool, win, win)
	}
	h, w := n.space(i - 1)
	x := t.Space(env[fmt.Sprintf("map.%d", i-1)], images, h, w)
	for j := range 2 {
		x = n.block(r, fmt.Sprintf("layer%d.%d", i, j), x, n.channels(i), 1+(1-j)*min(1, i-1))
	}
	return x
}

// block is two convolutions with what passes them by.
func (n *resnet) block(r *block.Rec, name string, x *grad.Value, out, stride int) *grad.Value {
	t := r.T
	h := t.Act(n.norm(r, n.name+name+".bn1", n.conv(r, name+".conv1", x, out, 3, stride)), kernels.ReLU)
	h = n.norm(r, n.name+name+".bn2", n.conv(r, name+".conv2", h, out, 3, 1))
	if stride != 1 || x.Shape[3] != out {
		x = n.norm(r, n.name+name+".downsample.1", n.conv(r, name+".downsample.0", x, out, 1, stride))
	}
	return t.Act(t.Add(h, x), kernels.ReLU)
}

// conv is a convolution without a bias.
func (n *resnet) conv(r *block.Rec, name string, x *grad.Value, out, size, stride int) *grad.Value {
	w := r.T.Param(n.name+name+".weight", []int{out, x.Shape[3], size, size}, -1, 1, true)
	win := kernels.Window{Stride: stride, Dilation: 1, Before: size / 2, After: size / 2}
	return r.T.Conv(x, w, nil, win, win)
}

// frozen is batch norm by statistics, weights and biases that do not learn.
func frozen(r *block.Rec, name string, x *grad.Value) *grad.Value {
	defer r.T.Still()()
	p := func(part string) *grad.Value {
		return r.T.Param(name+part, []int{x.Shape[3]}, -1, 1, false)
	}
	return r.T.FrozenNorm(x, p(".weight"), p(".bias"), p(".running_mean"), p(".running_var"), 1e-5)
}

// frozenStart begins such a norm as one that leaves its input as it is.
func frozenStart(name string) family.Start {
	zero, one := float32(0), float32(1)
	switch {
	case strings.HasSuffix(name, ".running_mean"):
		return family.Start{Value: &zero}
	case strings.HasSuffix(name, ".running_var"):
		return family.Start{Value: &one}
	}
	return family.Start{}
}
