package family

import (
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// Rollout makes of a policy's clip one that goes on chunk by chunk: a chunk of its frames sees those before as
// they were, and a chunk of actions the frames that they lead to. So a clip has rows twice when it is learnt,
// noisy and as they were, and the actions as they were are rows of a stream of their own, past. All frames have levels
// of noise of their own, and so have the parts of the actions that belong to them (Denoiser.Parts).
//
// Of ClipStream's data it has clip.time [levels] in the place of clip.feature, no borders of clips, and in addition
//
//	clip.text.cu [samples+1]         borders of captions, for clips and for past actions
//	past.x0 [past rows Width]        actions as they were; past.pos [past rows 3]
//	past.cu, past.segment.cu, past.see, past.see.cu  as those of clips
//	clip.turn.cu                     borders of chunks of actions
type Rollout struct {
	Chunk  [2]int // frames of a chunk at least and at most: each sample draws how many
	Window [2]int // how far back a chunk sees, in chunks of frames and of actions, likewise
	// share of the samples whose frames as they were have noise too, of levels of the less noisy half
	Noisy float64
}

// Uses of a sample's random numbers that clips of a Rollout have.
const (
	drawRollChunk = drawClipNoise + 1 + iota
	drawRollWindow
	drawRollNoisy
	drawRollLevel
	drawRollNoise
	DrawFilm // the clip that is drawn before a policy acts
)

// PastDim is the dimension that microbatches have which learn, and PastRows the number of rows of past actions.
const PastDim = "past_rows"

// PastRows is the number of rows of past actions of a shape.
func PastRows(s block.Shape) int {
	if s.Dim(PastDim) > 0 {
		return s.Rows
	}
	return 0
}

// RollLevels is the number of levels of clips of a shape: for each sample two a frame, and the one of no noise.
func (f *ClipStream) RollLevels(s block.Shape) int { return Levels(s)*2*f.Grid()[0] + 1 }

// rollout is the modality of such a policy.
type rollout struct{ d *Denoiser }

const rollPast = 1 << 9 // of a class: it has past actions

func (p rollout) Classes() int32 { return 1 << 10 }

func (p rollout) Class(in *Inputs) int32 {
	n, past := 0, int32(0)
	for _, x := range latents(p).items(in) {
		n += x.Clip.rows()
		if x.Clip.Part == 0 {
			past = rollPast
		}
	}
	return SizeClass(n) | past
}

func (p rollout) Dims(_ int, class int32) map[string]int {
	return map[string]int{ClipRowsDim: ClassSize(class &^ rollPast), PastDim: int(class / rollPast)}
}

func (p rollout) Planned(rows int, dims map[string]int) int32 {
	c := Clip{Grid: p.d.Clip.Grid()}
	return SizeClass(p.d.samples(rows, dims)*c.rows()) | rollPast
}

// The parts of a clip that a policy which acts is given: all of it when it learns.
const (
	BothParts = iota
	NoisyPart // of a clip that is drawn
	CleanPart // of one that was drawn, or seen
)

// rows is the number of a clip's rows where frames are there noisy and as they were.
func (c *Clip) rows() int {
	if c.Part == BothParts {
		return 2 * c.Tokens()
	}
	return c.Tokens()
}

// roll is what a microbatch's clips are laid out in.
type roll struct {
	p           rollout
	s           block.Shape
	out         map[string]*tensor.Tensor
	x0, eps     []float32
	coef        [4][]float32
	weight      []float32
	times       []float32
	at, of, pos []int32
	row, past   int // the next ones of clips, and of past actions or of states
	lists       map[string][]int32
}

// begin makes what rows of clips are laid out in.
func (p rollout) begin(s block.Shape) *roll {
	n, w := ClipRows(s), p.d.Clip.Latents.Width()
	r := &roll{p: p, s: s, out: map[string]*tensor.Tensor{}, lists: map[string][]int32{}}
	floats := func(name string, shape ...int) []float32 {
		r.out[name] = tensor.Make(tensor.F32, shape...)
		return r.out[name].F32()
	}
	ints := func(name string, shape ...int) []int32 {
		r.out[name] = tensor.Make(tensor.I32, shape...)
		return r.out[name].I32()
	}
	r.x0, r.eps, r.weight = floats("clip.x0", n, w), floats("clip.noise", n, w), floats("clip.weight", n)
	for k, name := range []string{"in.x0", "in.noise", "out.x0", "out.noise"} {
		r.coef[k] = floats("clip."+name, n)
	}
	r.times = floats("clip.time", p.d.Clip.RollLevels(s))
	r.at, r.of, r.pos = ints("clip.at", n), ints("clip.of", n), ints("clip.pos", n, 3)
	for i := range n {
		r.at[i], r.of[i] = int32(len(r.times)-1), -1
	}
	return r
}

// Tensors are what Rollout lists.
func (p rollout) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	r := p.begin(s)
	var past []float32
	var places []int32
	if PastRows(s) > 0 {
		r.out["past.x0"] = tensor.Make(tensor.F32, PastRows(s), p.d.Width())
		r.out["past.pos"] = tensor.Make(tensor.I32, PastRows(s), 3)
		past, places = r.out["past.x0"].F32(), r.out["past.pos"].I32()
	}
	for _, name := range []string{"clip.cu", "clip.segment.cu", "clip.see.cu", "past.cu", "past.segment.cu",
		"past.see.cu", "clip.turn.cu", "clip.joint.cu", "clip.text.cu"} {
		r.lists[name] = []int32{0}
	}
	items := latents(p).items(in)
	for g := range items {
		x := &items[g]
		r.fill(g, x)
		if x.Clip.Part == BothParts {
			copy(past[r.past*p.d.Width():], x.X0)
			copy(places[3*r.past:], p.d.places(x.Grid))
		}
		r.sees(x)
		r.row += x.Clip.rows()
		if x.Clip.Part == BothParts {
			r.past += x.Tokens()
		}
		r.add("clip.cu", int32(r.row))
		r.add("past.cu", int32(r.past))
		r.add("clip.text.cu", r.last("clip.text.cu")+int32(latents(p).rows(x)))
	}
	n, m, frames := ClipRows(s), PastRows(s), p.d.Clip.Grid()[0]
	r.finish([]string{"clip.cu", "past.cu", "clip.text.cu"}, map[string]int{"clip.see": frames * (n + 2*m),
		"past.see": frames * (n + m), "clip.joint": frames*(n+m) + in.Rows})
	return r.out
}

