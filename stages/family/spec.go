package family

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Spec is the architecture of a decoder-only language model. What a field does not say is as in Llama:
// norms before attention and MLP, RMS, full attention, a gated MLP with SiLU, no biases.
type Spec struct {
	Layers, Hidden, Inter, Heads, KV, HeadDim, Vocab int
	QKVBias, OBias, MLPBias, QKNorm, Tie             bool
	Eps                                              float64    // under the roots of norms
	Norm                                             block.Norm // but for Eps
	Norms                                            Norms
	Rope                                             block.Rope
	// kind of each layer's mixer; nil is full_attention in all
	Mixers []string
	// kind of each layer's MLP; nil is gated in all
	MLPs []string
	// keys that a query of a sliding layer sees
	Window int
	// activation of MLPs by Hugging Face's name; "" is silu
	Act      string
	Residual float64 // factor on what a branch adds; 0 is 1
	InitStd  float64
	// of layers whose MLP is of the kind experts
	Experts block.Experts
	Delta   block.Delta // of layers whose mixer is linear_attention
	Attending
	Ends
	FurtherTokens
	Sparse
	Routed
}

// Attending is what attention has beside its widths.
type Attending struct {
	// queries and keys are normed over all heads together
	QKWhole bool
	// QKNorm is taken of queries and keys that have turned
	QKNormLast bool
	// LocalRope is that of sliding layers, if its Dim is not 0
	LocalRope block.Rope
	// neighbouring numbers of a head turn together
	RopePairs bool
	// layers whose queries and keys do not turn; nil for none
	NoRope    func(layer int) bool
	Alibi     block.Alibi // linear biases in place of rotary embedding, if it has slopes
	AttnScale float64     // of scores; 0 is 1/sqrt(HeadDim)
	// scores of the layer with index i are divided by i + 1 as well
	DepthScale bool
	AttnCap    float64 // soft cap of scores, 0 for none
	// attention is multiplied with a sigmoid of the layer's input
	AttnGate bool
	// every softmax of attention has a further logit for each head, which belongs to no key
	Sinks bool
	// what queries see where it is not all that comes before them; nil for that
	Sees func(r *block.Rec, c *grad.AttentionConfig)
}

// Ends is what embedding and head have beside their widths.
type Ends struct {
	Positions              int     // rows of a table of learned positions, 0 for none
	LogitCap               float64 // soft cap of logits, 0 for none
	Sources                int     // by which the loss is seen too, 0 for none
	EmbedScale, LogitScale float64 // factors on embeddings and on logits; 0 is 1
	EmbedNorm              bool    // embeddings are normed, by a norm without a weight
	// EmbedScale is rounded to the dtype of the embeddings first
	EmbedRounds bool
	// rows of the head have length 1: it multiplies with the table's rows divided by their norms
	UnitHead bool
	// in place of the loss of a language model; nil for that
	Objective *Objective
}

// FurtherTokens are layers behind the last.
type FurtherTokens struct {
	MTP int // multi-token-prediction layers
	// layers that checkpoints have behind the last, for further tokens, and the model has not
	Further   int
	MTPWeight float64
	// such a layer reads the token's embedding before the hidden state
	TokenFirst bool
}

// Sparse is latent attention, and who chooses the keys that it reads.
type Sparse struct {
	Latent block.Latent // of layers whose mixer is latent_attention
	// layers that read the keys which the last layer with an indexer has chosen; nil for none
	IndexShared []bool
}

// Routed is how tokens are shared out to experts, beside what the experts say.
type Routed struct {
	// ids of tokens that go to Experts.Images beside features: those that begin and end images and videos
	ImageTokens []int
	Balance     block.Balance
}

// Norms are the names of a layer's norms, before and after each branch; "" is none. With Abreast mixer and
// MLP read the same rows, normed as BeforeMixer says, and their sum is added to the layer's input.
type Norms struct {
	BeforeMixer, AfterMixer, BeforeMLP, AfterMLP string
	Abreast                                      bool
}

// preNorms are Llama's.
var preNorms = Norms{BeforeMixer: "input_layernorm", BeforeMLP: "post_attention_layernorm"}

