package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

// Peaks says whether greatest scores of attention are kept, and what shrinks by them.
func Peaks(c *configs.Config) block.Peaks {
	q := c.Run.Optimizer.QKClip
	return block.Peaks{Keep: q.Limit > 0 || c.Run.Log.AttentionLogits, Limit: q.Limit, Power: q.Alpha}
}

// peaks holds optimizer.qk_clip and log.attention_logits to the model and the plan.
func (r rules) peaks() {
	c := &r.c.Run
	key := "optimizer.qk_clip.limit"
	if c.Optimizer.QKClip.Limit == 0 {
		if key = "log.attention_logits"; !c.Log.AttentionLogits {
			return
		}
	}
	why := ""
	for i, p := range r.m.Spec.Attentions() {
		if of, ok := p.(block.Peaked); ok {
			if why = of.NoPeaks(); why != "" {
				r.at(key, fmt.Sprintf("layer %d: %s", i, why), "remove it")
				return
			}
		}
	}
	switch {
	//lfvet:kind scores are limited in decoders alone
	case r.c.Model.Denoises() || r.m.Vision != nil && r.m.Spec.Layers == 0 || len(r.m.Spec.Attentions()) == 0:
		r.at(key, "it is for decoders of language models", "remove it")
	case c.Plan.CP > 1:
		r.at(key, fmt.Sprintf("plan.cp = %d: a member sees a part of the keys, or of the heads", c.Plan.CP),
			"set it to 1")
	case c.Plan.ChunkSize > 0 && slices.ContainsFunc(r.m.Spec.Attentions(), windowed):
		r.at(key, "plan.chunk_size has layers with a window read the chunks that it reaches one by one", "leave it out")
	case c.Optimizer.QKClip.Limit > 0 && r.halfFrozen() != "":
		r.at(key, "freeze leaves "+r.halfFrozen()+" as it is, and what is left cannot bring scores to the limit",
			"freeze queries and keys, or neither")
	case c.Optimizer.QKClip.Limit > 0 && Lora(r.c) != nil:
		r.at(key, "what adapters add to queries and keys would not shrink with their layers", "remove it, or lora.rank")
	}
}

// windowed reports whether a layer's queries see a window of the keys.
func windowed(p block.Part) bool {
	a, ok := p.(block.Attn)
	return ok && a.Window > 0
}

// halfFrozen is a projection of queries or keys that is frozen where the other one of its layer is not, "" for none.
func (r rules) halfFrozen() string {
	frozen, first := Frozen(r.c), map[string]bool{}
	for _, p := range r.m.Params(nil) {
		module, of, ok := strings.Cut(p.Name, ".self_attn.")
		switch of {
		case "q_proj.weight", "q_b_proj.weight", "k_proj.weight", "k_b_proj.weight":
			if was, seen := first[module]; ok && seen && was != frozen(p.Name) {
				return p.Name
			}
			first[module] = frozen(p.Name)
		}
	}
	return ""
}
