package robots

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// davit is DaViT (arXiv:2204.03645) as Florence-2 has it, of square views: stages of convolutions, of attention in
// windows and of attention between channels. Its rows are the places of a view's map, row by row.
type davit struct {
	name string
	k    florenceKeys
	d    *family.Denoiser
}

// side is the height and the width of the map of stage i.
func (v *davit) side(i int) int {
	n := v.d.Sight.Extent()[0]
	for k := range i + 1 {
		n = (n+2*v.k.Paddings[k]-v.k.Kernels[k])/v.k.Strides[k] + 1
	}
	return n
}

// images is the number of views of a microbatch.
func (v *davit) images(s block.Shape) int { return family.Levels(s) * v.d.Sight.Views }

// add adds the tower's blocks to a model, which take nothing and give the last stage's rows, port "view.i".
func (v *davit) add(m *family.Model) {
	for i, n := range v.k.Widths {
		port := fmt.Sprintf("view.%d", i)
		rows := func(s block.Shape) int { return v.images(s) * v.side(i) * v.side(i) }
		m.Ports[port] = family.Port{Width: n, Rows: rows, Whole: true}
		b := family.Block{Name: fmt.Sprintf("%sconvs.%d", v.name, i), Gives: []string{port}, Weight: 0.1,
			Record: func(r *block.Rec, env map[string]*grad.Value) { env[port] = v.embed(r, i, env) }}
		if i > 0 {
			b.Takes = []string{fmt.Sprintf("view.%d", i-1)}
		}
		m.Add(b)
		for j := range v.k.Depths[i] {
			name := fmt.Sprintf("%sblocks.%d.%d.", v.name, i, j)
			m.Add(family.Block{Name: name + "spatial_block", Takes: []string{port}, Gives: []string{port},
				Recompute: true, Weight: 0.5, Record: func(r *block.Rec, env map[string]*grad.Value) {
					env[port] = v.block(r, name+"spatial_block.", i, env[port], v.windows)
				}})
			m.Add(family.Block{Name: name + "channel_block", Takes: []string{port}, Gives: []string{port},
				Recompute: true, Weight: 0.5, Record: func(r *block.Rec, env map[string]*grad.Value) {
					env[port] = v.block(r, name+"channel_block.", i, env[port], v.channels)
				}})
		}
	}
}

// norm is one of its layer norms.
func (v *davit) norm(r *block.Rec, name string, x *grad.Value) *grad.Value {
	return r.LayerNorm(name, x, x.Shape[1], actEps)
}

// conv is a convolution with a bias, in so many groups.
//
//lfvet:params the settings of one convolution, as PyTorch has them
func (v *davit) conv(r *block.Rec, name string, x *grad.Value, out, size, stride, pad, groups int) *grad.Value {
	t := r.T
	w := t.Param(name+".weight", []int{out, x.Shape[3] / groups, size, size}, -1, 1, true)
	win := kernels.Window{Stride: stride, Dilation: 1, Before: pad, After: pad}
	return t.Conv(x, w, t.Param(name+".bias", []int{out}, -1, 1, false), win, win)
}

// embed begins stage i, of pixels or of the stage before. The first has its norm behind it, later ones before.
func (v *davit) embed(r *block.Rec, i int, env map[string]*grad.Value) *grad.Value {
	t, name := r.T, fmt.Sprintf("%sconvs.%d", v.name, i)
	side := v.d.Sight.Extent()[0]
	x := t.Cast(v.d.Views(r))
	if i > 0 {
		side = v.side(i - 1)
		x = v.norm(r, name+".norm", env[fmt.Sprintf("view.%d", i-1)])
	}
	x = t.Space(x, v.images(r.Shape), side, side)
	x = t.Rows(v.conv(r, name+".proj", x, v.k.Widths[i], v.k.Kernels[i], v.k.Strides[i], v.k.Paddings[i], 1))
	if i == 0 {
		x = v.norm(r, name+".norm", x)
	}
	return x
}

