package demo

import (
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lfactor/lfactor/dataset/media"
)

// figures is a drawn picture of 32 by 32 pixels: some shapes of one kind and colour.
type figures struct{ Colour, Shape, Count int }

const figureSide = 32

// figureHeld reports whether a combination is kept out of training: every colour, shape and count is
// seen, one in six of their combinations is not.
func (f figures) held() bool { return (f.Colour+2*f.Shape+3*f.Count)%6 == 1 }

// figuresOf lists the combinations that are, or are not, kept out of training.
func figuresOf(held bool) (out []figures) {
	for c := range sceneColours {
		for s := range sceneShapes {
			for n := range sceneCounts {
				if f := (figures{c, s, n}); f.held() == held {
					out = append(out, f)
				}
			}
		}
	}
	return out
}

// caption is what the picture is called in training.
func (f figures) caption() string {
	plural := ""
	if f.Count > 0 {
		plural = "s"
		if sceneShapes[f.Shape] == "cross" {
			plural = "es"
		}
	}
	return fmt.Sprintf("%s %s %s%s", sceneCounts[f.Count], sceneColours[f.Colour], sceneShapes[f.Shape], plural)
}

// figureGround is the brightness of the background.
const figureGround = 24

// draw paints the shapes, each in a quarter of its own, somewhat off its middle and of a size of its own.
func (f figures) draw(r *rand.Rand) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, figureSide, figureSide))
	for i := 0; i < len(img.Pix); i += 4 {
		img.Pix[i], img.Pix[i+1], img.Pix[i+2], img.Pix[i+3] = figureGround, figureGround, figureGround, 255
	}
	const quarter = figureSide / 2
	for _, c := range r.Perm(4)[:f.Count+1] {
		x := float64(c%2*quarter+quarter/2) + r.Float64()*2 - 1
		y := float64(c/2*quarter+quarter/2) + r.Float64()*2 - 1
		paintShape(img, f.Shape, x, y, 5.5+r.Float64(), scenePaints[f.Colour])
	}
	return img
}

// blob is a connected stretch of pixels that are not background.
type blob struct {
	at   []image.Point
	rect image.Rectangle
}

// seen is what the rules that drew pictures find in one: -1 where they find nothing, or differ.
func seen(p *media.Image) figures {
	blobs := blobs(p)
	if len(blobs) == 0 {
		return figures{-1, -1, -1}
	}
	f := figures{Count: len(blobs) - 1, Colour: colourOf(p, blobs[0]), Shape: shapeOf(blobs[0])}
	for _, b := range blobs[1:] {
		if colourOf(p, b) != f.Colour {
			f.Colour = -1
		}
		if shapeOf(b) != f.Shape {
			f.Shape = -1
		}
	}
	return f
}

// figured reports whether a pixel is nearer to a paint than to the background.
func figured(p *media.Image, x, y int) bool {
	at := p.Pix[3*(y*p.W+x):]
	return max(at[0], at[1], at[2]) > 110
}

// blobLeast is the least pixels of a shape; what is smaller is a speck.
const blobLeast = 8

// blobs finds the shapes of a picture, neighbours in eight directions.
func blobs(p *media.Image) (out []blob) {
	done := make([]bool, p.W*p.H)
	for y := range p.H {
		for x := range p.W {
			if done[y*p.W+x] || !figured(p, x, y) {
				continue
			}
			b := blob{rect: image.Rect(x, y, x+1, y+1)}
			queue := []image.Point{{X: x, Y: y}}
			done[y*p.W+x] = true
			for len(queue) > 0 {
				q := queue[0]
				queue = queue[1:]
				b.at, b.rect = append(b.at, q), b.rect.Union(image.Rect(q.X, q.Y, q.X+1, q.Y+1))
				for _, n := range neighbours(q, p) {
					if !done[n.Y*p.W+n.X] && figured(p, n.X, n.Y) {
						done[n.Y*p.W+n.X] = true
						queue = append(queue, n)
					}
				}
			}
			if len(b.at) >= blobLeast {
				out = append(out, b)
			}
		}
	}
	return out
}

// neighbours are the pixels around one that lie in the picture.
func neighbours(q image.Point, p *media.Image) (out []image.Point) {
	for y := max(0, q.Y-1); y <= min(p.H-1, q.Y+1); y++ {
		for x := max(0, q.X-1); x <= min(p.W-1, q.X+1); x++ {
			out = append(out, image.Pt(x, y))
		}
	}
	return out
}

// colourOf is the paint nearest to the mean of a shape's pixels.
func colourOf(p *media.Image, b blob) int {
	var mean [3]float64
	for _, q := range b.at {
		for c := range 3 {
			mean[c] += float64(p.Pix[3*(q.Y*p.W+q.X)+c]) / float64(len(b.at))
		}
	}
	var off []float64
	for _, paint := range scenePaints {
		off = append(off, math.Hypot(math.Hypot(mean[0]-float64(paint.R), mean[1]-float64(paint.G)),
			mean[2]-float64(paint.B)))
	}
	return slices.Index(off, slices.Min(off))
}

// shapeOf is the kind of shape that covers most alike, painted over the blob's own rectangle.
func shapeOf(b blob) int {
	best, most := -1, 0.0
	for s := range sceneShapes {
		if like := likeness(b, s); like > most {
			best, most = s, like
		}
	}
	return best
}

// likeness is the share of pixels that a blob and a shape painted in its place have in common, of those
// that either has: the best of some sizes and places.
func likeness(b blob, shape int) (most float64) {
	mid := func(lo, hi int) float64 { return float64(lo+hi) / 2 }
	x, y := mid(b.rect.Min.X, b.rect.Max.X), mid(b.rect.Min.Y, b.rect.Max.Y)
	half := float64(max(b.rect.Dx(), b.rect.Dy())) / 2
	for _, size := range []float64{half * 0.95, half * 1.05, half * 1.15} {
		for _, down := range []float64{-0.5, 0, 0.5} {
			img := image.NewRGBA(image.Rect(0, 0, figureSide, figureSide))
			paintShape(img, shape, x, y+down, size, scenePaints[0])
			both, covered := 0, 0
			for i := 3; i < len(img.Pix); i += 4 {
				if img.Pix[i] != 0 {
					covered++
				}
			}
			for _, q := range b.at {
				if img.RGBAAt(q.X, q.Y).A != 0 {
					both++
				}
			}
			most = max(most, float64(both)/float64(covered+len(b.at)-both))
		}
	}
	return most
}
