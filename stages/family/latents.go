package family

import (
	"cmp"
	"math"
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// Encoded is one image or clip of a microbatch, encoded.
type Encoded struct {
	From int32     // its first row
	Grid [3]int    // tokens in time, height and width
	X0   []float32 // [tokens Width]: of a token, the channel varies slowest, then frame, row and column
	// in the place of X0, for a model whose blocks encode images: pixels from -1 to 1, [channels T H W], and
	// their frames, height and width
	Pixels []float32
	Size   [3]int
	Key    uint64    // what its random numbers are counted from
	Text   []float32 // [n Texts], the caption's states, with their padding
	Pool   []float32 // [Pooled], its pooled row
	// tokens of the caption, in the place of Text and Pool where blocks before the denoiser encode it; those
	// of no caption where the sample lost it
	IDs []int32
	// the same of an empty caption
	None, NonePool []float32
	// grids of images that are given clean behind the first, each a part of X0 and of the rows of the sample
	With  [][3]int
	Given []float32   // [tokens GivenWidth], what is read beside the noisy latents
	Image []float32   // [ImageRows Images], features of the image that the clip begins with
	Views [][]float32 // [Patches Pixels] of each view, nil for one that is missing
	State []float32   // [State] of the robot, where the model reads numbers
	Robot int32       // which of the robots it is that the model has weights for
	Real  int         // numbers of an action that count in the loss; 0 for the denoiser's
	Pad   int         // rows at the end that are not learnt
	Lead  int         // rows at the beginning that are not
	Told  int         // rows of its prompt, from From on, where a language model hosts the policy
	Seen  Images      // and what that model sees, where it acts: spans count from the sample's first row
	Clean int         // frames of tokens, from the first, that are given without noise
	Clip  *Clip       // of a policy that denoises a clip beside its actions
	// height and width of the picture that the image was cut from, top and left edge of the cut in the
	// picture as it was scaled for it, and height and width of the cut; all in pixels
	Frame [6]float32
	// in place of what is drawn from Key; nil for that
	Level *noise.Level
	Noise []float32 // [tokens Width]
	// one for each part in place of Level, where they have levels of their own
	Levels []noise.Level
}

// EncodedKey is where Inputs.More has a microbatch's latents, []Encoded in order of their rows.
var EncodedKey = NewKey[[]Encoded]("latents")

// The uses of a sample's random numbers: its level of noise, the noise, and whether it loses its caption.
const (
	drawLevel = iota
	drawNoise
	drawCaption
	DrawPosterior // the latents, of the distribution that an autoencoder gives
	drawFirst
	drawClipLevel // of the clip beside a policy's actions
	drawClipNoise
	drawGumbel
)

// latents is the modality of a denoiser. It is not Rowed, so that rows are shared out as they lie: they see
// each other both ways, and all pieces are equal work.
type latents struct{ d *Denoiser }

func (p latents) items(in *Inputs) []Encoded {
	v := EncodedKey.Of(in.More)
	return v
}

// Classes bounds Class, which has sizes of two dimensions: six bits for the levels. Images that are read
// whole have eight bits more for each of height and width.
func (p latents) Classes() int32 {
	switch {
	case p.d.chunked():
		return 1 << 14
	case p.d.Canvas:
		return 1 << 30
	case p.d.Halves != nil:
		return 1 << 16
	}
	return 1 << 14
}

// canvasMax is the greatest height and width of latents that are read whole.
const canvasMax = 255

// canvas is what a class has of a size of images.
func (p latents) canvas(h, w int) int32 {
	if !p.d.Canvas || p.d.chunked() {
		return 0
	}
	return int32(h<<14 + w<<22)
}

// chunked reports whether what a denoiser reads whole are chunks of actions, which are of one size.
func (d *Denoiser) chunked() bool { return d.Hosted || d.Canvas && d.Chunk > 0 }

// class is that of so many samples and rows of captions, at least one of each.
func (p latents) class(levels, texts int) int32 {
	return int32(step(max(1, texts))<<6 + step(max(1, levels)) + 1)
}

// Class is never 0: a microbatch of padding alone has one level, which no row is of.
func (p latents) Class(in *Inputs) int32 {
	texts := 0
	for _, x := range p.items(in) {
		texts += p.rows(&x)
	}
	class := p.reach(p.class(p.levels(len(p.items(in))), texts), p.items(in))
	if items := p.items(in); len(items) > 0 {
		return class + p.canvas(items[0].Grid[1], items[0].Grid[2])
	}
	return class + p.canvas(1, 1)
}

// levels counts the levels of so many samples: tokens that are given without noise have one more of their own.
func (p latents) levels(samples int) int {
	if p.d.Process.First > 0 || p.d.ZeroWith {
		return max(1, samples) + 1
	}
	return samples
}

// rows is the most rows that a sample's caption takes, whether it is lost or not.
func (p latents) rows(x *Encoded) int {
	switch {
	case p.d.Hosted:
		_, n := p.d.reads(x)
		return n
	case p.d.Worded():
		return len(x.IDs)
	case p.d.Clip != nil:
		return len(x.Text) / p.d.Texts
	case p.d.Sight != nil && p.d.Sight.Whole():
		return 0
	case p.d.Sight != nil && p.d.Words.Image > 0:
		return len(x.IDs)
	case p.d.Sight != nil:
		return p.seen(x) + len(x.IDs)
	case p.d.Texts == 0:
		return 0
	case p.d.Live != nil && p.d.TextRows > 0:
		return p.d.TextRows
	case p.d.Live != nil:
		return len(x.IDs)
	}
	return max(len(x.Text), len(x.None)) / p.d.Texts
}

func (p latents) Dims(_ int, class int32) map[string]int {
	dims := map[string]int{NoiseLevels: size(int(class)&63 - 1), TextRows: size(int(class) >> 6 & 255)}
	if p.d.Halves != nil {
		dims[highLevels], dims[lowLevels] = int(class&highBit)/highBit, int(class&lowBit)/lowBit
	}
	if p.d.Live != nil && p.d.Live.Tokens != "" {
		dims[p.d.Live.Tokens] = dims[TextRows]
	}
	switch {
	case p.d.chunked():
		dims[CanvasHeight], dims[CanvasWidth] = 1, p.d.Chunk
	case p.d.Canvas:
		dims[CanvasHeight], dims[CanvasWidth] = int(class)>>14&canvasMax, int(class)>>22
	}
	return dims
}

// Planned is the class for one sample a microbatch, unless dims say otherwise: of images that are read whole a square.
func (p latents) Planned(rows int, dims map[string]int) int32 {
	h, w := dims[CanvasHeight], dims[CanvasWidth]
	if h == 0 || w == 0 {
		h = min(int(math.Sqrt(float64(rows))), canvasMax)
		w = min(rows/max(1, h), canvasMax)
	}
	samples, texts := dims[NoiseLevels], p.d.TextRows
	if p.d.Clip != nil { // whose samples have all chunks and captions of one length
		samples = p.d.samples(rows, dims)
		if p.d.Worded() { // about as many as a task has with what is said behind it
			texts = wordsPlanned
		}
		texts *= samples
	}
	class := p.Fill(p.class(p.levels(samples), max(dims[TextRows], texts)))
	return class + p.canvas(max(1, h), max(1, w))
}

// Tokens is the number of rows of a sample: of its image or clip, and of the images that are given behind it.
func (x *Encoded) Tokens() int {
	n := x.Grid[0] * x.Grid[1] * x.Grid[2]
	for _, g := range x.With {
		n += g[0] * g[1] * g[2]
	}
	return n
}

// missing reports a view that is not there.
func missing(view []float32) bool { return view == nil }

// SizeClass numbers the sizes that rows of a modality are padded to, from 1 up; ClassSize is that of a class.
func SizeClass(rows int) int32 { return int32(step(max(1, rows)) + 1) }

// ClassSize is the rows of a class that SizeClass gave.
func ClassSize(class int32) int { return size(int(class) - 1) }

// Tensors are what Denoiser lists. All random numbers are drawn here.
func (p latents) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	d, n, w := p.d, in.Rows, p.d.Width()
	if d.Canvas {
		n = d.Rows(s)
	}
	out := map[string]*tensor.Tensor{}
	floats := func(name string, shape ...int) []float32 {
		t := tensor.Make(tensor.F32, shape...)
		out["dif."+name] = t
		return t.F32()
	}
	x0, eps := floats("x0", n, w), floats("noise", n, w)
	coef := [4][]float32{floats("in.x0", n), floats("in.noise", n), floats("out.x0", n), floats("out.noise", n)}
	weight, times := floats("weight", n), floats("time", d.LevelRows(s))
	at, pos := tensor.Make(tensor.I32, n), tensor.Make(tensor.I32, n, 3)
	for i := range at.I32() {
		at.I32()[i] = -1
	}
	out["dif.at"], out["dif.pos"] = at, pos
	for g, x := range p.items(in) {
		levels := d.levels(&x)
		rows, from := x.Tokens(), int(x.From)
		if d.Canvas {
			from = g * rows
		}
		copy(x0[from*w:], x.X0)
		if own := eps[from*w : (from+rows)*w]; x.Noise != nil {
			copy(own, x.Noise)
		} else {
			x.key(drawNoise).Fill(own, 0)
		}
		d.hush(&x, eps[from*w:(from+rows)*w])
		d.tell(times[g*len(levels):], levels)
		copy(pos.I32()[3*from:], p.allPlaces(&x))
		clean, end := from+x.Clean*x.Grid[1]*x.Grid[2], from+x.Grid[0]*x.Grid[1]*x.Grid[2]
		by, c := d.parts(&x, levels, end-clean-x.Pad-x.Lead)
		for i := from; i < from+rows; i++ {
			part := (i - from) * len(levels) / rows
			at.I32()[i], weight[i] = int32(g*len(levels)+part), by[part]
			for k := range coef {
				coef[k][i] = c[part][k]
			}
			if i >= end-x.Pad || i < from+x.Lead {
				weight[i] = 0
			}
			if i < clean || i >= end {
				coef[0][i], coef[1][i], weight[i] = 1, 0, 0
			}
			if i < clean || i >= end && d.ZeroWith { // the level behind those of samples has time 0
				at.I32()[i] = int32(len(p.items(in)))
				if d.Parts > 0 {
					at.I32()[i] = int32(d.LevelRows(s) - 1)
				}
			}
		}
	}
	if items := p.items(in); d.Seen != nil && (len(items) == 0 || items[0].X0 == nil) {
		delete(out, X0)
	}
	p.beside(in, s, floats, out)
	switch {
	case d.Hosted:
		p.host(in, s, out)
	case d.Texts > 0 || d.Worded() || d.Sight != nil && !d.Sight.Whole():
		p.captions(in, s, out)
	}
	return out
}

