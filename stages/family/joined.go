package family

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/noise"
)

// Joined makes of a policy's clip one that is drawn together with the actions, at one level of noise: the
// rows of a sample's clip, the row of its state and its actions see each other and the caption, and the
// caption sees itself. Its captions are tokens, which the policy reads itself, and its states have as many
// numbers as its actions. Rows of clips and of states are one stream, sample by sample, behind Gathered.
//
// Of ClipStream's data it has clip.x0, clip.noise, clip.in, clip.out, clip.weight and clip.of, and in addition
//
//	clip.ids [texts]                 tokens of captions; clip.told.pos [texts 3] their places
//	clip.gather [clip rows+levels]   of Gathered, rows of clips and then of states
//	clip.back [clip rows]            the row of Gathered that each row of a clip is
//	clip.at [clip rows+levels]       the level of each row of Gathered, -1 for what has no noise
//	clip.pos [clip rows+levels 3], clip.act.pos [rows 3]  places of rows of Gathered, and of actions
//	clip.cu, clip.see.cu             borders of samples among rows of Gathered, and of the keys that they see
//	clip.joint, clip.joint.cu        rows of captions, of Gathered and of actions that each sequence sees
//	clip.rows.cu [levels+1]          borders of samples among actions
type Joined struct {
	Rate float64 // steps a second of the robots that the policy is told of
	// Places are those of a sample's caption of so many rows, of the tokens of its clip, of its state and of
	// its actions, each [rows 3]
	Places func(told int, grid [3]int, chunk int) (text, clip, state, actions []int32)
}

// Worded reports whether a policy with a clip reads captions as tokens.
func (d *Denoiser) Worded() bool { return d.Clip != nil && d.Clip.Joined != nil }

// Roomy reports whether states may have fewer numbers than the policy reads.
func (d *Denoiser) Roomy() bool { return d.Broad || d.Worded() }

// wordsPlanned is how many tokens of a caption memory is planned for, where these are read as they are.
const wordsPlanned = 128

// GatheredRows is the number of rows of clips and of states of a shape.
func GatheredRows(s block.Shape) int { return ClipRows(s) + Levels(s) }

// joined is the modality of such a policy.
type joined struct{ clipStream }

// joint is what a microbatch's clips are laid out in.
type jointRows struct {
	d                        *Denoiser
	s                        block.Shape
	out                      map[string]*tensor.Tensor
	ids, told, gather, back  []int32
	at, pos, act, cu, see    []int32
	keys, keyCu, rows        []int32
	row, text, placed, level int // the next rows of clips, of captions and of Gathered, and the next sample
}

// Tensors are what Joined lists.
func (p joined) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	j := &jointRows{d: p.d, s: s, out: map[string]*tensor.Tensor{}, cu: []int32{0}, see: []int32{0},
		keyCu: []int32{0}, rows: []int32{0}, back: make([]int32, ClipRows(s))}
	for i := range j.back {
		j.back[i] = -1
	}
	items := (latents{p.d}).items(in)
	p.fill(items, s, j.out)
	j.act = make([]int32, 3*in.Rows)
	for i := range len(in.Cu) - 1 {
		if len(items) > 0 && items[0].From == in.Cu[i] {
			j.sample(&items[0])
			items = items[1:]
		}
		for row := in.Cu[i]; row < in.Cu[i+1]; row++ {
			j.keys = append(j.keys, int32(Captions(s)+GatheredRows(s))+row)
		}
		j.keyCu = append(j.keyCu, int32(len(j.keys)))
		if len(j.see) < len(j.cu) {
			j.see = append(j.see, int32(len(j.keys)))
		}
	}
	for len(j.rows) <= Levels(s) {
		j.rows = append(j.rows, j.rows[len(j.rows)-1])
	}
	j.list("ids", j.ids, Captions(s), 0)
	j.list("told.pos", j.told, 3*Captions(s), 0)
	j.list("gather", j.gather, GatheredRows(s), -1)
	j.list("back", j.back, ClipRows(s), -1)
	j.list("at", j.at, GatheredRows(s), -1)
	j.list("pos", j.pos, 3*GatheredRows(s), 0)
	j.list("act.pos", j.act, 3*in.Rows, 0)
	j.list("joint", j.keys, Captions(s)+GatheredRows(s)+in.Rows, -1)
	for name, v := range map[string][]int32{"cu": j.cu, "see.cu": j.see, "joint.cu": j.keyCu,
		"rows.cu": j.rows} { // each by itself
		j.list(name, v, len(v), 0)
	}
	return j.out
}