// block is a block of stage i, whose attention is one of two.
func (v *davit) block(r *block.Rec, name string, i int, x *grad.Value,
	attend func(r *block.Rec, name string, i int, x *grad.Value) *grad.Value) *grad.Value {
	t, n := r.T, v.k.Widths[i]
	whole := block.LinearOpts{Bias: true, Rep: true}
	x = v.near(r, name+"conv1.fn.dw", i, x)
	x = t.Add(x, attend(r, name, i, x))
	x = v.near(r, name+"conv2.fn.dw", i, x)
	h := r.Linear(name+"ffn.fn.net.fc1", v.norm(r, name+"ffn.norm", x), 4*n, n, whole)
	return t.Add(x, r.Linear(name+"ffn.fn.net.fc2", t.Act(h, kernels.GELU), n, 4*n, whole))
}

// near adds a convolution of each channel by itself, which is what tells places apart.
func (v *davit) near(r *block.Rec, name string, i int, x *grad.Value) *grad.Value {
	t, side := r.T, v.side(i)
	h := t.Space(x, v.images(r.Shape), side, side)
	return t.Add(x, t.Rows(v.conv(r, name, h, v.k.Widths[i], 3, 1, 1, v.k.Widths[i])))
}

// windows is attention between the places of each window; those beyond the edge of a map are zeros.
func (v *davit) windows(r *block.Rec, name string, i int, x *grad.Value) *grad.Value {
	t, n, whole := r.T, v.k.Widths[i], block.LinearOpts{Bias: true, Rep: true}
	head := n / v.k.Heads[i]
	order, back := v.order(v.images(r.Shape), v.side(i))
	h := t.Take(v.norm(r, name+"window_attn.norm", x), t.ConstI32(fmt.Sprintf("davit.window.%d", i), order))
	h = r.Linear(name+"window_attn.fn.qkv", h, 3*n, n, whole)
	part := func(k int) *grad.Value { return t.Heads(t.Columns(h, k*n, n), head) }
	window := v.k.Window * v.k.Window
	cu := even(t, fmt.Sprintf("davit.window.cu.%d", i), len(order)/window, window)
	o := t.Attention(part(0), part(1), part(2), cu, cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(head))})
	o = r.Linear(name+"window_attn.fn.proj", t.Flat(o), n, n, whole)
	return t.Take(o, t.ConstI32(fmt.Sprintf("davit.place.%d", i), back))
}

// order lists the rows of maps window by window, -1 beyond their edges, and where each row is in that list.
func (v *davit) order(images, side int) (order, back []int32) {
	w := v.k.Window
	count := (side + w - 1) / w
	back = make([]int32, images*side*side)
	for image := range images {
		for at := range count * count * w * w {
			y := at/(count*w*w)*w + at/w%w
			x := at/(w*w)%count*w + at%w
			if y >= side || x >= side {
				order = append(order, -1)
				continue
			}
			row := (image*side+y)*side + x
			back[row] = int32(len(order))
			order = append(order, int32(row))
		}
	}
	return order, back
}

// channels is attention between the channels of each group, over all places of a view.
func (v *davit) channels(r *block.Rec, name string, i int, x *grad.Value) *grad.Value {
	t, n, whole := r.T, v.k.Widths[i], block.LinearOpts{Bias: true, Rep: true}
	images, places, groups := v.images(r.Shape), v.side(i)*v.side(i), v.k.Groups[i]
	d := n / groups
	h := r.Linear(name+"channel_attn.fn.qkv", v.norm(r, name+"channel_attn.norm", x), 3*n, n, whole)
	part := func(k int) *grad.Value {
		y := t.Permute(t.View(t.Columns(h, k*n, n), images, places, groups, d), 0, 3, 2, 1)
		return t.View(y, images*d, groups, places)
	}
	cu := even(t, fmt.Sprintf("davit.channel.cu.%d", i), images, d)
	o := t.Attention(part(0), part(1), part(2), cu, cu, grad.AttentionConfig{Scale: 1 / math.Sqrt(float64(places))})
	o = t.Permute(t.View(o, images, d, groups, places), 0, 3, 2, 1)
	return r.Linear(name+"channel_attn.fn.proj", t.View(o, images*places, n), n, n, whole)
}
