package family

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// ClipStream, a clip stream, is a clip of latents that a policy denoises beside its actions, in a stream of rows of its
// own: these have a width, a level of noise and a loss of their own. Rows of a clip are tokens, as those of a model of
// diffusion are. Every rank has all of them. The first frame is what the robot sees: it is clean, and is told time 0; a
// policy that acts is given that one alone.
//
// Its data, of which levels and noise follow from the sample's key:
//
//	clip.x0, clip.noise [rows Width], clip.in.x0, clip.in.noise, clip.out.x0, clip.out.noise [rows]
//	clip.weight, clip.pos [rows 3]   as Denoiser's
//	clip.at [rows]                   the row's level: levels for the first frame and in padding
//	clip.feature [levels+1 FeatureWidth] what Denoiser.Feature makes of each level's time, and of 0
//	clip.of [rows]                   the row of actions whose weight in the loss it has
//	clip.cu [levels+1]               borders of clips
//	clip.segment.cu [segments+1]     borders of the parts of clips that see the same
//	clip.see [2·rows], clip.see.cu   rows that each part sees, and their borders
//	clip.joint, clip.joint.cu        rows of clips and of actions that each sequence of actions sees
type ClipStream struct {
	Latents *Denoiser // Patch and Channels of the latents, and Process
	Weight  float32   // of its loss beside that of the actions
	// frames, height and width in pixels of the clip that a sample of training has, of all cameras side by
	// side, and steps of the robot from one frame to the next
	Size  [3]int
	Every int
	// Laid is how views make one picture: row, grid, droid or above, as the key view_form has them; "" is row
	Laid string
	// frames, rows and columns of pixels that become one of latents; the first frame is one alone
	Scale [3]int
	// Sees says of a clip of so many frames of tokens which of them see the same, one behind the other, and
	// which they see; the first part is what actions see
	Sees func(frames int) []Segment
	// Rolls has clips go on chunk by chunk, in the place of Sees; nil for clips that are learnt as a whole
	Rolls *Rollout
	// Blocks has clips go on block by block with their actions, likewise
	Blocks *Blocks
	// Joined has clips drawn together with the actions, in the place of Sees; nil for clips that are not
	Joined *Joined
	// of a clip that is drawn before actions are: steps, the shift of their levels, and how far what is said with a
	// caption is led away from what is said with none; Steps is 0 for a policy that acts by the first frame alone
	Steps         int
	Acting, Guide float64
	Away          string // the caption that Blocks are led away from
	// Sorted says that cameras stand side by side in the order of their names, as the model was taught
	Sorted bool
	// Foreign says why the class that the model comes from does not load it, where it does not
	Foreign []string
	// Apart says that each camera's views are encoded by themselves, and their latents stand side by side
	Apart bool
}

// Segment are frames [From, To) of tokens of a clip, which see those of [First, Last).
type Segment struct{ From, To, First, Last int }

// FirstSeen has the first frame see itself, and the others all.
func FirstSeen(frames int) []Segment {
	if frames == 1 {
		return []Segment{{0, 1, 0, 1}}
	}
	return []Segment{{0, 1, 0, 1}, {1, frames, 0, frames}}
}

// Clip is a sample's, encoded.
type Clip struct {
	Grid [3]int    // tokens in time, height and width
	X0   []float32 // [tokens Width]
	Pad  int       // frames of tokens at the end that are not learnt
	// in place of what is drawn from the sample's key; nil for that
	Level *noise.Level
	Noise []float32
	// of a Rollout: the parts that are given, frames at the beginning of a noisy one that have no noise, and,
	// in place of what is drawn, levels of its frames and of those as they were, their noise, frames of a
	// chunk and how far it sees
	Part, Known         int
	Levels, CleanLevels []noise.Level
	CleanNoise          []float32
	Chunk, Window       int
	// of Blocks: the states of those behind the first, [State] each, and what is read beside the noisy
	// latents, [tokens GivenWidth]
	States, Given []float32
}

// Tokens is the number of its rows.
func (c *Clip) Tokens() int { return c.Grid[0] * c.Grid[1] * c.Grid[2] }

// ClipRowsDim is the dimension of rows of clips of microbatches that have them, and ClipRows their number.
const ClipRowsDim = "clip_rows"

// ClipRows is the number of rows of clips of a shape: one at least.
func ClipRows(s block.Shape) int { return max(1, s.Dim(ClipRowsDim)) }

// ClipLevels is the number of levels of clips of a shape: one for each sample, and that of what has none.
func ClipLevels(s block.Shape) int { return Levels(s) + 1 }