// list pads a list and puts it among the data; places are of three numbers a row.
func (j *jointRows) list(name string, v []int32, n int, pad int32) {
	if len(v) > n {
		panic(fmt.Sprintf("family: clip.%s lists %d, and has room for %d", name, len(v), n))
	}
	for len(v) < n {
		v = append(v, pad)
	}
	shape := []int{n}
	if name == "pos" || name == "told.pos" || name == "act.pos" {
		shape = []int{n / 3, 3}
	}
	j.out["clip."+name] = tensor.Of(tensor.I32, v, shape...)
}

// sample lists the rows of the next sample.
func (j *jointRows) sample(x *Encoded) {
	c, told := x.Clip, len(x.IDs)
	text, clip, state, actions := j.d.Clip.Joined.Places(told, c.Grid, x.Tokens())
	j.ids, j.told = append(j.ids, x.IDs...), append(j.told, text...)
	for k := range told {
		j.keys = append(j.keys, int32(j.text+k))
	}
	frame := c.Grid[1] * c.Grid[2]
	for k := range c.Tokens() {
		level := int32(j.level)
		if k < frame { // what is seen
			level = -1
		}
		j.gather, j.at = append(j.gather, int32(j.row+k)), append(j.at, level)
		j.back[j.row+k] = int32(j.placed + k)
		j.keys = append(j.keys, int32(Captions(j.s)+j.placed+k))
	}
	j.gather, j.at = append(j.gather, int32(ClipRows(j.s)+j.level)), append(j.at, -1)
	j.keys = append(j.keys, int32(Captions(j.s)+j.placed+c.Tokens()))
	j.pos = append(append(j.pos, clip...), state...)
	copy(j.act[3*x.From:], actions)
	j.rows[len(j.rows)-1] = x.From
	j.rows = append(j.rows, x.From+int32(x.Tokens()))
	j.text, j.row, j.placed = j.text+told, j.row+c.Tokens(), j.placed+c.Tokens()+1
	j.cu, j.level = append(j.cu, int32(j.placed)), j.level+1
}

// fill lays latents of clips out, with noise of the levels of their samples. A row's weight is that of a mean over all
// rows, of which the first frame adds nothing; padded ones count as those that learn.
func (p joined) fill(items []Encoded, s block.Shape, out map[string]*tensor.Tensor) {
	f, w := p.d.Clip, p.d.Clip.Latents.Width()
	f.lay(items, s, out, p.d.level, func(x *Encoded, l noise.Level, frame, rows, learnt int) float32 {
		return f.Weight * f.Latents.Process.weight(l) * float32(x.Tokens()) / float32(w) *
			float32(rows-frame) / float32(rows) / float32(max(1, learnt))
	})
}