// parts are the weights and the coefficients of rows of each of a sample's levels, of which so many rows are learnt.
func (d *Denoiser) parts(x *Encoded, levels []noise.Level, learnt int) (by []float32, c [][4]float32) {
	rows, numbers := float32(x.Tokens()), cmp.Or(x.Real, d.Real, d.Width())
	if d.Broad {
		numbers = d.Width()
	}
	for _, l := range levels {
		weight := d.Process.weight(l) / float32(numbers)
		if weight *= rows / float32(learnt); d.Hosted { // one row has the weight of all
			weight /= rows
		}
		by, c = append(by, weight), append(c, d.Process.coefficients(l))
	}
	return by, c
}

// captions lays the states of captions out, with borders for every sequence of the microbatch: those of
// padding have none.
func (p latents) captions(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	d, n := p.d, Captions(s)
	states, pool := tensor.Make(tensor.F32, n, max(1, d.Texts)), tensor.Make(tensor.F32, Levels(s), max(1, d.Pooled))
	borders, each, items, level := []int32{0}, []int32{0}, p.items(in), 0
	var rows, at, pos, takes []int32
	tokens := 0
	for i := 0; i+1 < len(in.Cu); i++ {
		if len(items) > 0 && items[0].From == in.Cu[i] {
			x := &items[0]
			text, pooled := x.Text, x.Pool
			if d.Loses(x) {
				text, pooled = x.None, x.NonePool
			}
			n := len(text) / max(1, d.Texts)
			switch {
			case d.Worded():
				n = len(x.IDs)
			case d.looks():
				n = p.look(x, level, &takes, &tokens, s)
			case d.Live != nil:
				n = p.take(x, &takes, &tokens)
			}
			copy(states.F32()[len(at)*max(1, d.Texts):], text)
			copy(pool.F32()[level*max(1, d.Pooled):], pooled)
			for k := range int32(n) {
				rows = append(rows, int32(len(at)))
				at, pos = append(at, int32(level)), append(pos, d.textPlace(x, k)...)
			}
			if d.Sight != nil && d.Sight.Token {
				rows = append(rows, int32(Captions(s)+in.Rows+level))
			}
			items, level, each = items[1:], level+1, append(each, int32(len(at)))
		}
		for row := in.Cu[i]; row < in.Cu[i+1]; row++ {
			rows = append(rows, int32(n)+row)
		}
		borders = append(borders, int32(len(at)))
	}
	out["dif.text.cu"] = tensor.Of(tensor.I32, borders, len(borders))
	if d.Canvas {
		for len(each) <= Levels(s) {
			each = append(each, int32(len(at)))
		}
		out["dif.canvas.cu"] = tensor.Of(tensor.I32, each, len(each))
	}
	switch {
	case d.Worded(): // Joined lays its tokens out
	case d.Live == nil && !d.looks():
		out["dif.text"] = states
	default:
		takes = append(takes, slices.Repeat([]int32{-1}, n-len(takes))...)
		out["dif.text.take"] = tensor.Of(tensor.I32, takes, n)
	}
	if d.Pooled > 0 && d.Live == nil {
		out["dif.pool"] = pool
	}
	if d.Joint {
		p.joint(in, s, out, rows, at, pos)
	}
	if d.Words.Image > 0 {
		p.parts(takes, each, s, out)
		out["dif.text.pos"] = tensor.Make(tensor.I32, n, 3)
		copy(out["dif.text.pos"].I32(), pos)
	}
	if d.Sight != nil && d.Sight.Token {
		p.told(in, s, out)
	}
}

