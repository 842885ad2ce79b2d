package robots

import (
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
)

// eyes are lerobot's encoder of views of several steps: a ResNet-18 with norms over groups and a spatial softmax.
type eyes struct {
	name string // of its parameters, with a dot
	d    *family.Denoiser
	n    *denoisers.Resnet
	k    int // keypoints
}

// newEyes are those of a model, which reads views and states of several steps, and of views a part.
func newEyes(c configs.Model, name string) *eyes {
	d, o, p := whole(c), netPart.Of(c), policyPart.Of(c)
	v := d.Sight
	v.Steps, v.Views, v.State = o.Observed, v.Views*o.Observed, v.State*o.Observed
	if o.CropHigh > 0 {
		v.Frame, v.Size, v.Patches = v.Size, [2]int{o.CropHigh, o.CropWide}, o.CropHigh*o.CropWide
		v.Jumps = o.Jumps
	}
	d.Masked = false
	return &eyes{name, d, &denoisers.Resnet{Name: name + "backbone.", Stem: p.Stem, D: d, Norm: grouped}, o.Keypoints}
}

// grouped is the norm of a ResNet that learns with small batches: over groups of sixteen channels.
func grouped(r *block.Rec, name string, x *grad.Value) *grad.Value {
	c := x.Shape[3]
	w := r.T.Param(name+".weight", []int{c}, -1, 1, false)
	return r.T.GroupNorm(x, w, r.T.Param(name+".bias", []int{c}, -1, 1, false), max(1, c/16), 1e-5)
}

// see makes of maps of features the places where features are, [images 2·keypoints].
func (e *eyes) see(r *block.Rec, of *grad.Value) *grad.Value {
	t, k, levels := r.T, e.k, family.Levels(r.Shape)
	h, w := e.n.Space(4)
	images, whole := levels*e.d.Sight.Views, block.LinearOpts{Bias: true, Rep: true}
	features := r.Linear(e.name+"pool.nets", of, k, e.n.Channels(4), whole)
	places := t.Indices("net.grid", images*h*w, func(i int) int { return i % (h * w) })
	end := t.Still()
	grid := t.Param(e.name+"pool.pos_grid", []int{h * w, 2}, -1, 1, false)
	end()
	points := t.Flat(e.softmax(r, features, t.Take(grid, places), images, h*w))
	points = t.View(points, images, 2*k)
	return t.Act(r.Linear(e.name+"out", points, 2*k, 2*k, whole), kernels.ReLU)
}

// softmax is the mean place of each feature (arXiv:1509.06113): its softmax over an image's n places times these,
// which is attention of unit vectors to rows of features. features [images·n k], grid [images·n 2] -> [images·k 1 2].
func (e *eyes) softmax(r *block.Rec, features, grid *grad.Value, images, n int) *grad.Value {
	t, k := r.T, e.k
	unit := make([]float32, images*k*k)
	for i := range images * k {
		unit[i*k+i%k] = 1
	}
	q := t.Cast(t.ConstOf("net.unit", unit, images*k, k))
	return t.Attention(t.Heads(q, k), t.Heads(features, k), t.Heads(grid, 2), even(t, "net.asks", images, k),
		even(t, "net.places", images, n), grad.AttentionConfig{Scale: 1})
}

// source says where their parameters lie in lerobot's files: layers of the ResNet have numbers, and a convolution of one
// place is a matrix here.
func (e *eyes) source(name string) family.Source {
	s := family.Source{Name: name}
	if rest, ok := strings.CutPrefix(name, e.name+"backbone."); ok {
		first, more, _ := strings.Cut(rest, ".")
		number := map[string]string{"conv1": "0", "bn1": "1", "layer1": "4", "layer2": "5", "layer3": "6",
			"layer4": "7"}[first]
		s.Name = e.name + "backbone." + number + "." + more
	}
	if name == e.name+"pool.nets.weight" {
		s.Tail = []int{e.n.Channels(4), 1, 1}
	}
	return s
}

// initial begins the table of places, from -1 to 1 on both axes, columns first.
func (e *eyes) initial(name string) family.Start {
	if name != e.name+"pool.pos_grid" {
		return family.Start{}
	}
	h, w := e.n.Space(4)
	at := func(i, n int) float32 { return float32(-1 + 2*float64(i)/float64(max(1, n-1))) }
	return family.Start{At: func(i int) float32 {
		if i%2 == 0 {
			return at(i/2%w, w)
		}
		return at(i/2/w, h)
	}}
}
