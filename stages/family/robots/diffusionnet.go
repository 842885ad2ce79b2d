package robots

import (
	"fmt"
	"math"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/denoisers"
	"github.com/lfactor/lfactor/stages/noise"
)

// net is a model of Diffusion Policy. As in a U-Net of images, what a block gives is a port of its own.
type net struct {
	c configs.Model
	o netKeys
	p policyKeys
	d *family.Denoiser
	e *eyes

	m    *family.Model
	from string // port of what the block before gives
	wide int    // its channels
	deep int    // its level
}

// The names of both parts in lerobot's files.
const (
	netUNet = "diffusion.unet."
	netEyes = "diffusion.rgb_encoder."
)

func newNet(c configs.Model) *net {
	e, o := newEyes(c, netEyes), netPart.Of(c)
	d := e.d
	d.Executed, d.Steps = o.Executed, o.Steps
	if d.Steps == 0 {
		d.Steps = o.Noises
	}
	betas := noise.Betas{TrainSteps: o.Noises, Start: o.From, End: o.To, Schedule: o.Curve}
	clip := noise.Clip{On: o.Clips, Range: o.Range}
	d.Scheduler = noise.New(o.Scheduler + "Scheduler")
	switch s := d.Scheduler.(type) {
	case *noise.DDPM:
		s.Betas, s.Clip, s.Prediction = betas, clip, o.Target
	case *noise.DDIM:
		s.Betas, s.Clip, s.Prediction = betas, clip, o.Target
	}
	d.Learns = func(p *family.Process) {
		p.Loss, p.Times = kernels.SquaredLoss, noise.Times{Kind: "uniform"}
		p.Levels, _ = d.Scheduler.Levels() // the check of the model has seen the schedule
		p.Target, _ = noise.Lookup(o.Target)
	}
	return &net{c: c, o: o, p: policyPart.Of(c), d: d, e: e}
}

// observed is the width of what every block is told of the robot; told has the level of noise before it.
func (u *net) observed() int { return u.d.Sight.State + u.d.Sight.Views*2*u.o.Keypoints }
func (u *net) told() int     { return denoisers.Shared.Of(u.c).Freq + u.observed() }

func (u *net) model() *family.Model {
	u.m = denoisers.NewModel(u.c, u.d)
	m, n := u.m, len(u.o.Dims)
	delete(m.Ports, "x")
	m.Source, m.Initial = u.source, u.e.initial
	m.Ports["seen"] = family.Port{Width: u.told(), Rows: family.Levels, Whole: true}
	u.e.n.Add(m)
	m.Add(family.Block{Name: netEyes + "out", Takes: []string{"map"}, Gives: []string{"seen"}, Weight: 0.1,
		Record: u.see})
	skips := make([]string, n)
	for i, c := range u.o.Dims {
		name := fmt.Sprintf("%sdown_modules.%d.", netUNet, i)
		u.residual(name+"0", c, "")
		u.residual(name+"1", c, "")
		if skips[i] = u.from; i < n-1 {
			u.resample(name+"2", 1)
		}
	}
	last := u.o.Dims[n-1]
	u.residual(netUNet+"mid_modules.0", last, "")
	u.residual(netUNet+"mid_modules.1", last, "")
	for i := range n - 1 {
		name := fmt.Sprintf("%sup_modules.%d.", netUNet, i)
		u.residual(name+"0", u.o.Dims[n-2-i], skips[n-1-i])
		u.residual(name+"1", u.o.Dims[n-2-i], "")
		u.resample(name+"2", -1)
	}
	m.Add(family.Block{Name: netUNet + "final_conv", Takes: []string{u.from}, Weight: 0.2, Record: u.head(u.from)})
	return m
}

// steps is how many steps of a chunk a level has.
func (u *net) steps(level int) int { return u.p.Chunk >> level }