// looks reports whether captions begin with rows of what a policy sees.
func (d *Denoiser) looks() bool { return d.Sight != nil && d.Clip == nil }

// take lists the rows of encoders' states that a caption has, -1 for rows of padding, and counts its
// tokens; it returns how many rows there are.
func (p latents) take(x *Encoded, takes *[]int32, tokens *int) int {
	n := len(x.IDs)
	rows := n
	if p.d.TextRows > 0 {
		rows = p.d.TextRows
	}
	for k := range rows {
		at := int32(-1)
		if k < n {
			at = int32(*tokens + k)
		}
		*takes = append(*takes, at)
	}
	*tokens += n
	return rows
}

// Loses reports whether a sample is trained without its caption.
func (d *Denoiser) Loses(x *Encoded) bool {
	return d.Process.Drop > 0 && x.Level == nil && x.key(drawCaption).Uniform(0) < d.Process.Drop
}

// textPlace is the place of row k of a caption.
func (d *Denoiser) textPlace(x *Encoded, k int32) []int32 {
	at, first := d.TextStep*k, int32(0)
	if d.TextAt != nil {
		first = d.TextAt(x.Grid)
		for _, g := range x.With {
			first = max(first, d.TextAt(g))
		}
	}
	at += first
	return []int32{at, at, at}
}

