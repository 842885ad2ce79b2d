// Package autoencoders makes a family of every class of autoencoders that stages/latent knows, so that they are trained
// as models of diffusion are: images go in whole, and the loss is of what comes out of their latents.
package autoencoders

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/latent"
)

// keys are those of autoencoders.
type keys struct {
	File string `key:"autoencoder" class:"fixed" doc:"The config.json of diffusers of an autoencoder, as one text."`
}

var part = configs.Declare("autoencoder", configs.Rules[keys]{Check: check})

// check reports what the class does not read.
func check(m configs.Model, k keys, at configs.Report) {
	if !m.Has("autoencoder") {
		return
	}
	switch c, err := latent.Read("autoencoder", []byte(k.File)); {
	case err != nil:
		at("autoencoder", err.Error(), "")
	case c.Class() != m.ModelType:
		at("autoencoder", fmt.Sprintf("its _class_name is %s", c.Class()), "write "+m.ModelType)
	}
}

// A family is entered for each class.
var _ = func() (all []struct{}) {
	for _, class := range latent.Classes() {
		c, _ := latent.Lookup(class)
		all = append(all, family.Register(family.Family{ModelType: class, Paper: c.Paper, HF: hf.Family{Class: class,
			Diffusers: true, Has: []string{"autoencoder", "latent_patch", "in_channels", "out_channels"},
			Prepare: whole, Own: []hf.Own{hf.Keys(keys{}, keys.enter)}, Write: write}, Build: build}))
	}
	return all
}()

// whole makes one key of a file's.
func whole(raw hf.Raw) {
	text, err := json.Marshal(raw)
	if err != nil {
		panic("autoencoders: a file that was parsed: " + err.Error())
	}
	for key := range raw {
		if key != "_class_name" && key != "_diffusers_version" {
			delete(raw, key)
		}
	}
	raw["autoencoder"] = json.RawMessage(family.JSONOf(string(text)))
}

// enter sets what every model of diffusion has.
func (k keys) enter(d *hf.Decoder) {
	c, err := latent.Read("config.json", []byte(k.File))
	if err != nil {
		d.Fail("autoencoder", err.Error(), "")
		return
	}
	m := c.Model()
	blocks := len(m.Encoder("")) + len(m.Decoder(""))
	for key, v := range map[string]int{"hidden_size": 2 * m.Latent, "num_hidden_layers": blocks,
		"num_attention_heads": 1, "intermediate_size": m.Latent, "in_channels": m.In, "out_channels": m.Out} {
		d.Set(key, fmt.Sprint(v))
	}
	d.Set("latent_patch", "[1, 1, 1]")
}

// write gives a file's keys back.
func write(m hf.Values, out map[string]any) {
	clear(out)
	var own map[string]json.RawMessage // numbers stay as they are written
	if err := json.Unmarshal([]byte(m["autoencoder"].(string)), &own); err != nil {
		panic("autoencoders: settings that were checked: " + err.Error())
	}
	for key, v := range own {
		out[key] = v
	}
}

// autoencoder is a model of one of the families.
type autoencoder struct {
	m      *latent.Model
	d      *family.Denoiser
	blocks []latent.Block
	encode int                        // blocks that encode
	least  extent                     // of the least picture or clip that meets all weights
	at     func(s block.Shape) extent // of the pictures of a shape, before a denoiser; nil where it is all
	shapes [][]int                    // of what each block reads of it, and of pixels at the end
}

func build(c configs.Model) *family.Model {
	file, err := latent.Read("autoencoder", []byte(part.Of(c).File))
	if err != nil {
		panic("autoencoders: settings that were checked: " + err.Error())
	}
	a := &autoencoder{m: file.Model()}
	a.least = extent{1, 1 + a.m.Frames, a.m.Side, a.m.Side}
	a.d = &family.Denoiser{Patch: [3]int{1, 1, 1}, Channels: a.m.In, Canvas: true, Dir: "vae", Takes: a.takes,
		Lines: true, Extent: func(s block.Shape) int { e := a.extent(s); return e.n * e.each() }}
	return a.model(c)
}

