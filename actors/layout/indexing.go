package layout

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
)

// adapted reports whether a linear of indexers has an adapter.
func adapted(l *block.Lora) bool {
	return l.Match("model.layers.0.self_attn.indexer.wq_b") || l.Match("model.layers.0.self_attn.indexer.wk")
}

// indexing adds what a run file says of indexers to the model.
func indexing(c *configs.Config, m *family.Model) {
	x, lora := c.Run.Train.Indexer, fit.Lora(c)
	if !m.Spec.Indexes() || x.Stage == "frozen" || lora != nil && !adapted(lora) {
		return
	}
	m.Index(block.Indexing{Scale: x.Coef / float64(c.Microbatches()*c.Run.Plan.DP), Dense: x.Stage == "warmup"})
}
