package family

import (
	"math"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// Denoiser is what models of diffusion share, whatever their layers: noisy latents go in, and what is to be
// predicted of them is compared with what comes out. A row of a microbatch is a token of latents, a patch
// of them; a sequence is an image or a clip, and sequences of unequal size are packed as texts are.
// Captions lie beside the rows, with borders of their own.
//
// Its data, of which noise, levels and coefficients follow from the sample's key alone:
//
//	dif.x0, dif.noise [rows Width]   clean latents, and noise; float32
//	dif.in.x0, dif.in.noise [rows]   what the denoiser reads: the sum of both, each times its coefficient
//	dif.out.x0, dif.out.noise [rows] what it is to give, likewise
//	dif.weight [rows]                what the level adds to the weight of the loss
//	dif.at [rows]                    the row's level, -1 in padding
//	dif.time [levels]                what the denoiser is told of each level
//	dif.pos [rows 3]                 place in time, height and width
//	dif.text [texts Texts]           states of captions, one behind the other
//	dif.text.cu [sequences+1]        their borders, one a sequence as in cu_seqlens
//	dif.text.at, dif.text.pos        level and place of each row of a caption, in a stream of its own
//	dif.text.take [texts]            in the place of dif.text, the row of encoded tokens, -1 for zeros
//	dif.joint, dif.joint.cu          rows of captions and latents sequence by sequence, and their borders
//	dif.pool [levels Pooled]         pooled rows of captions
//	dif.guide [levels]               a thousand times the guidance
//	dif.frame [6 levels]             numbers of Encoded.Frame
//	dif.given [rows Given·taps]      what is given beside the noisy latents
//	dif.image [images ImageRows, Images] features of the image that a clip begins with
//	dif.image.cu [sequences+1]       their borders
//	dif.feature [levels FeatureWidth]   what Feature makes of each level's time
//	dif.real [rows Width]            1 where a number of a token counts in the loss
//
// A policy (Sight) has rows of captions of its own making: those of a sample are the features of the views that it has
// and then its tokens, and dif.text.take counts features of all views of all levels first.
//
//	dif.view [levels·Views·Patches Pixels] patches of views
//	dif.ids [texts]                  tokens of captions
//
// With a row for the state (Sight.Token), dif.joint counts rows of captions, of actions and of states, and
// it has dif.state as below and
//
//	dif.state.pos [levels 3]         places of states
//	dif.told, dif.told.cu            rows of captions and of states sample by sample, and their borders
//	dif.told.seq [sequences+1]       the same borders, one a sequence as in cu_seqlens
//	dif.step [rows 3]                place of each action in its chunk
//
// A policy that reads views whole (Sight.Size) has no captions, but states of robots:
//
//	dif.view [levels·Views·Height·Width 3] pixels of views
//	dif.state [levels State]         states of robots
//	dif.gumbel [levels Draws]        standard Gumbel noise, of a policy that draws out of logits
//	dif.learnt.cu [2·levels+1]       borders between what is learnt of a sample and what is not, with Ahead rows before
//
// A denoiser of convolutions reads images whole (Canvas). Its rows are then the places of as many images as
// there are levels, all of one size, and in addition it has
//
//	dif.canvas [rows]                the token of the microbatch that each row is, -1 for none
//	dif.canvas.cu [levels+1]         borders of the captions of images
type Denoiser struct {
	Patch    [3]int // frames, rows and columns of latents that become a token
	Channels int    // of latents
	Texts    int    // width of a caption's states, 0 for a model that reads none
	// rows that each caption is padded to with zeros, which are attended to; 0 leaves it as long as it is
	TextRows int
	Last     bool // of a token the channel varies fastest, and not slowest
	// At gives the places of the tokens of one sample, [tokens 3]; nil counts from 0 on each axis.
	At func(grid [3]int) []int32
	// Joint says that captions are rows of a stream of their own, which rows of latents attend to and which
	// attend to them: rows of captions have levels and places too. TextAt is the place of a caption's first
	// row on each axis, and TextStep what each further row is behind it.
	Joint    bool
	TextAt   func(grid [3]int) int32
	TextStep int32
	Times    float32 // what times of a thousand steps are divided by before the denoiser is told; 0 for 1
	Guided   bool    // the model is told a guidance
	Pooled   int     // width of a caption's pooled row, 0 for none
	Edit     string  // diffusers' class that changes images with it, "" for none
	Further  int     // images at most that a sample has to be changed; set after the model is built
	Policy           // of a robot; zero for a model that draws
	// rows of latents have places behind those of their captions, on each axis
	Behind bool
	// the model is told of a time what Feature makes of it, FeatureWidth numbers, in the place of sinusoids
	Feature      func(time float64) []float32
	FeatureWidth int
	ZeroWith     bool   // further images of a sample are told time 0, not the sample's
	Canvas       bool   // rows are images, whole and all of one size in a microbatch
	Lines        bool   // and members of context parallelism compute some lines of each
	Framed       bool   // the model is told how each image was cut out of its picture
	Even         bool   // its pipeline begins schedules of flow with equal levels, noise.FlowLevels
	Dir          string // the model's folder in a pipeline of diffusers, "" for unet or transformer
	// Takes is set for an autoencoder, which reads pictures as they are and gives them back: an error says
	// which sizes in pixels it reads. Nil for a model that reads noise.
	Takes func(size [3]int) error
	// Extent is the number of rows of a shape that such an autoencoder reads.
	Extent func(s block.Shape) int
	// Given is channels that are read beside the noisy ones: Masks of them say which frames are given, and
	// the others are the latents of these frames alone. 0 is none
	Given, Masks      int
	Images, ImageRows int    // width and rows of the features of an image, 0 for none
	Pipeline          string // diffusers' class that draws with it
	Process           Process
	Halves            *Halves // two models that share out the levels of noise, nil for one of all
	half              string  // of two, the dimension of this one's
	Seen              *Seen   // blocks before the denoiser that encode images; nil where latents are data
	Live              *Live   // blocks before the denoiser that encode captions; nil where states are data
}

// Live names the ports that blocks which encode captions before a denoiser give: States [tokens Texts], and
// Pooled [levels Pooled], "" for none. Tokens is the dimension of their tokens where it is that of rows of
// captions, so that a class of shape has room for both; "" where it is one of its own.
type Live struct{ States, Pooled, Tokens string }

// Process is what training does to latents. It is set after the model is built.
type Process struct {
	Times  noise.Times
	Levels noise.Levels
	Target noise.Target
	Weight func(noise.Level) float32
	Loss   int     // of kernels: SquaredLoss and its kin
	Border float64 // of a Huber loss
	Drop   float64 // share of the samples that are trained without their captions
	Guide  float64 // guidance that a model distilled from guided ones is told
	First  float64 // share of the samples whose first frame is given as it is, without noise
	// levels of training whose time lies in [From, To), in steps; the zero value is all
	From, To float32
	// autoencoders: latents are the mode of what they give, and not drawn; and the weight of their
	// divergence from standard normal ones
	Mode bool
	KL   float64
	// and a network that compares pictures, nil for none, with the weight of its distance and the beginning
	// of its parameters' names
	Look     Looker
	LookBy   float64
	LookName string
	Size     [3]int // and the first size of pictures in pixels, for plans
}

// Looker says how far pictures y lie from x, both [n h w c] from -1 to 1, by the sum of each one's distance
// times its weight [n] in float32: [1] in float32.
type Looker interface {
	Distance(r *block.Rec, prefix string, y, x, weight *grad.Value) *grad.Value
}

// Dimensions of microbatches of latents: the levels of noise, one a sample, rows of captions, and frames,
// rows and columns of images that are read whole.
const (
	NoiseLevels  = "levels"
	TextRows     = "text_rows"
	CanvasFrames = "canvas_frames"
	CanvasHeight = "canvas_height"
	CanvasWidth  = "canvas_width"
)

// Levels is the number of levels of noise of a shape, and Captions that of rows of captions: one at least.
func Levels(s block.Shape) int { return max(1, s.Dim(NoiseLevels)) }

// Captions is the number of rows of captions.
func Captions(s block.Shape) int { return max(1, s.Dim(TextRows)) }

// Folder is the denoiser's in a pipeline's folder of diffusers.
func (d *Denoiser) Folder() string {
	switch {
	case d.Dir != "":
		return d.Dir
	case d.Canvas:
		return "unet"
	}
	return "transformer"
}

// LevelRows is the number of levels of noise of a shape: one for each sample, or one for each of its parts
// and one of no noise.
func (d *Denoiser) LevelRows(s block.Shape) int {
	if d.Parts > 0 {
		return Levels(s)*d.Parts + 1
	}
	return Levels(s)
}

// Canvas is the height and width of images that are read whole.
func Canvas(s block.Shape) (h, w int) { return max(1, s.Dim(CanvasHeight)), max(1, s.Dim(CanvasWidth)) }

// Rows is the number of rows that the denoiser reads: tokens, or places of images that are read whole.
func (d *Denoiser) Rows(s block.Shape) int {
	switch {
	case !d.Canvas:
		return s.Rows
	case d.Extent != nil:
		return d.Extent(s)
	}
	h, w := Canvas(s)
	return Levels(s) * h * w
}

// Width is the numbers of a token.
func (d *Denoiser) Width() int { return d.Channels * d.Patch[0] * d.Patch[1] * d.Patch[2] }

// GivenWidth is the numbers of a token that are given beside the noisy ones.
func (d *Denoiser) GivenWidth() int { return d.Given * d.Patch[0] * d.Patch[1] * d.Patch[2] }

// mix is a·x0 + b·ε by rows, [rows Width] in float32.
func (d *Denoiser) mix(r *block.Rec, which string) *grad.Value {
	t, n := r.T, d.Rows(r.Shape)
	part := func(name string) *grad.Value {
		return t.ScaleRows(t.OwnTokens(t.Data("dif."+name, tensor.F32, n, d.Width())),
			t.Data("dif."+which+"."+name, tensor.F32, n))
	}
	return t.Add(part("x0"), part("noise"))
}

// Noisy is what the denoiser reads, [rows Width] in the precision of the block, with what is given behind it.
func (d *Denoiser) Noisy(r *block.Rec) *grad.Value {
	x := d.mix(r, "in")
	if d.Given > 0 {
		x = r.T.Concat(1, x, r.T.OwnTokens(r.T.Data("dif.given", tensor.F32, d.Rows(r.Shape), d.GivenWidth())))
	}
	return r.T.Cast(x)
}

// Pictures are the features of the images that clips begin with, [levels·ImageRows Images] in the
// precision of the block, and their borders.
func (d *Denoiser) Pictures(r *block.Rec) (x, cu *grad.Value) {
	x = r.T.Cast(r.T.Data("dif.image", tensor.F32, d.PictureRows(r.Shape), d.Images))
	return x, r.T.Data("dif.image.cu", tensor.I32, 2)
}

// PictureRows is the number of rows of features of images.
func (d *Denoiser) PictureRows(s block.Shape) int { return Levels(s) * d.ImageRows }

// Clean are the clean latents, [rows Width] in float32: pixels from -1 to 1 for an autoencoder.
func (d *Denoiser) Clean(r *block.Rec) *grad.Value {
	return r.T.OwnTokens(r.T.Data("dif.x0", tensor.F32, d.Rows(r.Shape), d.Width()))
}

// Noise is standard normal noise of the latents, [rows Width] in float32, drawn by the samples' keys.
func (d *Denoiser) Noise(r *block.Rec) *grad.Value {
	return r.T.OwnTokens(r.T.Data("dif.noise", tensor.F32, d.Rows(r.Shape), d.Width()))
}

// Features are those of the levels' times, [levels 2·half], with frequencies as diffusers' Timesteps has
// them: cosines first.
func (d *Denoiser) Features(r *block.Rec, half int, scale float64) *grad.Value {
	return r.T.Sinusoids(r.T.Data("dif.time", tensor.F32, d.LevelRows(r.Shape)), r.T.Const("dif.freq",
		grad.Frequencies(half, 10000, 0)), scale, true)
}

// Time is what the denoiser is told of each level, [levels] in float32.
func (d *Denoiser) Time(r *block.Rec) *grad.Value {
	return r.T.Data("dif.time", tensor.F32, Levels(r.Shape))
}

// Views are the pixels of views that are read whole, [levels·Views·Height·Width 3] in float32.
func (d *Denoiser) Views(r *block.Rec) *grad.Value {
	return r.T.Data("dif.view", tensor.F32, d.Sight.Rows(r.Shape), d.Sight.Pixels)
}

// Gumbel is the noise of a policy that draws, [levels Draws] in float32: the greatest of logits and noise is at a number
// drawn by their softmax.
func (d *Denoiser) Gumbel(r *block.Rec) *grad.Value {
	return r.T.Data("dif.gumbel", tensor.F32, Levels(r.Shape), d.Draws)
}

// State are the states of robots, [levels State] in float32.
func (d *Denoiser) State(r *block.Rec) *grad.Value {
	return r.T.Data("dif.state", tensor.F32, Levels(r.Shape), d.Sight.State)
}

// Told are rows of captions [texts h d] and of states [levels h d] sample by sample, with their borders: the
// keys that a state attends to.
func (d *Denoiser) Told(r *block.Rec, text, state *grad.Value) (keys, cu *grad.Value) {
	t, n := r.T, text.Shape[0]+state.Shape[0]
	return t.Take(t.Concat(0, text, state), t.Data("dif.told", tensor.I32, n)), d.ToldEach(r)
}

// ToldEach are the borders of what Told gives, one a sample.
func (d *Denoiser) ToldEach(r *block.Rec) *grad.Value {
	return r.T.Data("dif.told.cu", tensor.I32, Levels(r.Shape)+1)
}

// ToldCu are the borders of what Told gives for queries that are actions.
func (d *Denoiser) ToldCu(r *block.Rec) *grad.Value { return r.T.Data("dif.told.seq", tensor.I32, 2) }

// All are rows of captions, of actions and of states as sequences of a sample's captions, state and actions,
// whose borders are JointCu: the keys that actions attend to.
func (d *Denoiser) All(r *block.Rec, text, state, x *grad.Value) *grad.Value {
	t, n := r.T, text.Shape[0]+state.Shape[0]+x.Shape[0]
	return t.Take(t.Concat(0, text, x, state), t.Data("dif.joint", tensor.I32, n))
}

// LearntCu are borders of two sequences a sample, [2·levels+1]: Ahead rows with the actions that are learnt,
// and the padded ones.
func (d *Denoiser) LearntCu(r *block.Rec) *grad.Value {
	return r.T.Data("dif.learnt.cu", tensor.I32, 2*Levels(r.Shape)+1)
}

// ChunkGrid is the grid of a policy's chunk of actions.
func (d *Denoiser) ChunkGrid() [3]int {
	if d.Canvas {
		return [3]int{1, 1, d.Chunk}
	}
	if d.Parts > 0 {
		return [3]int{d.Parts, d.Chunk / d.Parts, 1}
	}
	return [3]int{d.Chunk, 1, 1}
}

// Level is the index of each row's level, for what modulates rows.
func (d *Denoiser) Level(r *block.Rec) *grad.Value {
	return r.T.Data("dif.at", tensor.I32, r.Shape.Rows)
}

// Captions are the states of captions, [texts Texts] in the precision of the block, and TextCu their borders.
func (d *Denoiser) Captions(r *block.Rec, env map[string]*grad.Value) *grad.Value {
	if d.Live != nil {
		return r.T.Take(env[d.Live.States], r.T.Data("dif.text.take", tensor.I32, Captions(r.Shape)))
	}
	return r.T.Cast(r.T.Data("dif.text", tensor.F32, Captions(r.Shape), d.Texts))
}

// TextCu are the borders of the captions.
func (d *Denoiser) TextCu(r *block.Rec) *grad.Value { return r.T.Data("dif.text.cu", tensor.I32, 2) }

// TextLevel is the index of each row of a caption's level.
func (d *Denoiser) TextLevel(r *block.Rec) *grad.Value {
	return r.T.Data("dif.text.at", tensor.I32, Captions(r.Shape))
}

// Together are rows of captions and of latents, [texts h d] and [rows h d], as sequences of both, with
// their borders: the keys that either of them attends to.
func (d *Denoiser) Together(r *block.Rec, text, x *grad.Value) *grad.Value {
	t := r.T
	n := text.Shape[0] + x.Shape[0]
	return t.Take(t.Concat(0, text, x), t.Data("dif.joint", tensor.I32, n))
}

// JointCu are the borders of what Together gives.
func (d *Denoiser) JointCu(r *block.Rec) *grad.Value { return r.T.Data("dif.joint.cu", tensor.I32, 2) }

// Pools are the pooled rows of captions, [levels Pooled] in the precision of the block.
func (d *Denoiser) Pools(r *block.Rec, env map[string]*grad.Value) *grad.Value {
	if d.Live != nil {
		return env[d.Live.Pooled]
	}
	return r.T.Cast(r.T.Data("dif.pool", tensor.F32, Levels(r.Shape), d.Pooled))
}

// GuideFeatures are those of the guidance that the model is told, a thousand times as large, of half
// frequencies, [levels 2·half].
func (d *Denoiser) GuideFeatures(r *block.Rec, half int) *grad.Value {
	return r.T.Sinusoids(r.T.Data("dif.guide", tensor.F32, Levels(r.Shape)), r.T.Const("dif.freq",
		grad.Frequencies(half, 10000, 0)), 1, true)
}

// CanvasCu are the borders of the captions of images that are read whole, [levels+1].
func (d *Denoiser) CanvasCu(r *block.Rec) *grad.Value {
	return r.T.Data("dif.canvas.cu", tensor.I32, Levels(r.Shape)+1)
}

// FrameFeatures are those of the six numbers of each image's frame, one behind the other, of half
// frequencies, [levels 6·2·half].
func (d *Denoiser) FrameFeatures(r *block.Rec, half int) *grad.Value {
	n := Levels(r.Shape)
	f := r.T.Sinusoids(r.T.Data("dif.frame", tensor.F32, 6*n), r.T.Const("dif.freq",
		grad.Frequencies(half, 10000, 0)), 1, true)
	return r.T.View(f, n, 12*half)
}

// RowWeights are the weights of rows in the loss, before those of their levels, [rows] in float32.
func (d *Denoiser) RowWeights(r *block.Rec) *grad.Value {
	t, n := r.T, r.Shape.Rows
	weight := t.Data("weights", tensor.F32, n)
	if !d.Canvas {
		return weight
	}
	rows := d.Rows(r.Shape)
	return t.View(t.Take(t.View(weight, n, 1), t.Data("dif.canvas", tensor.I32, rows)), rows)
}

// Predicted ends a model with y [rows Width], what it says of the noisy latents: a record for sampling
// gives it, any other the loss, a sum over rows of their weight times the mean over the row's numbers.
func (d *Denoiser) Predicted(r *block.Rec, env map[string]*grad.Value, y *grad.Value) {
	t, p := r.T, d.Process
	own := d.own(r)
	if r.Logits {
		if own != nil {
			y = t.ScaleRows(y, own)
		}
		env["logits"] = t.Place("", y)
		return
	}
	weight := t.Mul(d.RowWeights(r), t.Data("dif.weight", tensor.F32, d.Rows(r.Shape)))
	if own != nil {
		weight = t.Mul(weight, own)
	}
	var real *grad.Value
	if d.Real > 0 {
		real = t.Cast(t.OwnTokens(t.Data("dif.real", tensor.F32, d.Rows(r.Shape), d.Width())))
	}
	t.Loss(t.PointLoss(y, d.mix(r, "out"), weight, real, p.Loss, p.Border))
}

// Turned are the cosines and sines of rows' places, [rows n/2], for heads whose neighbouring numbers turn
// together: widths says how many numbers of a head belong to each axis, and each axis has frequencies of
// its own, theta^(-2i/width).
func (d *Denoiser) Turned(r *block.Rec, data string, rows int, theta float64, widths [3]int) (cos, sin *grad.Value) {
	var inv []float32
	var axis []int32
	for a, w := range widths {
		for i := range w / 2 {
			inv = append(inv, float32(1/math.Pow(theta, float64(2*i)/float64(w))))
			axis = append(axis, int32(a))
		}
	}
	return r.T.RopeAxes(r.T.Data(data, tensor.I32, rows, 3), r.T.Const("dif.inv_freq", inv),
		r.T.ConstI32("dif.axis", axis), 1)
}

// Core is a model of diffusion without the parts that have files of their own: what one of its files has.
func (m *Model) Core() *Model {
	if m.Denoiser == nil || len(m.Parts) == 0 {
		return m
	}
	core, err := Build(m.Config, m.Spec.Rope.Length)
	if err != nil {
		panic("family: a model that was built before: " + err.Error())
	}
	return core
}

// Modality is what microbatches bring to the denoiser.
func (d *Denoiser) Modality() Modality { return latents{d} }