func (a *autoencoder) model(c configs.Model) *family.Model {
	m := &family.Model{Family: c.ModelType, Denoiser: a.d, Ports: map[string]family.Port{},
		Source: func(name string) family.Source { return family.Source{Name: name} },
		Spec: family.Spec{Layers: c.Layers, Hidden: c.Hidden, Inter: c.Intermediate, Heads: 1, KV: 1, HeadDim: 2,
			Vocab: 1, Eps: c.NormEps, Act: c.Act, InitStd: c.InitRange, Rope: block.Rope{Dim: 2, Theta: 10000}}}
	m.Modalities = []family.Modality{pixels{a}}
	stds := map[string]float64{}
	for _, p := range a.m.Params() {
		if n := tensor.Len(p.Shape[1:]); len(p.Shape) > 1 {
			stds[p.Name] = 1 / math.Sqrt(3*float64(n)) // as PyTorch's layers begin
		}
	}
	m.Initial = func(name string) family.Start { return family.Start{Std: stds[name]} }
	encoder, decoder := a.m.Encoder(""), a.m.Decoder("")
	a.blocks, a.encode = slices.Concat(encoder, decoder), len(encoder)
	a.shapes = latent.Shapes(encoder, a.shape(a.least, false)...)
	moments := a.shapes[a.encode]
	latents := slices.Clone(moments)
	latents[len(latents)-1] /= 2
	a.shapes = append(a.shapes[:a.encode], latent.Shapes(decoder, latents...)...)
	m.Ports["moments"] = a.port(moments)
	if a.m.Frames > 0 { // draws go with rows as they lie in a clip
		p := m.Ports["moments"]
		p.Whole, p.Lines = true, nil
		m.Ports["moments"] = p
	}
	for i := range a.blocks {
		a.add(m, i)
	}
	return m
}

// port is one of values of a shape for the least picture.
func (a *autoencoder) port(shape []int) family.Port {
	return family.Port{Width: shape[len(shape)-1], Rows: func(s block.Shape) int {
		n, space := a.space(s, shape)
		return n * tensor.Len(space)
	}, Lines: func(s block.Shape) int { // those of several pictures are cut between pictures alone
		n, space := a.space(s, shape)
		if n > 1 {
			return n
		}
		return space[len(space)-2]
	}}
}

// byLines tells whether a port has the rows of x [1 t h w c] line by line, each with all its frames, so that
// members have lines of theirs: rows are cut where they lie one behind the other.
func byLines(r *block.Rec, n int, space []int) bool {
	return n == 1 && len(space) == 3 && r.T.CutsLines(space[1])
}

// rows are those of x [n (t) h w c] at a port.
func rows(r *block.Rec, x *grad.Value) *grad.Value {
	if byLines(r, x.Shape[0], x.Shape[1:len(x.Shape)-1]) {
		x = r.T.Permute(x, 0, 2, 1, 3, 4)
	}
	return r.T.Rows(x)
}

// spread is a port's rows as [n (t) h w c].
func spread(r *block.Rec, x *grad.Value, n int, space []int) *grad.Value {
	if byLines(r, n, space) {
		return r.T.Permute(r.T.Space(x, n, space[1], space[0], space[2]), 0, 2, 1, 3, 4)
	}
	return r.T.Space(x, n, space...)
}

// cut is x [n (t) h w c] with lines of one for each member, or with whole ones of several.
func cut(r *block.Rec, x *grad.Value) *grad.Value {
	if x.Shape[0] > 1 {
		return r.T.CutLines(x, 0)
	}
	return r.T.CutLines(x, len(x.Shape)-3)
}

// add adds block i. The first of the decoder draws latents, and the last compares.
func (a *autoencoder) add(m *family.Model, i int) {
	from, to, last := fmt.Sprintf("h.%d", i-1), fmt.Sprintf("h.%d", i), i == len(a.blocks)-1
	b := family.Block{Name: a.blocks[i].Name, Weight: a.work(i), Recompute: i > 0}
	switch {
	case i == a.encode-1:
		to = "moments"
	case i == a.encode:
		from = "moments"
	}
	if i > 0 {
		b.Takes = []string{from}
	}
	if last {
		b.Takes = append(b.Takes, "moments")
	} else {
		b.Gives = []string{to}
		if to != "moments" {
			m.Ports[to] = a.port(a.shapes[i+1])
		}
	}
	b.Record = func(r *block.Rec, env map[string]*grad.Value) {
		y := a.blocks[i].Record(r, a.read(r, i, env, from))
		if !last {
			env[to] = r.T.Rows(y)
			if to != "moments" {
				env[to] = rows(r, y)
			}
			return
		}
		a.d.Predicted(r, env, r.T.Rows(y))
		if !r.Logits {
			a.diverges(r, env["moments"])
			a.looks(r, y)
		}
	}
	m.Add(b)
}