// key is that of a use of the sample's random numbers.
func (x *Encoded) key(use uint64) noise.Key {
	return noise.Key{Sample: x.Key, Draw: use}
}

// coefficients are those of x0 and of the noise in what the denoiser reads, and in what it is to give: both
// are linear in them.
func (p *Process) coefficients(l noise.Level) [4]float32 {
	one, zero := []float32{1}, []float32{0}
	in := float32(1)
	if l.Data > 0 { // arXiv:2206.00364, table 1
		in = float32(1 / math.Sqrt(float64(l.Sigma)*float64(l.Sigma)+float64(l.Data)*float64(l.Data)))
	}
	return [4]float32{in * l.Alpha, in * l.Sigma, p.Target.Of(l, one, zero)[0], p.Target.Of(l, zero, one)[0]}
}

func (p *Process) weight(l noise.Level) float32 {
	if p.Weight == nil {
		return 1
	}
	return p.Weight(l)
}

// places are those of a sample's tokens.
func (d *Denoiser) places(grid [3]int) []int32 {
	if d.At != nil {
		return d.At(grid)
	}
	out := make([]int32, 0, 3*grid[0]*grid[1]*grid[2])
	for t := range grid[0] {
		for y := range grid[1] {
			for x := range grid[2] {
				out = append(out, int32(t), int32(y), int32(x))
			}
		}
	}
	return out
}

// allPlaces are those of all of a sample's tokens: further images lie behind the first on the axis of time.
func (p latents) allPlaces(x *Encoded) []int32 {
	d := p.d
	out := d.places(x.Grid)
	for i := 0; x.firstBlock(d.Clip) > 0 && i < len(out); i += 3 { // actions of blocks before it lie before
		out[i] += int32(x.firstBlock(d.Clip) * x.Tokens())
	}
	for i := 0; d.Behind && i < len(out); i++ {
		if out[i] += int32(p.rows(x)); d.Sight != nil && d.Sight.Token {
			out[i]++
		}
	}
	for k, g := range x.With {
		more := d.places(g)
		for i := 0; i < len(more); i += 3 {
			more[i] += int32(k) + 1
		}
		out = append(out, more...)
	}
	return out
}

// Grid is the tokens in time, height and width of latents of a shape: channels, frames, rows and columns.
func (d *Denoiser) Grid(shape [4]int) (g [3]int) {
	for a := range g {
		g[a] = shape[a+1] / d.Patch[a]
	}
	return g
}

// Tokens lays latents [C T H W] out as rows of tokens, [t·h·w C·taps]; Latents is its inverse.
func (d *Denoiser) Tokens(shape [4]int, x []float32) []float32 {
	out := make([]float32, len(x))
	d.each(shape, func(token, latent int) { out[token] = x[latent] })
	return out
}

// Latents lays rows of tokens out as latents [C T H W].
func (d *Denoiser) Latents(shape [4]int, rows []float32) []float32 {
	out := make([]float32, len(rows))
	d.each(shape, func(token, latent int) { out[latent] = rows[token] })
	return out
}