// Mixer makes the mixer of a layer, and MLP its MLP: kinds that configurations name for each layer.
type (
	Mixer func(s Spec, layer int) block.Part
	MLP   func(s Spec, layer int) block.Part
)

var (
	mixers = map[string]Mixer{}
	mlps   = map[string]MLP{}
)

// RegisterMixer enters a kind of mixer by the name that layer_types of config.json has for it.
func RegisterMixer(kind string, m Mixer) struct{} {
	if mixers[kind] != nil {
		panic("family: mixer " + kind + " registered twice")
	}
	mixers[kind] = m
	configs.RegisterMixer(kind)
	return struct{}{}
}

// RegisterMLP enters a kind of MLP by the name that mlp_layer_types of config.json has for it.
func RegisterMLP(kind string, m MLP) struct{} {
	if mlps[kind] != nil {
		panic("family: MLP " + kind + " registered twice")
	}
	mlps[kind] = m
	configs.RegisterMLP(kind)
	return struct{}{}
}

// activation is that of MLPs, of kernels.
func (s Spec) activation() int { return Acts[cmp.Or(s.Act, "silu")] }

// Check reports what no plan can run.
func (s Spec) Check() error {
	switch {
	case s.Layers < 1 || s.Hidden < 1 || s.Inter < 1 || s.Heads < 1 || s.HeadDim < 1 || s.Vocab < 1:
		return fmt.Errorf("model: layers %d, hidden %d, intermediate %d, heads %d, head_dim %d and "+
			"vocabulary %d must all be positive", s.Layers, s.Hidden, s.Inter, s.Heads, s.HeadDim, s.Vocab)
	case s.KV < 1 || s.Heads%s.KV != 0:
		return fmt.Errorf("model: num_attention_heads %d is not a multiple of num_key_value_heads %d", s.Heads, s.KV)
	case s.HeadDim%2 != 0 && s.Rope.Dim > 0:
		return fmt.Errorf("model: head_dim %d is odd; rotary embedding needs pairs", s.HeadDim)
	case s.Mixes() && (s.Experts.Inter < 1 || s.Experts.Experts < 1):
		return fmt.Errorf("model: %d experts of width %d", s.Experts.Experts, s.Experts.Inter)
	case len(s.Mixers) > 0 && len(s.Mixers) != s.Layers || len(s.MLPs) > 0 && len(s.MLPs) != s.Layers:
		return fmt.Errorf("model: %d mixers and %d MLPs are named for %d layers", len(s.Mixers), len(s.MLPs), s.Layers)
	}
	if _, ok := Acts[cmp.Or(s.Act, "silu")]; !ok {
		return fmt.Errorf("model: hidden_act %q is unknown, have %v", s.Act, names(Acts))
	}
	for _, kind := range s.Mixers {
		if mixers[kind] == nil {
			return fmt.Errorf("model: layer_types: %q is no kind of layer; have %v", kind, names(mixers))
		}
	}
	for _, kind := range s.MLPs {
		if mlps[kind] == nil {
			return fmt.Errorf("model: mlp_layer_types: %q is no kind of MLP; have %v", kind, names(mlps))
		}
	}
	if s.Mixes() {
		if err := s.Experts.Router.Check(s.Experts.Experts, s.Experts.Each); err != nil {
			return fmt.Errorf("model: %w", err)
		}
	}
	if s.LocalRope.Dim > 0 {
		if err := s.LocalRope.Check(); err != nil {
			return err
		}
	}
	return s.Rope.Check()
}

// EmbedName and HeadName are the names of embedding and head.
const (
	EmbedName = "model.embed_tokens"
	HeadName  = "lm_head"
)

