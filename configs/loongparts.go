package configs

import (
	"slices"
	"strings"
)

// Overrides of the parts of a model that no LoongForge file describes: launch scripts give --model-name with
// +model.image_encoder.freeze=True.

// loongParts are the parts of composed models.
var loongParts = []string{"foundation", "image_encoder", "image_projector"}

// isPart reports whether a key lies in one of them.
func isPart(key string) bool {
	words := strings.SplitN(key, ".", 3)
	return len(words) == 3 && words[0] == "model" && slices.Contains(loongParts, strings.ReplaceAll(words[1], "-", "_"))
}

// partOverrides enters overrides of parts where the model is not one of LoongForge's files.
func (l *loader) partOverrides() {
	if l.loongPath != "" || len(l.loongArgs) == 0 {
		return
	}
	h := &hydra{l: l, root: ".", tree: newMapping(Origin{Layer: layerTop})}
	for _, arg := range l.loongArgs {
		h.override(arg)
	}
	h.resolve(h.tree, nil)
	v := &loongVLM{l: l, m: h.tree.at("model")}
	for _, part := range loongParts {
		n := v.m.at(part)
		switch {
		case n == nil:
		case part == "foundation":
			l.loongDecoder(n, "model.foundation.", "model.*", "lm_head.*")
		default:
			v.partKeys(part, n)
		}
	}
	if len(l.frozen) > 0 {
		l.add(setting{table().byName["freeze"], listNode(l.frozen), l.frozenAt})
	}
}

// partKeys enters keys of an encoder or a projector whose class is not known.
func (v *loongVLM) partKeys(part string, n *hydraNode) {
	pattern := map[string]string{"image_encoder": "visual.*", "image_projector": "projector.*"}[part]
	for _, name := range n.keys {
		kid, key := n.kids[name], "model."+part+"."+name
		switch {
		case v.shared(part, name, kid, pattern):
		case part == "image_encoder" && name == "tensor_model_parallel_size" && kid.kids == nil:
			v.set("plan.encoder.tp", kid.value, kid.o)
			v.l.encoderTP = kid.o
		case part == "image_encoder" && loongVisionKeys[name] != "" && kid.kids == nil:
			v.set(visionKey+loongVisionKeys[name], kid.value, kid.o)
		default:
			known := append(sortedKeys(loongVisionKeys), "freeze", "tensor_model_parallel_size", "recompute_granularity", "lr")
			if part == "image_projector" {
				known = []string{"freeze", "recompute_granularity", "lr"}
			}
			try := didYouMean(name, known)
			if try == "" {
				try = "give the model as a file, --config-file, to change what it is made of"
			}
			v.l.fail(kid.o, key, "unknown key of a published model's part", try)
		}
	}
}