// add adds a block that takes what the one before gives, and more, and gives rows of so many channels.
func (u *net) add(name string, channels int, work float64, record denoisers.Layer, more ...string) {
	from, to, level := u.from, fmt.Sprintf("a.%d", len(u.m.Blocks)), u.deep
	b := family.Block{Name: name, Gives: []string{to}, Weight: work, Recompute: true, Takes: more,
		Record: func(r *block.Rec, env map[string]*grad.Value) { env[to] = record(r, env[from], env) }}
	if from != "" {
		b.Takes = append([]string{from}, more...)
	}
	u.m.Add(b)
	u.m.Ports[to] = family.Port{Width: channels, Whole: true,
		Rows: func(s block.Shape) int { return family.Levels(s) * u.steps(level) }}
	u.from, u.wide = to, channels
}

// along views rows as the chunks of a level, [levels steps channels].
func (u *net) along(r *block.Rec, x *grad.Value, level int) *grad.Value {
	return r.T.Space(x, family.Levels(r.Shape), u.steps(level))
}

// see makes of maps of features the places where features are, and of these, of states and of the level of
// noise what the U-Net is told.
func (u *net) see(r *block.Rec, env map[string]*grad.Value) {
	t, k, v, levels := r.T, u.o.Keypoints, u.d.Sight, family.Levels(r.Shape)
	points, whole := u.e.see(r, env["map"]), block.LinearOpts{Bias: true, Rep: true}
	steps := levels * v.Steps
	each := t.Concat(1, t.View(t.Cast(u.d.State(r)), steps, v.State/v.Steps),
		t.View(points, steps, v.Views/v.Steps*2*k))
	freq := denoisers.Shared.Of(u.c).Freq
	time := t.Cast(t.Sinusoids(u.d.Time(r), t.Const("dif.freq", grad.Frequencies(freq/2, 10000, 1)), 1, false))
	const name = netUNet + "diffusion_step_encoder."
	time = t.Act(r.Linear(name+"1", time, 4*freq, freq, whole), kernels.Mish)
	time = r.Linear(name+"3", time, freq, 4*freq, whole)
	env["seen"] = t.Concat(1, time, t.View(each, levels, u.observed()))
}

// conv is the convolution of x [levels steps c] called name, of an odd size and with its ends padded.
func (u *net) conv(r *block.Rec, name string, x *grad.Value, out int, o denoisers.ConvOpts) *grad.Value {
	bias := -1
	if o.Axis == 0 {
		bias = 0
	}
	w := r.T.Param(name+".weight", []int{out, x.Shape[2], o.Size}, o.Axis, o.Unit, true)
	win := kernels.Window{Stride: o.Stride, Dilation: 1, Before: o.Size / 2, After: o.Size / 2}
	return r.T.Conv(x, w, r.T.Param(name+".bias", []int{out}, bias, o.Unit, false), win)
}

// block is a convolution, a norm over groups of channels and Mish. Members of tp have some groups.
func (u *net) block(r *block.Rec, name string, x *grad.Value, out, groups, axis int) *grad.Value {
	h := u.conv(r, name+".block.0", x, out, denoisers.ConvOpts{Axis: axis, Unit: out / groups, Size: u.o.Kernel,
		Stride: 1})
	w := r.T.Param(name+".block.1.weight", []int{out}, -1, 1, false)
	b := r.T.Param(name+".block.1.bias", []int{out}, -1, 1, false)
	return r.T.Act(r.T.GroupNorm(h, w, b, groups, 1e-5), kernels.Mish)
}

// residual adds a residual block that is told what is seen, and reads a skip beside what the one before gives.
func (u *net) residual(name string, out int, skip string) {
	in, level, more := u.wide, u.deep, []string{"seen"}
	if u.from == "" {
		in = u.d.Width()
	}
	if skip != "" {
		in, more = in+u.m.Ports[skip].Width, append(more, skip)
	}
	work := float64(u.o.Kernel*out*(in+out)+2*out*u.told()/u.steps(level)) / math.Pow(2, float64(level)) /
		float64(2*u.o.Kernel*u.o.Dims[0]*u.o.Dims[0])
	u.add(name, out, work, func(r *block.Rec, x *grad.Value, env map[string]*grad.Value) *grad.Value {
		if x == nil {
			x = u.d.Noisy(r)
		}
		if skip != "" {
			x = r.T.Concat(1, x, env[skip])
		}
		return u.resnet(r, name, u.along(r, x, level), env["seen"], out)
	}, more...)
}

