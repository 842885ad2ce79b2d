package layout

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// adapted reports whether a linear of indexers has an adapter.
func adapted(l *block.Lora) bool {
	return l.Match("model.layers.0.self_attn.indexer.wq_b") || l.Match("model.layers.0.self_attn.indexer.wk")
}

// indexing adds what a run file says of indexers to the model.
func indexing(c *configs.Config, m *family.Model) error {
	x, key := c.Run.Train.Indexer, "train.indexer.stage"
	switch {
	case !m.Spec.Indexes() && x.Stage != "sparse":
		return c.Fault(key, "the model has no sparse attention", "remove it")
	case !m.Spec.Indexes() && x.Coef != 1:
		return c.Fault("train.indexer.loss_coef", "the model has no sparse attention", "remove it")
	case x.Stage == "warmup" && c.Run.LoRA.Rank > 0:
		return c.Fault(key, "warmup trains indexers alone, and lora adapters alone", "remove one of the two")
	case x.Stage == "frozen", c.Run.LoRA.Rank > 0 && !adapted(Lora(c)):
		return nil
	}
	m.Index(block.Indexing{Scale: x.Coef / float64(c.Microbatches()*c.Run.Plan.DP), Dense: x.Stage == "warmup"})
	return nil
}