// Decoder builds the blocks of a decoder-only model in Hugging Face's Llama naming.
func Decoder(name string, s Spec) *Model {
	m := &Model{Family: name, Spec: s, Ports: map[string]Port{"x": {Width: s.Hidden}},
		Source: func(n string) Source { return Source{Name: n} }}
	m.Add(Block{Name: EmbedName, Gives: []string{"x"}, Weight: 0.2, Record: s.embed})
	total := 0
	for i := range s.Layers {
		total += s.layer(i).Size()
	}
	mean := float64(total) / float64(max(1, s.Layers))
	for i := range s.Layers {
		name := fmt.Sprintf("model.layers.%d", i)
		m.Add(Block{Name: name, Takes: []string{"x"}, Gives: []string{"x"}, Recompute: true,
			Weight: float64(s.layer(i).Size()) / mean,
			Pairs:  func(n int) float64 { return float64(s.layer(i).PairWork(n)) / mean },
			Record: func(r *block.Rec, env map[string]*grad.Value) {
				own := s
				own.Experts = m.Spec.Experts // how they are trained is set after the model is built
				env["x"] = own.layer(i).Record(r, name, env["x"])
			}})
	}
	head := Block{Name: "model.norm", Takes: []string{"x"}, Weight: float64(1+s.MTP) * float64(s.Vocab*s.Hidden) / mean}
	// the weight of further heads is set after the model is built
	head.Record = func(r *block.Rec, env map[string]*grad.Value) {
		m.Spec.head(r, env)
		m.mtp(r, env)
		m.Spec.balanced(r)
	}
	m.Add(head)
	m.shareKeys()
	if s.Experts.Images != nil {
		m.Modalities = append(m.Modalities, kinds{s: &m.Spec})
	}
	return m
}

// Add appends a block of the decoder.
func (m *Model) Add(b Block) { b.Component = Foundation; m.Blocks = append(m.Blocks, b) }

// norm is the kind of all norms of the residual stream.
func (s Spec) norm() block.Norm {
	n := s.Norm
	n.Eps = s.Eps
	return n
}

// layer is decoder layer i.
func (s Spec) layer(i int) block.Layer {
	mixer, mlp := "full_attention", "gated"
	if len(s.Mixers) > 0 {
		mixer = s.Mixers[i]
	}
	if len(s.MLPs) > 0 {
		mlp = s.MLPs[i]
	}
	n := s.Norms
	if n == (Norms{}) {
		n = preNorms
	}
	return block.Layer{Hidden: s.Hidden, Norm: s.norm(), Residual: s.Residual, Abreast: n.Abreast,
		Branches: []block.Branch{
			{Name: "self_attn", Part: mixers[mixer](s, i), Before: n.BeforeMixer, After: n.AfterMixer},
			{Name: "mlp", Part: mlps[mlp](s, i), Before: n.BeforeMLP, After: n.AfterMLP},
		}}
}

// Attentions are the mixers of the decoder's layers.
func (s Spec) Attentions() (out []block.Part) {
	for i := range s.Layers {
		out = append(out, s.layer(i).Branches[0].Part)
	}
	return out
}

// attention is the attention of layer i, with a window of so many keys, 0 for all.
func (s Spec) attention(i, window int) block.Attn {
	a := block.Attn{Hidden: s.Hidden, Heads: s.Heads, KV: s.KV, HeadDim: s.HeadDim, QKVBias: s.QKVBias, OBias: s.OBias,
		QKNorm: s.QKNorm, QKNormLast: s.QKNormLast, QKWhole: s.QKWhole, Norm: s.norm(), Window: window, Pairs: s.RopePairs, Scale: s.AttnScale,
		Cap: s.AttnCap, Gate: s.AttnGate, Sinks: s.Sinks, Sees: s.Sees, Alibi: s.Alibi}
	if s.DepthScale {
		a.Scale = cmp.Or(s.AttnScale, 1/math.Sqrt(float64(s.HeadDim))) / float64(i+1)
	}
	if window > 0 && s.LocalRope.Dim > 0 {
		a.Rope = 1
	}
	if s.Positions > 0 || s.Alibi.Slopes != nil || s.NoRope != nil && s.NoRope(i) {
		a.Rope = block.NoRope
	}
	return a
}

var (
	_ = RegisterMixer("full_attention", func(s Spec, i int) block.Part { return s.attention(i, 0) })
	_ = RegisterMixer("sliding_attention", func(s Spec, i int) block.Part { return s.attention(i, s.Window) })
	_ = RegisterMLP("gated", func(s Spec, _ int) block.Part {
		return block.Gated{Hidden: s.Hidden, Inter: s.Inter, Bias: s.MLPBias, Act: s.activation()}
	})
	_ = RegisterMLP("plain", func(s Spec, _ int) block.Part {
		return block.Plain{Hidden: s.Hidden, Inter: s.Inter, Bias: s.MLPBias, Act: s.activation()}
	})
)