func (r *roll) add(name string, v ...int32) { r.lists[name] = append(r.lists[name], v...) }

func (r *roll) last(name string) int32 { return r.lists[name][len(r.lists[name])-1] }

// frameLevel is the level of a frame by a key of its own, of those of at least a share.
func (f *ClipStream) frameLevel(x *Encoded, draw uint64, frame int, least float64) noise.Level {
	p := &f.Latents.Process
	k := x.key(draw | uint64(frame)<<48)
	if least == 0 {
		return p.draw(func(try uint64) noise.Key { return x.key(draw | try<<32 | uint64(frame)<<48) })
	}
	return p.Levels.At(least + (1-least)*k.Uniform(0))
}

// fill lays the rows of a sample's clip out: noisy ones, and those as they were.
func (r *roll) fill(g int, x *Encoded) {
	f, c, w := r.p.d.Clip, x.Clip, r.p.d.Clip.Latents.Width()
	frame, n := c.Grid[1]*c.Grid[2], c.Tokens()
	places, none, learnt := f.Latents.places(c.Grid), noise.Level{Alpha: 1}, n-frame*c.Pad
	for half := range c.rows() / n {
		clean := half == 1 || c.Part == CleanPart
		from := r.row + half*n
		copy(r.x0[from*w:], c.X0)
		copy(r.pos[3*from:], places)
		own, draw := r.eps[from*w:(from+n)*w], uint64(drawClipNoise)
		given := c.Noise
		if clean {
			draw, given = drawRollNoise, c.CleanNoise
		}
		if given != nil {
			copy(own, given)
		} else {
			x.key(draw).Fill(own, 0)
		}
		noisy := c.CleanLevels != nil || c.Part == BothParts && c.Levels == nil && f.Rolls != nil &&
			x.key(drawRollNoisy).Uniform(0) < f.Rolls.Noisy
		for t := range c.Grid[0] {
			l, slot := none, g*2*f.Grid()[0]+half*f.Grid()[0]+t
			switch {
			case clean && c.CleanLevels != nil:
				l = c.CleanLevels[t]
			case clean && noisy:
				l = f.frameLevel(x, drawRollLevel, t, 0.5)
			case clean, c.Part == NoisyPart && t < c.Known:
			case c.Levels != nil:
				l = c.Levels[t]
			default:
				l = f.frameLevel(x, drawClipLevel, f.group(t), 0)
			}
			r.times[slot] = l.Time
			by := f.Latents.Process.coefficients(l)
			for i := from + t*frame; i < from+(t+1)*frame; i++ {
				r.at[i], r.of[i] = int32(slot), x.From
				for k := range by {
					r.coef[k][i] = by[k]
				}
				if !clean && t < c.Grid[0]-c.Pad {
					r.weight[i] = f.Weight * f.Latents.Process.weight(l) * float32(x.Tokens()) / float32(learnt*w)
				}
			}
		}
	}
}