// resnet records a residual block of x [levels steps c], and gives rows.
func (u *net) resnet(r *block.Rec, name string, x, seen *grad.Value, out int) *grad.Value {
	t, unit := r.T, out/u.o.Groups
	h := u.block(r, name+".conv1", x, out, u.o.Groups, 0)
	told, split := t.Act(seen, kernels.Mish), block.LinearOpts{Bias: true, Unit: unit}
	levels, scale, plus := x.Shape[0], (*grad.Value)(nil), 0.0
	if u.o.Scaled {
		scale = r.Linear(name+".cond_encoder.scale", told, out, u.told(), split)
	} else {
		scale, plus = t.ConstOf("net.none", make([]float32, levels*out), levels, out), 1
	}
	shift := r.Linear(name+".cond_encoder.shift", told, out, u.told(), split)
	h = t.Modulate(h, scale, shift, t.Indices("net.each", levels, func(i int) int { return i }), grad.Modulation{Norm: kernels.PlainRows,
		Plus: plus})
	h = u.block(r, name+".conv2", h, out, u.o.Groups, 1)
	if x.Shape[2] != out {
		x = u.conv(r, name+".residual_conv", x, out, denoisers.ConvOpts{Axis: -1, Unit: 1, Size: 1, Stride: 1})
	}
	return t.Rows(t.Add(x, h))
}

// resample adds a convolution that halves the steps (by 1), or one that doubles them (by -1).
func (u *net) resample(name string, by int) {
	c, level := u.wide, u.deep
	u.deep += by
	u.add(name, c, 0.1, func(r *block.Rec, x *grad.Value, _ map[string]*grad.Value) *grad.Value {
		t, x := r.T, u.along(r, x, level)
		if by > 0 {
			return t.Rows(u.conv(r, name, x, c, denoisers.ConvOpts{Axis: -1, Unit: 1, Size: 3, Stride: 2}))
		}
		w := t.Param(name+".weight", []int{c, c, 4}, -1, 1, true)
		win := kernels.Window{Stride: 2, Dilation: 1, Before: 1, After: 1}
		return t.Rows(t.ConvTranspose(x, w, t.Param(name+".bias", []int{c}, -1, 1, false), 1, nil, win))
	})
}

// head is what the model says of the noisy actions.
func (u *net) head(from string) func(r *block.Rec, env map[string]*grad.Value) {
	return func(r *block.Rec, env map[string]*grad.Value) {
		x := u.block(r, netUNet+"final_conv.0", u.along(r, env[from], 0), u.o.Dims[0], finalGroups, -1)
		y := u.conv(r, netUNet+"final_conv.1", x, u.d.Width(), denoisers.ConvOpts{Axis: -1, Unit: 1, Size: 1,
			Stride: 1})
		u.d.Predicted(r, env, r.T.Rows(y))
	}
}

// source says where parameters lie in lerobot's files: scale and shift of a block are halves of one tensor.
func (u *net) source(name string) family.Source {
	s := u.e.source(name)
	for i, part := range []string{".cond_encoder.scale.", ".cond_encoder.shift."} {
		if strings.Contains(name, part) {
			s.Name = strings.Replace(name, part, ".cond_encoder.1.", 1)
			if n := u.channels(name); u.o.Scaled {
				s.Rows = [][2]int{{i * n, (i + 1) * n}}
			}
		}
	}
	return s
}

// channels are those of the block that a parameter's name is of.
func (u *net) channels(name string) int {
	n, i := len(u.o.Dims), 0
	switch {
	case strings.HasPrefix(name, netUNet+"mid_modules."):
		return u.o.Dims[n-1]
	case strings.HasPrefix(name, netUNet+"up_modules."):
		_, _ = fmt.Sscanf(name, netUNet+"up_modules.%d.", &i) // a name that was made here
		return u.o.Dims[n-2-i]
	}
	_, _ = fmt.Sscanf(name, netUNet+"down_modules.%d.", &i) // a name that was made here
	return u.o.Dims[i]
}

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