// space is the shape of values of a record that have a shape for the least picture: an axis of theirs is as
// many times as long as one of pixels is. Of frames the first stands alone.
func (a *autoencoder) space(s block.Shape, shape []int) (n int, space []int) {
	e := a.extent(s)
	space = slices.Clone(shape[1 : len(shape)-1])
	at := len(space) - 2
	space[at], space[at+1] = space[at]*e.h/a.least.h, space[at+1]*e.w/a.least.w
	if a.m.Frames > 0 {
		space[0] = 1 + (space[0]-1)*(e.frames-1)/a.m.Frames
	}
	return e.n, space
}

// read is what block i reads, [n (t) h w c].
func (a *autoencoder) read(r *block.Rec, i int, env map[string]*grad.Value, from string) *grad.Value {
	n, space := a.space(r.Shape, a.shapes[i])
	switch {
	case i == 0:
		return cut(r, r.T.Space(r.T.Cast(a.d.Clean(r)), n, space...))
	case i == a.encode:
		return cut(r, r.T.Space(a.draw(r, env[from]), n, space...))
	}
	return spread(r, env[from], n, space)
}

// draw are latents of moments, in rows: numbers drawn from the distribution that they give, or its mean.
func (a *autoencoder) draw(r *block.Rec, moments *grad.Value) *grad.Value {
	t := r.T
	mean, logVariance := latent.Split(r, moments)
	if a.d.Process.Mode {
		return mean
	}
	e := a.extent(r.Shape)
	noise := t.View(a.d.Noise(r), e.n, e.each()*a.m.In)
	noise = t.View(t.Columns(noise, 0, tensor.Len(mean.Shape)/e.n), mean.Shape...)
	return t.Add(mean, t.Mul(t.Act(t.Scale(logVariance, 0.5), kernels.Exp), t.Cast(noise)))
}

// diverges adds to the loss what the latents' distributions lie away from standard normal ones: of each
// picture the sum over its latents, weighted as its pixels are together.
func (a *autoencoder) diverges(r *block.Rec, moments *grad.Value) {
	by := a.d.Process.KL
	if by == 0 {
		return
	}
	t := r.T
	weight := t.Scale(a.pictureWeights(r), by)
	mean, logVariance := latent.Split(r, moments)
	zero := t.ConstOf("zeros", make([]float32, tensor.Len(mean.Shape)), mean.Shape...)
	t.Loss(t.PointLoss(mean, zero, t.Scale(weight, 0.5), nil, kernels.SquaredLoss, 0))
	t.Loss(t.PointLoss(logVariance, zero, weight, nil, kernels.VarianceLoss, 0))
}

// pictureWeights are the weights of pictures in the loss, [n] in float32: what their pixels have together.
func (a *autoencoder) pictureWeights(r *block.Rec) *grad.Value {
	t, e := r.T, a.extent(r.Shape)
	weight := t.View(t.Columns(t.View(a.d.RowWeights(r), e.n, e.each()), 0, 1), e.n)
	return t.Scale(weight, float64(e.each()))
}

// looks adds to the loss how far a network finds what comes out, y [n (t) h w 3], from what went in: of a
// clip the mean over its frames.
func (a *autoencoder) looks(r *block.Rec, y *grad.Value) {
	p := a.d.Process
	if p.Look == nil {
		return
	}
	t, e := r.T, a.extent(r.Shape)
	pictures := func(v *grad.Value) *grad.Value { return t.View(v, e.n*e.frames, e.h, e.w, a.m.In) }
	x := t.Cast(a.d.Clean(r))
	weight := t.Scale(a.pictureWeights(r), p.LookBy/float64(e.frames))
	if e.frames > 1 {
		of := t.Indices("picture", e.n*e.frames, func(i int) int { return i / e.frames })
		weight = t.View(t.Take(t.View(weight, e.n, 1), of), e.n*e.frames)
	}
	t.Loss(p.Look.Distance(r, p.LookName, pictures(y), pictures(x), weight))
}

// work is block i's share of the arithmetic, in products of a place of the pixels with a hundred weights.
func (a *autoencoder) work(i int) float64 {
	r := &block.Rec{T: grad.NewTape(grad.Options{NoGrad: true})}
	r.T.Output("y", a.blocks[i].Record(r, r.T.Data("x", tensor.F32, a.shapes[i]...)))
	weights := 0
	for _, p := range r.T.Finish().Params {
		weights += tensor.Len(p.Shape)
	}
	places := tensor.Len(a.shapes[i][:len(a.shapes[i])-1])
	return max(0.01, float64(weights)*float64(places)/float64(a.least.each())/1000)
}
