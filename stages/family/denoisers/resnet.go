package denoisers

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Resnet is ResNet-18 (arXiv:1512.03385) up to its last map of features, as torchvision has it, of views that
// are read whole.
type Resnet struct {
	Name string // of its parameters, "" for none
	Stem int    // channels of the first layer
	D    *family.Denoiser
	Norm func(r *block.Rec, name string, x *grad.Value) *grad.Value
}

// half is the length of an axis behind a convolution or a pool with stride 2 and its edges padded.
func half(n int) int { return (n + 1) / 2 }

// Space is the height and width of the map behind layer i: 0 is the stem, with its pool.
func (n *Resnet) Space(i int) (h, w int) {
	h, w = half(half(n.D.Sight.Size[0])), half(half(n.D.Sight.Size[1]))
	for range max(0, i-1) {
		h, w = half(h), half(w)
	}
	return h, w
}

// Channels are those of the map behind layer i.
func (n *Resnet) Channels(i int) int { return n.Stem << max(0, i-1) }

// rows is the number of rows of the map behind layer i.
func (n *Resnet) rows(s block.Shape, i int) int {
	h, w := n.Space(i)
	return family.Levels(s) * n.D.Sight.Views * h * w
}

// Add adds the network's blocks to a model, which take nothing and give the last map as rows, port "map".
func (n *Resnet) Add(m *family.Model) {
	for i := range 5 {
		to := fmt.Sprintf("map.%d", i)
		if i == 4 {
			to = "map"
		}
		b := family.Block{Name: n.Name + "layer" + fmt.Sprint(i), Gives: []string{to}, Recompute: i > 0,
			Weight: 1, Record: func(r *block.Rec, env map[string]*grad.Value) {
				env[to] = r.T.Rows(n.layer(r, i, env))
			}}
		if i > 0 {
			b.Takes = []string{fmt.Sprintf("map.%d", i-1)}
		}
		m.Ports[to] = family.Port{Width: n.Channels(i), Whole: true,
			Rows: func(s block.Shape) int { return n.rows(s, i) }}
		m.Add(b)
	}
}

// layer records layer i: the stem, or two blocks.
func (n *Resnet) layer(r *block.Rec, i int, env map[string]*grad.Value) *grad.Value {
	t, v := r.T, n.D.Sight
	images := family.Levels(r.Shape) * v.Views
	if i == 0 {
		pixels := t.Cast(n.D.Views(r))
		x := t.Space(pixels, images, v.Size[0], v.Size[1])
		x = t.Act(n.Norm(r, n.Name+"bn1", n.conv(r, "conv1", x, n.Stem, 7, 2)), kernels.ReLU)
		win := kernels.Window{Size: 3, Stride: 2, Dilation: 1, Before: 1, After: 1}
		return t.Pool(x, kernels.MaxPool, win, win)
	}
	h, w := n.Space(i - 1)
	x := t.Space(env[fmt.Sprintf("map.%d", i-1)], images, h, w)
	for j := range 2 {
		x = n.block(r, fmt.Sprintf("layer%d.%d", i, j), x, n.Channels(i), 1+(1-j)*min(1, i-1))
	}
	return x
}

// block is two convolutions with what passes them by.
func (n *Resnet) block(r *block.Rec, name string, x *grad.Value, out, stride int) *grad.Value {
	t := r.T
	h := t.Act(n.Norm(r, n.Name+name+".bn1", n.conv(r, name+".conv1", x, out, 3, stride)), kernels.ReLU)
	h = n.Norm(r, n.Name+name+".bn2", n.conv(r, name+".conv2", h, out, 3, 1))
	if stride != 1 || x.Shape[3] != out {
		x = n.Norm(r, n.Name+name+".downsample.1", n.conv(r, name+".downsample.0", x, out, 1, stride))
	}
	return t.Act(t.Add(h, x), kernels.ReLU)
}

// conv is a convolution without a bias.
func (n *Resnet) conv(r *block.Rec, name string, x *grad.Value, out, size, stride int) *grad.Value {
	w := r.T.Param(n.Name+name+".weight", []int{out, x.Shape[3], size, size}, -1, 1, true)
	win := kernels.Window{Stride: stride, Dilation: 1, Before: size / 2, After: size / 2}
	return r.T.Conv(x, w, nil, win, win)
}

// Frozen is batch norm by statistics, weights and biases that do not learn.
func Frozen(r *block.Rec, name string, x *grad.Value) *grad.Value {
	defer r.T.Still()()
	p := func(part string) *grad.Value {
		return r.T.Param(name+part, []int{x.Shape[3]}, -1, 1, false)
	}
	return r.T.FrozenNorm(x, p(".weight"), p(".bias"), p(".running_mean"), p(".running_var"), 1e-5)
}

// FrozenStart begins such a norm as one that leaves its input as it is.
func FrozenStart(name string) family.Start {
	zero, one := float32(0), float32(1)
	switch {
	case strings.HasSuffix(name, ".running_mean"):
		return family.Start{Value: &zero}
	case strings.HasSuffix(name, ".running_var"):
		return family.Start{Value: &one}
	}
	return family.Start{}
}
