package media

import "math"

// resizeFloat returns the image at another size as torchvision's older functions resize with antialias on:
// rows, then columns, in float32, rounded at the end. qwen-vl-utils uses them, with the bicubic filter.
// Source: PyTorch, UpSampleKernel.cpp, whose compilers fuse products and sums, and not all of them: a pixel
// in about 10⁵ is a level off.
func (p *Image) resizeFloat(w, h int) *Image {
	if w == p.W && h == p.H {
		return p
	}
	in := make([]float32, len(p.Pix))
	for i, v := range p.Pix {
		in[i] = float32(v)
	}
	if w != p.W {
		in = alongRows(in, p.W, newFloatTaps(p.W, w))
	}
	if h != p.H {
		in = alongColumns(in, w*3, newFloatTaps(p.H, h))
	}
	out := bare(w, h)
	for i, v := range in {
		out.Pix[i] = byte(math.RoundToEven(float64(min(max(v, 0), 255))))
	}
	return out
}

// floatTaps are taps with weights in float32.
type floatTaps struct {
	first []int
	w     [][]float32
}

// newFloatTaps are the weights of bicubic scaling in float32 from one length to another; on
// reduction the filter is widened, which smooths.
func newFloatTaps(from, to int) (t floatTaps) {
	scale := float32(from) / float32(to)
	support, inv := float32(2), float32(1)
	if scale >= 1 {
		support, inv = 2*scale, 1/scale
	}
	for i := range to {
		center := float32(float64(scale) * (float64(i) + 0.5))
		lo := max(int(float64(center-support)+0.5), 0)
		hi := min(int(float64(center+support)+0.5), from)
		w, sum := make([]float32, hi-lo), float32(0)
		for j := range w {
			w[j] = fusedBicubic(float32((float64(float32(lo+j)-center) + 0.5) * float64(inv)))
			sum += w[j]
		}
		for j := range w {
			w[j] /= sum
		}
		t.first, t.w = append(t.first, lo), append(t.w, w)
	}
	return t
}

// fused is a·b + c rounded once (but for the last bit of a double).
func fused(a, b, c float32) float32 { return float32(math.FMA(float64(a), float64(b), float64(c))) }

// fusedBicubic is the bicubic kernel with a = -0.5, with each step rounded once.
func fusedBicubic(x float32) float32 {
	const a = -0.5
	if x < 0 {
		x = -x
	}
	switch {
	case x < 1:
		return fused(float32(fused(a+2, x, -(a+3))*x), x, 1)
	case x < 2:
		return fused(fused(fused(a, x, -5*a), x, 8*a), x, -4*a)
	}
	return 0
}

// alongRows scales the width of float32 pixels of three colours.
func alongRows(in []float32, w int, t floatTaps) []float32 {
	out := make([]float32, 0, len(in)/w*len(t.w))
	for ; len(in) > 0; in = in[w*3:] {
		for x, ws := range t.w {
			for c := range 3 {
				at := in[t.first[x]*3+c:]
				sum := at[0] * ws[0]
				for j := 1; j < len(ws); j++ {
					sum = fused(at[j*3], ws[j], sum)
				}
				out = append(out, sum)
			}
		}
	}
	return out
}

// alongColumns scales the height; n is the number of values in a row.
func alongColumns(in []float32, n int, t floatTaps) []float32 {
	out := make([]float32, n*len(t.w))
	for y, ws := range t.w {
		to := out[y*n:][:n]
		for j, w := range ws {
			row := in[(t.first[y]+j)*n:][:n]
			for i, v := range row {
				to[i] = fused(v, w, to[i])
			}
		}
	}
	return out
}
