package family

import (
	"strings"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// Blocks makes of a policy's clip one that goes on block by block, and its actions with it: behind the first frame,
// which is one by itself, so many frames are a block, with as many actions as belong to it (Denoiser.Parts) and a
// row for the robot's state where it begins. A noisy block of frames and its actions see each other, their state,
// and the frames before them as they were; a state sees itself. So a clip has rows twice when it is learnt,
// noisy and as they were. The level of noise of a block is that of its actions too.
//
// When a policy acts a clip has rows once: frames that are known, and behind them a block that is drawn
// together with its actions, whose state then sees what these see, as in the code that the model comes from.
//
// Of Rollout's data it has those of clips, without past actions, and in addition
//
//	clip.given [rows GivenWidth]     what is read beside noisy latents, as Denoiser's
//	clip.state [states State]        states of robots, those of a sample one behind the other
//	clip.state.at [states]           the level of each one's actions; clip.state.pos [states 3] its place
//	clip.state.cu [levels+1]         borders of samples among states
//	clip.state.see, clip.state.segment.cu, clip.state.see.cu  as those of clips
type Blocks struct {
	Frames int // of tokens in a block
	// frames at most, with its own, that a block as it was sees, beside the first; 0 for all before it
	Window int
}

// blocks is the modality of such a policy.
type blocks struct{ rollout }

// Classes bounds Class.
func (p blocks) Classes() int32 { return 1 << 9 }

// Class is that of the rows of all clips; it is never 0.
func (p blocks) Class(in *Inputs) int32 {
	n := 0
	for _, x := range (latents{p.d}).items(in) {
		n += x.Clip.rows()
	}
	return SizeClass(n)
}

func (p blocks) Dims(_ int, class int32) map[string]int {
	return map[string]int{ClipRowsDim: ClassSize(class)}
}

// Planned is the class of a clip of training for each sample.
func (p blocks) Planned(rows int, dims map[string]int) int32 {
	return p.rollout.Planned(rows, dims) &^ rollPast
}

// StateRows is the number of rows of states of a shape.
func (d *Denoiser) StateRows(s block.Shape) int { return Levels(s) * d.Parts }

// seenMost is how many rows of clips the parts of a microbatch's clips see at most, and those of its
// actions: 1, 1+F, ... 1+BF frames for each of 1+BF of a clip of B blocks of F.
func (p blocks) seenMost(s block.Shape) (clips, actions int) {
	f, n := p.d.Clip.Blocks.Frames, ClipRows(s)
	last := p.d.Clip.Grid()[0] - 1
	clips = (n*(last/f+1)*(2+last) + 2*last + 1) / (2 * (1 + last))
	return clips, max(n, (clips+1)/2)
}

// Tensors are what Blocks lists.
func (p blocks) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	d, states := p.d, p.d.StateRows(s)
	r := p.begin(s)
	made := func(name string, shape ...int) *tensor.Tensor {
		t := tensor.Make(tensor.F32, shape...)
		if strings.HasSuffix(name, ".at") || strings.HasSuffix(name, ".pos") {
			t = tensor.Make(tensor.I32, shape...)
		}
		r.out[name] = t
		return t
	}
	numbers, at := made("clip.state", states, d.Sight.State), made("clip.state.at", states)
	places := made("clip.state.pos", states, 3)
	var given []float32
	w := d.Clip.Latents.GivenWidth()
	if w > 0 {
		given = made("clip.given", ClipRows(s), w).F32()
	}
	for _, name := range []string{"clip.cu", "clip.segment.cu", "clip.see.cu", "clip.turn.cu",
		"clip.joint.cu", "clip.text.cu", "clip.state.cu", "clip.state.segment.cu", "clip.state.see.cu"} {
		r.lists[name] = []int32{0}
	}
	items := (latents{d}).items(in)
	for g := range items {
		x := &items[g]
		r.fill(g, x)
		for half := 0; w > 0 && half*x.Clip.Tokens() < x.Clip.rows(); half++ {
			copy(given[(r.row+half*x.Clip.Tokens())*w:], x.Clip.Given)
		}
		for b := range d.blocksOf(x) {
			state := x.State
			if b > 0 {
				state = x.Clip.States[(b-1)*d.Sight.State:][:d.Sight.State]
			}
			copy(numbers.F32()[(r.past+b)*d.Sight.State:], state)
			at.I32()[r.past+b] = int32(g*d.Parts + b)
			for a := range 3 {
				places.I32()[3*(r.past+b)+a] = int32(x.firstBlock(d.Clip) + b)
			}
		}
		p.sees(r, x)
		r.row += x.Clip.rows()
		r.past += d.blocksOf(x)
		r.add("clip.cu", int32(r.row))
		r.add("clip.state.cu", int32(r.past))
		r.add("clip.text.cu", r.last("clip.text.cu")+int32((latents{d}).rows(x)))
	}
	clips, actions := p.seenMost(s)
	r.finish([]string{"clip.cu", "clip.state.cu", "clip.text.cu"}, map[string]int{"clip.see": clips + states + in.Rows,
		"clip.joint": actions + states + in.Rows, "clip.state.see": actions + states + in.Rows})
	return r.out
}