// embedding is the table [vocab hidden], with the rows that learn of their own in the place of its own.
func (s Spec) embedding(r *block.Rec) *grad.Value {
	t := r.T
	table := t.Table(EmbedName+".weight", s.Vocab, s.Hidden)
	if r.Lora == nil || len(r.Lora.Tokens) == 0 {
		return table
	}
	keep, at := make([]float32, s.Vocab), make([]int32, s.Vocab)
	for i := range keep {
		keep[i], at[i] = 1, -1
	}
	for i, id := range r.Lora.Tokens {
		if id >= 0 && id < s.Vocab { // its key says what is not
			keep[id], at[id] = 0, int32(i)
		}
	}
	rows := t.Param(TokenRows, []int{len(r.Lora.Tokens), s.Hidden}, -1, 1, true)
	rows = t.Take(rows, t.ConstI32("lora.tokens", at)) // zero where a row is the table's
	return t.Add(t.ScaleRows(table, t.Const("lora.keep", keep)), rows)
}

// TokenRows are the rows of the table that learn alone, PEFT's trainable tokens.
const TokenRows = EmbedName + ".lora_tokens"

// embed looks the tokens up, scaled, and adds learned positions where the model has them.
func (s Spec) embed(r *block.Rec, env map[string]*grad.Value) {
	t := r.T
	x := t.Embed(t.Data("ids", tensor.I32, r.Shape.Rows), s.embedding(r))
	if s.EmbedScale != 0 && s.EmbedScale != 1 {
		x = t.Scale(x, s.EmbedFactor(x.DType))
	}
	if x = t.Place("residual", x); s.EmbedNorm {
		x = t.UnitNorm(x, s.Eps)
	}
	if s.Positions > 0 {
		table := t.Param(positionName+".weight", []int{s.Positions, s.Hidden}, -1, 1, true)
		x = t.Add(x, t.Place("residual", t.Embed(t.Data("positions", tensor.I32, r.Shape.Rows), table)))
	}
	env["x"] = x
}

// EmbedFactor is the factor on embeddings of dtype d.
func (s Spec) EmbedFactor(d tensor.DType) float64 {
	if !s.EmbedRounds {
		return s.EmbedScale
	}
	raw, v := make([]byte, d.Size()), []float32{float32(s.EmbedScale)}
	tensor.Narrow(d, v, raw)
	tensor.Widen(d, raw, v)
	return float64(v[0])
}

const positionName = "model.embed_positions"

// output is the matrix of the head: that of the embedding where they are tied, else one of its own,
// whose rows have unit length in models that want it.
func (s Spec) output(r *block.Rec) *grad.Value {
	t := r.T
	if s.Tie {
		return s.embedding(r)
	}
	table := t.Table(HeadName+".weight", s.Vocab, s.Hidden)
	if s.UnitHead {
		return t.UnitRows(table)
	}
	return table
}

// head is the final norm and the loss; a forward-only record for sampling gives logits instead, and one for
// a caption's states ends at the norm.
func (s Spec) head(r *block.Rec, env map[string]*grad.Value) {
	h := s.norm().Record(r, "model.norm", env["x"], s.Hidden)
	env["final"] = h
	if r.States {
		return
	}
	if s.LogitScale != 0 && s.LogitScale != 1 {
		h = r.T.Scale(h, s.LogitScale)
	}
	switch {
	case r.Values:
		env["values"] = s.score(r, env["final"])
		return
	case r.NLL:
		env["nll"] = r.T.TokenNLL(h, s.output(r), r.T.Data("targets", tensor.I32, r.Shape.Rows), s.LogitCap)
		return
	case r.Logits && s.Objective != nil && s.Objective.Loss.Score:
		env["logits"] = s.score(r, env["final"])
		return
	case r.Logits && r.Pool > 0: // those of the last tokens alone, before a cap
		h = r.T.Take(h, r.T.Data("paged.head", tensor.I32, r.Heads))
		env["logits"] = r.T.Logits(h, s.output(r), 0)
		return
	case r.Logits:
		env["logits"] = r.T.Logits(h, s.output(r), s.LogitCap)
		return
	case s.Objective != nil:
		s.objective(r, h, env["final"])
		return
	}
	loss := r.T.LinearCrossEntropy(h, s.output(r), r.T.Data("targets", tensor.I32, r.Shape.Rows),
		r.T.Data("weights", tensor.F32, r.Shape.Rows), s.LogitCap)
	if s.Sources > 0 {
		r.T.ObservedBy(loss, r.T.Data(sourcesData, tensor.I32, r.Shape.Rows), s.Sources)
	}
	r.T.Loss(loss)
}

