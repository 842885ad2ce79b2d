package autoencoders

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// extent is that of the pictures or clips of a shape: how many, and their frames, height and width in pixels.
type extent struct{ n, frames, h, w int }

func (e extent) each() int { return e.frames * e.h * e.w }

// extent is the least that meets every parameter where a shape says nothing.
func (a *autoencoder) extent(s block.Shape) extent {
	if a.at != nil {
		return a.at(s)
	}
	if s.Dim(family.CanvasHeight) == 0 {
		return a.least
	}
	return extent{family.Levels(s), max(1, s.Dim(family.CanvasFrames)), s.Dim(family.CanvasHeight),
		s.Dim(family.CanvasWidth)}
}

// pixels is the modality of an autoencoder: pictures or clips, whole and all of one size.
type pixels struct{ a *autoencoder }

// unitsMax bounds frames of latents, and their rows and columns: what a class has a place for.
const unitsMax = 255

// countMax bounds the pictures of a microbatch.
const countMax = 62

// Classes implements family.Modality: six bits for the number of pictures and eight for each axis.
func (p pixels) Classes() int32 { return 1 << 30 }

func (p pixels) class(e extent) int32 {
	f := 1
	if p.a.m.Frames > 0 {
		f = 1 + (e.frames-1)/p.a.m.Frames
	}
	return int32(min(e.n, countMax)) | int32(f)<<6 | int32(e.h/p.a.m.Side)<<14 | int32(e.w/p.a.m.Side)<<22
}

func (p pixels) items(in *family.Inputs) []family.Encoded {
	v := family.EncodedKey.Of(in.More)
	return v
}

// Class is never 0: a microbatch of padding alone has the least picture, which no row is of.
func (p pixels) Class(in *family.Inputs) int32 {
	items := p.items(in)
	if len(items) == 0 {
		return p.class(p.a.least)
	}
	g := items[0].Grid
	return p.class(extent{len(items), g[0], g[1], g[2]})
}

// Dims implements family.Modality.
func (p pixels) Dims(_ int, class int32) map[string]int {
	f := int(class) >> 6 & unitsMax
	if p.a.m.Frames > 0 {
		f = 1 + (f-1)*p.a.m.Frames
	}
	return map[string]int{family.NoiseLevels: int(class) & 63, family.CanvasFrames: f,
		family.CanvasHeight: (int(class) >> 14 & unitsMax) * p.a.m.Side,
		family.CanvasWidth:  (int(class) >> 22) * p.a.m.Side}
}

// Planned is as many pictures of the run's first size as there are rows for.
func (p pixels) Planned(rows int, _ map[string]int) int32 {
	s := p.a.d.Process.Size
	e := extent{1, s[0], s[1], s[2]}
	if e.each() == 0 || rows < e.each() {
		return p.class(p.a.least)
	}
	e.n = rows / e.each()
	return p.class(e)
}

// Tensors implements family.Modality.
func (p pixels) Tensors(in *family.Inputs, s block.Shape) map[string]*tensor.Tensor {
	e, c := p.a.extent(s), p.a.m.In
	rows := e.n * e.each()
	x0, eps, weight := tensor.Make(tensor.F32, rows, c), tensor.Make(tensor.F32, rows, c), tensor.Make(tensor.F32, rows)
	own := tensor.Make(tensor.I32, rows)
	at := 0
	for _, x := range p.items(in) {
		copy(x0.F32()[at*c:], x.X0)
		part := eps.F32()[at*c : (at+e.each())*c]
		if x.Noise != nil {
			copy(part, x.Noise)
		} else {
			noise.Key{Sample: x.Key, Draw: 1}.Fill(part, 0)
		}
		for i := range e.each() {
			own.I32()[at], weight.F32()[at] = x.From+int32(i), 1/float32(c)
			at++
		}
	}
	for i := at; i < rows; i++ {
		own.I32()[i] = -1
	}
	return map[string]*tensor.Tensor{"dif.x0": x0, "dif.noise": eps, "dif.weight": weight, "dif.canvas": own,
		"dif.out.x0": ones(rows), "dif.out.noise": tensor.Make(tensor.F32, rows)}
}

func ones(n int) *tensor.Tensor {
	return tensor.Of(tensor.F32, slices.Repeat([]float32{1}, n), n)
}

// takes reports sizes that the autoencoder does not read, and those that do not meet all of its weights.
func (a *autoencoder) takes(size [3]int) error {
	switch {
	case a.m.Frames == 0 && size[0] != 1:
		return fmt.Errorf("%d frames: the autoencoder reads pictures, of one frame", size[0])
	case a.m.Frames > 1 && size[0] == 1:
		return fmt.Errorf("one frame does not meet all weights of an autoencoder of clips: take 1 + a multiple of %d",
			a.m.Frames)
	}
	if err := a.m.FitsPixels(a.shape(extent{1, size[0], size[1], size[2]}, true)); err != nil {
		return err
	}
	if l := max(size[1], size[2]) / a.m.Side; l > unitsMax || (size[0]-1)/max(1, a.m.Frames) >= unitsMax {
		return fmt.Errorf("a side of %d pixels is one of %d latents, at most %d", max(size[1], size[2]), l, unitsMax)
	}
	return nil
}

// shape is that of pixels, with channels second or last.
func (a *autoencoder) shape(e extent, second bool) []int {
	space := []int{e.h, e.w}
	if a.m.Frames > 0 {
		space = []int{e.frames, e.h, e.w}
	}
	if second {
		return slices.Concat([]int{e.n, a.m.In}, space)
	}
	return slices.Concat([]int{e.n}, space, []int{a.m.In})
}
