package family

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Block is one named block of a model. It reads the ports it takes from env and writes those it gives.
type Block struct {
	Name      string // prefix of its parameters
	Component string
	Of        string // named dimension without which the block does nothing, "" for one that always works
	Takes     []string
	Gives     []string
	Recompute bool // a recompute unit: a layer, not an embedding or a loss
	Texts     bool // of a denoiser: reads states of captions; the first block does where none is marked
	Record    func(r *block.Rec, env map[string]*grad.Value)
	// Weight is the block's share of work, in arbitrary units of the model, for cutting; Pairs is what
	// tokens of sequences of n tokens have with each other beside it, nil for none.
	Weight float64
	Pairs  func(n int) float64
}

// Model is a family's model: blocks in order.
type Model struct {
	Family     string
	Spec       Spec
	Config     configs.Model
	Blocks     []Block
	Ports      map[string]Port
	Modalities []Modality // what it takes beside tokens
	Vision     *Vision    // before the decoder, nil for a model of text alone
	Denoiser   *Denoiser  // of a model of diffusion, else nil
	Parts      []Part     // components before the decoder beside those of Vision
	Phases     []Phase    // in which it learns, none where all steps are alike; see SetPhases
	// heads and widths of encoders before a denoiser, which ranks that share their layers have to divide
	Widths []int
	// Low is the precision, of kernels.Precisions, in which layers multiply a weight; nil is 0 for all. It
	// is set after the model is built.
	Low func(param string) int
	// Watch says when such weights are multiplied in the model's own type all the same; a run that trains sets it.
	Watch kernels.Watch
	// History is grad.Options.History
	History int
	// Travel is grad.Options.Travel
	Travel int
	// LowGather is grad.Options.LowGather
	LowGather bool
	// Fake is grad.Options.Fake
	Fake func(param string) kernels.Fake
	// Peaks says which scores of attention are kept; a run that trains sets it
	Peaks block.Peaks
	// Packed says how matrices of so many columns lie in memory that do not learn; nil for all as numbers of
	// the model's type. It is set after the model is built.
	Packed func(param string, columns int) kernels.Packing
	// Initial says how a parameter begins that Init has no rule for; nil, and Start's zero value, leave it to Init.
	Initial func(param string) Start
	// Source says where a logical parameter lies in a Hugging Face checkpoint of the family.
	Source func(name string) Source
	// Other is a second layout in which checkpoints of the family come, nil for none.
	Other func(name string) Source
	// Beginnings are pairs of beginnings of names in checkpoints of the family: Source's, and another that
	// files may have in its place.
	Beginnings [][2]string
	// Beside reports tensors of checkpoints that are parts which the model reads by others' folders, nil for none.
	Beside func(name string) bool
	// Alone are the layouts of checkpoints of a component by itself, without a prefix.
	Alone map[string][]func(name string) Source
	// drawn begins the names of parameters that checkpoints may lack, all of them, "" for none
	drawn string
}

// Part is a component whose parameters' names begin with a prefix, and whose checkpoints lie by themselves.
type Part struct{ Component, Prefix string }

// Source is a tensor of a Hugging Face checkpoint, or rows of it: logical rows are the ranges [from, to) in order.
type Source struct {
	Name string
	Rows [][2]int // nil is the whole tensor
	Lead int      // axes of length 1 before the logical ones
	// the last of them has this length where others share the tensor, and Nth is this one's place
	Of, Nth int
	Flat    bool // the first logical axis, of length 1, is not there
	// Module is the layer's name in transformers where that is not Name without .weight: adapters go by it.
	Module string
	// Turned is a matrix that the checkpoint keeps as [in out]: its columns are the logical rows.
	Turned bool
	// in place of the logical axes after the first, of the same size together: the taps of a convolution
	Tail []int
	// Stack is a tensor of three axes of which the checkpoint has each matrix by itself: * in Name is its number.
	Stack bool
	// First is the number of the first matrix of such a tensor, where others come before.
	First int
	// Step is how many logical tensors a checkpoint keeps in turns in the rows of one, and At the place of
	// this one among them; 0 is none. Turned holds for tensors of three axes too.
	Step, At int
	// Within are the rows of each matrix in the checkpoint's, where several logical tensors of three axes
	// share one; {0, 0} is all.
	Within [2]int
}

