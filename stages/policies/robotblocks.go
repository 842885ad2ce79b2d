package policies

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/diffusion"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// What a policy over blocks of frames reads beside its clip: the first frame, by itself, and states.

// first has a sample see its first frame as its model does beside the clip: features of it, and, of a
// clip of so many frames of pixels, what is given beside the noisy latents.
func (x *filmer) first(e *family.Encoded, views []*media.Image, frames int) (err error) {
	f := x.D.Clip
	if x.Look == nil {
		return nil
	}
	size := [3]int{frames, f.Size[1], f.Size[2]}
	wide := laid(f.Laid, views, size[1], size[2])
	seen := diffusion.Digest(wide.Pix)
	e.Image, err = x.Looked(fmt.Sprintf("whole %v %s", f.Size[1:], seen), func() (*media.Image, error) {
		return wide.Resize(x.Look.Side, x.Look.Side, media.Bicubic), nil // as a whole, whatever its shape
	})
	if err != nil || f.Latents.Given == 0 {
		return err
	}
	shape, err := x.Encoder.Shape(size)
	if err != nil {
		return err
	}
	v, err := x.GivenOf(f.Latents, shape, size, "given "+seen, func() ([]float32, error) {
		return diffusion.Planes([]*media.Image{wide}, [3]int{1, size[1], size[2]}), nil
	})
	if err != nil {
		return err
	}
	shape[0] = f.Latents.Given
	e.Clip.Given = f.Latents.Tokens(shape, v)
	return nil
}

// block has a block of frames, with its actions, be drawn behind the frame that is seen, out of noise of a seed.
func (x *filmer) block(e *family.Encoded, seed uint64) (err error) {
	f, seen := x.D.Clip, e.Clip
	c := &family.Clip{Part: family.NoisyPart, Known: 1, Given: seen.Given}
	c.Grid = f.GridOf(1 + f.Blocks.Frames*f.Latents.Patch[0]*f.Scale[0])
	c.X0 = make([]float32, c.Tokens()*f.Latents.Width())
	noise.Key{Sample: seed, Draw: family.DrawFilm}.Fill(c.X0, 0)
	copy(c.X0, seen.X0)
	e.Clip, e.Grid[0] = c, 1
	e.X0 = e.X0[:e.Tokens()*x.D.Width()]
	e.None, err = x.states(x.D.Clip.Away)
	return err
}

// starts adds the states of the robot where blocks of the clip begin, behind the first.
func (x *Robots) starts(e *family.Encoded, f *recordings.RobotFrame) error {
	b := x.D.Clip.Blocks
	if b == nil {
		return nil
	}
	scale, _ := x.of(f.Set)
	for k := 1; k < x.D.Parts; k++ {
		look := &f.Later[k*b.Frames*x.D.Clip.Scale[0]-1]
		state, err := x.motion.read(look.State)
		if err == nil {
			state, err = scale.State.Of(state)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.Policy.State, err)
		}
		e.Clip.States = append(e.Clip.States, x.roomy(state)...)
	}
	return nil
}

// roomy is a state of a policy that reads views whole: zeros stand for numbers that it has room for and
// the robot has not.
func (x *Robots) roomy(state []float64) (out []float32) {
	x.bound(state)
	for i := 0; i < len(state) && x.D.Sight.State > 0; i++ {
		out = append(out, float32(state[i]))
	}
	for x.D.Roomy() && len(out) < x.D.Sight.State {
		out = append(out, 0)
	}
	return out
}

// bound cuts scaled numbers to what lies between quantiles, or least and greatest values, where the
// policy has them so, as in LoongForge's reader of DreamZero.
func (x *Robots) bound(v []float64) {
	if how := x.Policy.Normalize; !x.D.Broad || how != "quantiles" && how != "min_max" {
		return
	}
	for i := range v {
		if math.Abs(v[i]) > 1 && !math.IsInf(v[i], 0) { // what is no number stays, for others to refuse
			v[i] = math.Copysign(1, v[i])
		}
	}
}

// laid are views as one picture of a form, as family.ClipStream.Laid has them.
func laid(form string, views []*media.Image, high, wide int) *media.Image {
	if form == "row" || form == "" {
		return sideBySide(views, high, wide)
	}
	out, h, w := media.NewImage(wide, high), high/2, wide/2
	clear(out.Pix)
	if form == "above" {
		below := high / 3
		copy(out.Pix, sideBySide(views[2:], high-below, wide).Pix)
		copy(out.Pix[3*wide*(high-below):], sideBySide(views[:2], below, wide).Pix)
		return out
	}
	put := func(p *media.Image, top, left, each int) { // each column so many times
		for i := range h * w * each {
			y, x := i/(w*each), i%(w*each)
			copy(out.Pix[3*((top+y)*wide+left+x):][:3], p.Pix[3*(y*w+x/each):])
		}
	}
	at := [3][2]int{{0, 0}, {h, 0}, {0, w}}
	if form == "droid" {
		at = [3][2]int{{h, 0}, {h, w}, {0, 0}}
	}
	for i, p := range views {
		if p.W != w || p.H != h {
			p = p.Resize(w, h, media.Bilinear)
		}
		each := 1
		if form == "droid" && i == 2 {
			each = 2
		}
		put(p, at[i][0], at[i][1], each)
	}
	return out
}
