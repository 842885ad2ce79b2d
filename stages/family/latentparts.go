package family

import (
	"cmp"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// What some denoisers read beside noisy latents and captions, and which levels of noise they are trained at.

// beside adds what the denoiser reads beside latents and captions; floats makes a tensor of out.
func (p latents) beside(in *Inputs, s block.Shape, floats func(name string, shape ...int) []float32,
	out map[string]*tensor.Tensor) {
	d := p.d
	p.halves(in, s, floats)
	if d.Guided {
		guide := floats("guide", Levels(s))
		for i := range guide {
			guide[i] = 1000 * float32(d.Process.Guide)
		}
	}
	if d.Canvas && !d.Hosted {
		p.images(in, s, out)
	}
	if w := d.GivenWidth(); w > 0 {
		given := floats("given", d.Rows(s), w)
		for _, x := range p.items(in) {
			copy(given[int(x.From)*w:], x.Given)
		}
	}
	if d.looks() && !d.Hosted {
		p.views(in, s, floats("view", d.Sight.Rows(s), d.Sight.Pixels), out)
	}
	if d.Words.Rows > 0 {
		p.words(in, s, floats("there", Levels(s)*d.Sight.Views), out)
	}
	if d.Robots > 0 {
		robots := tensor.Make(tensor.I32, Levels(s))
		for g, x := range p.items(in) {
			robots.I32()[g] = x.Robot
		}
		out["dif.robot"] = robots
	}
	if d.Sight != nil && d.Sight.State > 0 {
		p.states(in, s, floats("state", Levels(s), d.Sight.State), out)
	}
	if d.Draws > 0 {
		all := floats("gumbel", Levels(s), d.Draws)
		for g, x := range p.items(in) {
			of := all[g*d.Draws : (g+1)*d.Draws]
			for i := range of {
				of[i] = float32(-math.Log(-math.Log(x.key(drawGumbel).Uniform(uint64(i)))))
			}
			copy(of, x.Noise) // in its place
		}
	}
	if d.Feature != nil {
		all := floats("feature", Levels(s), d.FeatureWidth)
		for g, time := range out["dif.time"].F32() {
			copy(all[g*d.FeatureWidth:], d.Feature(float64(time)))
		}
	}
	if w := d.Width(); d.Real > 0 {
		p.real(in, floats("real", d.Rows(s), w))
	}
	if d.Images > 0 {
		p.pictures(in, floats("image", d.PictureRows(s), d.Images), out)
	}
}

// real marks the numbers of each action that count in the loss.
func (p latents) real(in *Inputs, marks []float32) {
	w := p.d.Width()
	for g, x := range p.items(in) {
		from := int(x.From)
		if p.d.Canvas {
			from = g * x.Tokens()
		}
		for i := from * w; i < (from+x.Tokens())*w; i++ {
			if i%w < cmp.Or(x.Real, p.d.Real) {
				marks[i] = 1
			}
		}
	}
}

// pictures lays features of images out, with borders for every sequence of the microbatch: those of padding have none.
func (p latents) pictures(in *Inputs, features []float32, out map[string]*tensor.Tensor) {
	borders, items, n := []int32{0}, p.items(in), 0
	for i := 0; i+1 < len(in.Cu); i++ {
		if len(items) > 0 && items[0].From == in.Cu[i] {
			copy(features[n*p.d.ImageRows*p.d.Images:], items[0].Image)
			items, n = items[1:], n+1
		}
		borders = append(borders, int32(n*p.d.ImageRows))
	}
	out["dif.image.cu"] = tensor.Of(tensor.I32, borders, len(borders))
}

// images adds what is read of images that are whole.
func (p latents) images(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	rows, frames := tensor.Make(tensor.I32, p.d.Rows(s)), tensor.Make(tensor.F32, 6*Levels(s))
	at := 0
	for g, x := range p.items(in) {
		copy(frames.F32()[6*g:], x.Frame[:])
		for i := range x.Grid[1] * x.Grid[2] {
			rows.I32()[at] = x.From + int32(i)
			at++
		}
	}
	for i := at; i < len(rows.I32()); i++ {
		rows.I32()[i] = -1
	}
	out["dif.canvas"] = rows
	if p.d.Framed {
		out["dif.frame"] = frames
	}
}

// level is the level of noise that a sample is trained at.
func (d *Denoiser) level(x *Encoded) noise.Level {
	if x.Level != nil {
		return *x.Level
	}
	return d.Process.draw(func(try uint64) noise.Key { return x.key(drawLevel | try<<32) })
}

// levels are those of a sample's parts, or the one of all.
func (d *Denoiser) levels(x *Encoded) []noise.Level {
	if d.Parts == 0 {
		return []noise.Level{d.level(x)}
	}
	out := make([]noise.Level, d.Parts)
	for i := range out {
		switch {
		case x.Levels != nil:
			out[i] = x.Levels[i]
		case x.Level != nil:
			out[i] = *x.Level
		case d.Clip != nil && d.Clip.Blocks != nil:
			out[i] = d.Clip.blockLevel(x, i)
		default:
			out[i] = d.Process.draw(func(try uint64) noise.Key {
				return x.key(drawLevel | try<<32 | uint64(i)<<48)
			})
		}
	}
	return out
}

// tell puts the times of levels where the denoiser is told them.
func (d *Denoiser) tell(times []float32, levels []noise.Level) {
	for k, l := range levels {
		if times[k] = l.Time; d.Times != 0 {
			times[k] /= d.Times
		}
	}
}

// hush leaves numbers of actions without noise that do not count, where the model has them so.
func (d *Denoiser) hush(x *Encoded, eps []float32) {
	for i, w := 0, d.Width(); d.Quiet && i < len(eps); i++ {
		if i%w >= cmp.Or(x.Real, d.Real, w) {
			eps[i] = 0
		}
	}
}

// triesMax bounds how often a level is drawn anew that lies outside of those that are trained.
const triesMax = 1 << 12

// draw is a level of training: the first that lies between the times that are trained, of keys for one
// try after another.
func (p *Process) draw(key func(try uint64) noise.Key) (l noise.Level) {
	for try := range uint64(triesMax) {
		u, err := p.Times.At(key(try))
		if err != nil {
			panic(fmt.Sprintf("family: a checked distribution of noise levels: %v", err))
		}
		if l = p.Levels.At(u); p.Trains(l.Time) {
			return l
		}
	}
	return l // Reaches holds a run to levels that some of a few tries meet
}

// Trains reports whether a level of a time is trained.
func (p *Process) Trains(time float32) bool { return p.To == 0 || p.From <= time && time < p.To }

// Reaches reports whether draws of levels meet those that are trained.
func (p *Process) Reaches() bool {
	return p.Trains(p.draw(func(try uint64) noise.Key { return noise.Key{Draw: try % (triesMax / 8)} }).Time)
}

// GivesFirst reports whether a sample of a key is trained with its first frame given.
func (d *Denoiser) GivesFirst(key uint64) bool {
	x := Encoded{Key: key}
	return d.Process.First > 0 && x.key(drawFirst).Uniform(0) < d.Process.First
}

// seen is the number of rows of features that a sample has.
func (p latents) seen(x *Encoded) (n int) {
	for _, v := range x.Views {
		if v != nil {
			n += p.d.Sight.Features()
		}
	}
	return n
}

// views lays patches of views and tokens of captions out.
func (p latents) views(in *Inputs, s block.Shape, patches []float32, out map[string]*tensor.Tensor) {
	ids, at, v := tensor.Make(tensor.I32, Captions(s)), 0, p.d.Sight
	for g, x := range p.items(in) {
		for k, pixels := range x.Views {
			copy(patches[(g*v.Views+k)*v.Patches*v.Pixels:], pixels)
		}
		at += copy(ids.I32()[at:], x.IDs)
	}
	out["dif.ids"] = ids
}

// states lays states of robots out, and borders what is learnt of each sample.
func (p latents) states(in *Inputs, s block.Shape, states []float32, out map[string]*tensor.Tensor) {
	items, each := p.items(in), p.d.Ahead+p.d.Chunk
	borders := []int32{0}
	for g := range Levels(s) {
		pad := 0
		if g < len(items) {
			copy(states[g*p.d.Sight.State:], items[g].State)
			pad = items[g].Pad
		}
		borders = append(borders, int32((g+1)*each-pad), int32((g+1)*each))
	}
	out["dif.learnt.cu"] = tensor.Of(tensor.I32, borders, len(borders))
}

// among is look of a prompt that has features of views among its tokens.
func (p latents) among(x *Encoded, level int, takes *[]int32, tokens *int, s block.Shape) int {
	v := p.d.Sight
	var rows []int32
	for k, pixels := range x.Views {
		for j := 0; pixels != nil && j < v.Features(); j++ {
			rows = append(rows, int32((level*v.Views+k)*v.Features()+j))
		}
	}
	for _, id := range x.IDs {
		at := int32(v.FeatureRows(s) + *tokens)
		if *tokens++; id == p.d.Words.Image {
			at, rows = rows[0], rows[1:]
		}
		*takes = append(*takes, at)
	}
	return len(x.IDs)
}

// words lays tokens of tasks out, those of padding by themselves, and marks the views that are there.
func (p latents) words(in *Inputs, s block.Shape, there []float32, out map[string]*tensor.Tensor) {
	rows := p.d.Words.Rows
	words, pads := tensor.Make(tensor.I32, Levels(s)*rows), tensor.Make(tensor.I32, Levels(s)*rows)
	for i := range words.I32() {
		words.I32()[i], pads.I32()[i] = -1, p.d.Words.Pad
	}
	for g, x := range p.items(in) {
		for k, id := range x.IDs {
			if id != p.d.Words.Pad {
				words.I32()[g*rows+k], pads.I32()[g*rows+k] = id, -1
			}
		}
		for k, v := range x.Views {
			if v != nil {
				there[g*p.d.Sight.Views+k] = 1
			}
		}
	}
	out["dif.words"], out["dif.pads"] = words, pads
}

// look lists the rows of features and of tokens that a sample of a level reads, and counts its tokens; it
// returns how many rows there are.
func (p latents) look(x *Encoded, level int, takes *[]int32, tokens *int, s block.Shape) int {
	v := p.d.Sight
	if p.d.Words.Image > 0 {
		return p.among(x, level, takes, tokens, s)
	}
	for k, pixels := range x.Views {
		for j := 0; pixels != nil && j < v.Features(); j++ {
			*takes = append(*takes, int32((level*v.Views+k)*v.Features()+j))
		}
	}
	for range x.IDs {
		*takes = append(*takes, int32(v.FeatureRows(s)+*tokens))
		*tokens++
	}
	return p.seen(x) + len(x.IDs)
}

// Moves reports data that follow a step from noise to latents; all other data of a denoiser, what it sees
// and is told, stay as they are.
func Moves(data string) bool {
	switch data {
	case "dif.x0", "dif.noise", "dif.in.x0", "dif.in.noise", "dif.out.x0", "dif.out.noise", "dif.weight",
		"dif.time", "dif.feature":
		return true
	}
	return false
}

// Padded are the states of a caption with as many rows of zeros as it is short of TextRows; those beyond are cut.
func (d *Denoiser) Padded(states []float32) []float32 {
	if d.TextRows == 0 {
		return states
	}
	out := make([]float32, d.TextRows*d.Texts)
	copy(out, states)
	return out
}

// each calls f for every number of latents of a shape: its place in tokens, and in the latents.
func (d *Denoiser) each(shape [4]int, f func(token, latent int)) {
	g, p := d.Grid(shape), d.Patch
	taps := p[0] * p[1] * p[2]
	w := shape[0] * taps
	at := 0
	for c := range shape[0] {
		for t := range shape[1] {
			for y := range shape[2] {
				for x := range shape[3] {
					token := (t/p[0]*g[1]+y/p[1])*g[2] + x/p[2]
					tap := (t%p[0]*p[1]+y%p[1])*p[2] + x%p[2]
					if d.Last {
						f(token*w+tap*shape[0]+c, at)
					} else {
						f(token*w+c*taps+tap, at)
					}
					at++
				}
			}
		}
	}
}