// ToldRows is the number of rows that samples with a row for the state are told in.
func ToldRows(s block.Shape) int { return Captions(s) + Levels(s) }

// Grid is the tokens of a clip of training.
func (f *ClipStream) Grid() [3]int { return f.GridOf(f.Size[0]) }

// GridOf is the tokens of so many frames of pixels.
func (f *ClipStream) GridOf(frames int) [3]int {
	return f.Latents.Grid([4]int{f.Latents.Channels, (frames-1)/f.Scale[0] + 1, f.Size[1] / f.Scale[1],
		f.Size[2] / f.Scale[2]})
}

// clipStream is the modality of a policy with a clip.
type clipStream struct{ d *Denoiser }

// Modality is what microbatches bring of clips to the policy.
func (f *ClipStream) Modality(d *Denoiser) Modality {
	switch {
	case f.Rolls != nil:
		return rollout{d}
	case f.Blocks != nil:
		return blocks{rollout{d}}
	case f.Joined != nil:
		return joined{clipStream{d}}
	}
	return clipStream{d}
}

// Classes bounds Class.
func (p clipStream) Classes() int32 { return 1 << 9 }

// Class is that of the rows of all clips; it is never 0.
func (p clipStream) Class(in *Inputs) int32 {
	n := 0
	for _, x := range latents(p).items(in) {
		n += x.Clip.Tokens()
	}
	return SizeClass(n)
}

func (p clipStream) Dims(_ int, class int32) map[string]int {
	return map[string]int{ClipRowsDim: ClassSize(class)}
}

// Planned is the class of a clip of training for each sample.
func (p clipStream) Planned(rows int, dims map[string]int) int32 {
	c := Clip{Grid: p.d.Clip.Grid()}
	return SizeClass(p.d.samples(rows, dims) * c.Tokens())
}

// samples is how many samples a microbatch of so many rows of actions is planned for.
func (d *Denoiser) samples(rows int, dims map[string]int) int {
	return max(1, dims[NoiseLevels], rows/max(1, d.Chunk))
}

// Tensors are what ClipStream lists.
func (p clipStream) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	f, n, w, out := p.d.Clip, ClipRows(s), p.d.Clip.Latents.Width(), map[string]*tensor.Tensor{}
	items := latents(p).items(in)
	f.lay(items, s, out, f.level, func(x *Encoded, l noise.Level, _, _, learnt int) float32 {
		return f.Weight * f.Latents.Process.weight(l) * float32(x.Tokens()) / float32(learnt*w) // a share of the sample's
	})
	features, times := tensor.Make(tensor.F32, ClipLevels(s), p.d.FeatureWidth), make([]float32, ClipLevels(s))
	at, pos, row := tensor.Make(tensor.I32, n), tensor.Make(tensor.I32, n, 3), 0
	for i := range n {
		at.I32()[i] = int32(Levels(s))
	}
	out["clip.at"], out["clip.pos"], out["clip.feature"] = at, pos, features
	for g, x := range items {
		c := x.Clip
		times[g] = f.level(&x).Time
		copy(pos.I32()[3*row:], f.Latents.places(c.Grid))
		for i := c.Grid[1] * c.Grid[2]; i < c.Tokens(); i++ {
			at.I32()[row+i] = int32(g)
		}
		row += c.Tokens()
	}
	for g, time := range times {
		copy(features.F32()[g*p.d.FeatureWidth:], p.d.Feature(float64(time)))
	}
	p.sees(in, s, out)
	return out
}

// level is the level of noise that a sample's clip is trained at.
func (f *ClipStream) level(x *Encoded) noise.Level {
	if x.Clip.Level != nil {
		return *x.Clip.Level
	}
	return f.Latents.Process.draw(func(try uint64) noise.Key { return x.key(drawClipLevel | try<<32) })
}

