package family

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// IndexKeys are the keys of an indexer of sparse attention.
type IndexKeys struct {
	IndexTop   int      `key:"index_topk" flag:"dsa-indexer-topk" default:"0" min:"0" max:"16777216" class:"fixed" unit:"tokens" doc:"Keys that a query reads: those of the best scores of an indexer (DeepSeek-V3.2)."`
	IndexHeads int      `key:"index_n_heads" flag:"dsa-indexer-n-heads" default:"0" min:"0" max:"65536" class:"fixed" doc:"Heads of the indexer."`
	IndexDim   int      `key:"index_head_dim" flag:"dsa-indexer-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Width of its heads; the first qk_rope_head_dim numbers turn."`
	IndexTypes []string `key:"indexer_types" class:"fixed" doc:"full for each layer with an indexer, shared for each that reads the keys which the last of those has chosen (arXiv:2603.12201); by default all have one."`
}

// Index is what models say of indexers.
var Index = configs.Declare("indexer", configs.Rules[IndexKeys]{
	Check: func(m configs.Model, k IndexKeys, at configs.Report) {
		if !m.Has("index_topk") {
			return
		}
		required(at, "index_topk", k.IndexTop)
		required(at, "index_n_heads", k.IndexHeads)
		required(at, "index_head_dim", k.IndexDim)
		latent := Latent.Of(m)
		if k.IndexDim > 0 && k.IndexDim < latent.KeyTurning {
			at("index_head_dim", fmt.Sprintf("%d is less than qk_rope_head_dim = %d", k.IndexDim,
				latent.KeyTurning), "")
		}
		if latent.QueryRank == 0 {
			at("q_lora_rank", "is not given: the indexer reads the latent of queries", "")
		}
		if n := len(k.IndexTypes); n > 0 && n != m.Layers {
			at("indexer_types", fmt.Sprintf("%d entries for num_hidden_layers = %d", n, m.Layers),
				"name one for each layer")
		}
		k.checkTypes(at)
	}})

// checkTypes holds the kinds of layers to what can follow each other.
func (k IndexKeys) checkTypes(at configs.Report) {
	for i, kind := range k.IndexTypes {
		switch {
		case kind != configs.IndexFull && kind != configs.IndexShared:
			at("indexer_types", fmt.Sprintf("layer %d is %s", i, source.Quoted(kind)),
				source.OneOf([]string{configs.IndexFull, configs.IndexShared}))
			return
		case i == 0 && kind == configs.IndexShared:
			at("indexer_types", "the first layer has none before it whose keys it could read",
				"begin with "+configs.IndexFull)
		}
	}
}

// indexKeys are the names of those that every such model has.
var indexKeys = []string{"index_topk", "index_n_heads", "index_head_dim"}

// UseIndexer is latent attention to the keys that an indexer chooses.
func (s *Spec) UseIndexer(c configs.Model) {
	s.UseLatent(c)
	k := Index.Of(c)
	s.Latent.Index = block.Indexer{Heads: k.IndexHeads, Dim: k.IndexDim, Top: k.IndexTop}
	s.IndexShared = make([]bool, s.Layers)
	for i, kind := range k.IndexTypes {
		s.IndexShared[i] = kind == configs.IndexShared
	}
}

// latentLayer is the mixer of layer i.
func (s Spec) latentLayer(i int) block.Part {
	a := s.Latent
	if len(s.IndexShared) > 0 {
		a.Index.Shared = s.IndexShared[i]
		a.Index.Kept = i+1 < len(s.IndexShared) && s.IndexShared[i+1]
	}
	return a
}

// Indexes reports whether layers choose the keys that attention reads.
func (s Spec) Indexes() bool { return s.Latent.Index.Top > 0 }

// Port of the keys that layers without an indexer read.
const ChosenPort = "chosen_keys"

// shareKeys joins layers that read the keys that others have chosen with those.
func (m *Model) shareKeys() {
	s := m.Spec
	if !slices.Contains(s.IndexShared, true) {
		return
	}
	m.Ports[ChosenPort] = Port{Width: s.Latent.Index.Top, Integer: true}
	layer := 0
	for i := range m.Blocks {
		x := &m.Blocks[i]
		if !x.Recompute || x.Component != Foundation {
			continue
		}
		if s.IndexShared[layer] {
			x.Takes = append(slices.Clone(x.Takes), ChosenPort)
		} else if layer+1 < s.Layers && s.IndexShared[layer+1] {
			x.Gives = append(slices.Clone(x.Gives), ChosenPort)
		}
		layer++
		inner := x.Record
		x.Record = func(r *block.Rec, env map[string]*grad.Value) {
			r.Chosen = env[ChosenPort]
			inner(r, env)
			env[ChosenPort] = r.Chosen
		}
	}
}

// Index trains the model's indexers. The factor of their losses is that of one microbatch: the coefficient,
// over the number of microbatches of a step.
func (m *Model) Index(x block.Indexing) {
	if !m.Spec.Indexes() || !x.Trains() {
		return
	}
	_, routers := m.Ports[LossPort]
	m.Ports[LossPort] = onePort(1, 1)
	m.thread(LossPort, func(layer int) bool {
		return !m.Spec.shared(layer) || routers && m.Spec.MLPs[layer] == experts
	})
	for i := range m.Blocks {
		inner := m.Blocks[i].Record
		m.Blocks[i].Record = func(r *block.Rec, env map[string]*grad.Value) {
			r.Indexing, r.Routing.Loss = x, env[LossPort]
			inner(r, env)
			env[LossPort] = r.Routing.Loss
		}
	}
}

// shared reports whether a layer has no indexer of its own.
func (s Spec) shared(layer int) bool { return len(s.IndexShared) > 0 && s.IndexShared[layer] }

// IndexerParam reports whether a parameter is of an indexer.
func IndexerParam(name string) bool { return strings.Contains(name, ".indexer.") }

// Indexed reads the keys of an indexer too, and holds lists of layers' kinds that say what others say too.
func Indexed(f hf.Family) hf.Family {
	f.Has = slices.Concat(f.Has, indexKeys)
	f.Idle = slices.Concat(f.Idle, []string{"layer_types", "mlp_layer_types", "indexer_rope_interleave",
		"index_topk_freq", "index_skip_topk_offset", "index_topk_pattern"})
	type keys struct {
		First  int      `key:"first_k_dense_replace"`
		Mixers []string `key:"layer_types"`
		MLPs   []string `key:"mlp_layer_types"`
	}
	dense := 3 // as transformers has it where a file says nothing
	if text, ok := f.Absent["first_k_dense_replace"]; ok {
		dense = WholeOf(text)
	}
	f.Own = append(f.Own, hf.Keys(keys{First: dense}, func(k keys, d *hf.Decoder) {
		kindsAre(d, "layer_types", k.Mixers, func(int) string { return "indexed_attention" })
		if slices.Contains(f.Has, "mlp_layer_types") {
			return // each layer may be either
		}
		kindsAre(d, "mlp_layer_types", k.MLPs, func(i int) string {
			if i < k.First {
				return "dense"
			}
			return "sparse"
		})
	}))
	return f
}

// kindsAre holds a list of kinds, if the file has one, to what each layer has.
func kindsAre(d *hf.Decoder, key string, kinds []string, want func(layer int) string) {
	for i, kind := range kinds {
		if kind != want(i) {
			d.Fail(key, fmt.Sprintf("layer %d is %q, only %q can be trained there", i, kind, want(i)), "")
			return
		}
	}
}
