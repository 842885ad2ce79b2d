package policies

import (
	"math"

	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/noise"
)

// The uses of a sample's random numbers for what is changed of it: its state, and each camera's views,
// counted from here on. Those of family.Denoiser come before.
const (
	drawStateless = 1<<20 + iota
	drawLooks
)

// change changes a sample by numbers that are counted from its key: it may lose its state, and what its cameras see is
// cropped and coloured otherwise, the same in all steps that are observed. bare are its tokens without its state.
func (x *Robots) change(e *family.Encoded, bare []int32) {
	p, v := &x.Policy, x.D.Sight
	if (noise.Key{Sample: e.Key, Draw: drawStateless}).Uniform(0) < p.Stateless {
		e.State = make([]float32, len(e.State))
		if e.IDs = bare; x.Tok == nil {
			e.IDs = nil
		}
	}
	views := make([][]float32, len(e.Views))
	for i, planes := range e.Views {
		if planes == nil {
			continue
		}
		camera := i % v.Cameras()
		k := noise.Key{Sample: e.Key, Draw: drawLooks + uint64(camera)}
		by := func(n uint64, most float64) float32 { return float32(1 + most*(2*k.Uniform(n)-1)) }
		out := cropped(planes, x.Size, p.Crop, k.Uniform(0), k.Uniform(1))
		brighter(out, by(2, p.Brightness))
		contrasted(out, by(3, p.Contrast))
		saturated(out, by(4, p.Saturation))
		top, left := -1.0, -1.0
		if v.Jumps {
			top, left = k.Uniform(5), k.Uniform(6)
		}
		views[i] = x.shown(out, camera, top, left)
	}
	e.Views = views
}

// changes reports whether samples are changed when they are learnt.
func (x *Robots) changes() bool { return x.Policy.Changes() || x.D.Sight.Jumps }

// part is the part of planes [3 h w] that the model reads: so much of what is left from the top and from
// the left, or the middle where that is below 0, as torchvision's RandomCrop and CenterCrop have it.
func (x *Robots) part(planes []float32, top, left float64) []float32 {
	size := x.D.Sight.Extent()
	if size == x.Size {
		return planes
	}
	at := func(of float64, whole, part int) int {
		if of < 0 {
			return int(math.RoundToEven(float64(whole-part) / 2))
		}
		return int(of * float64(whole-part+1))
	}
	y0, x0 := at(top, x.Size[0], size[0]), at(left, x.Size[1], size[1])
	out := make([]float32, 0, 3*size[0]*size[1])
	for c := range 3 {
		for y := range size[0] {
			from := (c*x.Size[0]+y0+y)*x.Size[1] + x0
			out = append(out, planes[from:from+size[1]]...)
		}
	}
	return out
}

// cropped is a part of planes [3 h w] of a share of both sides, from a place of so much of what is left,
// brought to the size of the whole by bilinear interpolation between the middles of pixels.
func cropped(planes []float32, size [2]int, share, top, left float64) []float32 {
	h, w := size[0], size[1]
	out := make([]float32, len(planes))
	if share >= 1 {
		copy(out, planes)
		return out
	}
	high, wide := max(1, int(math.Round(share*float64(h)))), max(1, int(math.Round(share*float64(w))))
	y0, x0 := int(top*float64(h-high+1)), int(left*float64(w-wide+1))
	ys, xs := between(h, high), between(w, wide)
	for c := range 3 {
		at := func(y, x int) float32 { return planes[(c*h+y0+y)*w+x0+x] }
		for i, y := range ys {
			for j, x := range xs {
				upper := (1-x.share)*at(y.from, x.from) + x.share*at(y.from, x.to)
				lower := (1-x.share)*at(y.to, x.from) + x.share*at(y.to, x.to)
				out[(c*h+i)*w+j] = (1-y.share)*upper + y.share*lower
			}
		}
	}
	return out
}

// place is where a pixel of an axis lies between two others.
type place struct {
	from, to int
	share    float32 // of the second
}

// between are the places of n pixels among m.
func between(n, m int) []place {
	out := make([]place, n)
	for i := range out {
		at := min(max((float64(i)+0.5)*float64(m)/float64(n)-0.5, 0), float64(m-1))
		from := int(at)
		out[i] = place{from, min(from+1, m-1), float32(at - float64(from))}
	}
	return out
}

// blend sets a pixel from -1 to 1 to by·v + (1-by)·to, held to that range.
func blend(v *float32, to, by float32) { *v = min(max(by*(*v)+(1-by)*to, -1), 1) }

// brighter scales pixels, of which -1 is black, as torchvision's adjust_brightness does.
func brighter(planes []float32, by float32) {
	for i := range planes {
		blend(&planes[i], -1, by)
	}
}

// grey is the brightness of pixel i of n, by torchvision's weights.
func grey(planes []float32, i, n int) float32 {
	return 0.2989*planes[i] + 0.587*planes[n+i] + 0.114*planes[2*n+i] + greyRest
}

// greyRest is what a black pixel lacks of -1, as the weights together are 0.9999.
const greyRest = 0.2989 + 0.587 + 0.114 - 1

// contrasted draws pixels to the mean of their brightness, or away from it, as adjust_contrast does.
func contrasted(planes []float32, by float32) {
	n := len(planes) / 3
	sum := 0.0
	for i := range n {
		sum += float64(grey(planes, i, n))
	}
	mean := float32(sum / float64(max(1, n)))
	for i := range planes {
		blend(&planes[i], mean, by)
	}
}

// saturated draws pixels to their own brightness, or away from it, as adjust_saturation does.
func saturated(planes []float32, by float32) {
	n := len(planes) / 3
	for i := range n {
		to := grey(planes, i, n)
		for c := range 3 {
			blend(&planes[c*n+i], to, by)
		}
	}
}