// lay lays latents of clips out, with noise of levels: the first frame has none. by is the weight in the loss of each row
// that learns.
func (f *ClipStream) lay(items []Encoded, s block.Shape, out map[string]*tensor.Tensor, level func(x *Encoded) noise.Level,
	by func(x *Encoded, l noise.Level, frame, rows, learnt int) float32) {
	n, w := ClipRows(s), f.Latents.Width()
	floats := func(name string, shape ...int) []float32 {
		out["clip."+name] = tensor.Make(tensor.F32, shape...)
		return out["clip."+name].F32()
	}
	x0, eps, weight := floats("x0", n, w), floats("noise", n, w), floats("weight", n)
	coef := [4][]float32{floats("in.x0", n), floats("in.noise", n), floats("out.x0", n), floats("out.noise", n)}
	of := tensor.Make(tensor.I32, n)
	for i := range n {
		of.I32()[i] = -1
	}
	out["clip.of"] = of
	row := 0
	for g := range items {
		x := &items[g]
		c, l := x.Clip, level(x)
		at, frame, rows := f.Latents.Process.coefficients(l), c.Grid[1]*c.Grid[2], c.Tokens()
		copy(x0[row*w:], c.X0)
		if own := eps[row*w : (row+rows)*w]; c.Noise != nil {
			copy(own, c.Noise)
		} else {
			x.key(drawClipNoise).Fill(own, 0)
		}
		learnt := rows - frame*(1+c.Pad)
		for i := range rows {
			k := row + i
			if of.I32()[k] = x.From; i < frame {
				coef[0][k] = 1
				continue
			}
			for j := range coef {
				coef[j][k] = at[j]
			}
			if i < frame+learnt {
				weight[k] = by(x, l, frame, rows, learnt)
			}
		}
		row += rows
	}
}

// Words are the tokens of captions, [texts].
func (f *ClipStream) Words(r *block.Rec) *grad.Value {
	return r.T.Data("clip.ids", tensor.I32, Captions(r.Shape))
}

// Gathered are rows of clips [clip rows d] and of states [levels d] sample by sample.
func (f *ClipStream) Gathered(r *block.Rec, clip, state *grad.Value) *grad.Value {
	return r.T.Take(r.T.Concat(0, clip, state), r.T.Data("clip.gather", tensor.I32, GatheredRows(r.Shape)))
}

// Parted are the rows of clips among those of Gathered, [clip rows d].
func (f *ClipStream) Parted(r *block.Rec, x *grad.Value) *grad.Value {
	return r.T.Take(x, r.T.Data("clip.back", tensor.I32, ClipRows(r.Shape)))
}

// GatheredLevel is the level of each row of Gathered, -1 for what has no noise.
func (f *ClipStream) GatheredLevel(r *block.Rec) *grad.Value {
	return r.T.Data("clip.at", tensor.I32, GatheredRows(r.Shape))
}

// ActionCu are the borders of samples among actions, [levels+1].
func (f *ClipStream) ActionCu(r *block.Rec) *grad.Value {
	return r.T.Data("clip.rows.cu", tensor.I32, Levels(r.Shape)+1)
}

// All are rows of captions, of Gathered and of actions [rows h d] as their sequences see them.
func (f *ClipStream) All(r *block.Rec, text, clip, x *grad.Value) *grad.Value {
	n := text.Shape[0] + clip.Shape[0] + x.Shape[0]
	return r.T.Take(r.T.Concat(0, text, clip, x), r.T.Data("clip.joint", tensor.I32, n))
}

// AllCu are the borders of All for queries that are actions, and for those of Gathered with theirs.
func (f *ClipStream) AllCu(r *block.Rec) (actions, clipQ, clipK *grad.Value) {
	t := r.T
	return t.Data("clip.joint.cu", tensor.I32, 2), t.Data("clip.cu", tensor.I32, 2), t.Data("clip.see.cu",
		tensor.I32, 2)
}

// MovesJointly reports data of clips that follow a step from noise to what is drawn with the actions.
func MovesJointly(data string) bool {
	switch data {
	case "clip.x0", "clip.noise", "clip.in.x0", "clip.in.noise", "clip.out.x0", "clip.out.noise", "clip.weight":
		return true
	}
	return false
}

// AdvanceClips takes noisy clips from time t to t - by of what was said of them, one behind the other: the
// first frame stays.
func (d *Denoiser) AdvanceClips(items []Encoded, said []float32, by float64) {
	w, at := d.Clip.Latents.Width(), 0
	for i := range items {
		c := items[i].Clip
		for k := c.Grid[1] * c.Grid[2] * w; k < len(c.X0); k++ {
			c.X0[k] -= float32(by) * said[at+k]
		}
		at += len(c.X0)
	}
}
