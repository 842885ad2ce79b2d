package decoders

import (
	"math"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// Layers says what the layers of a family compute, beside what its keys of config.json say.
type Layers struct {
	Norm struct {
		Layer bool    `yaml:"layer"` // a layer norm, else an RMS norm
		Bare  bool    `yaml:"bare"`  // a layer norm without a bias, or an RMS norm without a weight
		Plus  float64 `yaml:"plus"`  // what is added to the weight
	} `yaml:"norm"`
	// names of norms before and behind mixer and MLP, "" for none; without any those of Llama
	Norms struct {
		BeforeMixer string `yaml:"before_mixer"`
		AfterMixer  string `yaml:"after_mixer"`
		BeforeMLP   string `yaml:"before_mlp"`
		AfterMLP    string `yaml:"after_mlp"`
		Abreast     bool   `yaml:"abreast"` // mixer and MLP read the same rows, and both are added
	} `yaml:"norms"`
	// kinds of mixers, in turns over the layers where the configuration names none
	Mixers []string `yaml:"mixers"`
	// layers differ so only where sliding_window is not 0
	WithWindow bool `yaml:"with_window"`
	// kinds of MLPs, in turns over the layers
	MLPs []string `yaml:"mlps"`
	Rope struct {
		Pairs bool   `yaml:"pairs"`  // neighbouring numbers of a head turn together
		Back  bool   `yaml:"back"`   // by negative angles
		Not   string `yaml:"not_in"` // kind of layers whose queries and keys do not turn
	} `yaml:"rope"`
	Attention struct {
		QKWhole bool   `yaml:"qk_whole"` // queries and keys are normed over all heads together
		QKLast  bool   `yaml:"qk_last"`  // they are normed once they have turned
		Sinks   bool   `yaml:"sinks"`    // a softmax has a further logit for each head
		Gate    bool   `yaml:"gate"`     // a sigmoid of the layer's input multiplies what attention gives
		Scale   Number `yaml:"scale"`    // of scores
		Latent  bool   `yaml:"latent"`   // queries, keys and values are made of latent rows
		Indexer bool   `yaml:"indexer"`  // which latent attention reads the keys of
	} `yaml:"attention"`
	Embedding struct {
		Scale  Number `yaml:"scale"`
		Rounds bool   `yaml:"rounds"` // the factor is rounded to the embeddings' type first
		Norm   bool   `yaml:"norm"`   // by a norm without a weight
	} `yaml:"embedding"`
	Logits struct {
		Scale Number `yaml:"scale"`
		Unit  bool   `yaml:"unit_rows"` // the head's rows have length 1
	} `yaml:"logits"`
	Experts *Experts `yaml:"experts"`
	Further struct {
		Stored     Number `yaml:"stored"`      // layers behind the last that checkpoints have in any case
		TokenFirst bool   `yaml:"token_first"` // they read the token's embedding before the hidden state
	} `yaml:"further_tokens"`

	file hf.Family // what config.json says
}

// Experts says how tokens are shared out to experts.
type Experts struct {
	Dense     string  `yaml:"dense"` // which layers have one MLP: first, steps or interval; "" for none
	Normalize Number  `yaml:"normalize"`
	Floor     bool    `yaml:"floor"`
	Eps       float64 `yaml:"eps"`
	Scale     Number  `yaml:"scale"`
	Groups    bool    `yaml:"groups"` // as n_group and topk_group say
	Best      int     `yaml:"best"`   // of a group's score
	Biases    bool    `yaml:"biases"`
	Bounded   bool    `yaml:"bounded"` // as swiglu_limit and swiglu_alpha say
	Shared    *struct {
		Width Number `yaml:"width"`
		Name  string `yaml:"name"`
		Gate  string `yaml:"gate"`
	} `yaml:"shared"`
}

// dense are the ways to say which layers have one MLP in place of experts.
var dense = map[string]func(c configs.Model) func(layer int) bool{
	"":         func(configs.Model) func(int) bool { return func(int) bool { return false } },
	"first":    family.DenseFirst,
	"steps":    family.DenseSteps,
	"interval": ernieDense,
}

// Number is a number, or that of a key of config.json, or its root, or what 1 is divided by it, as
// "1/sqrt(query_pre_attn_scalar)".
type Number string

// of is the number for a configuration, 0 where the key has 0. true is 1.
func (n Number) of(c configs.Model) float64 {
	text, inverse := strings.CutPrefix(string(n), "1/")
	text, root := strings.CutPrefix(text, "sqrt(")
	text = strings.TrimSuffix(text, ")")
	x, err := strconv.ParseFloat(text, 64)
	if err != nil {
		x, _ = c.Number(text) // held to be one where the description is read
	}
	if root {
		x = math.Sqrt(x)
	}
	if inverse && x != 0 {
		x = 1 / x
	}
	return x
}

// spec changes the specification of a decoder to what is described.
func (l Layers) spec(c configs.Model, s *family.Spec) {
	s.Norm = block.Norm{Layer: l.Norm.Layer, Bare: l.Norm.Bare, Plus: l.Norm.Plus}
	s.Norms = family.Norms(l.Norms)
	s.Rope.Back, s.RopePairs = l.Rope.Back, l.Rope.Pairs
	l.kinds(c, s)
	l.attention(c, s)
	l.ends(c, s)
	if l.Experts != nil {
		l.Experts.spec(c, s, l.file)
	}
	if l.Further.TokenFirst {
		s.Further, s.TokenFirst = max(int(l.Further.Stored.of(c)), s.MTP), true
	}
}

// kinds says which layer has which mixer and MLP.
func (l Layers) kinds(c configs.Model, s *family.Spec) {
	turns := func(kinds []string) (all []string) {
		for i := range s.Layers {
			all = append(all, kinds[i%len(kinds)])
		}
		return all
	}
	if len(l.MLPs) > 0 {
		s.MLPs = turns(l.MLPs)
	}
	if l.WithWindow && c.SlidingWindow == 0 {
		return
	}
	if len(l.Mixers) > 0 && len(c.LayerTypes) == 0 {
		s.Mixers = turns(l.Mixers)
	}
	if l.Rope.Not != "" {
		s.NoRope = func(layer int) bool { return len(s.Mixers) > 0 && s.Mixers[layer] == l.Rope.Not }
	}
}

func (l Layers) attention(c configs.Model, s *family.Spec) {
	a := l.Attention
	s.QKWhole, s.QKNormLast, s.Sinks, s.AttnGate = a.QKWhole, a.QKLast, a.Sinks, a.Gate
	s.QKNorm = s.QKNorm && !a.QKWhole
	if a.Scale != "" {
		s.AttnScale = a.Scale.of(c)
	}
	switch {
	case a.Indexer:
		s.UseIndexer(c)
		s.Latent.Index.Pairs = l.file.IndexPairs
	case a.Latent:
		s.UseLatent(c)
	}
}

func (l Layers) ends(c configs.Model, s *family.Spec) {
	if l.Embedding.Scale != "" {
		s.EmbedScale, s.EmbedRounds = l.Embedding.Scale.of(c), l.Embedding.Rounds
	}
	s.EmbedNorm, s.UnitHead = l.Embedding.Norm, l.Logits.Unit
	if l.Logits.Scale != "" {
		s.LogitScale = l.Logits.Scale.of(c)
	}
}

func (e Experts) spec(c configs.Model, s *family.Spec, file hf.Family) {
	k := family.Mixture.Of(c)
	s.UseExperts(c, dense[e.Dense](c))
	r := routing.Router{Normalize: e.Normalize.of(c) != 0, Floor: e.Floor, Eps: e.Eps, Scale: e.Scale.of(c)}
	if file.Score == "sigmoid" {
		r.Score = routing.Sigmoid
	}
	if e.Groups {
		r.Groups, r.Kept, r.Best = k.ExpertGroups, k.GroupsKept, min(max(1, e.Best), k.Experts/max(1, k.ExpertGroups))
	}
	s.Experts.Router, s.Experts.Biases = r, e.Biases
	if file.Corrected {
		s.Experts.Bias = "gate." + family.Correction
	}
	if e.Bounded {
		b := family.Bounds.Of(c)
		s.Experts.Bound, s.Experts.Slope = b.GateBound, b.GateSlope
	}
	if x := e.Shared; x != nil && x.Width.of(c) > 0 {
		s.Experts.Shared, s.Experts.SharedName = s.GatedOf(int(x.Width.of(c))), x.Name
		s.Experts.SharedGate = x.Gate
	}
}

// ernieDense tells the layers without experts: those before the first with experts and behind the last, and
// those between that the interval leaves out.
func ernieDense(c configs.Model) func(layer int) bool {
	k := family.Mixture.Of(c)
	return func(i int) bool {
		return i < k.DenseFirst || k.LastExperts >= 0 && i > k.LastExperts || (i+1)%k.SparseStep != 0
	}
}
