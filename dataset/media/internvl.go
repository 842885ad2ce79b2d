package media

import (
	"cmp"
	"math"
	"slices"
)

var _ = registerImage("GotOcr2ImageProcessor", newInternVL)

// internVL is the image processor of InternVL: an image is resized to a grid of tiles whose shape is
// nearest to its own, and the tiles are followed by a thumbnail.
type internVL struct {
	h, w        int // of a tile
	cut         bool
	least, most int // tiles
	tokens      int // of a tile
	filter      *Filter
	norm        *norm
}

// newInternVL reads InternVL's settings: an image is cut into a number of tiles within bounds.
func newInternVL(s *Settings) (ImageProcessor, error) {
	v := &internVL{filter: s.filter(), least: s.count("min_patches", 1), most: s.count("max_patches", 12)}
	v.h, v.w = s.box(384, 384)
	// InternVLProcessor always asks for tiles, whatever its image processor's default is.
	v.cut = s.flag("crop_to_patches", false) || s.text("processor_class", "") == "InternVLProcessor"
	if v.least > v.most || v.most > tilesMax {
		s.fail("min_patches is %d and max_patches %d; they ascend and are at most %d", v.least, v.most, tilesMax)
		v.most = 1
	}
	v.tokens = s.countBeside("image_seq_length", 256)
	s.must("do_resize", true)
	s.must("do_pad", false)
	s.must("do_center_crop", false)
	v.norm = s.affine(clipMean, clipStd).pillow()
	return v, nil
}

// tilesMax bounds the tiles of an image.
const tilesMax = 4096

// tiling returns the columns and rows of tiles for an image. Of equally near shapes the later, larger one counts where
// the image has over half its pixels. Source: get_optimal_tiled_canvas of transformers' image_processing_got_ocr2.py.
func (v *internVL) tiling(w, h int) (columns, rows int) {
	var all [][2]int
	for x := 1; x <= v.most; x++ {
		for y := 1; y <= v.most/x; y++ {
			if x*y >= v.least {
				all = append(all, [2]int{x, y})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b [2]int) int { return cmp.Compare(a[0]*a[1], b[0]*b[1]) })
	best, near := [2]int{1, 1}, math.Inf(1)
	for _, g := range all {
		d := math.Abs(float64(w)/float64(h) - float64(g[0])/float64(g[1]))
		if d < near || d == near && float64(w*h) > 0.5*float64(v.h*v.w*g[0]*g[1]) {
			best, near = g, d
		}
	}
	return best[0], best[1]
}

// ImageExtent implements ImageProcessor.
func (v *internVL) ImageExtent(w, h, _ int) (Extent, error) {
	columns, rows := 1, 1
	if v.cut && v.most > 1 {
		columns, rows = v.tiling(w, h)
	}
	tiles := rows * columns
	if tiles > 1 {
		tiles++
	}
	e := Extent{Shape: []int{tiles, 3, v.h, v.w}, Grid: [3]int{1, rows, columns}, Tokens: tiles * v.tokens,
		Size: [2]int{h, w}}
	return e, e.check()
}

// Image implements ImageProcessor.
func (v *internVL) Image(p *Image, _ int) (*Features, error) {
	e, err := v.ImageExtent(p.W, p.H, 1)
	if err != nil {
		return nil, err
	}
	rows, columns := e.Grid[1], e.Grid[2]
	out := make([]byte, 0, e.Rows()*e.Width())
	whole := p.Resize(columns*v.w, rows*v.h, v.filter)
	apart := whole.planes()
	defer apart.release()
	for n := range rows * columns {
		out = apart.tile(out, n%columns*v.w, n/columns*v.h, v.w, v.h)
	}
	if rows*columns > 1 {
		out = p.whole(out, p.Resize(v.w, v.h, v.filter))
	}
	whole.releaseUnless(p)
	return &Features{Extent: e, Pixels: out, norm: v.norm, run: v.h * v.w}, nil
}
