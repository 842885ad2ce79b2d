package block

import (
	"math"
	"path"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Shape is the shape of a microbatch: Rows tokens in sequences cut by cu_seqlens.
type Shape struct {
	Rows int            // tokens of the microbatch, or of one chunk
	Dims map[string]int // named dimensions of what else it brings; one that is not there is 0
}

// Dim is a named dimension.
func (s Shape) Dim(name string) int { return s.Dims[name] }

// Dimensions of images: their patches, and their number, where a tower adds a row to each image or frame of a video.
const (
	Patches = "patches"
	Frames  = "frames"
)

// Lora describes the adapters of a run.
type Lora struct {
	Targets []string // patterns on the name of a linear, as *.q_proj
	Rank    int
	Alpha   float64
	Dropout float64
	Root    bool // divide by the root of the rank: rsLoRA, arXiv:2312.03732
	DoRA    bool // rows of the sum with the weight have norms that learn: arXiv:2402.09353
	// Init is PEFT's init_lora_weights, "" for kaiming.
	Init string
	// Ranks and Alphas are those of linears by patterns, the first of which that matches counts.
	Ranks, Alphas []Patterned
	// Saved are patterns of modules that are trained whole beside, PEFT's modules_to_save.
	Saved []string
	// Tokens are rows of the table that learn, those of a tied head with them: PEFT's trainable_token_indices.
	Tokens []int
	// Slots is a number of adapters that lie side by side, [slots ...] each, of which every row has the one
	// that adapters.off [slots+1] says: rows are in the order of slots, and those behind the last have
	// none. 0 is one adapter for all rows.
	Slots int
}

// Patterned is a number for what a pattern matches.
type Patterned struct {
	Pattern string
	Value   float64
}

// Of are the adapters of the linear called name alone, with its rank and alpha; nil where it gets none.
func (l *Lora) Of(name string) *Lora {
	if !l.Match(name) {
		return nil
	}
	one := *l
	of := func(all []Patterned, usual float64) float64 {
		if i := slices.IndexFunc(all, func(p Patterned) bool { return Match(p.Pattern, name) }); i >= 0 {
			return all[i].Value
		}
		return usual
	}
	one.Rank, one.Alpha = max(1, int(of(l.Ranks, float64(l.Rank)))), of(l.Alphas, l.Alpha)
	return &one
}

// Saves reports whether a parameter is of a module that is trained whole.
func (l *Lora) Saves(param string) bool {
	return l != nil && slices.ContainsFunc(l.Saved, func(p string) bool { return Match(p, Module(param)) })
}

// Module is that of a parameter.
func Module(param string) string {
	return strings.TrimSuffix(strings.TrimSuffix(param, ".weight"), ".bias")
}

// Scale is what the product of the two matrices is multiplied with.
func (l *Lora) Scale() float64 {
	if l.Root {
		return l.Alpha / math.Sqrt(float64(l.Rank))
	}
	return l.Alpha / float64(l.Rank)
}

// Starts says that adapters begin with a part of the weight, which First keeps and their addition is less by.
func (l *Lora) Starts() bool { return l.Init == "olora" || strings.HasPrefix(l.Init, "pissa") }

// Terms is how many products an addition is of: one, and one of what it began with.
func (l *Lora) Terms() int { return map[bool]int{true: 2, false: 1}[l.Starts()] }

// First ends the names of what adapters began with, A [rank in] and B [out rank].
var First = [2]string{".first_A.weight", ".first_B.weight"}

// Match reports whether the linear called name gets an adapter: a pattern matches the whole name or its last parts.
func (l *Lora) Match(name string) bool {
	if l == nil {
		return false
	}
	for _, p := range l.Targets {
		if Match(p, name) {
			return true
		}
	}
	return false
}

// Match reports whether a pattern with * (any run of characters) matches name, or its last component when
// the pattern has no dot.
func Match(pattern, name string) bool {
	if glob(pattern, name) {
		return true
	}
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return glob(pattern, name[i+1:])
		}
	}
	return false
}