// Stage is a slice of the blocks with what surrounds it.
type Stage struct {
	From, To int
	In, Out  []Flow
}

// Flow is a port that crosses the border of a stage, with the stage at the other end.
type Flow struct {
	Port string
	Peer int
}

// Cut makes stages of the borders: stage i is blocks [cuts[i], cuts[i+1]). A port given before a stage and
// taken at or after it flows straight from its giver to each taker.
func (m *Model) Cut(cuts []int) []Stage {
	stages := make([]Stage, len(cuts)-1)
	owner := map[string]int{} // stage that gives the port's current value
	for i := range stages {
		st := &stages[i]
		st.From, st.To = cuts[i], cuts[i+1]
		have := map[string]bool{}
		for _, b := range m.Blocks[st.From:st.To] {
			for _, p := range b.Takes {
				if g, ok := owner[p]; ok && !have[p] && g != i {
					st.In = append(st.In, Flow{p, g})
					stages[g].Out = append(stages[g].Out, Flow{p, i})
				}
				have[p] = true
			}
			for _, p := range b.Gives {
				owner[p] = i
				have[p] = true
			}
		}
	}
	return stages
}

// Record traces stage st of the model for one shape of microbatch.
func (m *Model) Record(o grad.Options, rec block.Rec, st Stage) *grad.Trace {
	fan := map[string]int{}
	for _, f := range st.Out {
		fan[f.Port]++
	}
	o.Consumers = func(port string) int { return fan[port] }
	if rec.NLL { // whoever asks for it gives its gradient
		fan["nll"] = 1
	}
	o.Whole = func(port string) bool { return m.Ports[port].Whole }
	o.Lines = func(port string) int {
		if lines := m.Ports[port].Lines; lines != nil {
			return lines(rec.Shape)
		}
		return 0
	}
	if o.Low == nil {
		o.Low, o.Watch, o.History, o.Travel = m.Low, m.Watch, m.History, m.Travel
		o.LowGather, o.Fake = m.LowGather, m.Fake
	}
	if o.Packed == nil {
		o.Packed = m.Packed
	}
	r := &rec
	r.Peaks = m.Peaks
	r.T, r.Ropes = grad.NewTape(o), []*block.Rope{&m.Spec.Rope, &m.Spec.LocalRope}
	env := map[string]*grad.Value{}
	for _, f := range st.In {
		if !m.Absent(f.Port, r.Shape) {
			d := o.DTypeOf(m.giver(f.Port, st.From))
			switch p := m.Ports[f.Port]; {
			case p.Wide:
				d = tensor.F32
			case p.Integer:
				d = tensor.I32
			}
			env[f.Port] = r.T.Input(f.Port, d, m.portRows(f.Port, r.Shape), m.Ports[f.Port].Width)
		}
	}
	for i := st.From; i < st.To; i++ {
		b := m.Blocks[i]
		if b.Of != "" && r.Shape.Dim(b.Of) == 0 {
			continue
		}
		r.Start(i)
		f := r.T.Part
		if b.Recompute {
			f = r.T.Block
		}
		f(i, func() { m.record(&b, r, env) })
	}
	for _, p := range slices.Sorted(keys(fan)) {
		if !m.Absent(p, r.Shape) && (env[p] != nil || !r.NLL) {
			r.T.Output(p, env[p])
		}
	}
	if (r.States || r.Hidden) && env["final"] != nil {
		r.T.Output("final", env["final"])
	}
	if r.Values && env["values"] != nil {
		r.T.Output("values", env["values"])
	}
	if r.Logits && env["logits"] != nil {
		r.T.Output("logits", env["logits"])
	}
	return r.T.Finish()
}

// record runs block b on what it takes, in its own dtype; those that come after it take what was given.
func (m *Model) record(b *Block, r *block.Rec, env map[string]*grad.Value) {
	given, cast := map[string]*grad.Value{}, map[string]*grad.Value{}
	for _, p := range b.Takes {
		if v := env[p]; v != nil && !m.Ports[p].Wide && !m.Ports[p].Integer {
			given[p], cast[p] = v, r.T.Cast(v)
		}
	}
	maps.Copy(env, cast)
	b.Record(r, env)
	for p, c := range cast {
		if env[p] == c {
			env[p] = given[p]
		}
	}
}

