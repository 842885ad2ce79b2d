// Package family holds the model families, one file each: a configuration becomes a list of named blocks whose ports join
// them. Cutting a model into pipeline stages is slicing the list.
package family

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Block is one named block of a model. It reads the ports it takes from env and writes those it gives.
type Block struct {
	Name      string // prefix of its parameters
	Component string
	Takes     []string
	Gives     []string
	Recompute bool // a recompute unit: a layer, not an embedding or a loss
	Record    func(r *block.Rec, env map[string]*grad.Value)
	// Weight is the block's share of work, in arbitrary units of the model, for cutting.
	Weight float64
}

// Model is a family's model: blocks in order.
type Model struct {
	Family string
	Spec   Spec
	Config configs.Model
	Blocks []Block
	Widths map[string]int // width of each port's activation
	Vision *Vision        // before the decoder, nil for a model of text alone
	// Source says where a logical parameter lies in a Hugging Face checkpoint of the family.
	Source func(name string) Source
	// Other is a second layout in which checkpoints of the family come, nil for none.
	Other func(name string) Source
	// alone are the layouts of checkpoints of a component by itself, without a prefix.
	alone map[string][]func(name string) Source
}

// Source is a tensor of a Hugging Face checkpoint, or rows of it: logical rows are the ranges [from, to) in order.
type Source struct {
	Name string
	Rows [][2]int // nil is the whole tensor
	Lead int      // axes of length 1 before the logical ones
	Flat bool     // the first logical axis, of length 1, is not there
	Tail []int    // in place of the logical axes after the first, of the same size together: the taps of a convolution
}

// Spec is the architecture of a decoder-only language model.
type Spec struct {
	Layers, Hidden, Inter, Heads, KV, HeadDim, Vocab int
	QKVBias, OBias, MLPBias, QKNorm, Tie             bool
	Eps                                              float64
	Rope                                             block.Rope
	Window, FullLayers                               int // sliding window, used from layer FullLayers on
	MTP                                              int // multi-token-prediction layers
	MTPWeight                                        float64
	InitStd                                          float64
}

// Check reports what no plan can run.
func (s Spec) Check() error {
	switch {
	case s.Layers < 1 || s.Hidden < 1 || s.Inter < 1 || s.Heads < 1 || s.HeadDim < 1 || s.Vocab < 1:
		return fmt.Errorf("model: layers %d, hidden %d, intermediate %d, heads %d, head_dim %d and vocabulary %d must all be positive", s.Layers, s.Hidden, s.Inter, s.Heads, s.HeadDim, s.Vocab)
	case s.KV < 1 || s.Heads%s.KV != 0:
		return fmt.Errorf("model: num_attention_heads %d is no multiple of num_key_value_heads %d", s.Heads, s.KV)
	case s.HeadDim%2 != 0:
		return fmt.Errorf("model: head_dim %d is odd; rotary embedding needs pairs", s.HeadDim)
	}
	return s.Rope.Check()
}

const (
	embedName = "model.embed_tokens"
	headName  = "lm_head"
)

// Decoder builds the blocks of a decoder-only model in Hugging Face's Llama naming.
func Decoder(name string, s Spec) *Model {
	m := &Model{Family: name, Spec: s, Widths: map[string]int{"x": s.Hidden}, Source: func(n string) Source { return Source{Name: n} }}
	m.add(Block{Name: embedName, Gives: []string{"x"}, Weight: 0.2, Record: s.embed})
	for i := range s.Layers {
		m.add(Block{Name: fmt.Sprintf("model.layers.%d", i), Takes: []string{"x"}, Gives: []string{"x"}, Recompute: true, Weight: 1,
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				env["x"] = s.layer(i).Forward(r, fmt.Sprintf("model.layers.%d", i), env["x"])
			}})
	}
	layer := 4*s.Hidden*(s.Heads+s.KV)*s.HeadDim + 6*s.Hidden*s.Inter
	head := Block{Name: "model.norm", Takes: []string{"x"}, Weight: float64(1+s.MTP) * 2 * float64(s.Vocab*s.Hidden) / float64(layer)}
	head.Record = func(r *block.Rec, env map[string]*grad.Value) { // the weight of further heads is set after the model is built
		m.Spec.head(r, env)
		m.Spec.mtp(r, env)
	}
	m.add(head)
	return m
}

func (m *Model) add(b Block) { b.Component = Foundation; m.Blocks = append(m.Blocks, b) }

