package configs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
)

// Indexer says how the indexers of sparse attention are trained.
type Indexer struct {
	Stage string  `key:"stage" default:"sparse" oneof:"sparse|warmup|frozen" class:"fixed" doc:"What indexers of sparse attention learn from (DeepSeek-V3.2's report, section 2.1): warmup is the stage before sparse attention, in which attention reads all keys, the indexer learns from all of them, and nothing else is trained; in sparse attention reads the chosen keys, the indexer learns from these, and the model is trained too; frozen leaves indexers as they are."`
	Coef  float64 `key:"loss_coef" flag:"dsa-indexer-loss-coeff" default:"1" min:"0" class:"fixed" doc:"Factor on the loss of each indexer: how far its distribution over keys is from attention's. It reaches nothing but the indexer, and is part of the loss that is reported."`
}

// Check implements section.
func (x *Indexer) Check(at faults) {
	if x.Coef == 0 && x.Stage == "warmup" {
		at.fault("train.indexer.loss_coef", "is 0, so that train.indexer.stage: warmup trains nothing", "set it to 1")
	}
}

// IndexFull and IndexShared are the kinds of layers that indexer_types names.
const (
	IndexFull   = "full"
	IndexShared = "shared"
)

// sparseWords are arguments of Megatron's about sparse attention whose meaning depends on the model.
var sparseWords = source.Set("experimental-attention-variant", "dsa-indexer-use-sparse-loss", "dsa-indexer-topk-freq",
	"dsa-indexer-skip-topk-offset", "dsa-indexer-rope-interleaved", "dsa-indexer-k-norm-epsilon")

// sparse enters what the words about sparse attention mean for the model.
func (l *loader) sparse(name string, f hf.Family) {
	sparse := slices.Contains(f.Has, "index_topk")
	for _, w := range source.SortedKeys(sparseWords) {
		have, ok := l.words[w]
		switch value := have.node; {
		case !ok:
		case !sparse:
			if w != "experimental-attention-variant" || value.Value != "null" {
				l.wrong(w, name+" has no sparse attention", "")
			}
		case w == "experimental-attention-variant" && value.Value != "dsa":
			l.wrong(w, fmt.Sprintf("%s, but %s has dsa", source.Quoted(value.Value), name), "")
		case w == "dsa-indexer-use-sparse-loss" && !l.on(w):
			l.wrong(w, "with sparse attention the indexer learns from the chosen keys; from all keys it learns "+
				"before, in a stage of its own", "set train.indexer.stage=warmup")
		case w == "dsa-indexer-rope-interleaved" && l.on(w) != f.IndexPairs:
			l.wrong(w, fmt.Sprintf("%s, but the indexer of %s has it %t", value.Value, name, f.IndexPairs), "")
		}
	}
	if x, ok := l.number("dsa-indexer-k-norm-epsilon"); ok && sparse && x != 1e-6 {
		l.wrong("dsa-indexer-k-norm-epsilon", "the norm of the indexer's keys has 1e-6", "")
	}
	if sparse {
		l.sharedWords(f)
	}
}

// sharedWords enters which layers read the keys that an earlier one has chosen.
func (l *loader) sharedWords(f hf.Family) {
	const freq = "dsa-indexer-topk-freq"
	every, ok := l.number(freq)
	first := 0.0
	if x, ok := l.number("dsa-indexer-skip-topk-offset"); ok {
		first = x
	}
	text, _ := l.preset(overrides + ".num_hidden_layers")
	layers, err := strconv.Atoi(text)
	if !ok || every <= 1 || err != nil {
		return
	}
	if !slices.Contains(f.Has, "indexer_types") {
		l.wrong(freq, "all layers of the family have an indexer of their own", "")
		return
	}
	l.put(overrides+".indexer_types", "["+strings.Join(IndexerKinds(layers, int(every), int(first)), ", ")+"]", freq)
}

// IndexerKinds are the kinds of layers of which, after the first ones, each so many-th has an indexer.
func IndexerKinds(layers, every, first int) []string {
	kinds := make([]string, layers)
	for i := range kinds {
		if kinds[i] = IndexFull; max(i-first+1, 0)%every != 0 {
			kinds[i] = IndexShared
		}
	}
	return kinds
}