// sees lists which rows see which.
func (p clipStream) sees(in *Inputs, s block.Shape, out map[string]*tensor.Tensor) {
	clips, segments, seen, joined := []int32{0}, []int32{0}, []int32{0}, []int32{0}
	var see, joint []int32
	items, row := latents(p).items(in), 0
	for i := range len(in.Cu) - 1 {
		if len(items) > 0 && items[0].From == in.Cu[i] {
			c := items[0].Clip
			frame := c.Grid[1] * c.Grid[2]
			for k, part := range p.d.Clip.Sees(c.Grid[0]) {
				segments = append(segments, int32(row+part.To*frame))
				for j := part.First * frame; j < part.Last*frame; j++ {
					see = append(see, int32(row+j))
				}
				seen = append(seen, int32(len(see)))
				for j := part.From * frame; k == 0 && j < part.To*frame; j++ {
					joint = append(joint, int32(row+j))
				}
			}
			row += c.Tokens()
			items, clips = items[1:], append(clips, int32(row))
		}
		for j := in.Cu[i]; j < in.Cu[i+1]; j++ {
			joint = append(joint, int32(ClipRows(s))+j)
		}
		joined = append(joined, int32(len(joint)))
	}
	for len(clips) <= Levels(s) {
		clips = append(clips, int32(row))
	}
	list := func(name string, v []int32, n int) {
		if n > 0 && len(v) > n {
			panic(fmt.Sprintf("family: clip.%s of %d rows lists %d, and has room for %d", name, ClipRows(s), len(v), n))
		}
		for len(v) < n {
			v = append(v, -1)
		}
		out["clip."+name] = tensor.Of(tensor.I32, v, len(v))
	}
	list("cu", clips, 0)
	list("segment.cu", segments, 0)
	list("see", see, 2*ClipRows(s))
	list("see.cu", seen, 0)
	list("joint", joint, ClipRows(s)+in.Rows)
	list("joint.cu", joined, 0)
}

// mix is a·x0 + b·ε by rows, [rows Width] in float32.
func (f *ClipStream) mix(r *block.Rec, which string) *grad.Value {
	t, n := r.T, ClipRows(r.Shape)
	part := func(name string) *grad.Value {
		return t.ScaleRows(t.Data("clip."+name, tensor.F32, n, f.Latents.Width()),
			t.Data("clip."+which+"."+name, tensor.F32, n))
	}
	return t.Add(part("x0"), part("noise"))
}

// Noisy is what the policy reads of clips, [rows Width] in the precision of the block, with what is given behind it.
func (f *ClipStream) Noisy(r *block.Rec) *grad.Value {
	x := f.mix(r, "in")
	if w := f.Latents.GivenWidth(); w > 0 {
		x = r.T.Concat(1, x, r.T.Data("clip.given", tensor.F32, ClipRows(r.Shape), w))
	}
	return r.T.Cast(x)
}

// Features are those of the levels of clips, [levels+1 width] in the precision of the block.
func (f *ClipStream) Features(r *block.Rec, width int) *grad.Value {
	return r.T.Cast(r.T.Data("clip.feature", tensor.F32, ClipLevels(r.Shape), width))
}

// Level is the index of each row's level.
func (f *ClipStream) Level(r *block.Rec) *grad.Value {
	return r.T.Data("clip.at", tensor.I32, ClipRows(r.Shape))
}

// Cu are the borders of clips, for what each reads of its own captions.
func (f *ClipStream) Cu(r *block.Rec) *grad.Value {
	return r.T.Data("clip.cu", tensor.I32, Levels(r.Shape)+1)
}

// Own are keys of clips [rows h d] as the parts of each clip see them, with the borders of the queries and of these.
func (f *ClipStream) Own(r *block.Rec, k *grad.Value) (keys, cuQ, cuK *grad.Value) {
	t := r.T
	return t.Take(k, t.Data("clip.see", tensor.I32, 2*ClipRows(r.Shape))),
		t.Data("clip.segment.cu", tensor.I32, 2), t.Data("clip.see.cu", tensor.I32, 2)
}

// Together are keys of clips [rows h d] and of actions as each sequence of actions sees them, with their borders.
func (f *ClipStream) Together(r *block.Rec, clip, x *grad.Value) (keys, cu *grad.Value) {
	t := r.T
	return t.Take(t.Concat(0, clip, x), t.Data("clip.joint", tensor.I32, clip.Shape[0]+x.Shape[0])),
		t.Data("clip.joint.cu", tensor.I32, 2)
}

// Turned are the cosines and sines of rows' places, as Denoiser's.
func (f *ClipStream) Turned(r *block.Rec, theta float64, widths [3]int) (cos, sin *grad.Value) {
	return f.Latents.Turned(r, "clip.pos", ClipRows(r.Shape), theta, widths)
}

// Predicted adds the loss of what the policy says of the clips, y [rows Width].
func (f *ClipStream) Predicted(r *block.Rec, y *grad.Value) {
	t, n := r.T, ClipRows(r.Shape)
	weight := t.View(t.Take(t.View(t.Data("weights", tensor.F32, r.Shape.Rows), r.Shape.Rows, 1),
		t.Data("clip.of", tensor.I32, n)), n)
	weight = t.Mul(weight, t.Data("clip.weight", tensor.F32, n))
	p := f.Latents.Process
	t.Loss(t.PointLoss(y, f.mix(r, "out"), weight, nil, p.Loss, p.Border))
}