func (s Spec) layer(i int) block.Decoder {
	a := block.Attn{Heads: s.Heads, KV: s.KV, HeadDim: s.HeadDim, QKVBias: s.QKVBias, OBias: s.OBias, QKNorm: s.QKNorm}
	if s.Window > 0 && i >= s.FullLayers {
		a.Window = s.Window
	}
	return block.Decoder{Hidden: s.Hidden, Attn: a, MLP: block.MLP{Inter: s.Inter, Bias: s.MLPBias}, Eps: s.Eps}
}

func (s Spec) embedding(t *grad.Tape) *grad.Value {
	return t.Table(embedName+".weight", s.Vocab, s.Hidden)
}

func (s Spec) embed(r *block.Rec, env map[string]*grad.Value) {
	ids := r.T.Data("ids", tensor.I32, r.Shape.Rows)
	env["x"] = r.T.Place("residual", r.T.Embed(ids, s.embedding(r.T)))
}

func (s Spec) output(t *grad.Tape) *grad.Value {
	if s.Tie {
		return s.embedding(t)
	}
	return t.Table(headName+".weight", s.Vocab, s.Hidden)
}

// head is the final norm and the loss; a forward-only record for sampling gives logits instead.
func (s Spec) head(r *block.Rec, env map[string]*grad.Value) {
	h := r.Norm("model.norm", env["x"], s.Hidden, s.Eps)
	env["final"] = h
	if r.Logits {
		env["logits"] = r.T.Logits(h, s.output(r.T), 0)
		return
	}
	r.T.Loss(r.T.LinearCrossEntropy(h, s.output(r.T), r.T.Data("targets", tensor.I32, r.Shape.Rows), r.T.Data("weights", tensor.F32, r.Shape.Rows), 0))
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

// Cut makes stages of the borders: stage i is blocks [cuts[i], cuts[i+1]). A port given before a stage and taken at or after
// it flows straight from its giver to each taker.
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
	o.Consumers, o.Whole = func(port string) int { return fan[port] }, features
	r := &rec
	r.T, r.Rope = grad.NewTape(o), &m.Spec.Rope
	env := map[string]*grad.Value{}
	for _, f := range st.In {
		if !absent(f.Port, r.Shape) {
			env[f.Port] = r.T.Input(f.Port, o.DTypeOf(m.giver(f.Port, st.From)), m.portRows(f.Port, r.Shape), m.Widths[f.Port])
		}
	}
	for i := st.From; i < st.To; i++ {
		b := m.Blocks[i]
		if b.skips(r.Shape) {
			continue
		}
		r.Start(i)
		f := r.T.Part
		if b.Recompute {
			f = r.T.Block
		}
		f(i, func() { b.record(r, env) })
	}
	for _, p := range slices.Sorted(keys(fan)) {
		if !absent(p, r.Shape) {
			r.T.Output(p, env[p])
		}
	}
	if r.Logits && env["logits"] != nil {
		r.T.Output("logits", env["logits"])
	}
	return r.T.Finish()
}

// record runs the block on what it takes, in its own dtype; those that come after it take what was given.
func (b *Block) record(r *block.Rec, env map[string]*grad.Value) {
	given, cast := map[string]*grad.Value{}, map[string]*grad.Value{}
	for _, p := range b.Takes {
		if v := env[p]; v != nil {
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

func keys(m map[string]int) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// Params lists all parameters of the model in order of first use, as one device holds them.
func (m *Model) Params(lora *block.Lora) []*grad.Param {
	tr := m.Record(grad.Options{NoGrad: true}, block.Rec{Shape: m.Smallest(1), Lora: lora}, Stage{To: len(m.Blocks)})
	return tr.Params
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

// Balanced cuts the blocks into n stages so that the heaviest is as light as possible.
func (m *Model) Balanced(n int) ([]int, error) { return m.BalancedFrom(0, n) }

// BalancedFrom is Balanced for the blocks from first on.
func (m *Model) BalancedFrom(first, n int) ([]int, error) {
	blocks := m.Blocks[first:]
	if n > len(blocks) {
		return nil, fmt.Errorf("%d stages for %d blocks: try plan.pp=%d", n, len(blocks), len(blocks))
	}
	w := make([]float64, len(blocks)+1)
	for i, b := range blocks {
		w[i+1] = w[i] + b.Weight
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
