package demo

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/dataset/media"
)

// scene is what is drawn: a place in each of the lists below. Pictures of figures have no place, and clips one shape
// that goes somewhere in place of a count.
type scene [4]int

const (
	colour = iota
	shape
	count
	place
	move = count
)

var (
	sceneColours = []string{"red", "green", "blue", "yellow", "purple", "white"}
	sceneShapes  = []string{"circle", "square", "triangle", "cross"}
	sceneCounts  = []string{"one", "two", "three", "four"}
	sceneMoves   = []string{"left", "right", "up", "down"}
	scenePlaces  = []string{"top left", "top right", "bottom left", "bottom right"}
	scenePaints  = []color.RGBA{{220, 40, 40, 255}, {40, 190, 60, 255}, {50, 80, 230, 255}, {235, 215, 40, 255},
		{170, 60, 200, 255}, {245, 245, 245, 255}}
	moves = [][2]float64{{-1, 0}, {1, 0}, {0, -1}, {0, 1}} // pixels to the right and down
)

// Sides of drawn pictures, and the brightness of the background of figures. Clips are of so many frames, in which a shape
// moves so many pixels a frame.
const (
	sceneSide, figureSide, clipSide = 112, 32, 16

	figureGround = 24
	clipFrames   = 5
	clipSpeed    = 2.2
)

// held reports whether a combination is kept out of training: every colour, shape, count and place is seen, one in six
// of their combinations is not.
func (s scene) held() bool { return (s[colour]+2*s[shape]+3*s[count]+5*s[place])%6 == 1 }

// scenesOf lists the combinations with so many places that are, or are not, kept out of training.
func scenesOf(held bool, places int) (out []scene) {
	for i := range len(sceneColours) * 16 * places {
		s := scene{i / places / 16, i / places / 4 % 4, i / places % 4, i % places}
		if s.held() == held {
			out = append(out, s)
		}
	}
	return out
}

// figure describes a scene without its place.
func (s scene) figure() string {
	plural := ""
	if s[count] > 0 {
		plural = "s"
		if sceneShapes[s[shape]] == "cross" {
			plural = "es"
		}
	}
	return fmt.Sprintf("%s %s %s%s", sceneCounts[s[count]], sceneColours[s[colour]], sceneShapes[s[shape]], plural)
}

func (s scene) caption() string { return s.figure() + " in the " + scenePlaces[s[place]] }

// motion describes a clip.
func (s scene) motion() string {
	return strings.Join([]string{sceneColours[s[colour]], sceneShapes[s[shape]], "goes", sceneMoves[s[move]]}, " ")
}

// ground is a picture of one grey.
func ground(side int, grey uint8) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	draw.Draw(img, img.Bounds(), &image.Uniform{C: color.RGBA{grey, grey, grey, 255}}, image.Point{}, draw.Src)
	return img
}

// Png paints a scene: places, sizes and brightness differ from one drawing to the next.
func (s scene) Png(r *rand.Rand) []byte {
	img := ground(sceneSide, uint8(20+r.IntN(40)))
	const half = sceneSide / 2
	for _, c := range r.Perm(4)[:s[count]+1] {
		x := float64(s[place]%2*half + c%2*half/2 + half/4 + r.IntN(5) - 2)
		y := float64(s[place]/2*half + c/2*half/2 + half/4 + r.IntN(5) - 2)
		paintShape(img, s[shape], x, y, 8+2*r.Float64(), scenePaints[s[colour]])
	}
	return pngOf(img)
}

// paint paints figures, each in a quarter of its own, somewhat off its middle and of a size of its own.
func (s scene) paint(r *rand.Rand) *image.RGBA {
	img := ground(figureSide, figureGround)
	const quarter = figureSide / 2
	for _, c := range r.Perm(4)[:s[count]+1] {
		x := float64(c%2*quarter+quarter/2) + r.Float64()*2 - 1
		y := float64(c/2*quarter+quarter/2) + r.Float64()*2 - 1
		paintShape(img, s[shape], x, y, 5.5+r.Float64(), scenePaints[s[colour]])
	}
	return img
}

func pngOf(img image.Image) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		panic(fmt.Sprintf("demo: an image in memory cannot be written: %v", err))
	}
	return b.Bytes()
}

// clip is a moving GIF: the shape passes the middle about half-way.
func (s scene) clip(r *rand.Rand) []byte {
	paint, to := scenePaints[s[colour]], moves[s[move]]
	g := &gif.GIF{}
	x, y := clipSide/2+r.Float64()*2-1, clipSide/2+r.Float64()*2-1
	size := 2.6 + r.Float64()*0.6
	for t := range clipFrames {
		by := clipSpeed * (float64(t) - float64(clipFrames-1)/2)
		frame := ground(clipSide, figureGround)
		paintShape(frame, s[shape], x+by*to[0], y+by*to[1], size, paint)
		p := image.NewPaletted(frame.Bounds(),
			color.Palette{color.RGBA{figureGround, figureGround, figureGround, 255}, paint})
		draw.Draw(p, p.Bounds(), frame, image.Point{}, draw.Src)
		g.Image, g.Delay = append(g.Image, p), append(g.Delay, 10)
	}
	var b bytes.Buffer
	if err := gif.EncodeAll(&b, g); err != nil {
		panic(fmt.Sprintf("demo: a clip in memory cannot be written: %v", err))
	}
	return b.Bytes()
}