// SpecOf is what a configuration says of a decoder, before its family's differences.
func SpecOf(c configs.Model) Spec {
	k := Scales.Of(c)
	s := Spec{Layers: c.Layers, Hidden: c.Hidden, Inter: c.Intermediate, Heads: c.Heads, KV: c.KVHeads,
		HeadDim: c.HeadDim, Vocab: c.Vocab, QKVBias: c.AttentionBias, OBias: c.OutBias, MLPBias: c.MLPBias,
		QKNorm: c.QKNorm, Tie: c.TieEmbeddings, Eps: c.NormEps, Rope: rope(c), InitStd: c.InitRange, Act: c.Act,
		Mixers: slices.Clone(c.LayerTypes), MLPs: slices.Clone(mlpKinds.Of(c).MLPTypes), Window: c.SlidingWindow,
		Residual: k.ResidualScale}
	s.MTP, s.AttnScale, s.AttnCap, s.LogitCap = c.MTPLayers, k.AttnScale, k.AttnCap, k.LogitCap
	s.EmbedScale = k.EmbedScale
	if c.Positions == "learned" {
		s.Positions = c.MaxPositions
	}
	if c.Positions == "alibi" {
		s.Alibi = block.Alibi{Slopes: block.Slopes(c.Heads), Places: c.MaxPositions}
	}
	if k.LocalTheta != 0 {
		s.LocalRope = block.Rope{Dim: c.HeadDim, Theta: k.LocalTheta}
	}
	if k.LogitDivisor != 0 {
		s.LogitScale = 1 / k.LogitDivisor
	}
	f, _ := of(c, c.Decoder()) // the zero Family changes nothing
	s.OBias = s.OBias || f.HF.OutBias && c.AttentionBias
	if f.Spec != nil {
		f.Spec(c, &s)
	}
	if c.Vision.None() { // tokens of texts have the same place on all axes
		s.Rope.Sections = nil
	}
	return s
}

// rope reads the settings of the rotary embedding. A partial rotary factor turns only the first
// columns of each head, and the original length defaults to the model's own.
func rope(c configs.Model) block.Rope {
	x := c.RopeScaling
	r := block.Rope{Dim: c.HeadDim, Theta: c.RopeTheta, Type: x.Type, Factor: x.Factor, Low: x.LowFreqFactor,
		High: x.HighFreqFactor, Original: x.OriginalMax, Max: c.MaxPositions, BetaFast: x.BetaFast,
		BetaSlow: x.BetaSlow, AttnFactor: x.AttentionFactor, MScale: x.MScale, MScaleAll: x.MScaleAllDim,
		Smooth: x.Smooth, Sections: x.Sections, Interleaved: x.Interleaved, Long: x.LongFactor, Short: x.ShortFactor}
	if p := c.PartialRotary; p != 0 && p != 1 {
		r.Dim = int(float64(c.HeadDim) * p)
	}
	if r.Original == 0 {
		r.Original = c.MaxPositions
	}
	return r
}

// Alternate gives every n-th layer full attention and the others a window, where the configuration names no kinds.
func (s *Spec) Alternate(n int, given []string) {
	if len(given) > 0 {
		return
	}
	s.Mixers = nil
	for i := range s.Layers {
		kind := "sliding_attention"
		if (i+1)%n == 0 {
			kind = "full_attention"
		}
		s.Mixers = append(s.Mixers, kind)
	}
}

// Kinds are the kinds of mixers that a layer may have, or of MLPs.
func Kinds(ofMLPs bool) []string {
	if ofMLPs {
		return names(mlps)
	}
	return names(mixers)
}
