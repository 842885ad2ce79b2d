package family

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Gemma 3 with images: SigLIP's tower, means of squares of its patches, and the language model, in which the
// tokens of an image see each other both ways. Names are those of transformers 5; older checkpoints have the
// tower below vision_model.
var _ = Register(Family{ModelType: "gemma3", Paper: "2503.19786", Composed: &hf.Composed{
	Class: "Gemma3ForConditionalGeneration", Text: "gemma3_text",
	Vision: map[string]string{"num_hidden_layers": "depth", "num_attention_heads": "num_heads",
		"num_channels": "in_channels"},
	Preset: map[string]string{"projector": `"gemma3"`, "projector_hidden_act": `"gelu"`},
	Kinds: map[string]hf.TowerKeys{"siglip_vision_model": {Preset: map[string]string{"kind": `"siglip"`,
		"hidden_size": "768", "intermediate_size": "3072", "depth": "12", "num_heads": "12",
		"image_size": "224", "patch_size": "16", "hidden_act": `"gelu_pytorch_tanh"`,
		"layer_norm_eps": "1e-6", "vision_use_head": "true"}}},
	Top: map[string]string{"image_token_index": "vision.image_token_id",
		"boi_token_index": "vision.vision_start_token_id", "eoi_token_index": "", "mm_tokens_per_image": ""},
	Rest: gemmaFeatures, Write: writeGemma},
	Build: func(c configs.Model) *Model {
		names := map[string]string{"projector.": "multi_modal_projector."}
		build := func(tower string) *Model { return composed("gemma3", c, tower, names, decoderSource(c)) }
		m := build("vision_tower.")
		m.Other = gemmaProjector(build("vision_tower.vision_model.").Source)
		m.Source = gemmaProjector(m.Source)
		m.Source, m.Other = inTransformers(m.Source, besideDecoder...), inTransformers(m.Other, besideDecoder...)
		for i, x := range m.Modalities {
			if v, ok := x.(images); ok {
				m.Modalities[i] = seeing{v}
			}
		}
		m.keep()
		return m
	}})

var _ = registerProjector("gemma3", projector{
	build: func(c configs.Model, t *block.Tower) joiner {
		return &block.Pool{Tower: t, Out: c.Hidden, Norm: block.Norm{Eps: c.Vision.Eps, Plus: 1}}
	}})

// gemmaProjector names the parts of the projector, whose matrix the checkpoint keeps as [tower decoder].
func gemmaProjector(own func(string) Source) func(string) Source {
	return func(name string) Source {
		s := own(name)
		switch name {
		case "projector.norm.weight":
			s.Name = "multi_modal_projector.mm_soft_emb_norm.weight"
		case "projector.proj.weight":
			s.Name, s.Turned = "multi_modal_projector.mm_input_projection_weight", true
		}
		return s
	}
}

// gemmaFeatures reads how many features an image has, and its marks.
func gemmaFeatures(d *hf.Decoder, raw, vision map[string]json.RawMessage) {
	number := func(m map[string]json.RawMessage, key string, otherwise int) int {
		if m[key] != nil && json.Unmarshal(m[key], &otherwise) != nil {
			d.Fail(key, string(m[key])+" is not a whole number", "")
		}
		return otherwise
	}
	first, last := number(raw, "boi_token_index", 255999), number(raw, "eoi_token_index", 256000)
	if last != first+1 {
		d.Fail("eoi_token_index", fmt.Sprintf("%d, only the token behind boi_token_index, %d, can be "+
			"trained", last, first+1), "")
	}
	tokens := number(raw, "mm_tokens_per_image", 256)
	patches := number(vision, "image_size", 224) / max(1, number(vision, "patch_size", 16))
	side := int(math.Round(math.Sqrt(float64(max(tokens, 0)))))
	if side < 1 || side*side != tokens || patches%side != 0 {
		d.Fail("mm_tokens_per_image", fmt.Sprintf("%d, want a square number whose root divides the "+
			"%d patches of an image's side", tokens, patches), "")
		return
	}
	d.Set("vision.merge", fmt.Sprint(patches/side))
	d.Set("vision.vision_start_token_id", fmt.Sprint(first))
	d.Set("vision.image_token_id", fmt.Sprint(number(raw, "image_token_index", 262144)))
}

// writeGemma writes the tower and its features as transformers names them.
func writeGemma(m hf.Values, out map[string]any, _ func(string, any)) {
	side := m.Int("vision.image_size") / max(1, m.Int("vision.patch_size")) / max(1, m.Int("vision.merge"))
	out["vision_config"] = map[string]any{"model_type": "siglip_vision_model",
		"hidden_size": m["vision.hidden_size"], "intermediate_size": m["vision.intermediate_size"],
		"num_hidden_layers": m["vision.depth"], "num_attention_heads": m["vision.num_heads"],
		"num_channels": m["vision.in_channels"], "image_size": m["vision.image_size"],
		"patch_size": m["vision.patch_size"], "hidden_act": m["vision.hidden_act"],
		"layer_norm_eps": m["vision.layer_norm_eps"], "vision_use_head": m["vision.vision_use_head"]}
	for _, key := range []string{"image_token_id", "vision_start_token_id", "projector_hidden_act", "downsample_ratio"} {
		delete(out, key)
	}
	first := m.Int("vision.vision_start_token_id")
	out["image_token_index"], out["boi_token_index"], out["eoi_token_index"] = m["vision.image_token_id"], first,
		first+1
	out["mm_tokens_per_image"] = side * side
}

// seeing are images whose tokens see each other both ways. As positions on two axes, every query has the last
// key that it sees and its own row, every key its row twice.
type seeing struct{ images }

// The tensors of what is seen, a row a token.
const seenBy, seenRows = "see.queries", "see.keys"

// TokenTensors implements Rowed.
func (p seeing) TokenTensors() []string { return append(p.images.TokenTensors(), seenBy, seenRows) }

// Tensors implements Modality.
func (p seeing) Tensors(in *Inputs, s block.Shape) map[string]*tensor.Tensor {
	out := p.images.Tensors(in, s)
	if s.Dim(block.Patches) == 0 {
		return out
	}
	queries, keys := tensor.Make(tensor.I32, in.Rows, 3), tensor.Make(tensor.I32, in.Rows, 3)
	for i := range in.Rows {
		copy(queries.I32()[3*i:], []int32{int32(i), int32(i), 0})
		copy(keys.I32()[3*i:], []int32{int32(i), int32(i), 0})
	}
	for _, g := range in.Images.Grids {
		for _, span := range g.Spans {
			for at := span[0]; at < span[1]; at++ {
				queries.I32()[3*at] = span[1] - 1
			}
		}
	}
	out[seenBy], out[seenRows] = queries, keys
	return out
}

// seesImages lets queries see the whole of their own image, as far as a window reaches back.
func seesImages(r *block.Rec, c *grad.AttentionConfig) {
	if r.Shape.Dim(block.Patches) == 0 {
		return
	}
	near := []int32{-1, 0, int32(c.Window) - 1, -1, -1, -1}
	c.PosQ = r.T.Data(seenBy, tensor.I32, r.Shape.Rows, 3)
	c.PosK = r.T.Data(seenRows, tensor.I32, r.Shape.Rows, 3)
	c.Near = r.T.ConstI32(fmt.Sprintf("see.%d", c.Window), near)
	c.Causal, c.Window = false, 0
}