// paintShape fills the pixels that a shape of radius size around (x, y) covers.
func paintShape(img *image.RGBA, shape int, x, y, size float64, c color.RGBA) {
	for py := int(y - size); py <= int(y+size); py++ {
		for px := int(x - size); px <= int(x+size); px++ {
			dx, dy := (float64(px)+0.5-x)/size, (float64(py)+0.5-y)/size
			in := false
			switch sceneShapes[shape] {
			case "circle":
				in = dx*dx+dy*dy <= 1
			case "square":
				in = math.Max(math.Abs(dx), math.Abs(dy)) <= 0.85
			case "triangle":
				in = dy <= 0.8 && math.Abs(dx) <= (dy+0.9)/1.7
			case "cross":
				in = math.Min(math.Abs(dx), math.Abs(dy)) <= 0.3 && math.Max(math.Abs(dx), math.Abs(dy)) <= 1
			}
			if in && image.Pt(px, py).In(img.Rect) {
				img.SetRGBA(px, py, c)
			}
		}
	}
}

// nothing is what is seen of a picture without shapes.
var nothing = scene{-1, -1, -1}

// seen is what the rules that drew figures find in a picture: -1 where they find nothing, or differ.
func seen(p *media.Image) scene {
	blobs := blobs(p)
	if len(blobs) == 0 {
		return nothing
	}
	s := scene{colourOf(p, blobs[0]), shapeOf(blobs[0]), len(blobs) - 1}
	for _, b := range blobs[1:] {
		if colourOf(p, b) != s[colour] {
			s[colour] = -1
		}
		if shapeOf(b) != s[shape] {
			s[shape] = -1
		}
	}
	return s
}

// sawMotion is what they find in a clip. What is brighter than the background in the first frame and in the last has a
// middle each, and the way between them is the direction.
func sawMotion(frames []*media.Image) scene {
	var blob [2][]image.Point
	var middle [2][2]float64
	ends := [2]*media.Image{frames[0], frames[len(frames)-1]}
	for i, p := range ends {
		for at := range p.W * p.H {
			if q := image.Pt(at%p.W, at/p.W); figured(p, q) {
				blob[i] = append(blob[i], q)
				middle[i][0] += float64(q.X)
				middle[i][1] += float64(q.Y)
			}
		}
		n := max(1, float64(len(blob[i])))
		middle[i] = [2]float64{middle[i][0] / n, middle[i][1] / n}
	}
	s := nothing
	if min(len(blob[0]), len(blob[1])) < 3 { // shapes are small here, and may leave the picture in part
		return s
	}
	if s[colour] = colourOf(ends[0], blob[0]); s[colour] != colourOf(ends[1], blob[1]) {
		s[colour] = -1
	}
	x, y := middle[1][0]-middle[0][0], middle[1][1]-middle[0][1]
	if math.Hypot(x, y) < clipSpeed { // it stands
		return s
	}
	best := math.Inf(-1)
	for i, to := range moves {
		if along := x*to[0] + y*to[1]; along > best {
			s[move], best = i, along
		}
	}
	return s
}

// figured reports whether a pixel is nearer to a paint than to the background.
func figured(p *media.Image, q image.Point) bool {
	at := p.Pix[3*(q.Y*p.W+q.X):]
	return max(at[0], at[1], at[2]) > 110
}

// blobLeast is the least pixels of a shape; what is smaller is a speck.
const blobLeast = 8

// blobs finds the shapes of a picture: connected stretches of pixels that are not background, neighbours
// in eight directions.
func blobs(p *media.Image) (out [][]image.Point) {
	done := make([]bool, p.W*p.H)
	var blob []image.Point
	var visit func(q image.Point)
	visit = func(q image.Point) {
		if !q.In(image.Rect(0, 0, p.W, p.H)) || done[q.Y*p.W+q.X] || !figured(p, q) {
			return
		}
		done[q.Y*p.W+q.X] = true
		blob = append(blob, q)
		for i := range 9 {
			visit(image.Pt(q.X+i%3-1, q.Y+i/3-1))
		}
	}
	for at := range done {
		blob = nil
		if visit(image.Pt(at%p.W, at/p.W)); len(blob) >= blobLeast {
			out = append(out, blob)
		}
	}
	return out
}

// colourOf is the paint nearest to the mean of a shape's pixels.
func colourOf(p *media.Image, blob []image.Point) int {
	var mean [3]float64
	for _, q := range blob {
		for c := range 3 {
			mean[c] += float64(p.Pix[3*(q.Y*p.W+q.X)+c]) / float64(len(blob))
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
func shapeOf(blob []image.Point) int {
	best, most := -1, 0.0
	for s := range sceneShapes {
		if like := likeness(blob, s); like > most {
			best, most = s, like
		}
	}
	return best
}

// likeness is the share of pixels that a blob and a shape painted in its place have in common, of those that either has:
// the best of some sizes and places.
func likeness(blob []image.Point, shape int) (most float64) {
	var rect image.Rectangle
	for _, q := range blob {
		rect = rect.Union(image.Rect(q.X, q.Y, q.X+1, q.Y+1))
	}
	x, y := float64(rect.Min.X+rect.Max.X)/2, float64(rect.Min.Y+rect.Max.Y)/2
	half := float64(max(rect.Dx(), rect.Dy())) / 2
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
			for _, q := range blob {
				if img.RGBAAt(q.X, q.Y).A != 0 {
					both++
				}
			}
			most = max(most, float64(both)/float64(covered+len(blob)-both))
		}
	}
	return most
}
