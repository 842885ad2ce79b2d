package towers

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/family"
)

// A pair of one's own: any vision tower with any dense decoder. Its checkpoints have the tower below
// vision_tower, with the names of the tower's own model, the projector below multi_modal_projector and the
// decoder below language_model, as LLaVA's have.
var _ = family.Register(family.Family{ModelType: "vlm", Paper: "2304.08485",
	// with our keys
	Composed: &hf.Composed{Write: func(m hf.Values, out map[string]any, _ func(string, any)) {
		out["vision_config"] = m["vision"]
	}}, Build: func(c configs.Model) *family.Model {
		return family.ComposedModel("vlm", c, "vision_tower.", linearProjector, decoderSource(c))
	}})
