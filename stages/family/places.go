package family

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// What tells a tower where a patch is: rows of a table of positions, and frames of a clip.

// blend interpolates the position table to each image's grid, corners on corners with four rows and weights
// a patch, or centres on centres with sixteen of a cubic kernel, as transformers computes them in float32.
func (d *visionData) blend(p *Images) {
	n, side := d.s.Dim(block.Patches), int32(math.Round(math.Sqrt(float64(d.v.Tower.Positions))))
	count := d.v.Tower.Taps
	taps, blend := make([]*tensor.Tensor, count), make([]*tensor.Tensor, count)
	for k := range taps {
		taps[k], blend[k] = tensor.Make(tensor.I32, n), tensor.Make(tensor.F32, n)
		d.out[fmt.Sprintf("vis.tap.%d", k)], d.out[fmt.Sprintf("vis.blend.%d", k)] = taps[k], blend[k]
	}
	axis := linearTaps
	if count == 16 {
		axis = CubicTaps
	}
	at := 0
	for _, g := range p.Grids {
		pos := d.v.squares(g.H, g.W)
		for range g.T {
			for i := 0; i < len(pos); i += 2 {
				ys, wy := axis(pos[i], g.H, side)
				xs, wx := axis(pos[i+1], g.W, side)
				for k, n := 0, len(ys); k < count; k++ {
					taps[k].I32()[at], blend[k].F32()[at] = ys[k/n]*side+xs[k%n], wy[k/n]*wx[k%n]
				}
				at++
			}
		}
	}
}

// linearTaps are the rows of an axis of a table, of so many rows, that place i of size blends, and weights.
func linearTaps(i int32, size int, side int32) ([]int32, []float32) {
	src := float32(i) * float32(side-1) / float32(max(size-1, 1))
	f := float32(math.Floor(float64(src)))
	return []int32{int32(f), min(int32(f)+1, side-1)}, []float32{1 - (src - f), src - f}
}

// CubicTaps are those of Keys' kernel with a = -0.75, whose rows beyond the border are the border's.
func CubicTaps(i int32, size int, side int32) (rows []int32, weights []float32) {
	const a = -0.75
	src := (float32(i)+0.5)*float32(side)/float32(size) - 0.5
	f := float32(math.Floor(float64(src)))
	for k := float32(-1); k < 3; k++ {
		d := float32(math.Abs(float64(src - f - k)))
		w := ((a+2)*d-(a+3))*d*d + 1
		if d > 1 {
			w = ((a*d-5*a)*d+8*a)*d - 4*a
		}
		rows = append(rows, min(max(int32(f+k), 0), side-1))
		weights = append(weights, w)
	}
	return rows, weights
}

// clips tells frames of clips of more than one apart, and which patches are of one place.
func (d *visionData) clips(p *Images, n int) {
	fill := func() []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = -1
		}
		return out
	}
	frame, share := fill(), tensor.Make(tensor.F32, n)
	pool := make([][]int32, d.v.Tower.Times)
	for f := range pool {
		pool[f] = fill()
	}
	patch, row := 0, 0
	for _, g := range p.Grids {
		one := g.H * g.W
		for f := range g.T {
			for i := range one {
				if g.T > 1 {
					frame[patch] = int32(f)
				}
				pool[f][row+i], share.F32()[row+i] = int32(patch), 1/float32(g.T)
				patch++
			}
		}
		row += one
	}
	d.ints("vis.frame", frame, n)
	for f := range pool {
		d.ints(fmt.Sprintf("vis.pool.%d", f), pool[f], n)
	}
	d.out["vis.share"] = share
}

// pairs are the features of both frames that one feature of a video is made of; those of an image's one frame
// stand for both.
func (d *visionData) pairs(p *Images, n int) {
	first, second := make([]int32, 0, n), make([]int32, 0, n)
	at := int32(0) // features of frames so far
	for _, g := range p.Grids {
		one, frames, far := int32(g.H*g.W/d.v.Tower.Join), g.T, int32(0)
		if d.v.Tower.Times > 0 { // which are one by now
			frames = 1
		}
		if g.Video && frames > 1 {
			frames, far = frames/2, one
		}
		for range frames {
			for range one {
				first, second = append(first, at), append(second, at+far)
				at++
			}
			at += far
		}
	}
	for len(first) < n {
		first, second = append(first, -1), append(second, -1)
	}
	d.ints("vis.first", first, n)
	d.ints("vis.second", second, n)
}