// glob is path.Match with * crossing dots; names hold no slash, so path.Match's own limits do not show.
func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Rec records the blocks of one stage.
type Rec struct {
	T     *grad.Tape
	Shape Shape
	Lora  *Lora
	// Ropes are the rotary embeddings of the decoder, which Attn.Rope counts.
	Ropes  []*Rope
	tables map[int]table
	places *places
	visCos *grad.Value
	visSin *grad.Value
	draws  int // dropout calls of the current block
	Index  int // of the block being recorded
	// Logits asks for the logits of every row instead of the loss.
	Logits bool
	// Clips asks, with Logits, for what is said of clips beside a policy's actions, and not of these.
	Clips bool
	// States asks for the rows that the head would read, behind the final norm, in place of either.
	States bool
	// Hidden asks for these rows beside the logits.
	Hidden bool
	// NLL asks for minus the log-probability of each row's target in place of the loss.
	NLL bool
	// Values asks for what the head of one number gives each row in place of the loss.
	Values bool
	// Cached makes the keys and values of Past earlier tokens data of the record, and all of them outputs of it.
	Cached bool
	Past   int
	// Pool is the rows of a pool of pages in which earlier keys and values of many sequences lie, with
	// Cached; 0 for one sequence, whose rows follow each other. KeyRows is the rows of all sequences with
	// the new ones, rounded up. Data: pool.* [Pool …], paged.at [KeyRows] as grad.Tape.PagedRows takes it,
	// and paged.last [rows], the place of each new row among all.
	Pool, KeyRows int
	// Heads is the rows that logits are wanted of, in a record with a pool: paged.head [Heads] are their numbers.
	Heads int
	// Balance asks for losses of routers of experts; Routing is what layers have made of them so far.
	Balance Balance
	// Peaks says which scores of attention are kept.
	Peaks   Peaks
	Routing Stream
	// Indexing says how indexers of sparse attention are trained; Chosen are the keys [t n] that each query
	// reads by the last of them.
	Indexing  Indexing
	Chosen    *grad.Value
	see, mean *grad.Value
}

// Start begins block i.
func (r *Rec) Start(i int) { r.Index, r.draws = i, 0 }

// LinearOpts says how a linear is sharded: output features (column parallel) or input features (row
// parallel), in units.
type LinearOpts struct {
	Bias bool
	Row  bool // shard the input features
	Unit int  // features that stay together, as a head's width; 0 is 1
	Rep  bool // replicate
}