// giver is the block whose value a port has before block i.
func (m *Model) giver(port string, i int) int {
	for i--; !slices.Contains(m.Blocks[i].Gives, port); i-- {
	}
	return i
}

// keys runs over the keys of m in no fixed order; it fits what asks only whether a name exists.
func keys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Params lists all parameters of the model in order of first use, as files have them: copies of experts,
// which a plan may place beside the experts, are none.
func (m *Model) Params(lora *block.Lora) []*grad.Param { return m.ParamsIn(tensor.F32, lora) }

// ParamsIn is Params of a model in a dtype: the values of some are float32 all the same.
func (m *Model) ParamsIn(d tensor.DType, lora *block.Lora) []*grad.Param {
	return m.ParamsOf(grad.Options{DType: d}, lora)
}

// ParamsOf is Params of a model as it is recorded by options.
func (m *Model) ParamsOf(o grad.Options, lora *block.Lora) []*grad.Param {
	o.NoGrad = true
	tr := m.Record(o, block.Rec{Shape: m.Smallest(1), Lora: lora}, Stage{To: len(m.Blocks)})
	out := make([]*grad.Param, 0, len(tr.Params))
	for _, p := range tr.Params {
		if !p.IsState() {
			out = append(out, p.Logical())
		}
	}
	return out
}

// Count is the number of parameters.
func (m *Model) Count() (n int64) {
	for _, p := range m.Params(nil) {
		n += int64(tensor.Len(p.Shape))
	}
	return
}

// Foundation is the first block of the decoder.
func (m *Model) Foundation() int {
	return slices.IndexFunc(m.Blocks, func(b Block) bool { return b.Component == Foundation })
}

// Ahead reports whether a model of diffusion has encoders among its blocks, which may have a mesh of their own.
func (m *Model) Ahead() bool { return m.Denoiser != nil && m.Foundation() > 0 }

// Balanced cuts the blocks into n stages so that the heaviest is as light as possible.
func (m *Model) Balanced(n, tokens int) ([]int, error) { return m.BalancedFrom(0, n, tokens) }

// Work is the block's share of the work on sequences of so many tokens, in arbitrary units of the model.
func (b *Block) Work(tokens int) float64 {
	if b.Pairs == nil {
		return b.Weight
	}
	return b.Weight + b.Pairs(tokens)
}

// BalancedFrom is Balanced for the blocks from first on.
func (m *Model) BalancedFrom(first, n, tokens int) ([]int, error) {
	blocks := m.Blocks[first:]
	if n > len(blocks) {
		return nil, fmt.Errorf("%d stages for %d blocks: try plan.pp=%d", n, len(blocks), len(blocks))
	}
	w := make([]float64, len(blocks)+1)
	for i := range blocks {
		w[i+1] = w[i] + blocks[i].Work(tokens)
	}
	lo, hi := 0.0, w[len(blocks)]
	for range 60 {
		mid := (lo + hi) / 2
		if _, ok := fill(w, n, mid); ok {
			hi = mid
		} else {
			lo = mid
		}
	}
	cuts, _ := fill(w, n, hi*(1+1e-12))
	for i := range cuts {
		cuts[i] += first
	}
	return cuts, nil
}

// fill cuts greedily under a limit, leaving at least one block to each later stage.
func fill(w []float64, n int, limit float64) ([]int, bool) {
	cuts, blocks := []int{0}, len(w)-1
	for s := range n {
		from := cuts[s]
		to := sort.Search(blocks-from, func(k int) bool { return w[from+k+1]-w[from] > limit }) + from
		to = min(to, blocks-(n-1-s))
		if to <= from {
			to = from + 1
		}
		if s == n-1 && to < blocks {
			return nil, false
		}
		if w[to]-w[from] > limit*(1+1e-9) {
			return nil, false
		}
		cuts = append(cuts, to)
	}
	return cuts, true
}