// drawn is a number of a range by a sample's key.
func drawn(x *Encoded, draw uint64, of [2]int) int {
	return of[0] + int(x.key(draw).Uniform(0)*float64(of[1]-of[0]+1))
}

// sees lists what each chunk of a sample sees, of rows of clips and then of past actions and, for
// actions, of actions themselves.
func (r *roll) sees(x *Encoded) {
	c, f := x.Clip, r.p.d.Clip
	chunk, window := c.Chunk, c.Window
	if chunk == 0 {
		chunk, window = drawn(x, drawRollChunk, f.Rolls.Chunk), drawn(x, drawRollWindow, f.Rolls.Window)
	}
	frames, frame, each := c.Grid[0], c.Grid[1]*c.Grid[2], x.Tokens()/c.Grid[0]
	clean, pasts, own := r.row, ClipRows(r.s), ClipRows(r.s)+PastRows(r.s)
	if c.Part == BothParts {
		clean += c.Tokens()
	}
	chunks := (frames + chunk - 1) / chunk
	rows := func(name string, base, per, k int) { // those of chunk k
		for i := k * chunk * per; i < min((k+1)*chunk, frames)*per; i++ {
			r.add(name, int32(base+i))
		}
	}
	// what lies before place at, where frames of chunk k have place 2k and its actions 2k+1
	before := func(name string, at int) {
		for k := range chunks {
			if 2*k < at && at-2*k <= window && c.Part != NoisyPart {
				rows(name, clean, frame, k)
			}
			if 2*k+1 < at && at-2*k-1 <= window && c.Part == BothParts {
				rows(name, pasts+r.past, each, k)
			}
		}
	}
	end := func(name string) { r.add(name+".cu", int32(len(r.lists[name]))) }
	for half := range c.rows() / c.Tokens() {
		for k := range chunks {
			base := r.row + half*c.Tokens()
			r.add("clip.segment.cu", int32(base+min((k+1)*chunk, frames)*frame))
			rows("clip.see", base, frame, k)
			before("clip.see", 2*k)
			end("clip.see")
		}
	}
	for k := range chunks {
		r.add("clip.turn.cu", x.From+int32(min((k+1)*chunk, frames)*each))
		rows("clip.joint", own+int(x.From), each, k)
		before("clip.joint", 2*k+1)
		end("clip.joint")
		if c.Part == BothParts {
			r.add("past.segment.cu", int32(r.past+min((k+1)*chunk, frames)*each))
			rows("past.see", pasts+r.past, each, k)
			before("past.see", 2*k+1)
			end("past.see")
		}
	}
}

// finish has lists of the lengths of the shape: borders one a sample, and lists of rows as long as they may be.
func (r *roll) finish(each []string, most map[string]int) {
	s := r.s
	for _, name := range each {
		for len(r.lists[name]) <= Levels(s) {
			r.add(name, r.last(name))
		}
	}
	m := PastRows(s)
	for name, length := range most {
		if len(r.lists[name]) > length {
			panic(fmt.Sprintf("family: %s of %d rows lists %d, and has room for %d", name, ClipRows(s),
				len(r.lists[name]), length))
		}
		for len(r.lists[name]) < length {
			r.add(name, -1)
		}
	}
	for name, v := range r.lists { // each by itself
		if m == 0 && strings.HasPrefix(name, "past.") {
			continue
		}
		r.out[name] = tensor.Of(tensor.I32, v, len(v))
	}
}

// Seen are keys of rows of clips, of past actions and, where they are given, of actions, as one of these
// streams sees them, with the borders of queries and of keys.
func (f *ClipStream) Seen(r *block.Rec, stream string, keys ...*grad.Value) (k, cuQ, cuK *grad.Value) {
	t, n, m := r.T, ClipRows(r.Shape), PastRows(r.Shape)
	names := map[string][3]string{"clip": {"clip.see", "clip.segment.cu", "clip.see.cu"},
		"past": {"past.see", "past.segment.cu", "past.see.cu"},
		"x":    {"clip.joint", "clip.turn.cu", "clip.joint.cu"}}[stream]
	length := f.Grid()[0] * (n + m)
	switch stream {
	case "clip":
		length += f.Grid()[0] * m
	case "x":
		length += r.Shape.Rows
	}
	return t.Take(t.Concat(0, keys...), t.Data(names[0], tensor.I32, length)),
		t.Data(names[1], tensor.I32, 2), t.Data(names[2], tensor.I32, 2)
}