// blocksOf is how many blocks of actions a sample has.
func (d *Denoiser) blocksOf(x *Encoded) int { return x.Tokens() / max(1, d.Chunk/d.Parts) }

// firstBlock is which block of the clip a sample's first actions belong to.
func (x *Encoded) firstBlock(f *ClipStream) int {
	if f == nil || f.Blocks == nil || x.Clip.Part != NoisyPart {
		return 0
	}
	return (x.Clip.Known - 1) / f.Blocks.Frames
}

// sees lists what each part of a sample sees, of rows of clips, of states and of actions.
func (p blocks) sees(r *roll, x *Encoded) {
	c, own := x.Clip, p.d.Clip.Blocks
	frame, each := c.Grid[1]*c.Grid[2], p.d.Chunk/p.d.Parts
	rows := func(name string, base, from, to int) {
		for i := from; i < to; i++ {
			r.add(name, int32(base+i))
		}
	}
	end := func(name string) { r.add(name+".cu", int32(len(r.lists[name]))) }
	// what frames as they were see that end at one, of a half of the clip's rows
	before := func(name string, base, last int) {
		first := 1
		if own.Window > 0 {
			first = max(first, last-own.Window)
		}
		rows(name, base, 0, frame)
		rows(name, base, first*frame, last*frame)
		end(name)
	}
	states, actions := ClipRows(r.s)+r.past, ClipRows(r.s)+p.d.StateRows(r.s)+int(x.From)
	// block b of those that are drawn, whose first frame is one of a half that begins at base, sees frames
	// before it of the half at clean
	drawn := func(name string, base, clean, first, b int) {
		rows(name, clean, 0, first*frame)
		rows(name, base, first*frame, (first+own.Frames)*frame)
		rows(name, states, b, b+1)
		rows(name, actions, b*each, (b+1)*each)
		end(name)
	}
	if c.Part == NoisyPart {
		for last := 1; last <= c.Known; last += own.Frames {
			before("clip.see", r.row, last)
			r.add("clip.segment.cu", int32(r.row+last*frame))
		}
		drawn("clip.see", r.row, r.row, c.Known, 0)
		r.add("clip.segment.cu", int32(r.row+c.Tokens()))
		drawn("clip.joint", r.row, r.row, c.Known, 0)
		r.add("clip.turn.cu", x.From+int32(each))
		drawn("clip.state.see", r.row, r.row, c.Known, 0)
		r.add("clip.state.segment.cu", int32(r.past+1))
		return
	}
	clean := r.row + c.Tokens()
	rows("clip.see", r.row, 0, frame)
	end("clip.see")
	r.add("clip.segment.cu", int32(r.row+frame))
	for b := range p.d.blocksOf(x) {
		first := 1 + b*own.Frames
		drawn("clip.see", r.row, clean, first, b)
		r.add("clip.segment.cu", int32(r.row+(first+own.Frames)*frame))
		drawn("clip.joint", r.row, clean, first, b)
		r.add("clip.turn.cu", x.From+int32((b+1)*each))
		rows("clip.state.see", states, b, b+1)
		end("clip.state.see")
		r.add("clip.state.segment.cu", int32(r.past+b+1))
	}
	for last := 1; last <= c.Grid[0]; last += own.Frames {
		before("clip.see", clean, last)
		r.add("clip.segment.cu", int32(clean+last*frame))
	}
}

// group is the frame whose level a frame of a clip has: its own, or that of its block's first.
func (f *ClipStream) group(t int) int {
	if f.Blocks == nil || t == 0 {
		return t
	}
	return t - (t-1)%f.Blocks.Frames
}

// blockLevel is the level of a block of actions, which is that of its frames.
func (f *ClipStream) blockLevel(x *Encoded, b int) noise.Level {
	return f.frameLevel(x, drawClipLevel, f.group(1+b*f.Blocks.Frames), 0)
}

// SeenBlocks is Seen of a policy whose streams are clip, state and x, of which keys are in this order.
func (d *Denoiser) SeenBlocks(r *block.Rec, stream string, keys ...*grad.Value) (k, cuQ, cuK *grad.Value) {
	t := r.T
	clips, actions := blocks{rollout{d}}.seenMost(r.Shape)
	names := map[string][3]string{"clip": {"clip.see", "clip.segment.cu", "clip.see.cu"},
		"state": {"clip.state.see", "clip.state.segment.cu", "clip.state.see.cu"},
		"x":     {"clip.joint", "clip.turn.cu", "clip.joint.cu"}}[stream]
	length := actions + d.StateRows(r.Shape) + r.Shape.Rows
	if stream == "clip" {
		length += clips - actions
	}
	return t.Take(t.Concat(0, keys...), t.Data(names[0], tensor.I32, length)),
		t.Data(names[1], tensor.I32, 2), t.Data(names[2], tensor.I32, 2)
}

// States are those of the blocks' robots, [states State] in float32, with the level of each.
func (d *Denoiser) States(r *block.Rec) (x, at *grad.Value) {
	n := d.StateRows(r.Shape)
	return r.T.Data("clip.state", tensor.F32, n, d.Sight.State), r.T.Data("clip.state.at", tensor.I32, n)
}