// Linear is the projection called name, with its adapter if it has one. x [t in] -> [t out].
func (r *Rec) Linear(name string, x *grad.Value, out, in int, o LinearOpts) *grad.Value {
	axis, biasAxis, unit := 0, 0, max(1, o.Unit)
	if o.Row {
		axis, biasAxis = 1, -1
	}
	if o.Rep {
		axis, biasAxis = -1, -1
	}
	var bias *grad.Value
	var y, w *grad.Value
	if p := r.packed(name+".weight", in); p.Form > 0 {
		w = r.T.PackedParam(name+".weight", []int{out, in}, packedUnit(o), p)
		if o.Bias {
			bias = r.T.Param(name+".bias", []int{out}, -1, unit, false)
		}
		y = r.T.PackedLinear(x, w, bias, p)
	} else {
		w = r.T.Param(name+".weight", []int{out, in}, axis, unit, true)
		if o.Bias {
			bias = r.T.Param(name+".bias", []int{out}, biasAxis, unit, false)
		}
		if r.T.Fake != nil {
			w = r.T.Faked(w, r.T.Fake(r.T.Full(name+".weight")))
		}
		low := 0
		if r.T.Low != nil {
			low = r.T.Low(r.T.Full(name + ".weight"))
		}
		y = r.T.LowLinear(x, r.T.Coded(w, low), bias, low)
	}
	l := r.Lora.Of(r.T.Full(name))
	if l == nil {
		return y
	}
	drop := l.Dropout
	if l.Slots > 0 {
		return r.T.Add(y, r.ofSlots(name, x, out, in))
	}
	if r.T.NoGrad {
		drop = 0 // evaluation
	}
	d := r.T.Dropout(x, r.keys(drop), drop, r.draw())
	add := func(x *grad.Value, names [2]string, scale float64) (up, a, b *grad.Value) {
		a = r.T.Param(name+names[0], []int{l.Rank, in}, map[bool]int{true: 1, false: -1}[o.Row], unit, true)
		b = r.T.Param(name+names[1], []int{out, l.Rank}, map[bool]int{true: -1, false: axis}[o.Row], unit, true)
		return r.T.Linear(r.T.Scale(r.T.Linear(x, a, nil), scale), b, nil), a, b // scaled on the narrow side
	}
	up, a, b := add(d, [2]string{".lora_A.weight", ".lora_B.weight"}, l.Scale())
	if l.Starts() { // the difference first: it is nothing at the start, in any precision
		first, _, _ := add(x, First, -l.Scale())
		up = r.T.Add(up, first)
	}
	if !l.DoRA {
		return r.T.Add(y, up)
	} else {
		// As PEFT has it: what is not dropped of the input gets the magnitude over the norm, which has no gradient.
		sum := r.T.Add(w, r.T.Scale(r.T.Linear(b, r.T.Permute(a, 1, 0), nil), l.Scale()))
		m := r.T.Param(name+Magnitude, []int{out}, map[bool]int{true: -1, false: axis}[o.Row], unit, true)
		base := r.T.Linear(d, w, nil)
		unit := r.T.MulCols(r.T.Add(base, up), r.T.InverseNorms(sum))
		return r.T.Add(y, r.T.Add(r.T.MulCols(unit, m), r.T.Scale(base, -1)))
	}
}

// Magnitude ends the name of DoRA's norms of a linear's rows.
const Magnitude = ".lora_magnitude_vector"

// ofSlots is what adapters side by side add to a linear's rows.
func (r *Rec) ofSlots(name string, x *grad.Value, out, in int) *grad.Value {
	l, off := r.Lora, r.T.Data("adapters.off", tensor.I32, r.Lora.Slots+1)
	a := r.T.Param(name+".lora_A.weight", []int{l.Slots, l.Rank, in}, -1, 1, true)
	b := r.T.Param(name+".lora_B.weight", []int{l.Slots, out, l.Rank}, -1, 1, true)
	down := r.T.Scale(r.T.GroupedLinear(x, a, off), l.Scale())
	return r.T.GroupedLinear(down, b, off)
}

// packedUnit are the rows that stay together of a matrix in few bits, whose rows are shared out in every layer.
func packedUnit(o LinearOpts) int {
	if o.Row {
		return 1
	}
	return max(1, o.Unit)
}

// packed is how the weight of a linear lies in memory.
func (r *Rec) packed(weight string, in int) kernels.Packing {
	if r.T.Packed == nil || r.Lora.Saves(r.T.Full(weight)) { // these learn
		return kernels.Packing{}
	}
	return r.T.Packed(r.T.Full(weight), in)
}

// keys identify the rows for dropout; a run without dropout does not carry them.
func (r *Rec) keys(p float64) *grad.Value {
	if p == 0 {
		return nil
	}
	return r.T.Data("keys", tensor.I64, r.Shape.Rows)
}

// draw numbers the dropout calls of the model: 64 a block.
func (r *Rec) draw() int { r.draws++; return r.Index*64 + r.draws }

// Norm is the RMS norm called name over the last axis of x, of width d.
func (r *Rec) Norm(name string, x *grad.Value, d int, eps float64) *grad.Value {
	return r.T.RMSNorm(x, r.T.Param(name+".weight", []int{d}, -1, 1, false), eps)
}

// Cu is the data that cuts the microbatch into sequences.
func (r *Rec) Cu() *grad.Value { return r.T.Data("cu_seqlens", tensor.I32, 2) }
